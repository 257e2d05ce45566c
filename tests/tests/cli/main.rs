//! The `fencepost` command line as its users run it, and the examples that use it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod bench;
mod examples;
mod inventory;
mod locks;
mod run;
mod run_terminal;
mod values;
