//! The kinds of requests that a load sends.

use std::fmt;

/// One kind of request, repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Durable fenced writes.
    Put,
    /// Writes with an old token.
    Stale,
    /// Half with the current token, half with an old one.
    Mixed,
    /// Plain reads.
    Get,
    /// Reads with the current token.
    CheckedGet,
    /// Claims: raise the fence and read.
    Claim,
    /// A transaction of four keys of four resources.
    Txn,
    /// A lock taken and given back.
    Lock,
    /// Health checks, which measure HTTP alone.
    Healthz,
}

/// Every workload, with its name and what it does.
pub const WORKLOADS: &[(Workload, &str, &str)] = &[
    (Workload::Put, "put", "durable fenced writes"),
    (Workload::Stale, "stale", "writes with an old token, refused"),
    (Workload::Mixed, "mixed", "half good writes, half stale ones"),
    (Workload::Get, "get", "plain reads"),
    (Workload::CheckedGet, "checked-get", "reads with the current token"),
    (Workload::Claim, "claim", "the fence raised and the value read"),
    (Workload::Txn, "txn", "transactions of four keys of four resources"),
    (Workload::Lock, "lock", "a lock acquired and released, counted as one"),
    (Workload::Healthz, "healthz", "nothing but HTTP"),
];

impl Workload {
    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        WORKLOADS.iter().find(|(workload, ..)| *workload == self).map_or("", |(_, name, _)| name)
    }

    /// The workload of this name.
    pub fn find(name: &str) -> Option<Workload> {
        WORKLOADS.iter().find(|(_, known, _)| *known == name).map(|(workload, ..)| *workload)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
