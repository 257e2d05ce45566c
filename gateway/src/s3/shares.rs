//! A memory limit of which no peer gets more than a share.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::peer::PeerAddress;

/// The total, and the share of each peer.
pub(super) struct Shares {
    all: Arc<Semaphore>,
    share: usize,
    peers: Mutex<HashMap<PeerAddress, Weak<Semaphore>>>,
}

impl Shares {
    /// Each peer gets a quarter of the total, but at least `least`.
    pub(super) fn new(all: usize, least: usize) -> Shares {
        let share = (all / 4).max(least).max(1);
        Shares { all: Arc::new(Semaphore::new(all.max(share))), share, peers: Mutex::default() }
    }

    /// The share of a peer, common to all its connections.
    pub(super) fn of(&self, peer: PeerAddress) -> Share {
        let mut peers = self.peers.lock();
        let own = peers.get(&peer).and_then(Weak::upgrade).unwrap_or_else(|| {
            peers.retain(|_, own| own.strong_count() > 0);
            let own = Arc::new(Semaphore::new(self.share));
            peers.insert(peer, Arc::downgrade(&own));
            own
        });
        Share { all: self.all.clone(), own, most: self.share }
    }
}

/// The share of one peer.
#[derive(Clone)]
pub(super) struct Share {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    most: usize,
}

impl Share {
    /// Caps a request at the whole share, because more would never be available.
    fn units(&self, wanted: usize) -> u32 {
        u32::try_from(wanted.min(self.most)).unwrap_or(u32::MAX)
    }

    /// Takes room, if it is available now.
    pub(super) fn try_take(&self, wanted: usize) -> Option<Room> {
        let units = self.units(wanted);
        let own = self.own.clone().try_acquire_many_owned(units).ok()?;
        Some(Room { own, all: self.all.clone().try_acquire_many_owned(units).ok()? })
    }

    /// Takes room as soon as it is available. The peer's own share is taken first, so that waiting for it does not
    /// block other peers.
    pub(super) async fn take(self, wanted: usize) -> Option<Room> {
        let units = self.units(wanted);
        let own = self.own.acquire_many_owned(units).await.ok()?;
        Some(Room { own, all: self.all.acquire_many_owned(units).await.ok()? })
    }
}

/// Room that was taken, released on drop.
#[derive(Debug)]
pub(super) struct Room {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Room {
    /// Ties the room to bytes: it is released when the last of them is dropped.
    pub(super) fn over(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _room: self })
    }

    /// Ties as much of the room to bytes as they need.
    pub(super) fn part_over(&mut self, bytes: Bytes) -> Bytes {
        let part = bytes.len().min(self.own.num_permits());
        match (self.own.split(part), self.all.split(part)) {
            (Some(own), Some(all)) => Room { own, all }.over(bytes),
            _ => bytes,
        }
    }
}

struct Held {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> PeerAddress {
        PeerAddress::Ip([192, 0, 2, last].into())
    }

    #[test]
    fn s06_a_peer_gets_its_share_and_others_theirs() {
        let shares = Shares::new(40, 1);
        let (first, again, other) = (shares.of(address(1)), shares.of(address(1)), shares.of(address(2)));
        let held = first.try_take(8).unwrap().over(Bytes::from_static(b"12345678"));
        assert!(again.try_take(3).is_none(), "the same peer");
        let rooms: Vec<Room> = (2..5).map(|last| shares.of(address(last)).try_take(10).unwrap()).collect();
        assert!(other.try_take(1).is_none(), "its share is taken");
        assert!(shares.of(address(9)).try_take(3).is_none(), "two are left");
        drop(rooms);
        let kept = held.slice(2..3);
        drop(held);
        assert!(again.try_take(3).is_none(), "a slice still holds them");
        drop(kept);
        assert!(again.try_take(10).is_some());
        assert!(again.try_take(1000).is_some(), "no more than the share is asked for");
    }

    #[test]
    fn s06_parts_are_given_back_one_by_one() {
        let shares = Shares::new(40, 1);
        let share = shares.of(address(1));
        let mut room = share.try_take(10).unwrap();
        let part = room.part_over(Bytes::from_static(b"1234"));
        drop(part);
        assert!(share.try_take(5).is_none());
        assert!(share.try_take(4).is_some());
        drop(room);
        assert!(share.try_take(10).is_some());
    }

    #[test]
    fn peers_that_are_gone_are_forgotten() {
        let shares = Shares::new(40, 1);
        (0..100).for_each(|last| drop(shares.of(address(last))));
        assert_eq!(shares.peers.lock().len(), 1);
    }
}
