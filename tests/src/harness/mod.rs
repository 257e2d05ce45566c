//! Real processes, real sockets, and conditions with deadlines.
//!
//! The harness panics when something is not as a test needs it: a missing server is a failure, not a skip.

pub mod budget;
pub mod http;
pub mod process;
pub mod wait;
