//! The identity of a caller, and whether it may make a call. The store is reached only with a [`Permitted`] call.

use super::calls::HttpCall;
use super::problem::Problem;
use super::routes::Audience;

/// The identity of a caller. Until authentication exists, every caller of the public listener is anonymous; that is why
/// it listens on loopback by default. A process that may open the Unix socket is an administrator.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    Anonymous,
    Administrator(Peer),
    /// SIGHUP, from a process that may signal this one.
    Signal,
}

/// Which process is at the other end of the Unix socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) uid: u32,
    pub(super) pid: Option<i32>,
}

impl Identity {
    /// The scope of idempotency keys.
    pub(super) fn caller(&self) -> &'static str {
        match self {
            Identity::Anonymous | Identity::Administrator(_) | Identity::Signal => "anonymous",
        }
    }
}

/// A call that passed the check. Only [`permit`] makes one.
pub(super) struct Permitted<T>(T);

impl<T> Permitted<T> {
    pub(super) fn get(&self) -> &T {
        &self.0
    }

    pub(super) fn into_inner(self) -> T {
        self.0
    }
}

/// Decides whether an identity may make a call.
pub(super) fn permit<C: HttpCall>(identity: &Identity, call: C) -> Result<Permitted<C>, Problem> {
    match (identity, C::ROUTE.audience) {
        (Identity::Anonymous, Audience::Admin) => Err(Problem::admin_only()),
        (Identity::Anonymous, Audience::Public) | (Identity::Administrator(_) | Identity::Signal, _) => {
            Ok(Permitted(call))
        }
    }
}
