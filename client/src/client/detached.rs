//! Leases without a guard, for scripts that take a lock in one process and release it in another.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fencepost_core::{Holder, Issuer, Presented, Resource};
use serde::{Deserialize, Serialize};

use super::{Client, invalid};
use crate::Moment;
use crate::error::Error;
use crate::guard::{LockEvent, notify};
use crate::locks::{Kept, Lease, LockError};

/// A claimed lease that ends with its ttl, unless a process that has its text form renews it.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "a detached lease is known only by its text"]
pub struct Detached {
    /// The resource that the lock protects.
    pub resource: Resource,
    /// The token, holder and issuer to present with every write.
    pub credentials: Presented,
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
    /// The lease in text form, needed to renew and release it.
    pub lease: String,
}

/// The serialized form of a lease.
#[derive(Serialize, Deserialize)]
struct Text {
    name: Resource,
    holder: Holder,
    number: NonZeroU64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    issuer: Issuer,
    ttl_ms: u64,
    handle: String,
}

fn to_text(lease: &Lease) -> String {
    let text = Text {
        name: lease.name.clone(),
        holder: lease.holder.clone(),
        number: lease.number,
        generation: lease.generation,
        issuer: lease.issuer.clone(),
        ttl_ms: u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX),
        handle: lease.handle.clone(),
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&text).unwrap_or_default())
}

fn from_text(name: &Resource, lease: &str) -> Result<Lease, LockError> {
    let bytes = URL_SAFE_NO_PAD.decode(lease.trim()).ok();
    let text = bytes.and_then(|bytes| serde_json::from_slice::<Text>(&bytes).ok());
    let Some(Text { name: of, holder, number, generation, issuer, ttl_ms, handle }) = text else {
        return Err(LockError::Invalid("this is no lease; give it as `acquire` printed it".into()));
    };
    if of != *name {
        return Err(LockError::Invalid(format!("this is a lease on `{of}`, not on `{name}`")));
    }
    let ttl = Duration::from_millis(ttl_ms);
    Ok(Lease { name: of, holder, number, generation, issuer, ttl, since: Moment::now(), handle, session: None })
}

impl Client {
    /// Takes a lock and claims its token, without keeping it alive: the lease ends with its ttl.
    pub async fn acquire_detached(&self, resource: &str) -> Result<Detached, Error> {
        self.detachable()?;
        let resource = Resource::new(resource).map_err(invalid)?;
        let asked = Instant::now();
        let claimed = self.claimed(&resource).await?;
        let token = claimed.presented.token;
        notify(self.options.observer.as_ref(), &resource, LockEvent::Acquired { wait: asked.elapsed(), token });
        let lease = to_text(&claimed.lease);
        Ok(Detached { resource, credentials: claimed.presented, ttl: claimed.lease.ttl, lease })
    }

    /// Renews such a lease for its ttl from now.
    pub async fn renew_detached(&self, resource: &Resource, lease: &str) -> Result<Kept, Error> {
        self.detachable()?;
        Ok(self.backend.renew(&from_text(resource, lease)?).await?)
    }

    /// Releases such a lock; releasing late is harmless.
    pub async fn release_detached(&self, resource: &Resource, lease: &str) -> Result<(), Error> {
        self.detachable()?;
        Ok(self.backend.release(from_text(resource, lease)?).await?)
    }

    fn detachable(&self) -> Result<(), LockError> {
        if self.backend.capabilities().detachable {
            return Ok(());
        }
        Err(LockError::Invalid(
            "a lock of this service ends with the process that took it; run your program under it: `fencepost run`"
                .into(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_travels_as_text() {
        let lease = Lease {
            name: Resource::new("orders/1").unwrap(),
            holder: Holder::new("a#1").unwrap(),
            number: NonZeroU64::new(7).unwrap(),
            generation: Some(2),
            issuer: Issuer::new("redis:x").unwrap(),
            ttl: Duration::from_secs(30),
            since: Moment::now(),
            handle: "h".into(),
            session: None,
        };
        let text = to_text(&lease);
        let back = from_text(&lease.name, &text).unwrap();
        assert_eq!((back.holder, back.number, back.handle), (lease.holder, lease.number, lease.handle));
        assert_eq!(back.generation, lease.generation);
        assert!(from_text(&Resource::new("orders/2").unwrap(), &text).unwrap_err().to_string().contains("orders/1"));
        assert!(from_text(&lease.name, "nonsense").unwrap_err().to_string().contains("acquire"));
    }
}
