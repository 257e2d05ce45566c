//! `fencepost lock`: the built-in lock service.

use clap::{Args, Subcommand};
use fencepost_core::wire::{AcquireRequest, LeaseAnswer, LockView, RenewRequest};
use fencepost_core::{Holder, Resource};

use super::admin::AdminArgs;
use super::connect::{Connect, ListArgs, OnceArgs};
use super::exit::{self, Failed};
use crate::quantity::Span;

#[derive(Subcommand)]
pub(super) enum Lock {
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
    #[arg(long, value_name = "NAME#NONCE", env = "FENCEPOST_HOLDER", value_parser = Holder::new)]
    holder: Option<Holder>,
    /// How long the lease lasts unless it is renewed
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ttl: Span,
    /// How long to wait for it, in turn with others
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: Span,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
pub(super) struct Renew {
    /// Lock to renew
    #[arg(value_parser = Resource::new)]
    name: Resource,
    /// Lease, as acquire printed it
    #[arg(long, value_name = "LEASE", env = "FENCEPOST_LEASE")]
    lease: String,
    /// How long it lasts from now on
    #[arg(long, value_name = "TIME", default_value = "30s")]
    ttl: Span,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
pub(super) struct Release {
    /// Lock to give back
    #[arg(value_parser = Resource::new)]
    name: Resource,
    /// Lease, as acquire printed it
    #[arg(long, value_name = "LEASE", env = "FENCEPOST_LEASE")]
    lease: String,
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
        let holder = match self.holder {
            Some(holder) => holder,
            None => some_holder()?,
        };
        let wanted = AcquireRequest { holder, ttl_ms: self.ttl.millis(), wait_ms: self.wait.millis() };
        let (name, once) = (self.name, self.once.key());
        let lease = self.connect.call(async |gateway| gateway.acquire(&name, &wanted, once.as_ref()).await)?;
        report("acquired", &lease, self.connect.json)
    }
}

/// Tells this acquisition apart from every other.
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
        let renewal = RenewRequest { lease: self.lease, ttl_ms: self.ttl.millis() };
        let name = self.name;
        let lease = self.connect.call(async |gateway| gateway.renew(&name, &renewal).await)?;
        report("renewed", &lease, self.connect.json)
    }
}

impl Release {
    fn run(self) -> Result<(), Failed> {
        let (name, lease) = (self.name, self.lease);
        self.connect.call(async |gateway| gateway.release(&name, &lease).await)?;
        if self.connect.json {
            return super::print(&serde_json::json!({"name": name, "released": true}).to_string());
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

impl Show {
    fn run(self) -> Result<(), Failed> {
        let name = self.name;
        let lock = self.connect.call(async |gateway| gateway.lock(&name).await)?;
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
        let done = self.admin.call(async |admin| admin.force_release(&name).await)?;
        if self.admin.json {
            return super::print(&serde_json::to_string(&done).map_err(Failed::other)?);
        }
        let fence = done.fence.map_or_else(|| "not raised".to_owned(), |fence| fence.to_string());
        exit::write(
            format!("took {name} from {}, whose token was {}; the fence is {fence}\n", done.holder, done.token)
                .as_bytes(),
        )
    }
}
