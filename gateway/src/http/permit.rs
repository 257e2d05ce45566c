//! Who asks, and whether they may. The store is reached only with a [`Permitted`] call.

use super::calls::HttpCall;
use super::problem::Problem;
use super::routes::Door;

/// Who asks. Until identities exist, everybody at the public door is nobody in particular; that is why it listens on
/// loopback only. Whoever may open the Unix socket is an administrator.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    Anonymous,
    Administrator(Peer),
    /// SIGHUP: whoever may signal the process.
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

/// Something that may be done. Only [`permit`] makes one.
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
    match (identity, C::ROUTE.door) {
        (Identity::Anonymous, Door::Admin) => Err(Problem::admin_only()),
        (Identity::Anonymous, Door::Public) | (Identity::Administrator(_) | Identity::Signal, _) => Ok(Permitted(call)),
    }
}
