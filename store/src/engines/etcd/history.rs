//! The history of the records: which cluster they are in, and how versions follow from its revisions.
//!
//! A snapshot that is restored has a lower revision than the cluster had, so its revisions are given out again. Versions
//! are not (E3): once the snapshot is accepted, they are far ahead of its revisions.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::engine::Version;

/// The format of the note.
const FORMAT: u8 = 1;

const NOTE_BYTES: usize = 17;

/// How far versions are moved ahead when another history is accepted: above any number of revisions that may have been
/// lost.
const AHEAD: u64 = 1 << 36;

/// A revision that no record has. A comparison with it fails.
const NEVER: i64 = -1;

/// What the engine's own note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// The cluster that the records are in.
    pub(super) cluster: u64,
    /// How far versions are ahead of revisions.
    ahead: u64,
    /// The revision that wrote the note. Every commit compares it.
    pub(super) noted_by: i64,
}

impl History {
    /// The history of a new store.
    pub(super) fn new(cluster: u64) -> History {
        History { cluster, ahead: 0, noted_by: 0 }
    }

    /// The history after this one, when its records are found in a cluster, and some of the latest may be missing.
    pub(super) fn next(self, cluster: u64) -> History {
        History { cluster, ahead: self.ahead + AHEAD, noted_by: 0 }
    }

    /// The same, with its note written by this revision.
    pub(super) fn noted(self, noted_by: i64) -> History {
        History { noted_by, ..self }
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut note = BytesMut::with_capacity(NOTE_BYTES);
        note.put_u8(FORMAT);
        note.put_u64(self.cluster);
        note.put_u64(self.ahead);
        note.freeze()
    }

    /// Reads the note, which was written by this revision.
    pub(super) fn decode(mut note: &[u8], noted_by: i64) -> Result<History, Unreadable> {
        match note.first() {
            Some(&FORMAT) if note.len() == NOTE_BYTES => {}
            Some(&newer) if newer > FORMAT => return Err(Unreadable::Newer(newer)),
            _ => return Err(Unreadable::Nonsense),
        }
        note.advance(1);
        Ok(History { cluster: note.get_u64(), ahead: note.get_u64(), noted_by })
    }

    /// The number of a revision in this history. It grows with every commit, and is never given out again.
    pub(super) fn number(&self, revision: i64) -> u64 {
        self.ahead + revision.unsigned_abs()
    }

    /// The version of a change, given its revision and its place in the commit.
    pub(super) fn version(&self, revision: i64, place: u16) -> Version {
        Version((self.number(revision) << 16) | u64::from(place))
    }

    /// The revision of a version.
    pub(super) fn revision(&self, version: Version) -> i64 {
        let revision = (version.0 >> 16).checked_sub(self.ahead).and_then(|revision| i64::try_from(revision).ok());
        revision.filter(|revision| *revision > 0).unwrap_or(NEVER)
    }
}

/// Why the note cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It was written by a later version of fencepost, in this format.
    Newer(u8),
    /// It is not a note of ours.
    Nonsense,
}

impl Unreadable {
    /// The newest format that is read.
    pub(super) const KNOWN: u8 = FORMAT;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back() {
        let history = History::new(42).next(43).noted(7);
        assert_eq!(History::decode(&history.encode(), 7), Ok(history));
        assert_eq!(History::decode(&[2, 0], 7), Err(Unreadable::Newer(2)));
        for nonsense in [&b""[..], b"\x01", b"\0", &[1; 18]] {
            assert_eq!(History::decode(nonsense, 7), Err(Unreadable::Nonsense));
        }
    }

    #[test]
    fn a_version_has_its_revision_and_its_place() {
        let history = History::new(1);
        assert_eq!(history.version(3, 5), Version((3 << 16) + 5));
        assert_eq!(history.revision(Version((3 << 16) + 5)), 3);
        assert_eq!(history.revision(Version(5)), NEVER);
    }

    #[test]
    fn versions_of_an_accepted_history_are_new() {
        let old = History::new(1);
        let new = old.next(1);
        let lost = old.version(1 << 35, u16::MAX);
        assert!(new.version(1, 0) > lost);
        assert_eq!(new.revision(lost), NEVER, "what was lost equals nothing");
        assert_eq!(new.revision(new.version(9, 1)), 9);
        assert!(new.next(2).version(1, 0) > new.version(1 << 35, 0));
    }
}
