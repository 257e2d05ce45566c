//! Real clients of S3 against the gateway: each does what it always does, and as a stale holder it is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod awscli;
mod boto3;
mod client;
mod documented;
mod mount;
mod object_store;
mod presigned;
mod rclone;
mod s3cmd;
mod suite;
mod uploads;
