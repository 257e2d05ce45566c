//! `fencepost lock`: the built-in lock service, and any other whose leases outlive a process.

use std::future::Future;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use fencepost_client::locks::{BACKENDS, Backend, Kept};
use fencepost_client::{Client, Credentials, Detached, LockOptions};
use fencepost_core::wire::{AcquireRequest, LeaseAnswer, LockView};
use fencepost_core::{Holder, Resource};
use serde_json::json;

use super::admin::AdminArgs;
use super::connect::{Connect, ListArgs, OnceArgs};
use super::exit::Failed;
use super::run::{GIVE_UP_TIME, Signals, ended_by, given_up};
use super::secret_file::{Input, LeaseArgs, lock_url};
use crate::quantity::Span;

#[derive(Subcommand)]
pub(super) enum Lock {
    /// List the lock services that --lock can name
    Backends,
    /// Acquire a lock, and print its token and lease
    Acquire(Acquire),
    /// Renew a lease
    Renew(Renew),
    /// Give a lock back
    Release(Release),
    /// Show who holds a lock
    Show(Show),
    /// List locks that are held
    List(ListArgs),
    /// Take a lock from its holder, whose token is refused from then on (administrators only)
    ForceRelease(ForceRelease),
}

#[derive(Args)]
pub(super) struct Acquire {
    /// Lock to acquire; it is also the resource that its token fences
    #[arg(value_parser = Resource::new)]
    name: Resource,
    /// Who wants it, unique per acquisition [default: this machine's name and a random nonce]
    // Not from FENCEPOST_HOLDER: under `fencepost run` that is the holder of another lock.
    #[arg(long, value_name = "NAME#NONCE", value_parser = Holder::new)]
    holder: Option<Holder>,
    /// How long the lease lasts unless it is renewed
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ttl: Span,
    /// How long to wait for it, in turn with others
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Span,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    connect: Connect,
}

/// Another lock service than the gateway's own.
#[derive(Args, Clone)]
struct ServiceArgs {
    /// URL of another lock service; its token is claimed at the gateway. Others see it in `ps`, with a password in it
    #[arg(long, value_name = "URL", env = "FENCEPOST_LOCK", hide_env_values = true)]
    lock: Option<String>,
    /// File with that URL, which only its owner may read; `-` is standard input
    #[arg(long, value_name = "FILE", env = "FENCEPOST_LOCK_FILE", conflicts_with = "lock")]
    lock_file: Option<PathBuf>,
}

impl ServiceArgs {
    fn url(&self) -> Result<Option<String>, Failed> {
        match &self.lock_file {
            Some(file) => lock_url(file, Input::Ours).map(Some),
            None => Ok(self.lock.clone()),
        }
    }

    /// The URL, for a command that also takes a lease: only one of the two can be read from standard input.
    fn url_beside(&self, lease: &LeaseArgs) -> Result<Option<String>, Failed> {
        let is_input = self.lock_file.as_ref().is_some_and(|file| file.as_os_str() == "-");
        if is_input && lease.is_input() {
            return Err(Failed::usage("standard input is either --lock-file or --lease-file, not both"));
        }
        self.url()
    }
}

#[derive(Args)]
pub(super) struct Renew {
    /// Lock to renew
    #[arg(value_parser = Resource::new)]
    name: Resource,
    #[command(flatten)]
    lease: LeaseArgs,
    /// How long it lasts from now on; leases of other services keep theirs
    #[arg(long, value_name = "TIME", default_value = "30s", conflicts_with_all = ["lock", "lock_file"])]
    ttl: Span,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
pub(super) struct Release {
    /// Lock to give back
    #[arg(value_parser = Resource::new)]
    name: Resource,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
pub(super) struct Show {
    /// Lock to show
    #[arg(value_parser = Resource::new)]
    name: Resource,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
pub(super) struct ForceRelease {
    /// Lock to take
    #[arg(value_parser = Resource::new)]
    name: Resource,
    #[command(flatten)]
    admin: AdminArgs,
}

impl Lock {
    pub(super) fn run(self) -> Result<(), Failed> {
        match self {
            Lock::Backends => backends(),
            Lock::Acquire(acquire) => acquire.run(),
            Lock::Renew(renew) => renew.run(),
            Lock::Release(release) => release.run(),
            Lock::Show(show) => show.run(),
            Lock::List(args) => list(&args),
            Lock::ForceRelease(force) => force.run(),
        }
    }
}

impl Acquire {
    fn run(self) -> Result<(), Failed> {
        if let Some(service) = self.service.url()? {
            if self.holder.is_some() || self.once.key().is_some() {
                return Err(Failed::usage(
                    "--holder and --idempotency-key are for the gateway's own locks; --lock chooses both",
                ));
            }
            let options = LockOptions::new().ttl(self.ttl.0).wait(self.wait.0);
            let (name, as_json) = (self.name, self.connect.json);
            return elsewhere(&self.connect, &service, options, async |client: Client| {
                let taken = client.acquire_detached(name.as_str()).await?;
                let lease = taken.lease.clone();
                let reported = printable(taken).and_then(|answer| report("acquired", &answer, as_json));
                if reported.is_err() {
                    // The lease was never printed, so no other process could release it.
                    let _ = tokio::time::timeout(GIVE_UP_TIME, client.release_detached(&name, &lease)).await;
                }
                reported
            });
        }
        let holder = match self.holder {
            Some(holder) => holder,
            None => some_holder()?,
        };
        let wanted = AcquireRequest { holder, ttl_ms: self.ttl.millis(), wait_ms: self.wait.millis() };
        let (name, once) = (self.name, self.once.key());
        let lease = self.connect.call(async |gateway| gateway.acquire(&name, &wanted, once.as_ref()).await)?;
        let reported = report("acquired", &lease, self.connect.json);
        if reported.is_err() {
            let _ = self.connect.call(async |gateway| gateway.release(&name, &lease.lease).await);
        }
        reported
    }
}

fn printable(taken: Detached) -> Result<LeaseAnswer, Failed> {
    let Detached { credentials: Credentials { token, holder, issuer }, ttl, lease, resource, .. } = taken;
    let (Some(holder), Some(issuer)) = (holder, issuer) else {
        return Err(Failed::other("the lock service named neither holder nor issuer"));
    };
    Ok(LeaseAnswer { name: resource, lease, token, holder, issuer, ttl_ms: Span(ttl).millis() })
}

/// Runs `work` at another lock service. If it fails or a signal ends it, what was begun is given up before the end.
pub(super) fn elsewhere<T, F: Future<Output = Result<T, Failed>>>(
    connect: &Connect,
    service: &str,
    options: LockOptions,
    work: impl FnOnce(Client) -> F,
) -> Result<T, Failed> {
    let gateway = connect.gateway()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failed::other)?;
    let done = runtime.block_on(async {
        let mut signals = Signals::to_pass_on().map_err(Failed::other)?;
        let done = async {
            let client = Client::builder().gateway(gateway).lock_service_url(service).lock_options(options);
            work(client.connect().await?).await
        };
        let done = tokio::select! {
            done = done => done,
            number = signals.next() => Err(ended_by(number)),
        };
        if done.is_err() {
            given_up(&mut signals).await;
        }
        done
    });
    runtime.shutdown_background();
    done
}

fn backends() -> Result<(), Failed> {
    let lines: Vec<String> = BACKENDS
        .iter()
        .map(|Backend { scheme, example, encrypted, number, waiting, breaks, .. }| {
            let encrypted = encrypted.map(|example| format!("\n  over TLS     {example}")).unwrap_or_default();
            format!("{scheme}\n  for example  {example}{encrypted}\n  the token    {number}\n  waiting      {waiting}\n  breaks when  {breaks}")
        })
        .collect();
    super::print(&lines.join("\n"))
}

/// A holder that is unique to this acquisition.
fn some_holder() -> Result<Holder, Failed> {
    let mut nonce = [0; 8];
    getrandom::fill(&mut nonce).map_err(Failed::other)?;
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine: String = machine.trim().chars().take(100).collect();
    Holder::new(&format!("{machine}#{:016x}", u64::from_le_bytes(nonce))).map_err(Failed::other)
}

fn report(verb: &str, lease: &LeaseAnswer, as_json: bool) -> Result<(), Failed> {
    if as_json {
        return super::print(&serde_json::to_string(lease).map_err(Failed::other)?);
    }
    let LeaseAnswer { name, lease, token, holder, issuer, ttl_ms } = lease;
    let ttl = Span(std::time::Duration::from_millis(*ttl_ms));
    super::print(&format!("{verb} {name} for {ttl}\ntoken  {token}\nlease  {lease}\nholder {holder}\nissuer {issuer}"))
}

impl Renew {
    fn run(self) -> Result<(), Failed> {
        let service = self.service.url_beside(&self.lease)?;
        let lease = self.lease.lease()?;
        if let Some(service) = service {
            let name = self.name;
            let kept = elsewhere(&self.connect, &service, LockOptions::new(), async |client: Client| {
                Ok(client.renew_detached(&name, &lease).await?)
            })?;
            return match kept {
                Kept::Kept if self.connect.json => super::print(&json!({"name": name, "renewed": true}).to_string()),
                Kept::Kept => super::print(&format!("renewed {name}")),
                Kept::Lost => {
                    Err(Failed::with(3, format!("the lease on `{name}` is lost; stop what the lock protects")))
                }
            };
        }
        let (name, ttl_ms) = (self.name, self.ttl.millis());
        let renewed = self.connect.call(async |gateway| gateway.renew(&name, &lease, ttl_ms).await)?;
        report("renewed", &renewed, self.connect.json)
    }
}

impl Release {
    fn run(self) -> Result<(), Failed> {
        let service = self.service.url_beside(&self.lease)?;
        let (name, lease) = (self.name, self.lease.lease()?);
        match service {
            Some(service) => elsewhere(&self.connect, &service, LockOptions::new(), async |client: Client| {
                Ok(client.release_detached(&name, &lease).await?)
            })?,
            None => self.connect.call(async |gateway| gateway.release(&name, &lease).await)?,
        }
        if self.connect.json {
            return super::print(&json!({"name": name, "released": true}).to_string());
        }
        super::print(&format!("released {name}"))
    }
}

fn line(lock: &LockView) -> String {
    let LockView { name, token, holder, remaining_ms, waiting, .. } = lock;
    let waiting = match waiting {
        0 => String::new(),
        waiting => format!(", {waiting} waiting"),
    };
    let remaining = *remaining_ms as f64 / 1000.0;
    format!("{name}: held by {holder}, token {token}, {remaining:.1} s left unless it is renewed{waiting}")
}

fn free(name: &Resource) -> Failed {
    Failed::absent(format!("the lock `{name}` is free"))
}

impl Show {
    fn run(self) -> Result<(), Failed> {
        let name = self.name;
        let lock = self.connect.call(async |gateway| gateway.lock(&name).await)?.ok_or_else(|| free(&name))?;
        if self.connect.json {
            return super::print(&serde_json::to_string(&lock).map_err(Failed::other)?);
        }
        super::print(&line(&lock))
    }
}

fn list(list: &ListArgs) -> Result<(), Failed> {
    let page =
        list.connect.call(async |gateway| gateway.locks(&list.prefix, list.after.as_deref(), list.limit).await)?;
    let lines: String = page.locks.iter().map(|lock| line(lock) + "\n").collect();
    list.print(&page, &lines, page.next.as_deref())
}

impl ForceRelease {
    fn run(self) -> Result<(), Failed> {
        let name = self.name;
        let done = self.admin.call(async |admin| admin.force_release(&name).await)?.ok_or_else(|| free(&name))?;
        if self.admin.json {
            return super::print(&serde_json::to_string(&done).map_err(Failed::other)?);
        }
        let fence = done.fence.map_or_else(|| "not raised".to_owned(), |fence| fence.to_string());
        super::print(&format!("took {name} from {}, whose token was {}; the fence is {fence}", done.holder, done.token))
    }
}
