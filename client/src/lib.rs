//! The client of the Fencepost gateway: locks of the service you already run, with tokens that the storage checks.
//!
//! A [`Client`] takes a lock, claims its token at the gateway, and hands out a [`Guard`]. Token, holder, issuer and an
//! idempotency key go with every call of the guard, and the lease is kept alive until the guard is released. A holder
//! that paused for longer than its lease is refused by the fence, however late it wakes up.
//!
//! ```no_run
//! use fencepost_client::{Client, Error, ErrorKind};
//!
//! # async fn example() -> Result<(), Error> {
//! let client = Client::builder()
//!     .gateway_url("http://127.0.0.1:3362")
//!     .lock_service_url("redis://127.0.0.1:6379")
//!     .connect()
//!     .await?;
//!
//! let guard = client.acquire("orders/123").await?;
//! if guard.get("orders/123").await?.is_none() {
//!     match guard.put("orders/123", "paid").await {
//!         Ok(_) => println!("paid"),
//!         Err(error) => match error.kind() {
//!             // A newer holder has taken over: stop.
//!             ErrorKind::Fenced | ErrorKind::Lost => println!("{error}"),
//!             // Applied or not: ask with the idempotency key.
//!             ErrorKind::UnknownOutcome => {
//!                 if let Some(key) = error.unknown_outcome().and_then(|unknown| unknown.key.as_ref()) {
//!                     println!("{:?}", guard.abandon(key).await?.outcome);
//!                 }
//!             }
//!             _ => return Err(error),
//!         },
//!     }
//! }
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Types
//!
//! | type | for |
//! | --- | --- |
//! | [`Client`], [`ClientBuilder`] | take locks, and claim their tokens: [`acquire`](Client::acquire), [`acquire_all`](Client::acquire_all), [`with_lock`](Client::with_lock), [`lead`](Client::lead) |
//! | [`Guard`] | a lock that is held: `put`, `get`, `delete`, `transact` under its token; [`lost`](Guard::lost) reports its end |
//! | [`Detached`] | a lease without a guard, for scripts that release it in another process |
//! | [`LockOptions`], [`LockObserver`], [`LockEvent`], [`Clock`] | how long locks last and are waited for; metrics; the clock of leases |
//! | [`Gateway`], [`GatewayOptions`] | every call of `/v1`, with a token of your own |
//! | [`Credentials`], [`WriteOptions`], [`Precondition`], [`Written`], [`ReadValue`] | arguments and results of calls |
//! | [`Admin`] | the calls of administrators, over the Unix socket |
//! | [`Error`], [`ErrorKind`] | why a call failed: one kind for each thing the caller does differently |
//! | [`Refusal`], [`UnknownOutcome`], [`Loss`] | the facts of an error |
//! | [`locks`] | the lock services, and the trait [`LockBackend`](locks::LockBackend) to add one |
//!
//! Names, tokens and the messages on the wire are those of `fencepost_core`.
//!
//! # Features
//!
//! `redis`, `etcd`, `zk`, `postgres`, `token` and `exec`, one for each lock service, all on by default. The gateway's
//! own service (`fencepost://`) needs none.
//!
//! # Read on
//!
//! - `docs/client.md`: the rules of retries, leases and TLS.
//! - `docs/outcomes.md`: the meaning of an unknown outcome.
//! - `docs/locks/`: a page for each lock service.
//! - `client/examples/`: three programs.

mod admin;
mod call;
mod client;
mod clock;
mod error;
mod gateway;
mod guard;
pub mod locks;
mod options;
mod random;
mod transport;

pub use admin::Admin;
pub use call::{Credentials, Precondition, ReadValue, WriteOptions, Written};
pub use client::{Client, ClientBuilder, Detached, LockOptions};
pub use clock::{Clock, Moment};
pub use error::{Error, ErrorKind, Refusal, UnknownOutcome};
pub use gateway::Gateway;
pub use guard::{Guard, LockEvent, LockObserver, Loss, Unobserved};
pub use options::{GatewayOptions, Protocol};
