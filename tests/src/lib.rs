//! Conformance suite for fenced resources, and the harness of Fencepost's own tests.
//!
//! The suite itself comes with a later version; [`harness`] starts real gateways, talks raw HTTP to them, and kills
//! them.

pub mod harness;
