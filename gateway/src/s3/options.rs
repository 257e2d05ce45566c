//! How the S3 front end is set up.

use std::fmt;

use serde::Deserialize;

/// Settings of the S3 front end that requests are judged by.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// May clients make and remove buckets?
    pub create_buckets: bool,
    /// Was the endpoint configured, so that requests for other hosts are mistakes?
    pub endpoint: Endpoint,
    /// What is between clients and the listener.
    pub transport: Transport,
    /// What a lease may read.
    pub read: Read,
}

/// Where the endpoint that clients are told comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// From the configuration.
    Configured,
    /// It is the address of the listener.
    Listener,
}

/// What is between clients and the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// This machine only.
    Loopback,
    /// A network, without encryption: whoever is on the way can read and change what the signature does not cover.
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
