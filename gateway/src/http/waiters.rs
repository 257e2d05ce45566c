//! Requests that wait for a lock. Each occupies a connection, or a stream of one, for up to ten minutes. At most half
//! of the connections, and half of the streams of each, may wait, so that a holder can always connect, renew, write and
//! release.

use std::sync::Arc;

use fencepost_core::ProblemKind;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::front_end::MAX_STREAMS;
use super::problem::{Problem, SOON};

/// Requests of one HTTP/2 connection that may wait at once.
const MAX_WAITS: usize = MAX_STREAMS as usize / 2;

/// How many connections may have requests that wait.
pub(super) struct WaitingConnections {
    free: Arc<Semaphore>,
    limit: usize,
}

/// The waiting requests of one connection.
#[derive(Default)]
pub(super) struct ConnectionWaits(Mutex<Waits>);

#[derive(Default)]
struct Waits {
    count: usize,
    /// Held while any request of the connection waits.
    connection: Option<OwnedSemaphorePermit>,
}

/// Counts a waiting request until it is dropped.
pub(super) struct Waiting<'c>(&'c ConnectionWaits);

/// Why a request cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Connections(usize),
    Streams,
}

impl WaitingConnections {
    /// Allows half of all connections to wait.
    pub(super) fn of(connections: usize) -> WaitingConnections {
        let limit = connections / 2;
        WaitingConnections { free: Arc::new(Semaphore::new(limit)), limit }
    }

    /// Counts a request that is about to wait.
    pub(super) fn enter<'c>(&self, connection: &'c ConnectionWaits) -> Result<Waiting<'c>, Full> {
        let mut waits = connection.waits();
        if waits.count >= MAX_WAITS {
            return Err(Full::Streams);
        }
        if waits.connection.is_none() {
            let free = self.free.clone().try_acquire_owned();
            waits.connection = Some(free.map_err(|_| Full::Connections(self.limit))?);
        }
        waits.count += 1;
        Ok(Waiting(connection))
    }
}

impl ConnectionWaits {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock()
    }
}

impl std::fmt::Debug for ConnectionWaits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConnectionWaits").field(&self.waits().count).finish()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.waits();
        waits.count -= 1;
        if waits.count == 0 {
            waits.connection = None;
        }
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Problem {
        let detail = match full {
            Full::Connections(limit) => {
                format!(
                    "too many wait for locks: {limit} connections may, and the others are kept for those who hold one"
                )
            }
            Full::Streams => format!("too many wait for locks: {MAX_WAITS} requests of one connection may"),
        };
        Problem::new(ProblemKind::Overloaded, detail).advice("Nothing was done. Try again shortly.").not_applied(SOON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c05_half_of_the_connections_and_half_of_their_streams_may_wait() {
        let all = WaitingConnections::of(5);
        let connections: [ConnectionWaits; 3] = Default::default();
        let first = all.enter(&connections[0]).unwrap();
        let many: Vec<_> = (1..MAX_WAITS).map(|_| all.enter(&connections[0]).unwrap()).collect();
        assert_eq!(all.enter(&connections[0]).err(), Some(Full::Streams));
        let second = all.enter(&connections[1]).unwrap();
        assert_eq!(all.enter(&connections[2]).err(), Some(Full::Connections(2)));
        drop(first);
        assert_eq!(all.enter(&connections[2]).err(), Some(Full::Connections(2)), "others of it still wait");
        drop(many);
        assert!(all.enter(&connections[2]).is_ok());
        drop(second);
        assert!(WaitingConnections::of(1).enter(&connections[0]).is_err());
    }
}
