//! `fencepost claim` and `fencepost fence`.

use clap::{Args, Subcommand};
use fencepost_core::wire::{ClaimedValue, FenceAnswer, TextOrBase64};
use fencepost_core::{Key, Resource};

use super::connect::{Connect, ListArgs, TokenArgs};
use super::exit::{self, Failed};

#[derive(Args)]
pub(super) struct Claim {
    /// Resource to claim
    #[arg(value_parser = Resource::new)]
    resource: Resource,
    /// Key to read in the same instant; may be repeated [default: the key of that name]
    #[arg(long = "key", value_name = "KEY", value_parser = Key::new)]
    keys: Vec<Key>,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Subcommand)]
pub(super) enum Fence {
    /// Show one fence, also of a resource never seen
    Show(Show),
    /// List fences
    List(ListArgs),
    /// Start a new generation: all tokens handed out so far are refused (administrators only)
    Rotate(super::admin::Rotate),
}

#[derive(Args)]
pub(super) struct Show {
    /// Resource to show
    #[arg(value_parser = Resource::new)]
    resource: Resource,
    #[command(flatten)]
    connect: Connect,
}

impl Claim {
    pub(super) fn run(self) -> Result<(), Failed> {
        let credentials = self.token.credentials();
        let credentials = credentials.ok_or_else(|| Failed::usage("a claim needs --token (or FENCEPOST_TOKEN)"))?;
        let keys = (!self.keys.is_empty()).then_some(self.keys);
        let resource = self.resource;
        let claimed = self.connect.call(async |gateway| gateway.claim(&resource, &credentials, keys).await)?;
        if self.connect.json {
            return super::print(&serde_json::to_string(&claimed).map_err(Failed::other)?);
        }
        let fence = claimed.fence.map_or_else(|| "none".to_owned(), |fence| fence.token.to_string());
        let mut lines = format!("claimed {resource}, fence {fence}\n");
        for value in &claimed.values {
            lines.push_str(&match value {
                ClaimedValue::Absent { key, .. } => format!("{key}: no value\n"),
                ClaimedValue::Present { key, etag, value: TextOrBase64::Text(text), .. } => {
                    format!("{key} (version {etag}): {text}\n")
                }
                ClaimedValue::Present { key, etag, value: TextOrBase64::Base64(text), .. } => {
                    format!("{key} (version {etag}, base64): {text}\n")
                }
            });
        }
        exit::write_text(&lines)
    }
}

impl Fence {
    pub(super) fn run(self) -> Result<(), Failed> {
        match self {
            Fence::Show(show) => show.run(),
            Fence::List(args) => list(&args),
            Fence::Rotate(rotate) => rotate.run(),
        }
    }
}

fn line(answer: &FenceAnswer) -> String {
    match &answer.fence {
        None => format!("{}: no token seen in generation {}", answer.resource, answer.generation),
        Some(fence) => {
            let holder = fence.holder.as_ref().map(|holder| format!(", raised by {holder}")).unwrap_or_default();
            let at = fence.raised_at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
            let issuer = fence.issuer.as_ref().map(|issuer| format!(", numbered by {issuer}")).unwrap_or_default();
            let generation = answer.generation;
            format!("{}: fence {}{holder}{at}{issuer}, generation {generation}", answer.resource, fence.token)
        }
    }
}

impl Show {
    fn run(self) -> Result<(), Failed> {
        let resource = self.resource;
        let answer = self.connect.call(async |gateway| gateway.fence(&resource).await)?;
        if self.connect.json {
            return super::print(&serde_json::to_string(&answer).map_err(Failed::other)?);
        }
        super::print(&line(&answer))
    }
}

fn list(list: &ListArgs) -> Result<(), Failed> {
    let page =
        list.connect.call(async |gateway| gateway.fences(&list.prefix, list.after.as_deref(), list.limit).await)?;
    let lines: String = page.fences.iter().map(|answer| line(answer) + "\n").collect();
    list.print(&page, &lines, page.next.as_deref())
}
