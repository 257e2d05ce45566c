//! Effects of writes, deletes and claims on fence and data. Traps are named by their number.

use crate::testbed::{
    Outcome, applied, body, claim, claim_keys, claimed, delete, ended, everywhere, fence, guard, held, issued, key,
    memory_store, memory_store_of, put, put_if, put_of, read, reason, refused, resource, text, token, version,
};
use fencepost_core::{Claim, Equal, IssuerRule, Mode, Policy, Reason};
use fencepost_store::engine::Ownership;
use fencepost_store::{
    ClaimKeys, ClaimOutcome, Condition, Delete, Failure, ReadError, Rejected, Store, TooLarge, WrongResource,
};
use std::num::NonZeroU64;

async fn under(policy: Policy) -> Store {
    memory_store_of(Ownership::Exclusive, everywhere(policy)).await.0
}

#[tokio::test]
async fn t01_t22_a_claim_raises_and_reads_in_one_step() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", token("33"), "by A").await);
    let seen = claimed(claim(&store, "a", held("34", "B#1")).await);
    assert_eq!(seen.state.token().map(|token| token.to_string()).as_deref(), Some("34"));
    assert_eq!(seen.state.holder.as_ref().map(|holder| holder.as_str()), Some("B#1"));
    let (version, value) = seen.values[0].1.clone().unwrap();
    assert_eq!(body(&value), "by A");
    // A cannot write any more, so the value that B read is still the last one when B writes.
    assert_eq!(reason(put(&store, "a", token("33"), "by A, late").await), Reason::Stale);
    applied(put_if(&store, "a", held("34", "B#1"), Condition::AnyOf(vec![version]), "by B").await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("by B"));
}

#[tokio::test]
async fn a_claim_of_a_resource_reads_its_keys_in_the_order_asked() {
    let (store, _) =
        memory_store_of(Ownership::Exclusive, guard("orders/*/**", Some("orders/*"), Policy::default())).await;
    applied(put(&store, "orders/1/lines", token("1"), "lines").await);
    applied(put(&store, "orders/1", token("1"), "head").await);
    let seen =
        claimed(claim_keys(&store, "orders/1", token("2"), &["orders/1/none", "orders/1", "orders/1/lines"]).await);
    let values: Vec<_> =
        seen.values.iter().map(|(key, slot)| (key.as_str(), slot.as_ref().map(|(_, value)| body(value)))).collect();
    let expected =
        [("orders/1/none", None), ("orders/1", Some("head".into())), ("orders/1/lines", Some("lines".into()))];
    assert_eq!(values, expected);
    assert_eq!(reason(put(&store, "orders/1/anything", token("1"), "late").await), Reason::Stale);
    applied(put(&store, "orders/2/lines", token("1"), "another resource").await);
}

#[tokio::test]
async fn t02_equal_tokens_pass_for_one_holder_and_collide_for_two() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", held("5", "A#1"), "one").await);
    applied(put(&store, "a", held("5", "A#1"), "two").await);
    applied(put(&store, "a", token("5"), "from nobody in particular").await);
    let refusal = refused(put(&store, "a", held("5", "B#1"), "three").await);
    assert_eq!(refusal.reason, Reason::Collision);
    assert_eq!(refusal.found.holder.unwrap().as_str(), "A#1");
    assert_eq!(reason(claim(&store, "a", held("5", "B#1")).await), Reason::Collision);
    assert_eq!(text(&store, "a").await.as_deref(), Some("from nobody in particular"));
    // A raise replaces the holder, or removes it if none is given; then the first holder to be named becomes the
    // holder.
    applied(put(&store, "a", token("6"), "four").await);
    applied(put(&store, "a", held("6", "C#1"), "five").await);
    assert_eq!(reason(put(&store, "a", held("6", "D#1"), "six").await), Reason::Collision);
}

#[tokio::test]
async fn t08_a_delete_keeps_the_fence() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", token("34"), "new").await);
    assert_eq!(applied(delete(&store, "a", token("35")).await).version, None);
    assert_eq!(text(&store, "a").await, None);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("35"));
    assert_eq!(reason(put(&store, "a", token("34"), "the zombie is not first again").await), Reason::Stale);
    // Deleting an absent key is a write.
    applied(delete(&store, "a", token("36")).await);
    applied(delete(&store, "never", token("7")).await);
    assert_eq!(fence(&store, "never").await.as_deref(), Some("7"));
    assert_eq!(reason(put(&store, "never", token("6"), "late").await), Reason::Stale);
}

#[tokio::test]
async fn t09_every_verb_that_changes_something_is_fenced() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("34"), "new").await);
    let commits = memory.commits().len();
    assert_eq!(reason(put(&store, "a", token("33"), "late").await), Reason::Stale);
    assert_eq!(reason(put_if(&store, "a", token("33"), Condition::Exists, "late").await), Reason::Stale);
    assert_eq!(reason(delete(&store, "a", token("33")).await), Reason::Stale);
    assert_eq!(reason(claim(&store, "a", token("33")).await), Reason::Stale);
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(text(&store, "a").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn t15_without_a_token_nothing_is_written() {
    let (store, memory) = memory_store().await;
    let commits = memory.commits().len();
    let missing = |result| assert_eq!(reason(result), Reason::MissingToken);
    missing(ended(store.put(put_of("a", None, Condition::Always, "x")).await));
    let without = Delete { key: key("a"), presented: None, condition: Condition::Always, once: None };
    missing(ended(store.delete(without).await));
    let without = ClaimKeys { resource: resource("a"), presented: None, keys: vec![], max_bytes: 1 };
    missing(ended(store.claim(without).await));
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(read(&store, "a").await.value, None);
}

/// Observe mode changes data, but never moves a fence that it would have refused.
#[tokio::test]
async fn t37_observe_mode_moves_no_fence_it_would_have_refused() {
    let store = under(Policy { mode: Mode::Observe, max_jump: NonZeroU64::new(10), ..Policy::default() }).await;
    assert_eq!(claimed(claim(&store, "a", token("5")).await).observed, None);
    let before = read(&store, "a").await.state;
    for (presented, why) in [
        (token("18446744073709551615"), Reason::Implausible),
        (token("4"), Reason::Stale),
        (token("1:1"), Reason::UnknownGeneration),
    ] {
        let applied = applied(put(&store, "a", presented, why.as_str()).await);
        assert_eq!(applied.observed, Some(why));
        assert_eq!(applied.fence.unwrap().to_string(), "5");
        assert_eq!(text(&store, "a").await.as_deref(), Some(why.as_str()), "the data changed");
        assert_eq!(read(&store, "a").await.state, before, "the fence did not, nor what is known of it");
    }
    let nobody = ended(store.put(put_of("a", None, Condition::Always, "unfenced")).await);
    assert_eq!(applied(nobody).observed, Some(Reason::MissingToken));
    assert_eq!(read(&store, "a").await.value.unwrap().1.token, None);
    let seen = claimed(claim(&store, "a", token("3")).await);
    assert_eq!((seen.observed, seen.state.token().unwrap().to_string()), (Some(Reason::Stale), "5".into()));
    assert_eq!(applied(delete(&store, "a", token("3")).await).observed, Some(Reason::Stale));
    assert_eq!((text(&store, "a").await, fence(&store, "a").await.as_deref()), (None, Some("5")));
    // A token that would be admitted raises the fence as usual.
    assert_eq!(applied(put(&store, "a", token("6"), "six").await).observed, None);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("6"));
}

#[tokio::test]
async fn a_failed_condition_raises_the_fence_and_nothing_else() {
    let (store, _) = memory_store().await;
    let first = version(put(&store, "a", token("5"), "one").await);
    let second = put_if(&store, "a", token("6"), Condition::Absent, "two").await;
    match second {
        Ok(Outcome::ConditionFailed { current, fence, .. }) => {
            assert_eq!((current, fence.unwrap().to_string()), (Some(first), "6".to_owned()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(text(&store, "a").await.as_deref(), Some("one"));
    assert_eq!(reason(put(&store, "a", token("5"), "the older holder").await), Reason::Stale);
    let conditional = Delete { key: key("b"), presented: Some(token("3")), condition: Condition::Exists, once: None };
    let deleted = ended(store.delete(conditional).await);
    assert!(matches!(deleted, Ok(Outcome::ConditionFailed { current: None, .. })), "{deleted:?}");
    assert_eq!(fence(&store, "b").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_refused_write_is_refused_before_its_condition_is_looked_at() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    assert_eq!(reason(put_if(&store, "a", token("4"), Condition::Absent, "two").await), Reason::Stale);
}

#[tokio::test]
async fn equal_reject_allows_one_applied_write_per_token() {
    let store = under(Policy { equal: Equal::Reject, ..Policy::default() }).await;
    claimed(claim(&store, "a", token("5")).await);
    let failed = put_if(&store, "a", token("5"), Condition::Exists, "not applied").await;
    assert!(matches!(failed, Ok(Outcome::ConditionFailed { .. })), "a write that was not applied does not spend");
    applied(put(&store, "a", token("5"), "one").await);
    assert_eq!(reason(put(&store, "a", token("5"), "two").await), Reason::Spent);
    assert_eq!(reason(delete(&store, "a", token("5")).await), Reason::Spent);
    claimed(claim(&store, "a", token("5")).await);
    assert_eq!(reason(put(&store, "a", token("5"), "two").await), Reason::Spent);
    applied(put(&store, "a", token("6"), "two").await);
    assert_eq!(reason(put(&store, "a", token("6"), "three").await), Reason::Spent);
}

#[tokio::test]
async fn claim_required_asks_a_newer_holder_to_claim() {
    let store = under(Policy { claim: Claim::Required, ..Policy::default() }).await;
    assert_eq!(reason(put(&store, "a", token("5"), "one").await), Reason::Unclaimed);
    assert_eq!(reason(delete(&store, "a", token("5")).await), Reason::Unclaimed);
    assert_eq!(fence(&store, "a").await, None, "a refusal raises nothing");
    claimed(claim(&store, "a", token("5")).await);
    applied(put(&store, "a", token("5"), "one").await);
    assert_eq!(reason(put(&store, "a", token("6"), "two").await), Reason::Unclaimed);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
}

#[tokio::test]
async fn issuers_and_jumps_are_judged() {
    let store =
        under(Policy { issuer: IssuerRule::Required, max_jump: NonZeroU64::new(100), ..Policy::default() }).await;
    assert_eq!(reason(put(&store, "a", token("5"), "x").await), Reason::MissingIssuer);
    applied(put(&store, "a", issued("5", "A#1", "etcd:1"), "one").await);
    assert_eq!(reason(put(&store, "a", issued("6", "B#1", "redis:1"), "x").await), Reason::ForeignIssuer);
    assert_eq!(reason(put(&store, "a", issued("106", "B#1", "etcd:1"), "x").await), Reason::Implausible);
    applied(put(&store, "a", issued("105", "B#1", "etcd:1"), "two").await);
}

#[tokio::test]
async fn a_claim_must_name_a_resource_and_keys_of_it() {
    let (store, _) =
        memory_store_of(Ownership::Exclusive, guard("orders/*/**", Some("orders/*"), Policy::default())).await;
    let ask = |name: &str, keys: &[&str]| ClaimKeys {
        resource: resource(name),
        presented: Some(token("9")),
        keys: keys.iter().map(|name| key(name)).collect(),
        max_bytes: 1 << 20,
    };
    for (name, keys, wrong, right) in [
        ("orders/1/lines", vec![], "orders/1/lines", "orders/1"),
        ("orders/1", vec!["orders/1/lines", "orders/2/lines"], "orders/2/lines", "orders/2"),
        ("orders/1", vec!["elsewhere"], "elsewhere", "elsewhere"),
    ] {
        let expected = WrongResource::Belongs { name: wrong.into(), resource: resource(right) };
        assert_eq!(store.claim(ask(name, &keys)).await, Err(expected.into()));
        assert_eq!(fence(&store, "orders/1").await, None);
    }
    let expected = WrongResource::Belongs { name: "orders/1/lines".into(), resource: resource("orders/1") };
    assert_eq!(store.fence(&resource("orders/1/lines")).await, Err(expected.into()));
}

#[tokio::test]
async fn a_claim_that_is_too_large_raises_nothing() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", token("5"), "ten bytes!").await);
    let ask =
        |max_bytes| ClaimKeys { resource: resource("a"), presented: Some(token("6")), keys: vec![key("a")], max_bytes };
    let too_large = store.claim(ask(9)).await.unwrap();
    assert_eq!(too_large, ClaimOutcome::TooLarge(TooLarge { bytes: 10, limit: 9 }));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
    applied(put(&store, "a", token("5"), "ten bytes!").await);
    claimed(ended(store.claim(ask(10)).await));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("6"));
}

#[tokio::test]
async fn a_name_too_long_for_its_resource_is_an_error_and_not_a_panic() {
    let guards = guard("a/*", Some("a/long/prefix/for/all/of/them/*"), Policy::default());
    let (store, _) = memory_store_of(Ownership::Exclusive, guards).await;
    let name = format!("a/{}", "n".repeat(1020));
    let ended = store.put(put_of(&name, Some(token("1")), Condition::Always, "x")).await;
    let rejected = matches!(ended, Err(Failure::Rejected(Rejected::WrongResource(WrongResource::Name(_)))));
    assert!(rejected, "{ended:?}");
    assert!(matches!(store.read(&key(&name), None).await, Err(ReadError::WrongResource(WrongResource::Name(_)))));
}
