//! Who asks, and whether they may. The store is reached only with a [`Permitted`] call.

use hyper::http::request::Parts;

use super::problem::Problem;

/// Who asks. Until identities exist, nobody in particular; that is why the gateway listens on loopback only.
pub(super) enum Identity {
    Anonymous,
}

impl Identity {
    pub(super) fn of(_head: &Parts) -> Identity {
        Identity::Anonymous
    }
}

/// Something that may be done. Only [`permit`] makes one.
pub(super) struct Permitted<T>(T);

impl<T> Permitted<T> {
    pub(super) fn into_inner(self) -> T {
        self.0
    }
}

/// Decides whether an identity may make a call.
pub(super) fn permit<T>(identity: &Identity, call: T) -> Result<Permitted<T>, Problem> {
    match identity {
        Identity::Anonymous => Ok(Permitted(call)),
    }
}
