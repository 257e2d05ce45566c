//! The conformance suite from outside: as a command, through its adapters, in its reports, and as a library.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod cli;
mod committed;
mod databases;
mod exec;
mod http;
mod marked;
mod report;
mod rust;
