//! Settings of the S3 front end.

use std::fmt;

use serde::Deserialize;

/// Settings of the S3 front end that affect which requests are admitted.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// Whether clients may create and remove buckets.
    pub create_buckets: bool,
    /// The origin of the endpoint. If it was configured, requests for other hosts are mistakes.
    pub endpoint: Endpoint,
    /// The connection between clients and the listener.
    pub transport: Transport,
    /// What a lease may read.
    pub read: Read,
}

/// The origin of the endpoint that is reported to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// From the configuration.
    Configured,
    /// The address of the listener.
    Listener,
}

/// The connection between clients and the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// This machine only.
    Loopback,
    /// A network without encryption: an attacker on the path can read everything, and change what the signature does
    /// not cover.
    Plaintext,
}

/// What a lease may read. Long-term keys read everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Read {
    /// Every bucket
    #[default]
    All,
    /// What its own resource protects
    Own,
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Read::All => "all",
            Read::Own => "own",
        })
    }
}
