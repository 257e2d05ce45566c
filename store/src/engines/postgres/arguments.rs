//! The arguments of `apply`: a batch, sorted by what happens to each record.

use std::collections::BTreeMap;

use fencepost_remote::postgres::{ToSql, Type};

use crate::engine::{Batch, Change, Version};
use crate::record::RecordKey;

/// What happens to one record.
#[derive(Default)]
struct Part<'b> {
    /// Compared, and with what. `Some(None)`: as absent.
    compared: Option<Option<Version>>,
    /// The last change, with its place in the batch.
    change: Option<(usize, &'b Change)>,
}

/// The arguments of one call. Every list is sorted by key, and has each key once.
#[derive(Default)]
pub(super) struct Arguments<'b> {
    /// Whether the call changes what every batch compares.
    pub(super) alone: bool,
    shared: Vec<&'b [u8]>,
    shared_want: Vec<i64>,
    held: Vec<&'b [u8]>,
    held_want: Vec<Option<i64>>,
    absent: Vec<&'b [u8]>,
    fresh: Vec<&'b [u8]>,
    fresh_at: Vec<i32>,
    fresh_bytes: Vec<&'b [u8]>,
    put: Vec<&'b [u8]>,
    put_at: Vec<i32>,
    put_bytes: Vec<&'b [u8]>,
    gone: Vec<&'b [u8]>,
}

/// A version as the database keeps it.
fn number(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX)
}

impl<'b> Arguments<'b> {
    pub(super) fn of(batch: &'b Batch) -> Arguments<'b> {
        let mut parts: BTreeMap<&'b RecordKey, Part<'b>> = BTreeMap::new();
        for (key, version) in &batch.compare {
            parts.entry(key).or_default().compared = Some(*version);
        }
        for (at, (key, change)) in batch.changes.iter().enumerate() {
            parts.entry(key).or_default().change = Some((at, change));
        }
        let mut arguments = Arguments::default();
        let shared: BTreeMap<_, _> = batch.shared.iter().map(|(key, version)| (key, *version)).collect();
        for (key, version) in &shared {
            arguments.shared.push(key.as_bytes());
            arguments.shared_want.push(number(*version));
            arguments.alone |= parts.contains_key(key);
        }
        // Locks must be taken in the order of keys. Records that are compared are locked first; those that are only written
        // need to be locked with them unless they all come behind.
        let is_held = |part: &Part<'_>| matches!(part.compared, Some(Some(_)));
        let is_blind = |part: &Part<'_>| part.compared.is_none() && part.change.is_some();
        let last_held = parts.iter().rev().find(|(_, part)| is_held(part)).map(|(key, _)| *key);
        let first_blind = parts.iter().find(|(_, part)| is_blind(part)).map(|(key, _)| *key);
        // What is inserted comes between the two, and an insert may wait for another commit; removals come last, in any
        // order.
        let inserts = parts.values().any(|part| part.compared == Some(None));
        let removes = parts.values().any(|part| is_blind(part) && matches!(part.change, Some((_, Change::Delete))));
        let is_out_of_order = matches!((last_held, first_blind), (Some(held), Some(blind)) if held > blind);
        let lock_blind = inserts || removes || is_out_of_order;
        for (key, part) in &parts {
            arguments.add(key.as_bytes(), part, lock_blind && is_blind(part));
        }
        arguments
    }

    fn add(&mut self, key: &'b [u8], part: &Part<'b>, lock: bool) {
        match part.compared {
            Some(Some(version)) => {
                self.held.push(key);
                self.held_want.push(Some(number(version)));
            }
            None if lock => {
                self.held.push(key);
                self.held_want.push(None);
            }
            Some(None) | None => {}
        }
        match (part.compared, part.change) {
            (Some(None), Some((at, Change::Put(bytes)))) => {
                self.fresh.push(key);
                self.fresh_at.push(place(at));
                self.fresh_bytes.push(bytes);
            }
            (Some(None), None | Some((_, Change::Delete))) => self.absent.push(key),
            (_, Some((at, Change::Put(bytes)))) => {
                self.put.push(key);
                self.put_at.push(place(at));
                self.put_bytes.push(bytes);
            }
            (_, Some((_, Change::Delete))) => self.gone.push(key),
            (_, None) => {}
        }
    }

    /// The arguments in the order of the function's parameters. `history` is the timeline that the server must have,
    /// `standby` whether a synchronous standby must have the commit.
    pub(super) fn values<'a>(
        &'a self,
        history: &'a Option<String>,
        standby: &'a bool,
    ) -> [(&'a (dyn ToSql + Sync), Type); 14] {
        [
            (&self.shared, Type::BYTEA_ARRAY),
            (&self.shared_want, Type::INT8_ARRAY),
            (&self.held, Type::BYTEA_ARRAY),
            (&self.held_want, Type::INT8_ARRAY),
            (&self.absent, Type::BYTEA_ARRAY),
            (&self.fresh, Type::BYTEA_ARRAY),
            (&self.fresh_at, Type::INT4_ARRAY),
            (&self.fresh_bytes, Type::BYTEA_ARRAY),
            (&self.put, Type::BYTEA_ARRAY),
            (&self.put_at, Type::INT4_ARRAY),
            (&self.put_bytes, Type::BYTEA_ARRAY),
            (&self.gone, Type::BYTEA_ARRAY),
            (history, Type::TEXT),
            (standby, Type::BOOL),
        ]
    }
}

/// The place of a change in its batch, which has at most [`super::MAX_CHANGES`].
fn place(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fencepost_core::Key;

    use super::*;
    use crate::engine::{AsOf, Purpose};

    fn key(name: &str) -> RecordKey {
        RecordKey::value(&Key::new(name).unwrap())
    }

    fn put(name: &str, text: &'static str) -> (RecordKey, Change) {
        (key(name), Change::Put(Bytes::from_static(text.as_bytes())))
    }

    fn batch(compare: Vec<(RecordKey, Option<Version>)>, changes: Vec<(RecordKey, Change)>) -> Batch {
        Batch {
            as_of: AsOf(0),
            shared: vec![(RecordKey::meta(), Version(7))],
            compare,
            changes,
            purpose: Purpose::Store,
        }
    }

    fn names(keys: &[&[u8]]) -> Vec<String> {
        keys.iter().map(|key| String::from_utf8_lossy(&key[1..]).into_owned()).collect()
    }

    #[test]
    fn records_are_sorted_by_what_happens_to_them() {
        let compare =
            vec![(key("d"), None), (key("b"), Some(Version(5))), (key("a"), None), (key("c"), Some(Version(6)))];
        let changes = vec![put("e", "1"), put("d", "2"), put("b", "3"), (key("c"), Change::Delete), put("e", "4")];
        let batch = batch(compare, changes);
        let found = Arguments::of(&batch);
        assert_eq!(
            (names(&found.shared), &found.shared_want[..], found.alone),
            (vec!["store".into()], &[7][..], false)
        );
        // `e` is only written, and locked first because `a` and `d` are inserted.
        assert_eq!(names(&found.held), ["b", "c", "e"]);
        assert_eq!(found.held_want, [Some(5), Some(6), None]);
        assert_eq!(names(&found.absent), ["a"]);
        assert_eq!((names(&found.fresh), &found.fresh_at[..]), (vec!["d".into()], &[1][..]));
        assert_eq!(
            (names(&found.put), &found.put_at[..]),
            (vec!["b".into(), "e".into()], &[2, 4][..]),
            "the last wins"
        );
        assert_eq!(found.put_bytes, [b"3", b"4"]);
        assert_eq!(names(&found.gone), ["c"]);
    }

    #[test]
    fn what_is_only_written_is_locked_unless_it_comes_behind() {
        let behind = batch(vec![(key("a"), Some(Version(5)))], vec![put("b", ""), put("c", "")]);
        assert_eq!(names(&Arguments::of(&behind).held), ["a"]);
        let before = batch(vec![(key("b"), Some(Version(5)))], vec![put("a", ""), put("c", "")]);
        let found = Arguments::of(&before);
        assert_eq!((names(&found.held).join(""), &found.held_want[..]), ("abc".into(), &[None, Some(5), None][..]));
    }

    #[test]
    fn a_batch_that_changes_what_is_shared_commits_alone() {
        let batch = batch(Vec::new(), vec![(RecordKey::meta(), Change::Put(Bytes::new()))]);
        assert!(Arguments::of(&batch).alone);
    }
}
