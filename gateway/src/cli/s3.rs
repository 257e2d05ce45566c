//! `fencepost s3`: credentials for clients of the S3 front end.

mod formats;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fencepost_client::locks::LockUrl;
use fencepost_client::{Client, Detached, Error, LockOptions};
use fencepost_core::{Issuer, Presented, ProblemKind, Resource};

use super::connect::{Connect, TokenArgs};
use super::exit::{self, Failed};
use super::lock::elsewhere;
use super::run::GIVE_UP_TIME;
use super::secret_file::{Input, lock_url};
use crate::quantity::Span;
pub(super) use formats::{AWS_UNSET, REGION, aws_variables};
use formats::{Format, Given};

#[derive(Subcommand)]
pub(super) enum S3 {
    /// Get credentials for the S3 front end that carry the token of a lock
    Credentials(Box<Credentials>),
}

#[derive(Args)]
#[command(after_help = HELP)]
pub(super) struct Credentials {
    // Not from FENCEPOST_LOCK, which a program under `fencepost run` may inherit: it would lock again.
    /// URL of a lock service whose lock is taken first; or token:34, a token that you have already
    #[arg(long, value_name = "URL")]
    lock: Option<String>,
    /// File with that URL, which only its owner may read; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "lock")]
    lock_file: Option<PathBuf>,
    /// Resource that the token is of; what may be written with the credentials
    #[arg(long, value_name = "NAME", env = "FENCEPOST_RESOURCE", value_parser = Resource::new)]
    resource: Resource,
    /// How long the lease of a lock that is taken lasts unless it is renewed
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ttl: Span,
    /// How long to wait while another holder has the lock
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Span,
    /// How long the credentials last [default: as long as the gateway allows]
    #[arg(long, value_name = "TIME")]
    credentials_ttl: Option<Span>,
    /// What to print
    #[arg(long, value_name = "FORMAT", default_value = "env")]
    format: Format,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    connect: Connect,
}

const HELP: &str = "\
Without --lock, the token is the one of --token or FENCEPOST_TOKEN, as it is set under `fencepost run`: no lock is taken, and
the credentials are new ones for the same lease. With --lock the lock is taken and its lease left to its ttl; renew it with
`fencepost lock renew`, or let `fencepost run` do it all.

  eval \"$(fencepost s3 credentials --lock redis://127.0.0.1:6379 --resource reports/daily)\"
  aws s3 cp report.csv s3://reports/daily/report.csv

Credentials whose token is stale are refused by the gateway, however long they last. Nothing gets a fresh token silently.";

impl S3 {
    pub(super) fn run(self) -> Result<(), Failed> {
        match self {
            S3::Credentials(credentials) => credentials.run(),
        }
    }
}

impl Credentials {
    fn run(mut self) -> Result<(), Failed> {
        if self.connect.json {
            self.format = Format::Json;
        }
        let lock = match self.lock_file.take() {
            Some(file) => Some(lock_url(&file, Input::Ours)?),
            None => self.lock.take(),
        };
        match lock {
            Some(url) => match given(&url)? {
                Some(presented) => self.again(presented),
                None => self.under_a_new_lock(&url),
            },
            None => match self.token.clone().credentials() {
                Some(presented) => self.again(presented),
                None => Err(Failed::usage(
                    "there is no token: take a lock with --lock URL, or give the token of one that you hold with --token or \
                     FENCEPOST_TOKEN",
                )),
            },
        }
    }

    /// Gets credentials for a token that the caller already has. No lock is acquired.
    fn again(&self, presented: Presented) -> Result<(), Failed> {
        let ttl = self.credentials_ttl.map(|ttl| ttl.0);
        let issued =
            self.connect.call(async |gateway| gateway.s3_credentials(&self.resource, &presented, ttl).await)?;
        exact(&self.format.of(&Given { issued, presented, lease: None })?)
    }

    fn under_a_new_lock(self, url: &str) -> Result<(), Failed> {
        if self.format == Format::CredentialProcess {
            return Err(Failed::usage(
                "--format credential-process takes no lock: programs run it again whenever their credentials expire, and a \
                 worker that was taken over would get a fresh token by it. Give it the token of a lock that you hold: \
                 --lock token:34, or FENCEPOST_TOKEN as under `fencepost run`",
            ));
        }
        let options = LockOptions::new().ttl(self.ttl.0).wait(self.wait.0);
        elsewhere(&self.connect, url, options, async |client: Client| {
            let taken = client.acquire_detached(self.resource.as_str()).await?;
            let mut lease = Unknown { client, taken: Some(taken.clone()) };
            let ttl = self.credentials_ttl.map(|ttl| ttl.0);
            // Dropped with this block: its open connection would look like an acquisition to be given up.
            let gateway = self.connect.gateway()?;
            let issued = gateway.s3_credentials(&self.resource, &taken.credentials, ttl).await?;
            let given = Given { issued, presented: taken.credentials, lease: Some(taken.lease) };
            exact(&self.format.of(&given)?)?;
            lease.taken = None;
            Ok(())
        })
    }
}

/// A lease that was not printed yet. Dropping it releases it.
struct Unknown {
    client: Client,
    taken: Option<Detached>,
}

impl Drop for Unknown {
    fn drop(&mut self) {
        if let (Some(taken), Ok(runtime)) = (self.taken.take(), tokio::runtime::Handle::try_current()) {
            let client = self.client.clone();
            runtime.spawn(async move {
                let release = client.release_detached(&taken.resource, &taken.lease);
                let _ = tokio::time::timeout(GIVE_UP_TIME, release).await;
            });
        }
    }
}

/// Prints a text unescaped, for shells and programs.
fn exact(text: &str) -> Result<(), Failed> {
    exit::write(format!("{text}\n").as_bytes())
}

/// The token in `token:2:34?issuer=redis:9f2c`. `None`: it is the URL of a service.
///
/// It has no holder: `fencepost run --lock token:34` presents the token under a new one, which would be a second
/// acquisition.
fn given(url: &str) -> Result<Option<Presented>, Failed> {
    let Some(token) = url.strip_prefix("token:") else { return Ok(None) };
    let parsed = LockUrl::parse(url).map_err(Failed::usage)?;
    parsed.only(&["issuer"]).map_err(Failed::usage)?;
    let token = token.split('?').next().unwrap_or_default().trim_start_matches('/');
    let token = token.parse().map_err(Failed::usage)?;
    let issuer = parsed.setting("issuer").map(Issuer::new).transpose().map_err(Failed::usage)?;
    Ok(Some(Presented { token, holder: None, issuer }))
}

/// Whether the gateway answered that it serves no S3. A gateway older than the S3 front end does not know the path.
pub(super) fn serves_no_s3(error: &Error) -> bool {
    let kind = error.problem().and_then(|problem| problem.kind());
    matches!(kind, Some(ProblemKind::NoS3Face | ProblemKind::NoSuchRoute))
}
