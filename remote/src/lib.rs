//! Servers that Fencepost uses: their URLs, TLS to them, sessions of PostgreSQL, and channels to etcd.
//!
//! An internal crate, shared by the lock services of the client and the engines of the store.
//!
//! # Features
//!
//! - `tls`: the module `tls`, which reads certificates and explains failed handshakes.
//! - `postgres`: the module `postgres`, which connects to a PostgreSQL server and sends statements.
//! - `etcd`: the module `etcd`, which connects to the members of an etcd cluster and makes calls over gRPC.

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "tls")]
pub mod tls;
mod unusable;
mod url;

pub use unusable::Unusable;
pub use url::ServerUrl;
