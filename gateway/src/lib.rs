//! The HTTP front of Fencepost, and what the `fencepost` binary is made of.
//!
//! A request goes one way, through [`http::Gateway`]: limits, identity, decode, permit, the store, reply.

pub mod bench;
pub mod cli;
pub mod config;
pub mod data_directory;
pub mod http;
mod listener;
pub mod position_file;
mod quantity;
pub mod reload;
pub mod s3;
