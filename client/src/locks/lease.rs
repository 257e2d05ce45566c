//! A granted lock.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use fencepost_core::{Holder, Issuer, Resource, Token};

use super::Wanted;
use crate::Moment;

/// A granted lock, as the backend returned it.
pub struct Lease {
    /// The name of the lock.
    pub name: Resource,
    /// The holder of this acquisition.
    pub holder: Holder,
    /// The number of this acquisition.
    pub number: NonZeroU64,
    /// The generation that the number came with, presented unchanged (T39). `None`: the service handed out the number
    /// after the fence was read, so it belongs to the generation that was read.
    pub generation: Option<u32>,
    /// The incarnation of the service that granted it: `kind:incarnation`.
    pub issuer: Issuer,
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
    /// The earliest start of the ttl: a moment before the granted request was sent.
    pub since: Moment,
    /// The service's identifier of the lease. It is enough for another process to renew or release the lease, if the
    /// backend's leases are detachable.
    pub handle: String,
    /// State that must live as long as the lease: the session, for services that have sessions.
    pub session: Option<Box<dyn Any + Send + Sync>>,
}

impl Lease {
    /// The lease of a lock that was taken elsewhere, and is known by its token only.
    #[cfg_attr(not(any(feature = "exec", feature = "token")), allow(dead_code, reason = "no other service needs it"))]
    pub(super) fn of_token(wanted: &Wanted<'_>, token: Token, issuer: Issuer, since: Moment) -> Lease {
        Lease {
            name: wanted.name.clone(),
            holder: wanted.holder.clone(),
            number: token.number(),
            // Never the current generation: the lock may have been held since before a rotation (T30, T39).
            generation: Some(token.generation()),
            issuer,
            ttl: wanted.ttl,
            since,
            handle: token.to_string(),
            session: None,
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name)
            .field("holder", &self.holder)
            .field("number", &self.number)
            .field("generation", &self.generation)
            .field("issuer", &self.issuer)
            .field("ttl", &self.ttl)
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}
