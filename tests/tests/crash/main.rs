//! The real process is killed, and what was answered before still holds after.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod kill;
mod locks;
mod open;
mod sweep;
mod txn;
