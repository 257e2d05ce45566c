//! Every lock service behind the client, on real servers: one suite for all of them, and the failures specific to each.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

#[macro_use]
mod suite;
#[macro_use]
mod tls;

mod complete;
mod etcd;
mod exec;
mod fencepost;
mod guard;
mod postgres;
mod redis;
mod scripts;
mod token;
mod zk;
