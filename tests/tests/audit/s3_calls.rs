//! S3 calls and names that clients send.
