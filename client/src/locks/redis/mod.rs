//! Redis: one script takes the lock and assigns its number.
//!
//! The counter and the incarnation of a lock are in one hash, so that they are lost together: a counter that starts
//! again belongs to another issuer.

mod link;
mod scripts;
mod waiter;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{Issuer, LabelError};

use super::list::{Backend, Connecting};
use super::{Acquired, Capabilities, Kept, Lease, Lifted, LockBackend, LockError, LockUrl, Wanted};
use link::Link;
use scripts::{Answer, Keys, Scripts, millis};
use waiter::Asking;

/// How often a call is repeated if its answer was lost; the scripts compare the holder, which makes that safe.
const ATTEMPTS: usize = 3;

pub(super) const BACKEND: Backend = Backend {
    scheme: "redis",
    aliases: &["rediss"],
    example: "redis://:password@127.0.0.1:6379/0",
    encrypted: Some("rediss://:password@redis.example:6379/0?ca=ca.pem&cert=worker.pem&key=worker.key"),
    number: "a counter beside the lock, raised by the script that takes it",
    waiting: "in order of arrival, told by a list of their own (BLPOP)",
    breaks: "failover to a replica that missed writes, or a lost second of the append-only file: the counter fell, and \
             is raised above the fence. FLUSHALL or eviction: another incarnation; rotate",
    connect,
};

const CAPABILITIES: Capabilities = Capabilities {
    fair: true,
    watch: true,
    floor: true,
    lift: true,
    min_ttl: Duration::from_millis(5),
    detachable: true,
};

struct Redis {
    link: Arc<Link>,
    scripts: Arc<Scripts>,
}

fn connect(url: LockUrl) -> Connecting {
    Box::pin(async move {
        let link = Link::open(&url)?;
        link.check().await?;
        Ok(Arc::new(Redis { link: Arc::new(link), scripts: Arc::new(Scripts::new()) }) as Arc<dyn LockBackend>)
    })
}

impl Redis {
    fn issuer(&self, incarnation: &str) -> Result<Issuer, LockError> {
        let issuer = Issuer::new(&format!("redis:{incarnation}"));
        issuer.map_err(|error: LabelError| self.link.failed(&format!("its incarnation is no name: {error}")))
    }

    /// The error for a floor above which there is no number.
    fn exhausted(&self, name: &fencepost_core::Resource, floor: u64) -> LockError {
        self.link.failed(&format!(
            "there is no number above {floor} for `{name}`: Redis counts to {}. Rotate the fence, then delete the counter: \
             redis-cli DEL '{}'",
            i64::MAX,
            Keys::of(name).state
        ))
    }
}

#[async_trait]
impl LockBackend for Redis {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        CAPABILITIES.check_ttl(wanted.ttl)?;
        Asking::new(self, wanted)?.until_answered().await
    }

    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError> {
        // Not a plain GET: a replica, or a former primary, would answer it.
        let verify = self.scripts.verify.on(&Keys::of(&lease.name), &[&lease.handle]);
        Ok(if self.link.run::<i64>(&verify).await? == 1 { Kept::Kept } else { Kept::Lost })
    }

    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError> {
        let renew = self.scripts.renew.on(&Keys::of(&lease.name), &[&lease.handle, &millis(lease.ttl)]);
        Ok(if self.link.run::<i64>(&renew).await? == 1 { Kept::Kept } else { Kept::Lost })
    }

    async fn lift(&self, lease: &mut Lease, floor: u64) -> Result<Lifted, LockError> {
        let incarnation = lease.issuer.as_str().strip_prefix("redis:").unwrap_or_default();
        let lift = self.scripts.lift.on(&Keys::of(&lease.name), &[&lease.handle, &floor.to_string(), incarnation]);
        let mut attempt = 1;
        let answer = loop {
            match self.link.run::<Vec<String>>(&lift).await {
                Ok(answer) => break answer,
                // Lifted or not: a repetition only skips a number.
                Err(error) if error.is_transient() && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        };
        match Answer::read(&answer) {
            Some(Answer::Granted { number, .. }) => {
                lease.number = number;
                Ok(Lifted::Lifted)
            }
            Some(Answer::Lost) => Ok(Lifted::Lost),
            Some(Answer::Exhausted) => Err(self.exhausted(&lease.name, floor)),
            _ => Err(self.link.failed(&format!("it answered {answer:?} to lift"))),
        }
    }

    async fn release(&self, lease: Lease) -> Result<(), LockError> {
        self.link.run::<i64>(&self.scripts.release.on(&Keys::of(&lease.name), &[&lease.handle])).await.map(drop)
    }
}
