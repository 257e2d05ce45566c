//! The harness of Fencepost's own tests and benches: real processes, real servers, clients, loads and their records.
//!
//! The fault proxy, seeded random numbers and waiting for a condition are in `fencepost-conformance`, which needs them
//! itself.
//!
//! The harness panics when a requirement of a test is missing: a missing server is a failure, not a skip.

#![allow(clippy::expect_used, reason = "a harness fails the test that uses it, loudly")]

pub mod bucketed;
pub mod budget;
pub mod chromium;
pub mod command_line;
pub mod cpu;
pub mod fresh;
pub mod http;
pub mod load;
pub mod networks;
pub mod process;
pub mod record;
pub mod servers;
pub mod sigv4;
pub mod small_disk;
pub mod strace;
pub mod terminal;
pub mod transfers;
pub mod venv;
