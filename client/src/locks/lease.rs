//! A lock that was given to us.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use fencepost_core::{Holder, Issuer, Resource};

use crate::Moment;

/// A lock that was given to us.
pub struct Lease {
    /// The lock.
    pub name: Resource,
    /// Who has it.
    pub holder: Holder,
    /// The number of this acquisition.
    pub number: NonZeroU64,
    /// The generation that the number came with, presented as it stands (T39). `None`: the service handed it out after
    /// the fence was read, so it belongs to the generation that was read then.
    pub generation: Option<u32>,
    /// The service that gave it, in this incarnation: `kind:incarnation`.
    pub issuer: Issuer,
    /// How long it lasts unless it is renewed.
    pub ttl: Duration,
    /// Its ttl counts from here at the earliest: a moment before the request was sent that the service granted.
    pub since: Moment,
    /// What the service knows it by; enough for another process to renew or release it, if the backend's leases are
    /// detachable.
    pub handle: String,
    /// What must live as long as the lease does: the session of a service that has such.
    pub session: Option<Box<dyn Any + Send + Sync>>,
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
