//! Findings of two audits of 0.1.0, one test per finding, named after it: `c04_…` for correctness, `s02_…` for
//! security, `p01_…` for the linearizability check and `b03_…` for the trial with S3 applications. A finding inside one
//! crate has its test there, under the same name.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod client;
mod connections;
mod locks;
mod objects;
mod pages;
mod restores;
mod s3_calls;
mod secrets;
mod signatures;
mod values;
