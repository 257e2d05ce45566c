//! Values, claims, transactions and outcomes over HTTP, and the answers of the HTTP front end to requests of every
//! kind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod claim;
mod client;
mod conditions;
mod http2;
mod ignored_headers;
mod names;
mod outcomes;
mod policy;
mod raw;
mod replays;
mod smoke;
mod status;
mod tokens;
mod traps;
mod txn;
mod txn_refused;
mod values;
