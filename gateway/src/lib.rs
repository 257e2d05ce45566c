//! The listeners and front ends of Fencepost, and what the `fencepost` binary is made of.
//!
//! [`server::Server`] runs every listener by the one accept loop in [`listener`], each with its front end: [`http`] (public
//! and administrators') and [`s3`]. The front ends do not know each other; what both need stands beside them
//! ([`credentials`], [`metrics`]). A request goes one way: limits, identity, decode, permit, the store, reply.

pub mod bench;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod data_directory;
pub mod http;
pub mod listener;
pub mod metrics;
mod peer;
pub mod position_file;
mod quantity;
pub mod reload;
pub mod s3;
pub mod server;
mod sole_owner;
