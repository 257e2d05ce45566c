//! Conditions and additions of transactions: which hold, which are possible, and what a failure leaves behind.

use crate::testbed::requests::{done, failed_at, impossible, txn};
use crate::testbed::{
    Outcome, applied, fence, fences, memory_store, put, queue, read, reason, some, text, token, version, within,
};
use bytes::Bytes;
use fencepost_core::Reason;
use fencepost_store::engine::Version;
use fencepost_store::engines::memory::Fault;
use fencepost_store::{Condition, Done, Impossible};

#[tokio::test]
async fn each_kind_of_condition_holds_or_does_not() {
    let (store, _) = memory_store().await;
    let there = version(put(&store, "there", token("1"), "exactly").await);
    applied(put(&store, "n", token("1"), "7").await);
    applied(put(&store, "text", token("1"), "7 apples").await);
    let other = Version(there.0 + 1000);
    for (name, condition, holds) in [
        ("there", Condition::Always, true),
        ("none", Condition::Always, true),
        ("there", Condition::Exists, true),
        ("none", Condition::Exists, false),
        ("there", Condition::Absent, false),
        ("none", Condition::Absent, true),
        ("there", Condition::AnyOf(vec![other, there]), true),
        ("there", Condition::AnyOf(vec![other]), false),
        ("there", Condition::AnyOf(vec![]), false),
        ("none", Condition::AnyOf(vec![there]), false),
        ("there", Condition::Equals(Bytes::from_static(b"exactly")), true),
        ("there", Condition::Equals(Bytes::from_static(b"exactl")), false),
        ("none", Condition::Equals(Bytes::new()), false),
        ("n", Condition::AtLeast(7), true),
        ("n", Condition::AtLeast(8), false),
        ("n", Condition::AtMost(7), true),
        ("n", Condition::AtMost(6), false),
        // Absent counts as 0.
        ("none", Condition::AtLeast(0), true),
        ("none", Condition::AtLeast(1), false),
        ("none", Condition::AtMost(0), true),
        ("none", Condition::AtMost(-1), false),
        // A value that is not a number meets neither bound.
        ("text", Condition::AtLeast(i64::MIN), false),
        ("text", Condition::AtMost(i64::MAX), false),
    ] {
        let outcome = txn().when(name, condition.clone()).get("there").send(&store).await;
        match (outcome, holds) {
            (Ok(Outcome::Transacted(_)), true) => {}
            (Ok(Outcome::ConditionFailed { at: 0, key, current, fence: None }), false) => {
                assert_eq!((key.as_str(), current), (name, read(&store, name).await.value.map(|(version, _)| version)));
            }
            (other, _) => panic!("{name} {condition:?}: {other:?}"),
        }
    }
    let second = txn().when("there", Condition::Exists).when("n", Condition::AtMost(6)).when("none", Condition::Exists);
    assert_eq!(failed_at(second.get("n").send(&store).await), 1, "the first that fails is named");
}

#[tokio::test]
async fn a_failed_condition_raises_every_admitted_fence_and_changes_nothing_else() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    let asked = txn()
        .token("a", token("6"))
        .token("b", token("3"))
        .token("read", token("2"))
        .when("read", Condition::Exists)
        .put("a", "two")
        .add("b", 1);
    let ended = asked.send(&store).await;
    assert!(matches!(ended, Ok(Outcome::ConditionFailed { current: None, fence: None, .. })), "{ended:?}");
    assert_eq!(fences(&store, ["a", "b", "read"]).await, some(["6", "3", "2"]));
    assert_eq!((text(&store, "a").await.as_deref(), text(&store, "b").await), (Some("one"), None));
    assert_eq!(reason(put(&store, "a", token("5"), "the older holder").await), Reason::Stale);
}

#[tokio::test]
async fn numbers_are_added_within_their_bounds() {
    let (store, _) = memory_store().await;
    let add = |by, min, max| txn().token("n", token("1")).add_within("n", by, min, max).send(&store);
    let sum = |ended| match done(ended).remove(0) {
        Done::Sum(_, sum) => sum,
        other => panic!("{other:?}"),
    };
    assert_eq!(sum(add(3, 0, 10).await), 3, "absent counts as 0");
    assert_eq!(read(&store, "n").await.value.unwrap().1.content_type.as_deref(), Some("text/plain"));
    assert_eq!(sum(add(-3, 0, 10).await), 0, "the least is allowed");
    assert_eq!(sum(add(10, 0, 10).await), 10, "so is the most");
    for (by, min, max) in [(-11, 0, 100), (1, 0, 10), (i64::MAX, i64::MIN, i64::MAX), (0, 11, 20), (0, 20, 11)] {
        let outside = Impossible::OutOfBounds { value: 10, by, min, max };
        assert_eq!(impossible(add(by, min, max).await), (0, outside));
        assert_eq!(text(&store, "n").await.as_deref(), Some("10"));
    }
    assert_eq!(sum(add(-20, i64::MIN, i64::MAX).await), -10);
    let below = add(i64::MIN, i64::MIN, i64::MAX).await;
    assert!(matches!(impossible(below).1, Impossible::OutOfBounds { value: -10, .. }));
    applied(put(&store, "n", token("1"), "-0012").await);
    assert_eq!(sum(add(0, i64::MIN, i64::MAX).await), -12, "decimal digits, however written");
}

#[tokio::test]
async fn an_impossible_addition_raises_the_fences_and_undoes_the_rest() {
    let (store, _) = memory_store().await;
    for (name, value) in
        [("words", "seven"), ("spaced", " 7"), ("plus", "+7"), ("huge", "9223372036854775808"), ("empty", "")]
    {
        applied(put(&store, name, token("1"), value).await);
        let asked = txn().token("a", token("9")).token(name, token("2")).put("a", "not kept").add(name, 1);
        assert_eq!(impossible(asked.send(&store).await), (1, Impossible::NotANumber));
        assert_eq!(text(&store, name).await.as_deref(), Some(value));
        assert_eq!(fence(&store, name).await.as_deref(), Some("2"), "the newer holder has shown itself");
        assert_eq!(reason(put(&store, name, token("1"), "the older holder").await), Reason::Stale);
    }
    assert_eq!((text(&store, "a").await, fence(&store, "a").await.as_deref()), (None, Some("9")));
}

/// One hundred buyers, ten pieces, one batch.
#[tokio::test]
async fn additions_that_share_a_batch_see_each_other_and_never_oversell() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "stock", token("1"), "10").await);
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    let mut buyers = Vec::new();
    for n in 0..100 {
        let order = format!("orders/{n}");
        let buy = txn().token(&order, token("1")).token("stock", token("1")).add_within("stock", -1, 0, i64::MAX);
        buyers.push(queue(buy.put(&order, "bought").send(&store)).await);
    }
    let commits = memory.commits().len();
    memory.release();
    applied(first.answer().await);
    let mut bought = 0;
    for (n, buyer) in buyers.into_iter().enumerate() {
        match buyer.answer().await {
            Ok(Outcome::Transacted(all)) => {
                assert!(matches!(all.results[0].1, Done::Sum(_, left) if left == 9 - n as i64), "{all:?}");
                bought += 1;
            }
            ended => {
                let outside = Impossible::OutOfBounds { value: 0, by: -1, min: 0, max: i64::MAX };
                assert_eq!(impossible(ended), (0, outside));
                assert_eq!(text(&store, &format!("orders/{n}")).await, None);
            }
        }
    }
    assert_eq!(bought, 10);
    assert!(memory.commits().len() - commits <= 3, "they shared commits");
    assert_eq!(text(&store, "stock").await.as_deref(), Some("0"));
}
