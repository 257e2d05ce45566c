//! Real S3 clients against the gateway: each does its usual operations, and is refused as a stale holder.

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
