//! Places for connections and requests, limited in total and per peer.
//!
//! All local callers have the same address, so the limit per peer does not apply to them unless it is set explicitly.
//! Deadlines bound what one of them can take. In addition, when places run out, the most dispensable connection is
//! closed for the new one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::activity::{Activity, Asked, Deadlines};
use crate::peer::PeerAddress;

/// How long a connection keeps its place after its last answer while new connections need one.
const PATIENCE: Duration = Duration::from_secs(1);

/// The shortest time between two checks of all deadlines.
const REST: Duration = Duration::from_millis(20);

/// The limits of connections and requests.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// The most open connections.
    pub(crate) connections: usize,
    /// The most open connections of one peer.
    pub(crate) per_peer: usize,
    /// Whether the limit per peer also applies to local callers.
    pub(crate) binds_local: bool,
    /// The most requests under way.
    pub(crate) requests: usize,
}

/// Why there is no place. Each number is the limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All connections are in use.
    Connections(usize),
    /// All connections of this peer are in use.
    PeerConnections(usize),
    /// Too many requests are under way.
    Requests(usize),
    /// Too many requests of this peer are under way.
    PeerRequests(usize),
    /// The process has no file descriptor left.
    Descriptors,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Full::Connections(limit) => write!(f, "all {limit} connections are in use"),
            Full::PeerConnections(limit) => write!(f, "all {limit} connections that one address may have are in use"),
            Full::Requests(limit) => write!(f, "{limit} requests are under way, and no more are taken"),
            Full::PeerRequests(limit) => write!(f, "{limit} requests of one address are under way, its limit"),
            Full::Descriptors => f.write_str("the gateway has no file descriptor left"),
        }
    }
}

/// The places of one listener. The connections of a peer share one `T`.
pub(super) struct Places<T> {
    bounds: Bounds,
    table: Mutex<Table<T>>,
    requests: Arc<AtomicUsize>,
}

struct Table<T> {
    connections: HashMap<u64, (PeerAddress, Arc<Activity>)>,
    peers: HashMap<PeerAddress, (usize, Arc<Peer<T>>)>,
    next: u64,
}

/// State shared by the connections of a peer. For a local caller it covers only one connection, unless the limit per
/// peer applies to it.
pub(super) struct Peer<T> {
    requests: Arc<AtomicUsize>,
    requests_limit: usize,
    pub(super) share: T,
}

/// The place of a connection, released on drop.
pub(super) struct Place<T> {
    places: Arc<Places<T>>,
    id: u64,
    pub(super) peer: Arc<Peer<T>>,
}

/// The place of a request, released on drop.
pub(super) struct Slot {
    all: Arc<AtomicUsize>,
    of_peer: Arc<AtomicUsize>,
}

impl<T> Places<T> {
    pub(super) fn new(bounds: Bounds) -> Arc<Places<T>> {
        let table = Table { connections: HashMap::new(), peers: HashMap::new(), next: 0 };
        Arc::new(Places { bounds, table: Mutex::new(table), requests: Arc::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table<T>> {
        self.table.lock()
    }

    /// Takes a place. If none is free, a dispensable connection is closed for it.
    pub(super) fn take(
        self: &Arc<Self>,
        peer: PeerAddress,
        activity: &Arc<Activity>,
        share: impl FnOnce() -> T,
    ) -> Result<Place<T>, Full> {
        let Bounds { connections, per_peer, binds_local, requests } = self.bounds;
        let bound = binds_local || !peer.is_local();
        let mut table = self.table();
        let count = table.peers.get(&peer).map_or(0, |(count, _)| *count);
        if bound && count >= per_peer && !table.dismiss(Some(peer)) {
            return Err(Full::PeerConnections(per_peer));
        }
        if table.connections.len() >= connections && !table.dismiss(None) {
            return Err(Full::Connections(connections));
        }
        let requests_limit = if bound { (requests / 4).max(1) } else { requests };
        let known = table.peers.get(&peer).filter(|_| bound).map(|(_, shared)| shared.clone());
        let shared =
            known.unwrap_or_else(|| Arc::new(Peer { requests: Arc::default(), requests_limit, share: share() }));
        table.peers.entry(peer).or_insert_with(|| (0, shared.clone())).0 += 1;
        let id = table.next;
        table.next += 1;
        table.connections.insert(id, (peer, activity.clone()));
        Ok(Place { places: self.clone(), id, peer: shared })
    }
}

impl<T> Places<T> {
    /// Checks the deadlines of all connections, as long as it is polled.
    ///
    /// A connection that begins to wait after a check has its whole time from then on, so the shortest time left at a
    /// check, or the shortest deadline, is soon enough for the next one.
    pub(super) async fn watch(&self, deadlines: Deadlines) {
        loop {
            let soonest = deadlines.soonest();
            let next = self.table().connections.values().map(|(_, activity)| activity.check(deadlines)).min();
            tokio::time::sleep(next.map_or(soonest, |next| next.min(soonest)).max(REST)).await;
        }
    }

    /// Asks every connection to end when its requests are answered.
    pub(super) fn drain(&self) {
        for (_, activity) in self.table().connections.values() {
            activity.ask(Asked::Drain);
        }
    }
}

impl<T> Table<T> {
    /// Closes the most dispensable connection, only of this peer if one is given. Its place is free at once; the
    /// connection ends shortly after.
    fn dismiss(&mut self, of: Option<PeerAddress>) -> bool {
        let candidates = self.connections.iter().filter(|(_, (peer, _))| of.is_none_or(|of| of == *peer));
        let ranked = candidates.filter_map(|(id, (_, activity))| Some((activity.dispensable(PATIENCE)?, *id)));
        let Some((_, id)) = ranked.max() else { return false };
        if let Some(activity) = self.remove(id) {
            activity.ask(Asked::Leave);
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Activity>> {
        let (peer, activity) = self.connections.remove(&id)?;
        if let Entry::Occupied(mut entry) = self.peers.entry(peer) {
            entry.get_mut().0 -= 1;
            if entry.get().0 == 0 {
                entry.remove();
            }
        }
        Some(activity)
    }
}

impl<T> Place<T> {
    /// Takes a place for a request.
    pub(super) fn request(&self) -> Result<Slot, Full> {
        let Peer { requests, requests_limit, .. } = &*self.peer;
        let slot = Slot { all: self.places.requests.clone(), of_peer: requests.clone() };
        let (all, of_peer) = (slot.all.fetch_add(1, Ordering::Relaxed), slot.of_peer.fetch_add(1, Ordering::Relaxed));
        if all >= self.places.bounds.requests {
            return Err(Full::Requests(self.places.bounds.requests));
        }
        if of_peer >= *requests_limit {
            return Err(Full::PeerRequests(*requests_limit));
        }
        Ok(slot)
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.places.table().remove(self.id);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        self.of_peer.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> PeerAddress {
        PeerAddress::of(std::net::SocketAddr::new(text.parse().unwrap(), 1))
    }

    fn places(binds_local: bool) -> Arc<Places<()>> {
        Places::new(Bounds { connections: 4, per_peer: 2, binds_local, requests: 8 })
    }

    /// A connection that was answered before.
    fn take(places: &Arc<Places<()>>, address: &str) -> Result<(Place<()>, Arc<Activity>), Full> {
        let activity = Activity::new();
        activity.sending();
        activity.sent();
        places.take(peer(address), &activity, || ()).map(|place| (place, activity))
    }

    #[tokio::test]
    async fn s12_a_peer_has_its_share_and_leaves_the_rest_to_others() {
        let places = places(false);
        let held: Vec<_> = (0..2).map(|_| take(&places, "192.0.2.1").unwrap()).collect();
        assert_eq!(take(&places, "192.0.2.1").err(), Some(Full::PeerConnections(2)));
        let other = take(&places, "192.0.2.2").unwrap();
        drop(held);
        assert!(take(&places, "192.0.2.1").is_ok());
        drop(other);
        let local: Vec<_> = (0..4).map(|_| take(&places, "127.0.0.1").unwrap()).collect();
        assert_eq!(local.len(), 4, "callers on this machine share an address, and are not bound");
        assert_eq!(take(&places, "127.0.0.1").err(), Some(Full::Connections(4)));
    }

    #[tokio::test]
    async fn s12_a_limit_that_was_set_binds_callers_on_this_machine_too() {
        let places = places(true);
        let _held: Vec<_> = (0..2).map(|_| take(&places, "127.0.0.1").unwrap()).collect();
        assert_eq!(take(&places, "127.0.0.1").err(), Some(Full::PeerConnections(2)));
        assert!(take(&places, "127.0.0.2").is_ok());
    }

    #[tokio::test]
    async fn s12_the_longest_idle_connection_makes_room() {
        let places = places(false);
        let mut held: Vec<_> = (0..3).map(|_| take(&places, "127.0.0.1").unwrap()).collect();
        let busy = held[0].1.begin();
        tokio::time::sleep(PATIENCE + Duration::from_millis(50)).await;
        let silent = Activity::new();
        let _place = places.take(peer("127.0.0.1"), &silent, || ()).unwrap();
        // A connection that never sent a request is closed first, regardless of its age, then idle ones; a busy one
        // never.
        held.push(take(&places, "127.0.0.1").unwrap());
        tokio::time::timeout(PATIENCE / 2, silent.dismissed()).await.unwrap();
        for _ in 0..2 {
            held.push(take(&places, "127.0.0.1").unwrap());
        }
        for dismissed in [1, 2] {
            tokio::time::timeout(PATIENCE / 2, held[dismissed].1.dismissed()).await.unwrap();
        }
        assert!(take(&places, "127.0.0.1").is_err(), "the others were used just now");
        drop(busy);
    }

    #[tokio::test]
    async fn requests_of_a_peer_have_a_share() {
        let places = places(false);
        let ((first, _), (second, _)) = (take(&places, "192.0.2.1").unwrap(), take(&places, "192.0.2.1").unwrap());
        let held = [first.request(), second.request()];
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(first.request().err(), Some(Full::PeerRequests(2)));
        let (other, _) = take(&places, "192.0.2.2").unwrap();
        assert!(other.request().is_ok());
        drop(held);
        assert!(first.request().is_ok());
    }
}
