//! The S3 front end on the wire: races, crashes and bad input. The behaviour of real client programs is tested in
//! `s3_clients`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic, also in its helpers")]

mod abandoned;
mod answers;
mod audited;
mod audited_bodies;
mod blocked;
mod bodies;
mod buckets;
mod checks;
mod checksums;
mod chunked;
mod cli;
mod completions;
mod conditions;
mod counted;
mod crashes;
mod credentials;
mod described;
mod digests;
mod directories;
mod disconnects;
mod folders;
mod large;
mod links;
mod lists;
mod names;
mod parsing;
mod parts;
mod permits;
mod promises;
mod races;
mod reads;
mod restarts;
mod signing;
mod steps;
mod stopped;
mod takeovers;
mod verbs;
mod world;
