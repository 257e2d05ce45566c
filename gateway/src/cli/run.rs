//! `fencepost run`: any program under a lock, with its token in the environment.

mod job;
mod signals;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use fencepost_client::{Client, Guard, LockOptions, Loss, locks};
use fencepost_core::wire::S3CredentialsAnswer;
use fencepost_core::{Holder, Issuer, Resource};
use rustix::process::Signal;
use tokio::process::Command;

use super::connect::gateway_at;
use super::exit::{Failed, note as say};
use super::s3::{AWS_UNSET, REGION, aws_variables, serves_no_s3};
use super::secret_file::{Input, lock_url};
use crate::quantity::Span;
use job::{Change, Job};
pub(super) use signals::Signals;

/// The variable that may hold the URL of the lock service.
const LOCK_VARIABLE: &str = "FENCEPOST_LOCK";

/// How long the release of the lock may delay the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a call to the gateway may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the gateway may take to issue credentials for its S3 front end.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an acquisition that is given up has to leave the queue, or to release a lock that was granted meanwhile.
pub(super) const GIVE_UP_TIME: Duration = Duration::from_secs(3);

#[derive(Args)]
#[command(after_help = HELP)]
pub(super) struct Run {
    /// URL of the lock service; see `fencepost lock backends`. Others see it in `ps`, with a password in it
    #[arg(
        long,
        value_name = "URL",
        env = "FENCEPOST_LOCK",
        hide_env_values = true,
        required_unless_present = "lock_file"
    )]
    lock: Option<String>,
    /// File with that URL, which only its owner may read
    #[arg(long, value_name = "FILE", env = "FENCEPOST_LOCK_FILE", conflicts_with = "lock")]
    lock_file: Option<PathBuf>,
    /// Resource to lock; its fence refuses earlier holders
    #[arg(long, value_name = "NAME", env = "FENCEPOST_RESOURCE", value_parser = Resource::new)]
    resource: Resource,
    /// URL of the gateway
    #[arg(long, value_name = "URL", env = "FENCEPOST_URL", default_value = "http://127.0.0.1:3362")]
    url: String,
    /// How long the lease lasts unless it is renewed, which is done after a third of it
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ttl: Span,
    /// How long to wait while another holder has the lock
    #[arg(long, value_name = "TIME", default_value = "10s")]
    wait: Span,
    /// What to do with the program when the lease is lost
    #[arg(long, value_name = "WHAT", default_value = "term")]
    on_lost: OnLost,
    /// How long the program has between TERM and KILL
    #[arg(long, value_name = "TIME", default_value = "10s")]
    grace: Span,
    /// Do not give the lock back before this time, however soon the program ends
    #[arg(long, value_name = "TIME", default_value = "0s")]
    min_hold: Span,
    /// Give the lock up after this time, however long the program takes
    #[arg(long, value_name = "TIME")]
    max_hold: Option<Span>,
    /// Leave AWS_* in the program's environment alone, even if the gateway has an S3 front end
    #[arg(long)]
    no_s3: bool,
    /// Name in the holder `name#nonce` [default: this machine and process]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Program to run, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const HELP: &str = "\
The program finds FENCEPOST_TOKEN, FENCEPOST_HOLDER, FENCEPOST_ISSUER, FENCEPOST_RESOURCE and FENCEPOST_URL in its
environment; `fencepost kv put` and its like use them. FENCEPOST_LOCK is passed on without its password. If the gateway has an S3 front end,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, S3_ENDPOINT_URL, AWS_ALLOW_HTTP and AWS_REGION are set too, so that S3 clients
write under the same token.
Its exit code is passed on. Without a program to speak of:
  3    the lease was lost, and the program was ended; or the fence refused the lock's token
  8    another holder has the lock
  126  the program cannot be run          127  there is no such program
  128+N  signal N ended the program, or this command while it waited";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnLost {
    /// TERM, and KILL after the grace
    Term,
    /// KILL at once
    Kill,
    /// Only say so; the fence refuses what it writes
    Notify,
}

impl Run {
    pub(super) fn run(self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
        let ended = runtime.block_on(self.under_lock());
        // Nothing is left to do. If a release hangs, the lease ends with its ttl.
        runtime.shutdown_background();
        ended
    }

    async fn under_lock(self) -> Result<(), Failed> {
        let mut signals = Signals::to_pass_on().map_err(Failed::other)?;
        let acquired = tokio::select! {
            acquired = self.acquire() => acquired,
            number = signals.next() => Err(ended_by(number)),
        };
        let (guard, s3) = match acquired {
            Ok(acquired) => acquired,
            Err(failed) => {
                given_up(&mut signals).await;
                return Err(failed);
            }
        };
        let claimed = Instant::now();
        let mut job = match self.start(&guard, s3.as_ref()) {
            Ok(job) => job,
            Err(failed) => {
                give_back(guard).await;
                return Err(failed);
            }
        };
        let ended = self.watch(&guard, &mut job, &mut signals).await;
        job.take_back();
        // The guard renews the lease meanwhile.
        let longer = self.min_hold.0.saturating_sub(claimed.elapsed());
        if !longer.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(longer) => {}
                _ = signals.next() => {
                    say("the lock is not held for as long as --min-hold says; it ends with its ttl");
                    return ended;
                }
            }
        }
        give_back(guard).await;
        ended
    }

    /// The URL of the lock service.
    fn service(&self) -> Result<String, Failed> {
        match (&self.lock_file, &self.lock) {
            (Some(file), _) => lock_url(file, Input::TheProgram),
            (None, Some(url)) => Ok(url.clone()),
            (None, None) => Err(Failed::usage("name the lock service with --lock or --lock-file")),
        }
    }

    /// Acquires the lock, and credentials for the S3 front end if there is one.
    async fn acquire(&self) -> Result<(Guard, Option<S3CredentialsAnswer>), Failed> {
        let gateway = gateway_at(&self.url, CALL_TIMEOUT)?;
        let resource = self.resource.clone();
        let warn = move |left: Duration| say(&format!("`{resource}`: the lease cannot be renewed; {left:.1?} left"));
        let mut options =
            LockOptions::new().ttl(self.ttl.0).wait(self.wait.0).min_hold(self.min_hold.0).on_danger(warn);
        if let Some(name) = &self.name {
            options = options.name(name);
        }
        if let Some(most) = self.max_hold {
            options = options.max_hold(most.0);
        }
        let client = Client::builder().gateway(gateway).lock_service_url(self.service()?).lock_options(options);
        let guard = client.connect().await?.acquire(self.resource.as_str()).await?;
        let s3 = if self.no_s3 { None } else { s3_credentials(&guard).await? };
        Ok((guard, s3))
    }

    fn start(&self, guard: &Guard, s3: Option<&S3CredentialsAnswer>) -> Result<Job, Failed> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failed::usage("there is no program to run"));
        };
        let mut command = Command::new(program);
        command.args(arguments).kill_on_drop(true);
        command.env("FENCEPOST_TOKEN", guard.token().to_string());
        command.env("FENCEPOST_RESOURCE", guard.resource().as_str());
        command.env("FENCEPOST_URL", &self.url);
        command.env("FENCEPOST_HOLDER", guard.holder().map(Holder::as_str).unwrap_or_default());
        command.env("FENCEPOST_ISSUER", guard.issuer().map(Issuer::as_str).unwrap_or_default());
        // Commands in the program still need to know the lock service, but must not have its password.
        match std::env::var_os(LOCK_VARIABLE).map(|url| url.to_str().and_then(without_password)) {
            Some(Some(url)) => command.env(LOCK_VARIABLE, url),
            Some(None) => command.env_remove(LOCK_VARIABLE),
            None => &mut command,
        };
        if let Some(s3) = s3 {
            for name in AWS_UNSET {
                command.env_remove(name);
            }
            command.envs(aws_variables(s3));
            if std::env::var_os("AWS_REGION").is_none() {
                command.env("AWS_REGION", REGION);
            }
        }
        Job::start(&mut command).map_err(|error| {
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            Failed::with(code, format!("cannot run {}: {error}", program.to_string_lossy()))
        })
    }

    /// Waits until the program ends. Signals are passed on to it, and a lost lease ends it.
    async fn watch(&self, guard: &Guard, job: &mut Job, signals: &mut Signals) -> Result<(), Failed> {
        let mut told = false;
        loop {
            tokio::select! {
                number = signals.next() => if let Some(signal) = Signal::from_named_raw(number) { job.send(signal) },
                loss = guard.lost(), if !told => {
                    told = true;
                    let refused = match loss {
                        Loss::TakenOver => "the fence refuses what the program writes from now on",
                        _ => "the fence refuses what the program writes once another holder has taken over",
                    };
                    say(&format!("`{}`: {loss}; {refused}", self.resource));
                    if self.on_lost != OnLost::Notify {
                        return self.end(job).await;
                    }
                }
                change = job.change() => match change {
                    Change::Ended(status) => return passed_on(status.map_err(Failed::other)?),
                    Change::Program => job.follow(),
                    Change::Stop => job.stop(),
                    // The lease ended meanwhile, and its loss is about to be reported. The program must not continue
                    // before that.
                    Change::Continued if guard.validity().is_zero() && self.on_lost != OnLost::Notify => {}
                    Change::Continued => job.resume(),
                },
            }
        }
    }

    /// The lease is lost: the program and all it has started must end.
    async fn end(&self, job: &mut Job) -> Result<(), Failed> {
        if self.on_lost == OnLost::Term {
            say("sending TERM to the program");
            job.send(Signal::TERM);
            // A stopped program would not handle TERM.
            job.send(Signal::CONT);
            if tokio::time::timeout(self.grace.0, job.child.wait()).await.is_err() {
                say(&format!("the program is still there after {}; sending KILL to it", self.grace));
            }
        } else {
            say("sending KILL to the program");
        }
        // Also to processes that the program may have left behind in its group.
        job.send(Signal::KILL);
        let _ = job.child.wait().await;
        Err(lost())
    }
}

/// Credentials for as long as the gateway allows: the fence ends them with the lock anyway.
async fn s3_credentials(guard: &Guard) -> Result<Option<S3CredentialsAnswer>, Failed> {
    match tokio::time::timeout(CREDENTIALS_TIMEOUT, guard.s3_credentials(None)).await {
        Ok(Ok(credentials)) => Ok(Some(credentials)),
        Ok(Err(error)) if serves_no_s3(&error) => Ok(None),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failed::with(6, "the gateway gave no S3 credentials in time; try again, or pass --no-s3".into())),
    }
}

/// The URL of a lock service without its password, for the program. `None`: it is no such URL.
fn without_password(url: &str) -> Option<String> {
    Some(locks::LockUrl::parse(url).ok()?.without_password())
}

fn lost() -> Failed {
    Failed::with(3, "the lease was lost, and the program was ended".into())
}

/// The end of a command by a signal.
pub(super) fn ended_by(number: i32) -> Failed {
    Failed::silent(128 + u8::try_from(number).unwrap_or(0))
}

/// Waits while an acquisition is given up in the background, so that the next waiter need not wait for our ttl. Another
/// signal ends the wait.
pub(super) async fn given_up(signals: &mut Signals) {
    let tasks = tokio::runtime::Handle::current().metrics();
    let done = async {
        while tasks.num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = done => {}
        () = tokio::time::sleep(GIVE_UP_TIME) => {}
        _ = signals.next() => {}
    }
}

async fn give_back(guard: Guard) {
    match tokio::time::timeout(RELEASE_TIMEOUT, guard.release()).await {
        Ok(Ok(())) => {}
        // Not an error of the program: the lease ends with its ttl.
        Ok(Err(error)) => say(&format!("the lock could not be given back, and ends with its ttl: {error}")),
        Err(_) => say("the lock could not be given back in time, and ends with its ttl"),
    }
}

fn passed_on(status: ExitStatus) -> Result<(), Failed> {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failed::silent(u8::try_from(code).unwrap_or(1))),
        (None, Some(signal)) => Err(Failed::silent(128 + u8::try_from(signal).unwrap_or(0))),
        (None, None) => Err(Failed::silent(1)),
    }
}
