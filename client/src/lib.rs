//! Client of the Fencepost gateway.
//!
//! [`Gateway`] speaks `/v1`: every call ends in an answer, in a typed refusal, or in an outcome that is not known.
//! [`Locks`] takes locks of the service at a URL, and gives a [`Guard`]: its token is claimed before anybody sees it,
//! goes with every call, and the lease is kept alive until the guard is released.

mod admin;
mod call;
mod clock;
mod error;
mod gateway;
mod guard;
pub mod locks;
mod random;
mod transport;

pub use admin::Admin;
pub use call::{Credentials, Precondition, ReadValue, WriteOptions, Written};
pub use clock::{Clock, Moment};
pub use error::{CallError, UnknownOutcome};
pub use gateway::{BadUrl, Gateway};
pub use guard::{
    AcquireError, ConnectError, Detached, Guard, GuardError, LockEvent, LockObserver, LockOptions, Locks, Loss,
    Unobserved, WithLockError,
};
pub use transport::{GatewayOptions, Protocol};
