//! The store in a directory: ownership, the effects of damage and kills, and the format on disk.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod damage;
mod directory;
mod fixture;
mod kill;
mod recovery;
#[path = "../testbed/mod.rs"]
mod testbed;
