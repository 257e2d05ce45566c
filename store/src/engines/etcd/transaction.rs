//! A commit as one transaction of etcd: comparisons, then puts and removals, each key once.

use std::collections::BTreeMap;

use bytes::Bytes;
use fencepost_remote::etcd::messages::{
    Compare, DeleteRangeRequest, Operation, PutRequest, RangeRequest, RequestOp, TxnRequest,
};

use super::history::History;
use super::keys::value;
use super::settings::Settings;
use crate::engine::{Batch, Change};
use crate::record::RecordKey;

/// The most changes that a commit can have: their places are counted in two bytes.
const MAX_CHANGES: usize = 1 << 16;

/// A commit, ready to be sent.
pub(super) struct Transaction {
    pub(super) request: TxnRequest,
    /// A key that is compared and changed, if there is one, and the revision with which it is compared. It shows whether
    /// the transaction was done.
    pub(super) witness: Option<(Bytes, i64)>,
}

impl Transaction {
    /// Fails if the batch is more than one transaction can hold.
    pub(super) fn of(batch: &Batch, settings: &Settings, history: &History) -> Result<Transaction, String> {
        if batch.changes.len() > MAX_CHANGES {
            return Err(format!("it makes {} changes; a commit can have {MAX_CHANGES}", batch.changes.len()));
        }
        let keys = &settings.keys;
        let compared: BTreeMap<&RecordKey, i64> = batch
            .compared()
            .map(|(key, version)| (key, version.map_or(0, |version| history.revision(version))))
            .collect();
        // Another gateway may have accepted another history since.
        let note = Compare::changed_by(keys.history(), history.noted_by);
        let records = compared.iter().map(|(key, revision)| Compare::changed_by(keys.of(key.as_bytes()), *revision));
        let compare: Vec<Compare> = std::iter::once(note).chain(records).collect();
        // etcd refuses a key that comes twice. The last change of a key is the one that stays, and keeps its place.
        let changes: BTreeMap<&RecordKey, (usize, &Change)> =
            batch.changes.iter().enumerate().map(|(at, (key, change))| (key, (at, change))).collect();
        let mut success: Vec<RequestOp> =
            changes.iter().map(|(key, (at, change))| operation(keys.of(key.as_bytes()), *at, change).into()).collect();
        // Versions come from revisions, and a transaction that only removes what is absent has no revision of its own.
        let has_revision = changes.iter().any(|(key, (_, change))| match change {
            Change::Put(_) => true,
            Change::Delete => compared.get(*key).is_some_and(|revision| *revision > 0),
        });
        if !changes.is_empty() && !has_revision {
            success.push(Operation::Put(PutRequest { key: keys.tick(), value: Bytes::new() }).into());
        }
        // One without any operation would be answered from what a single member knows, which may be old.
        if success.is_empty() {
            success.push(look_at(keys.history()).into());
        }
        if compare.len().max(success.len()) > settings.max_ops {
            return Err(format!(
                "it compares {} keys and changes {}, and etcd takes {} of each at once (max_ops)",
                compare.len(),
                success.len(),
                settings.max_ops
            ));
        }
        let witness = compared.iter().find(|(key, _)| changes.contains_key(*key));
        let witness = witness.map(|(key, revision)| (keys.of(key.as_bytes()), *revision));
        let request = TxnRequest { compare, success, failure: vec![look_at(keys.history()).into()] };
        let (size, limit) = (request.size(), settings.max_request());
        match size <= limit {
            true => Ok(Transaction { request, witness }),
            false => Err(format!("it has {size} bytes, and etcd takes {limit} at once (max_bytes)")),
        }
    }
}

fn operation(key: Bytes, at: usize, change: &Change) -> Operation {
    match change {
        Change::Put(bytes) => Operation::Put(PutRequest { key, value: value(place(at), bytes) }),
        Change::Delete => Operation::DeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }),
    }
}

fn place(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Reads which revision changed a key, and not its value.
pub(super) fn look_at(key: Bytes) -> Operation {
    Operation::Range(RangeRequest { key, keys_only: true, ..RangeRequest::default() })
}

#[cfg(test)]
mod tests {
    use fencepost_core::Key;
    use fencepost_remote::ServerUrl;
    use fencepost_remote::etcd::messages::Target;

    use super::*;
    use crate::engine::{AsOf, Purpose, Version};

    fn settings() -> Settings {
        Settings::read(&ServerUrl::parse("etcd://a/p?max_ops=16&max_bytes=65536").unwrap()).unwrap()
    }

    fn at(name: &str) -> RecordKey {
        RecordKey::value(&Key::new(name).unwrap())
    }

    fn put(name: &str, text: &str) -> (RecordKey, Change) {
        (at(name), Change::Put(Bytes::copy_from_slice(text.as_bytes())))
    }

    fn batch(compare: Vec<(RecordKey, Option<Version>)>, changes: Vec<(RecordKey, Change)>) -> Batch {
        Batch {
            as_of: AsOf(0),
            shared: vec![(RecordKey::meta(), Version(5 << 16))],
            compare,
            changes,
            purpose: Purpose::Store,
        }
    }

    fn transaction(batch: &Batch) -> Result<Transaction, String> {
        Transaction::of(batch, &settings(), &History::new(1).noted(3))
    }

    /// Key and revision of each comparison.
    fn compared(transaction: &Transaction) -> Vec<(&[u8], i64)> {
        let of = |compare: &Compare| match compare.target_union {
            Some(Target::ModRevision(revision)) => revision,
            None => panic!("it names a revision"),
        };
        transaction.request.compare.iter().map(|compare| (&compare.key[..], of(compare))).collect()
    }

    #[test]
    fn every_record_is_compared_and_so_is_the_history() {
        let compare = vec![(at("a"), Some(Version((9 << 16) + 4))), (at("b"), None)];
        let transaction = transaction(&batch(compare, vec![put("b", "1")])).unwrap();
        let expected: [(&[u8], i64); 4] = [(b"p/!history", 3), (b"p/ka", 9), (b"p/kb", 0), (b"p/mstore", 5)];
        assert_eq!(compared(&transaction), expected);
        assert_eq!(transaction.witness, Some((Bytes::from_static(b"p/kb"), 0)));
        let failure: [RequestOp; 1] = [look_at(Bytes::from_static(b"p/!history")).into()];
        assert_eq!(transaction.request.failure, failure);
    }

    #[test]
    fn the_last_change_of_a_key_stays_and_keeps_its_place() {
        let changes = vec![put("a", "1"), put("b", "1"), (at("b"), Change::Delete), put("a", "2")];
        let transaction = transaction(&batch(Vec::new(), changes)).unwrap();
        let expected: [RequestOp; 2] = [
            Operation::Put(PutRequest { key: Bytes::from_static(b"p/ka"), value: Bytes::from_static(b"\0\x032") })
                .into(),
            Operation::DeleteRange(DeleteRangeRequest {
                key: Bytes::from_static(b"p/kb"),
                ..DeleteRangeRequest::default()
            })
            .into(),
        ];
        assert_eq!(transaction.request.success, expected);
        assert_eq!(transaction.witness, None);
    }

    #[test]
    fn a_commit_that_may_change_nothing_has_a_revision_all_the_same() {
        let tick: RequestOp =
            Operation::Put(PutRequest { key: Bytes::from_static(b"p/!tick"), value: Bytes::new() }).into();
        let gone = || vec![(at("a"), Change::Delete)];
        for (compare, ticks) in
            [(Vec::new(), true), (vec![(at("a"), None)], true), (vec![(at("a"), Some(Version(9 << 16)))], false)]
        {
            let transaction = transaction(&batch(compare, gone())).unwrap();
            assert_eq!(transaction.request.success.contains(&tick), ticks);
        }
        let only_compares = transaction(&batch(Vec::new(), Vec::new())).unwrap();
        assert_eq!(only_compares.request.success.len(), 1, "otherwise it would not be linearizable");
        assert!(!only_compares.request.success.contains(&tick));
    }

    #[test]
    fn the_limits_count_comparisons_and_changes_apart() {
        let names = |count: usize| (0..count).map(|n| format!("n{n}"));
        let compare = |count| names(count).map(|name| (at(&name), None)).collect::<Vec<_>>();
        let changes = |count| names(count).map(|name| put(&name, "")).collect::<Vec<_>>();
        // The history and the store's own record are compared as well.
        assert!(transaction(&batch(compare(14), changes(16))).is_ok());
        for (compare, changes) in [(compare(15), changes(1)), (compare(1), changes(17))] {
            let why = transaction(&batch(compare, changes)).err().unwrap();
            assert!(why.contains("takes 16 of each") && why.contains("max_ops"), "{why}");
        }
    }

    #[test]
    fn the_bytes_of_the_whole_request_are_limited() {
        let fits = settings().max_request() - 200;
        assert!(transaction(&batch(Vec::new(), vec![put("a", &"x".repeat(fits))])).is_ok());
        let why = transaction(&batch(Vec::new(), vec![put("a", &"x".repeat(fits + 200))])).err().unwrap();
        assert!(why.contains("max_bytes") && why.contains(&settings().max_request().to_string()), "{why}");
    }
}
