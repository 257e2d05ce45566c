//! `fencepost run`: any program under a lock, with its token in the environment.

use std::ffi::OsString;
use std::future::poll_fn;
use std::io::{IsTerminal, Write as _};
use std::process::ExitStatus;
use std::task::Poll;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use fencepost_client::{AcquireError, Gateway, Guard, LockOptions, Locks, Loss, locks};
use fencepost_core::{Holder, Issuer, Resource};
use rustix::process::{Pid, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Failed;
use crate::quantity::Span;

/// How long giving the lock back may delay the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an acquisition that is given up has to leave the queue.
const GIVE_UP_TIME: Duration = Duration::from_millis(300);

#[derive(Args)]
#[command(after_help = HELP)]
pub(super) struct Run {
    /// URL of the lock service; see `fencepost lock backends`
    #[arg(long, value_name = "URL", env = "FENCEPOST_LOCK", hide_env_values = true)]
    lock: String,
    /// Resource to lock; its fence refuses whoever held the lock before
    #[arg(long, value_name = "NAME", env = "FENCEPOST_RESOURCE", value_parser = Resource::new)]
    resource: Resource,
    /// URL of the gateway
    #[arg(long, value_name = "URL", env = "FENCEPOST_URL", default_value = "http://127.0.0.1:3362")]
    url: String,
    /// How long the lease lasts unless it is renewed, which is done after a third of it
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ttl: Span,
    /// How long to wait while somebody else holds the lock
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
    /// Name in the holder `name#nonce` [default: this machine and process]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Program to run, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const HELP: &str = "\
The program finds FENCEPOST_TOKEN, FENCEPOST_HOLDER, FENCEPOST_ISSUER, FENCEPOST_RESOURCE and FENCEPOST_URL in its
environment; `fencepost kv put` and its like use them. Its exit code is passed on. Without a program to speak of:
  3    the lease was lost, and the program was ended; or the fence refused the lock's token
  8    somebody else holds the lock
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
        // Nothing is left to be done; a release that hangs ends with the ttl.
        runtime.shutdown_background();
        ended
    }

    async fn under_lock(self) -> Result<(), Failed> {
        let mut signals = Signals::catch().map_err(Failed::other)?;
        let guard = tokio::select! {
            guard = self.acquire() => guard?,
            number = signals.next() => {
                // What was begun is given up in the background; whoever waits behind us should not wait for our ttl.
                tokio::time::sleep(GIVE_UP_TIME).await;
                return Err(Failed::silent(128 + number));
            }
        };
        let claimed = Instant::now();
        let mut child = match self.spawn(&guard) {
            Ok(child) => child,
            Err(failed) => {
                give_back(guard).await;
                return Err(failed);
            }
        };
        let ended = self.watch(&guard, &mut child, &mut signals).await;
        // Kept alive meanwhile, as long as there is a guard.
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

    async fn acquire(&self) -> Result<Guard, Failed> {
        let gateway = Gateway::new(&self.url, Duration::from_secs(10)).map_err(Failed::usage)?;
        let backend = locks::connect(&self.lock).await.map_err(failed_service)?;
        let resource = self.resource.clone();
        let warn = move |left: Duration| say(&format!("`{resource}`: the lease cannot be renewed; {left:.1?} left"));
        let usual = LockOptions::with_ttl(self.ttl.0);
        let options = LockOptions {
            name: self.name.clone().unwrap_or(usual.name.clone()),
            wait: self.wait.0,
            min_hold: self.min_hold.0,
            max_hold: self.max_hold.map(|most| most.0),
            on_danger: Some(std::sync::Arc::new(warn)),
            ..usual
        };
        Locks::new(gateway, backend, options).acquire(self.resource.as_str()).await.map_err(failed_acquire)
    }

    fn spawn(&self, guard: &Guard) -> Result<Child, Failed> {
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
        if own_group() {
            command.process_group(0);
        }
        command.spawn().map_err(|error| {
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            Failed::with(code, format!("cannot run {}: {error}", program.to_string_lossy()))
        })
    }

    /// Until the program ends: signals are passed on, and a lost lease ends it.
    async fn watch(&self, guard: &Guard, child: &mut Child, signals: &mut Signals) -> Result<(), Failed> {
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().unwrap_or(0)));
        let mut told = false;
        loop {
            tokio::select! {
                ended = child.wait() => return passed_on(ended.map_err(Failed::other)?),
                number = signals.next() => if !from_terminal(number) { send(pid, i32::from(number)) },
                loss = guard.lost(), if !told => {
                    told = true;
                    let refused = match loss {
                        Loss::TakenOver => "the fence refuses what the program writes from now on",
                        Loss::Expired | Loss::MaxHold => "the fence refuses what the program writes once somebody has taken over",
                    };
                    say(&format!("`{}`: {loss}; {refused}", self.resource));
                    if self.on_lost != OnLost::Notify {
                        return self.end(pid, child).await;
                    }
                }
            }
        }
    }

    /// The lease is lost: the program and all it has started must end.
    async fn end(&self, pid: Option<Pid>, child: &mut Child) -> Result<(), Failed> {
        if self.on_lost == OnLost::Term {
            say("sending TERM to the program");
            send(pid, rustix::process::Signal::TERM.as_raw());
            match tokio::time::timeout(self.grace.0, child.wait()).await {
                // Without a group of its own there is nobody else to be sure of.
                Ok(_) if !own_group() => return Err(lost()),
                Ok(_) => {}
                Err(_) => say(&format!("the program is still there after {}", self.grace)),
            }
        }
        // Also to what the program may have left behind in its group.
        send(pid, rustix::process::Signal::KILL.as_raw());
        let _ = child.wait().await;
        Err(lost())
    }
}

fn lost() -> Failed {
    Failed::with(3, "the lease was lost, and the program was ended".into())
}

/// At a terminal the program stays in our group, so that it may read from it. There Ctrl-C reaches both of us.
fn own_group() -> bool {
    !std::io::stdin().is_terminal()
}

/// Did the terminal send it to the program as well?
fn from_terminal(number: u8) -> bool {
    !own_group() && [SignalKind::interrupt(), SignalKind::quit()].contains(&SignalKind::from_raw(number.into()))
}

/// Sends a signal to the program: to its whole group, if it has one of its own.
fn send(pid: Option<Pid>, number: i32) {
    let (Some(pid), Some(signal)) = (pid, rustix::process::Signal::from_named_raw(number)) else { return };
    // It may have ended.
    let _ = if own_group() { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
}

async fn give_back(guard: Guard) {
    match tokio::time::timeout(RELEASE_TIMEOUT, guard.release()).await {
        Ok(Ok(())) => {}
        // No error of the work: the lease ends with its ttl.
        Ok(Err(error)) => say(&format!("the lock could not be given back, and ends with its ttl: {error}")),
        Err(_) => say("the lock could not be given back in time, and ends with its ttl"),
    }
}

/// A reader of standard error that went away must not end us: the lock has still to be kept.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "fencepost: {line}");
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

pub(super) fn failed_service(error: locks::LockError) -> Failed {
    let code = match error {
        locks::LockError::Unreachable { .. } => 6,
        locks::LockError::Failed { .. } => 1,
        locks::LockError::Refused { .. } => 3,
        locks::LockError::Invalid(_) => 2,
    };
    Failed::with(code, error.to_string())
}

pub(super) fn failed_acquire(error: AcquireError) -> Failed {
    let code = match error {
        AcquireError::Busy(_) | AcquireError::Lost(_) => 8,
        AcquireError::WentBackwards { .. } | AcquireError::ForeignIssuer { .. } | AcquireError::Refused(_) => 3,
        AcquireError::Service(error) => return failed_service(error),
        AcquireError::Gateway(error) => return error.into(),
    };
    Failed::with(code, error.to_string())
}

/// Signals that are passed on.
struct Signals(Vec<(u8, Signal)>);

impl Signals {
    fn catch() -> std::io::Result<Signals> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let caught = kinds.map(|kind| Ok((u8::try_from(kind.as_raw_value()).unwrap_or(0), signal(kind)?)));
        Ok(Signals(caught.into_iter().collect::<std::io::Result<_>>()?))
    }

    /// The number of the next one.
    async fn next(&mut self) -> u8 {
        poll_fn(|cx| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}
