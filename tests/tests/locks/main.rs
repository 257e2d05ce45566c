//! The built-in lock service over HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod calls;
mod left;
mod many;
mod traps;
mod wait;
