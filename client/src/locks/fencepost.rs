//! The gateway's own lock service: the fence is raised in the commit that grants the lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fencepost_core::IdempotencyKey;
use fencepost_core::wire::{AcquireRequest, MAX_WAIT_MS, MIN_TTL_MS};

use super::list::{Backend, Connecting};
use super::url::wrong;
use super::{Acquired, Capabilities, Kept, Lease, LockBackend, LockError, LockUrl, Wanted};
use crate::random::jittered;
use crate::{Error, ErrorKind, Gateway, GatewayOptions, Moment};

/// How long a call may take beyond the requested wait.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum number of attempts at an acquisition whose answer is lost; its idempotency key makes retries safe.
const ATTEMPTS: usize = 3;

/// The pause between attempts while the gateway is unreachable.
const OUTAGE: Duration = Duration::from_millis(100);

pub(super) const BACKEND: Backend = Backend {
    scheme: "fencepost",
    aliases: &[],
    example: "fencepost://127.0.0.1:3362",
    encrypted: None,
    number: "the gateway's own counter; the fence is raised in the commit that grants the lock",
    waiting: "in order of arrival, by long poll",
    breaks: "nothing: fence and counter are one record",
    connect,
};

const CAPABILITIES: Capabilities = Capabilities {
    fair: true,
    watch: true,
    floor: true,
    lift: false,
    min_ttl: Duration::from_millis(MIN_TTL_MS),
    detachable: true,
};

struct Fencepost {
    gateway: Gateway,
    service: String,
}

fn connect(url: LockUrl) -> Connecting {
    Box::pin(async move {
        url.only(&[])?;
        let [host] = url.hosts.as_slice() else { return Err(wrong(&url.to_string(), "it names one host and port")) };
        if url.user.is_some() || !url.path.is_empty() {
            return Err(wrong(&url.to_string(), "it has no user and no path"));
        }
        let options = GatewayOptions::new().timeout(TIMEOUT).connect_timeout(TIMEOUT);
        let gateway = Gateway::with_options(&format!("http://{host}"), options);
        let gateway = gateway.map_err(|error| LockError::Invalid(error.to_string()))?;
        Ok(Arc::new(Fencepost { gateway, service: url.to_string() }) as Arc<dyn LockBackend>)
    })
}

impl Fencepost {
    fn error(&self, error: Error) -> LockError {
        let (service, why) = (self.service.clone(), error.to_string());
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::UnknownOutcome => LockError::Unreachable { service, why },
            ErrorKind::Invalid => LockError::Invalid(why),
            ErrorKind::Fenced => LockError::Refused { service, why },
            // The answer to a grant came too late; asking again is safe.
            ErrorKind::Lost => LockError::Unreachable { service, why },
            ErrorKind::Conflict | ErrorKind::Busy => LockError::Failed { service, why },
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl LockBackend for Fencepost {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        CAPABILITIES.check_ttl(wanted.ttl)?;
        let key = IdempotencyKey::new(&format!("lock:{}", wanted.holder));
        let key = key.map_err(|error| LockError::Invalid(format!("holder `{}`: {error}", wanted.holder)))?;
        // A repeated request may return the grant of the first, so the ttl counts from before the first one.
        let since = Moment::now();
        let deadline = Instant::now().checked_add(wanted.wait);
        let left = || deadline.map_or(wanted.wait, |deadline| deadline.saturating_duration_since(Instant::now()));
        let mut attempt = 1;
        loop {
            // Wait only for the remaining time.
            let (holder, ttl_ms, wait_ms) = (wanted.holder.clone(), millis(wanted.ttl), millis(left()));
            let asked = AcquireRequest { holder, ttl_ms, wait_ms: wait_ms.min(MAX_WAIT_MS) };
            let error = match self.gateway.acquire(wanted.name, &asked, Some(&key)).await {
                Ok(granted) => {
                    return Ok(Acquired::Held(Lease {
                        name: wanted.name.clone(),
                        holder: granted.holder,
                        number: granted.token.number(),
                        generation: None,
                        issuer: granted.issuer,
                        ttl: wanted.ttl,
                        since,
                        handle: granted.lease,
                        session: None,
                    }));
                }
                Err(error) if error.kind() == ErrorKind::Busy && (wait_ms <= MAX_WAIT_MS || left().is_zero()) => {
                    return Ok(Acquired::Busy);
                }
                Err(error) => error,
            };
            let again = match error.kind() {
                // Granted or not: a retry with the same key finds out (5).
                ErrorKind::UnknownOutcome => attempt < ATTEMPTS || left() > OUTAGE,
                // A gateway that restarts is waited for as long as for the lock. One that was never reachable is an
                // error.
                ErrorKind::Unavailable if error.is_unreachable() => attempt > 1 && left() > OUTAGE,
                ErrorKind::Unavailable => error.is_repeatable() && left() > OUTAGE,
                // One call waits no longer than the gateway allows; the next call gets a new place in the queue.
                ErrorKind::Busy => true,
                _ => false,
            };
            if !again {
                return Err(self.error(error));
            }
            if attempt >= ATTEMPTS || error.kind() != ErrorKind::UnknownOutcome {
                tokio::time::sleep(jittered(OUTAGE)).await;
            }
            attempt += 1;
        }
    }

    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError> {
        match self.gateway.lock(&lease.name).await {
            Ok(Some(lock)) if lock.holder == lease.holder && lock.token.number() == lease.number => Ok(Kept::Kept),
            Ok(_) => Ok(Kept::Lost),
            Err(error) => Err(self.error(error)),
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError> {
        match self.gateway.renew(&lease.name, &lease.handle, millis(lease.ttl)).await {
            Ok(_) => Ok(Kept::Kept),
            // A renewal is judged like a claim: a refusal ends the lease as surely as a takeover.
            Err(error) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::Fenced) => Ok(Kept::Lost),
            Err(error) => Err(self.error(error)),
        }
    }

    async fn release(&self, lease: Lease) -> Result<(), LockError> {
        match self.gateway.release(&lease.name, &lease.handle).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Lost => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }
}
