//! The real process is killed; what was answered before the kill still holds after it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod kill;
mod locks;
mod open;
mod sweep;
mod txn;
