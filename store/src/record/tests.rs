//! Records decode to what was encoded, and no input makes a decoder panic.

use super::*;
use crate::engine::Version;
use crate::outcome::{Done, FailedCondition, FinalOutcome, Grant, Impossible, ImpossibleAddition, Transacted};
use crate::unsettled::Unsettled;
use fencepost_core::{FenceState, Holder, Issuer, Reason, Token};
use proptest::prelude::*;
use std::num::NonZeroU64;

fn any_label() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[a-z#:0-9]{1,20}")
}

proptest! {
    #[test]
    fn fences_round_trip(
        generation in any::<u32>(), high in any::<u64>(), spent in any::<bool>(),
        holder in any_label(), issuer in any_label(), raised_at in prop::option::of(any::<u64>()),
    ) {
        let state = FenceState {
            generation, high: NonZeroU64::new(high), spent,
            holder: holder.map(|h| Holder::new(&h).unwrap()),
            issuer: issuer.map(|i| Issuer::new(&i).unwrap()),
            raised_at: raised_at.map(Timestamp),
        };
        prop_assert_eq!(decode_fence(&encode_fence(&state)), Ok(state));
    }

    #[test]
    fn values_round_trip(
        token in prop::option::of((any::<u32>(), 1u64..)), content_type in prop::option::of("[a-z/]{0,40}"),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let value = Value { token: token.map(|(g, n)| Token::new(g, n).unwrap()), content_type, body: body.into() };
        prop_assert_eq!(Value::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let bytes = Bytes::from(bytes);
        let _ = (decode_fence(&bytes), Value::decode(&bytes), Meta::decode(&bytes));
        let _ = (LockRecord::decode(&bytes), Recorded::decode(&bytes, Version(9)), decode_index(&bytes));
    }
}

#[test]
fn the_stores_record_round_trips_and_a_newer_format_is_refused() {
    let meta = Meta {
        format: FORMAT,
        store_id: [7; 16],
        base_generation: 3,
        highest_generation: 5,
        mapping_hash: [9; 32],
        mapping_text: "a/* -> a\n".into(),
    };
    assert_eq!(Meta::decode(&meta.encode()), Ok(meta.clone()));
    let first_stores = meta.encode().slice(..meta.encode().len() - 4);
    assert_eq!(Meta::decode(&first_stores).unwrap().highest_generation, 3);
    let mut newer = meta.encode().to_vec();
    newer[0] = 2;
    assert!(Meta::decode(&newer.into()).is_err());
}

fn any_token() -> impl Strategy<Value = Token> {
    (any::<u32>(), 1u64..).prop_map(|(generation, number)| Token::new(generation, number).unwrap())
}

/// Hidden characters were once allowed in holders; a fence that contains one is not damaged.
#[test]
fn s23_a_label_of_before_is_still_read() {
    let (holder, issuer) = (Holder::stored("a\u{202e}#1").unwrap(), Issuer::stored("x\u{200b}:1").unwrap());
    let state = FenceState { holder: Some(holder), issuer: Some(issuer), ..FenceState::default() };
    assert_eq!(decode_fence(&encode_fence(&state)), Ok(state));
}

fn any_holder() -> impl Strategy<Value = Holder> {
    "[a-z#0-9]{1,20}".prop_map(|text| Holder::new(&text).unwrap())
}

fn any_lease() -> impl Strategy<Value = Lease> {
    (any::<[u8; 16]>(), any_holder(), any_token(), any::<u64>()).prop_map(|(id, holder, token, ttl_ms)| Lease {
        id: LeaseId(id),
        holder,
        token,
        ttl_ms,
    })
}

/// The index of the outcome among the changes of its commit, in the tests below.
const OWN: usize = 100;

fn any_pending() -> impl Strategy<Value = Pending> {
    prop_oneof![any::<u64>().prop_map(|version| Pending::Stored(Version(version))), (0..OWN).prop_map(Pending::Change)]
}

fn any_key() -> impl Strategy<Value = Key> {
    "[a-z]{1,20}".prop_map(|name| Key::new(&name).unwrap())
}

fn any_reason() -> impl Strategy<Value = Reason> {
    prop::sample::select(&Reason::ALL[..])
}

fn any_done() -> impl Strategy<Value = Done<Pending>> {
    let value =
        (prop::option::of(any_token()), prop::option::of("[a-z/]{0,9}"), prop::collection::vec(any::<u8>(), 0..40));
    let value = value.prop_map(|(token, content_type, body)| Value { token, content_type, body: body.into() });
    prop_oneof![
        any_pending().prop_map(Done::Put),
        Just(Done::Absent),
        (any_pending(), any::<i64>()).prop_map(|(version, sum)| Done::Sum(version, sum)),
        (any_pending(), value).prop_map(|(version, value)| Done::Read(version, value)),
    ]
}

fn any_outcome() -> impl Strategy<Value = FinalOutcome<Pending>> {
    let observed = prop::collection::vec((any_key().prop_map(|key| key.as_resource()), any_reason()), 0..3);
    let results = prop::collection::vec((any_key(), any_done()), 0..5);
    let transacted = (results, prop::option::of(any_token()), observed).prop_map(|(results, fence, observed)| {
        FinalOutcome::Transacted(Box::new(Transacted { results, fence, observed }))
    });
    let failed = (0usize..1000, any_key(), prop::option::of(any_pending()), prop::option::of(any_token())).prop_map(
        |(at, key, current, fence)| FinalOutcome::ConditionFailed(FailedCondition { at, key, current, fence }),
    );
    let bounds = (any::<i64>(), any::<i64>(), any::<i64>(), any::<i64>())
        .prop_map(|(value, by, min, max)| Impossible::OutOfBounds { value, by, min, max });
    let why = prop_oneof![Just(Impossible::NotANumber), bounds];
    let impossible = (0usize..1000, any_key(), why)
        .prop_map(|(at, key, why)| FinalOutcome::Impossible(ImpossibleAddition { at, key, why }));
    let granted =
        (any_lease(), prop::option::of(any_reason()), any_pending()).prop_map(|(lease, observed, version)| {
            let Lease { id: lease, holder, token, ttl_ms } = lease;
            let issuer = Issuer::new("fencepost:0f").unwrap();
            FinalOutcome::Granted(Box::new(Grant { lease, token, holder, issuer, ttl_ms, observed, version }))
        });
    prop_oneof![transacted, failed, impossible, granted, Just(FinalOutcome::Abandoned)]
}

proptest! {
    #[test]
    fn locks_round_trip(last in any_token(), lease in prop::option::of(any_lease())) {
        let lock = LockRecord { last, lease };
        let bytes = lock.encode();
        prop_assert_eq!(LockRecord::decode(&bytes), Ok(lock));
        for length in 0..bytes.len() {
            prop_assert!(LockRecord::decode(&bytes.slice(..length)).is_err(), "{} of {} bytes", length, bytes.len());
        }
    }

    #[test]
    fn leases_are_written_as_32_digits(id in any::<[u8; 16]>()) {
        let text = LeaseId(id).to_string();
        prop_assert_eq!(text.len(), 32);
        prop_assert_eq!(text.parse(), Ok(LeaseId(id)));
        prop_assert!(text.to_uppercase() == text || text.to_uppercase().parse::<LeaseId>().is_err());
        let logged = format!("{:?}", LeaseId(id));
        prop_assert!(!logged.contains(&text[2..]), "whoever reads a log could release the lock");
    }

    /// Versions from the same commit are stored as distances, and decode correctly whatever version the commit
    /// assigned.
    #[test]
    fn outcomes_round_trip(
        fingerprint in any::<[u8; 32]>(), at in any::<u64>(), first in 0..u64::MAX / 2, outcome in any_outcome(),
    ) {
        let recorded = Recorded { fingerprint, at: Timestamp(at), outcome: outcome.clone() };
        let bytes = recorded.encode(OWN);
        let own = Version(first + OWN as u64);
        let found = Recorded::decode(&bytes, own).unwrap();
        prop_assert_eq!((found.fingerprint, found.at), (recorded.fingerprint, recorded.at));
        // What is read needs no commit any more.
        prop_assert_eq!(found.outcome.settle(None), outcome.settle(Some(Version(first))));
        for length in 0..bytes.len() {
            prop_assert!(Recorded::decode(&bytes.slice(..length), own).is_err(), "{} of {} bytes", length, bytes.len());
        }
    }

    #[test]
    fn indexes_round_trip(names in prop::collection::vec(("[a-z]{1,9}", "[ -~]{0,30}[!-~]"), 0..20)) {
        let key = |name: &str| IdempotencyKey::new(name.trim()).unwrap();
        let outcomes: Vec<_> = names.iter().map(|(caller, name)| OutcomeKey::new(caller, &key(name))).collect();
        prop_assert_eq!(decode_index(&encode_index(&outcomes)), Ok(outcomes));
    }

    #[test]
    fn indexes_are_in_order_of_time(a in any::<u64>(), b in any::<u64>(), ids in any::<(u64, u64)>()) {
        let (first, second) = (RecordKey::index(Timestamp(a), ids.0), RecordKey::index(Timestamp(b), ids.1));
        prop_assert_eq!((a, ids.0).cmp(&(b, ids.1)), first.cmp(&second));
        prop_assert_eq!(first.as_bytes() < index_at(Timestamp(b)).as_slice(), a < b);
        prop_assert!(first.as_bytes().starts_with(&index_prefix()));
    }
}

/// Two pairs of caller and key that have the same text when concatenated.
#[test]
fn callers_do_not_share_outcomes() {
    let key = |name: &str| IdempotencyKey::new(name).unwrap();
    assert_ne!(OutcomeKey::new("ab", &key("c")), OutcomeKey::new("a", &key("bc")));
    let name = RecordKey::outcome(&OutcomeKey::new("a", &key("b")));
    assert_eq!(name.as_bytes(), b"oa\0b");
}
