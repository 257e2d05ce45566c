//! `fencepost objects`: compare the index of a running gateway with its storage, and remove leftovers.

use clap::{Args, Subcommand};
use fencepost_core::wire::{ObjectsCheckAnswer, ObjectsCheckRequest, ObjectsCollectRequest};

use super::admin::AdminArgs;
use super::exit::{self, Failed};
use crate::quantity::Span;

#[derive(Subcommand)]
pub(super) enum Objects {
    /// Compare the index with the storage and say what differs (administrators only)
    Check(Check),
    /// Remove bytes of uploads that were never finished, and uploads in parts of fenced holders (administrators only)
    Collect(Collect),
}

#[derive(Args)]
pub(super) struct Check {
    /// Only this bucket [default: all of them]
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// Believe the storage: take unknown and changed files into the index, and what is missing out of it; fences stay
    #[arg(long)]
    adopt: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Args)]
pub(super) struct Collect {
    /// Only what belongs to nothing for so long, and unfinished uploads of fenced holders with which nothing was done for so long; an upload that takes longer has to begin again
    #[arg(long, value_name = "TIME", default_value = "24h")]
    older_than: Span,
    /// Only say how much there is
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

impl Objects {
    pub(super) fn run(self) -> Result<(), Failed> {
        match self {
            Objects::Check(check) => check.run(),
            Objects::Collect(collect) => collect.run(),
        }
    }
}

impl Check {
    /// Checks page by page, with progress on standard error. A difference that was not repaired is a failure.
    fn run(self) -> Result<(), Failed> {
        let Check { bucket, adopt, admin } = self;
        let mut request = ObjectsCheckRequest { bucket, after: None, adopt };
        let mut all = ObjectsCheckAnswer::default();
        loop {
            let page = admin.call(async |admin| admin.check_objects(&request).await)?;
            all.looked_at += page.looked_at;
            all.mended += page.mended;
            if !admin.json {
                for difference in &page.differences {
                    super::print(&format!("{}: {}: {}", difference.what, difference.name, difference.detail))?;
                }
            }
            all.differences.extend(page.differences);
            match page.next {
                Some(next) => {
                    if all.looked_at >= 10_000 {
                        exit::note(&format!("{} names looked at, up to {next}", all.looked_at));
                    }
                    request.after = Some(next);
                }
                None => break,
            }
        }
        let left = all.differences.len() - all.mended.min(all.differences.len());
        match admin.json {
            true => super::print(&serde_json::to_string(&all).map_err(Failed::other)?)?,
            false => super::print(&format!(
                "{} objects looked at, {} differences, {} repaired",
                all.looked_at,
                all.differences.len(),
                all.mended
            ))?,
        }
        let count = |what: &str| all.differences.iter().filter(|difference| difference.what == what).count();
        match left {
            0 => Ok(()),
            _ if adopt => Err(Failed::other(format!(
                "{left} could not be repaired: what is foreign never becomes an object; move it away. Of the others the line \
                 says why"
            ))),
            _ if count("missing") > 0 => Err(Failed::other(format!(
                "index and storage differ, and {} objects are missing: is the right disk mounted? Only if the files are right \
                 as they are: `fencepost objects check --adopt` takes what is missing OUT of the index, for good, and the \
                 rest in",
                count("missing")
            ))),
            _ => Err(Failed::other(
                "index and storage differ. Only the gateway may write the directory; if the files are right as they are, \
                 `fencepost objects check --adopt` takes them in",
            )),
        }
    }
}

impl Collect {
    fn run(self) -> Result<(), Failed> {
        let request = ObjectsCollectRequest { older_than_s: self.older_than.0.as_secs(), dry_run: self.dry_run };
        let answer = self.admin.call(async |admin| admin.collect_objects(&request).await)?;
        if self.admin.json {
            return super::print(&serde_json::to_string(&answer).map_err(Failed::other)?);
        }
        super::print(&match self.dry_run {
            true => format!(
                "{} leftovers and {} unfinished uploads of fenced holders found; none removed, this was a dry run",
                answer.found, answer.uploads
            ),
            false => format!(
                "{} leftovers removed, {} unfinished uploads of fenced holders ended",
                answer.removed, answer.uploads
            ),
        })
    }
}
