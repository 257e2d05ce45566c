//! File descriptors: enough for the configured limits, and one spare.

use std::fs::File;
use std::io;

use futures_util::FutureExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Limits;

/// Tables, logs and other files of the engine (`max_open_files`, and files that it does not count).
const ENGINE: usize = 320;

/// Connections of one named engine to its server.
const NAMED_ENGINE: usize = 16;

/// Object files that one S3 request has open at once: the source and the target of a copy.
const PER_S3_REQUEST: usize = 2;

/// Descriptors for everything else: listeners, logs, the runtime, connections that are being closed.
const RESERVE: usize = 256;

/// A gateway with fewer connections than this is not useful.
const LEAST_CONNECTIONS: usize = 16;

/// Why the limit of open files is too low.
#[derive(Debug, thiserror::Error)]
#[error(
    "the limit of open files (nofile) is {available}, and {needed} are needed for {LEAST_CONNECTIONS} connections: \
     raise it with `ulimit -n`, or `LimitNOFILE=` of the service"
)]
pub(crate) struct TooFewFiles {
    available: usize,
    needed: usize,
}

/// Raises the soft limit of open files to the hard one, and lowers `max_connections` to what fits. Idle connections
/// must not take the descriptors that the engines need for a write.
pub(crate) fn fit(limits: &mut Limits, s3: bool, named_engines: usize) -> Result<(), TooFewFiles> {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    let available =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    let available = available.saturating_sub(named_engines * NAMED_ENGINE);
    let wanted = limits.connections;
    limits.connections = fitting(limits, s3, available)?;
    if limits.connections < wanted {
        tracing::warn!(
            nofile = available,
            "max_connections is {} instead of {wanted}: the limit of open files allows no more",
            limits.connections
        );
    }
    Ok(())
}

/// The largest number of connections that fits.
fn fitting(limits: &Limits, s3: bool, available: usize) -> Result<usize, TooFewFiles> {
    let least = limits.connections.min(LEAST_CONNECTIONS);
    let mut candidate = limits.clone();
    for connections in (least..=limits.connections).rev() {
        candidate.connections = connections;
        if needed(&candidate, s3) <= available {
            return Ok(connections);
        }
    }
    candidate.connections = least;
    Err(TooFewFiles { available, needed: needed(&candidate, s3) })
}

/// Descriptors that may be in use at once.
fn needed(limits: &Limits, s3: bool) -> usize {
    let for_s3 = if s3 { limits.connections + PER_S3_REQUEST * limits.s3_requests() } else { 0 };
    limits.connections + for_s3 + Limits::ADMIN_CONNECTIONS + ENGINE + RESERVE
}

/// A descriptor that is released when no other is left, so that a client can be answered.
pub(super) struct Spare(Option<File>);

impl Spare {
    pub(super) fn new() -> Spare {
        Spare(File::open("/dev/null").ok())
    }

    /// Accepts a waiting connection with the spare descriptor. The caller closes it soon.
    pub(super) async fn lend<T, A: Future<Output = io::Result<T>>>(&mut self, accept: impl FnOnce() -> A) -> Option<T> {
        self.0 = None;
        accept().now_or_never().and_then(Result::ok)
    }

    /// Reserves a descriptor again after it was lent, if one is available.
    pub(super) fn refill(&mut self) {
        if self.0.is_none() {
            self.0 = File::open("/dev/null").ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s03_connections_are_lowered_to_what_the_limit_of_open_files_allows() {
        let limits = Limits::default();
        let fits = |s3, available| fitting(&limits, s3, available).ok();
        assert_eq!(fits(false, 1 << 20), Some(limits.connections));
        assert_eq!(fits(false, 1024), Some(1024 - ENGINE - RESERVE - Limits::ADMIN_CONNECTIONS));
        assert!(fits(true, 1024).is_some_and(|connections| connections < fits(false, 1024).unwrap()));
        assert_eq!(fits(false, 256), None);
        let few = Limits { connections: 2, ..Limits::default() };
        assert_eq!(fitting(&few, false, 1024).ok(), Some(2), "what was asked for is not raised");
    }
}
