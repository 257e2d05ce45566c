//! Ways to reach a resource that is not a Rust type.

pub mod exec;
pub mod hooks;
pub mod http;
pub mod orphans;
mod patience;
pub mod process;
pub mod steps;
mod writes;
