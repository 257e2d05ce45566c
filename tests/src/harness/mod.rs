//! Real processes, real sockets, and conditions with deadlines.
//!
//! The harness panics when something is not as a test needs it: a missing server is a failure, not a skip.

#![allow(clippy::expect_used, reason = "a harness fails the test that uses it, loudly")]

pub mod bucketed;
pub mod budget;
pub mod cpu;
pub mod fresh;
pub mod http;
pub mod load;
pub mod process;
pub mod proxy;
pub mod record;
pub mod seed;
pub mod servers;
pub mod small_disk;
pub mod strace;
pub mod terminal;
pub mod transfers;
pub mod venv;
pub mod wait;
