//! Transactions: conditions, then operations, over several resources, all or nothing.

use crate::testbed::requests::{Txn, done, failed_at, impossible, transacted, txn};
use crate::testbed::{
    Ended, Outcome, applied, claim, claimed, delete, ended, fence, fences, guard, held, issued, memory_store,
    memory_store_of, put, queue, read, reason, refused, resource, some, text, token, version, within,
};
use fencepost_core::{Claim, Equal, GuardSpec, Guards, Mode, Policy, Reason};
use fencepost_store::engine::Ownership;
use fencepost_store::engines::memory::Fault;
use fencepost_store::{Condition, Done, Impossible, WrongResource};

/// The refusals, by resource.
#[track_caller]
fn refusals(ended: Ended) -> Vec<(String, Reason)> {
    match ended {
        Ok(Outcome::Refused(refusals)) => {
            refusals.into_iter().map(|refusal| (refusal.resource.to_string(), refusal.reason)).collect()
        }
        other => panic!("expected it to be refused: {other:?}"),
    }
}

#[tokio::test]
async fn everything_is_done_in_one_commit_and_each_resource_has_its_own_fence() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "c", token("1"), "to be removed").await);
    let commits = memory.commits().len();
    let all = txn()
        .token("a", token("34"))
        .token("stock", token("12"))
        .token("c", token("7"))
        .put("a", "an order")
        .add("stock", 5)
        .delete("c");
    let transacted = transacted(all.send(&store).await);
    assert_eq!(memory.commits().len(), commits + 1);
    assert_eq!(fences(&store, ["a", "stock", "c"]).await, some(["34", "12", "7"]));
    assert_eq!(text(&store, "a").await.as_deref(), Some("an order"));
    assert_eq!(text(&store, "stock").await.as_deref(), Some("5"));
    assert_eq!(text(&store, "c").await, None);
    assert_eq!(transacted.fence.unwrap().to_string(), "34", "of the first resource");
    assert!(transacted.observed.is_empty());
    let written = read(&store, "a").await.value.unwrap().1;
    assert_eq!(
        (written.token.unwrap().to_string(), written.content_type.unwrap()),
        ("34".into(), "text/x-note".into())
    );
    assert_eq!(read(&store, "stock").await.value.unwrap().1.token.unwrap().to_string(), "12");
}

#[tokio::test]
async fn versions_in_the_results_are_those_read_back() {
    let (store, _) = memory_store().await;
    let before = version(put(&store, "seen", token("1"), "there").await);
    let asked = || {
        txn()
            .token("a", token("1"))
            .token("n", token("1"))
            .put("a", "x")
            .get("seen")
            .add("n", 7)
            .delete("d")
            .get("none")
    };
    let results = done(asked().token("d", token("1")).send(&store).await);
    let now = |read: fencepost_store::Read| read.value.unwrap().0;
    assert_eq!(results[0], Done::Put(now(read(&store, "a").await)));
    assert!(matches!(&results[1], Done::Read(version, value) if *version == before && value.body == "there"));
    assert_eq!(results[2], Done::Sum(now(read(&store, "n").await), 7));
    assert_eq!(results[3..], [Done::Absent, Done::Absent]);
}

/// Trap 18: a token for X cannot fence Y.
#[tokio::test]
async fn t18_a_token_for_one_resource_does_not_fence_another() {
    let (store, memory) = memory_store().await;
    let commits = memory.commits().len();
    let only_x = txn().token("x", token("9")).put("x", "x").put("y", "y");
    assert_eq!(refusals(only_x.send(&store).await), [("y".to_owned(), Reason::MissingToken)]);
    let removing = txn().token("x", token("9")).put("x", "x").delete("y").add("z", 1);
    let missing = |name: &str| (name.to_owned(), Reason::MissingToken);
    assert_eq!(refusals(removing.send(&store).await), [missing("y"), missing("z")]);
    assert_eq!(memory.commits().len(), commits, "nothing was written, not even the fence of x");
    // 9 is stale for y, whatever its meaning for x.
    applied(put(&store, "y", token("10"), "theirs").await);
    let both = |y| txn().token("x", token("9")).token("y", token(y)).put("x", "x").put("y", "y");
    assert_eq!(refusals(both("9").send(&store).await), [("y".to_owned(), Reason::Stale)]);
    assert_eq!((text(&store, "x").await, fence(&store, "x").await), (None, None));
    transacted(both("10").send(&store).await);
}

#[tokio::test]
async fn t18_one_refusal_refuses_all_raises_nothing_and_every_refusing_resource_is_named() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "a").await);
    applied(put(&store, "b", held("5", "B#1"), "b").await);
    let commits = memory.commits().len();
    let asked = txn()
        .token("a", token("4"))
        .token("new", token("9"))
        .token("b", held("5", "C#1"))
        .token("late", token("1:1"))
        .put("a", "x")
        .put("new", "x")
        .put("b", "x")
        .put("late", "x");
    let expected = [("a", Reason::Stale), ("b", Reason::Collision), ("late", Reason::UnknownGeneration)]
        .map(|(name, reason)| (name.to_owned(), reason));
    assert_eq!(refusals(asked.send(&store).await), expected);
    assert_eq!(memory.commits().len(), commits);
    assert_eq!(fences(&store, ["a", "b", "new"]).await, [Some("5".into()), Some("5".into()), None]);
    assert_eq!((text(&store, "a").await.unwrap(), text(&store, "new").await), ("a".to_owned(), None));
}

#[tokio::test]
async fn reading_needs_no_token_and_a_given_one_is_a_claim() {
    let strict = Policy { claim: Claim::Required, equal: Equal::Reject, ..Policy::default() };
    for policy in [Policy::default(), strict] {
        let (store, memory) = memory_store_of(Ownership::Exclusive, guard("**", None, policy)).await;
        let commits = memory.commits().len();
        let looked = txn().when("a", Condition::Absent).get("a").get("b").send(&store).await;
        assert_eq!(done(looked), [Done::Absent, Done::Absent]);
        assert_eq!(memory.commits().len(), commits, "nobody showed a token, so nothing changed");
        transacted(txn().token("a", token("5")).get("a").send(&store).await);
        transacted(txn().token("b", token("6")).when("b", Condition::Absent).send(&store).await);
        assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
        assert_eq!(fence(&store, "b").await.as_deref(), Some("6"));
        assert_eq!(reason(txn().token("a", token("4")).get("a").send(&store).await), Reason::Stale);
        assert!(!read(&store, "a").await.state.spent, "reading spends no token");
        transacted(txn().token("a", token("5")).put("a", "claimed before").send(&store).await);
    }
}

#[tokio::test]
async fn claim_required_refuses_a_transaction_that_writes_under_a_newer_token() {
    let policy = Policy { claim: Claim::Required, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, guard("**", None, policy)).await;
    let asked = || txn().token("a", token("5")).get("a").put("b", "x").token("b", token("6"));
    assert_eq!(refusals(asked().send(&store).await), [("b".to_owned(), Reason::Unclaimed)]);
    assert_eq!(fence(&store, "a").await, None, "if one refuses, nothing is raised");
    claimed(claim(&store, "b", token("6")).await);
    transacted(asked().send(&store).await);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"));
}

#[tokio::test]
async fn tokens_must_be_for_resources_that_are_named() {
    let (store, memory) =
        memory_store_of(Ownership::Exclusive, guard("orders/*/**", Some("orders/*"), Policy::default())).await;
    let commits = memory.commits().len();
    let send = |txn: Txn| async { store.transact(txn.0).await };
    let unused = txn().token("orders/1", token("1")).token("orders/2", token("1")).put("orders/1/lines", "x");
    assert_eq!(send(unused).await, Err(WrongResource::Unused(resource("orders/2")).into()));
    let twice = txn().token("a", token("1")).token("a", token("2")).put("a", "x");
    assert_eq!(send(twice).await, Err(WrongResource::Unused(resource("a")).into()), "one token per resource");
    let key = txn().token("orders/1/lines", token("1")).put("orders/1/lines", "x");
    let expected = WrongResource::Belongs { name: "orders/1/lines".into(), resource: resource("orders/1") };
    assert_eq!(send(key).await, Err(expected.into()));
    assert_eq!(memory.commits().len(), commits);
    let one_token_for_both = txn().token("orders/1", token("1")).put("orders/1/lines", "x").put("orders/1/head", "y");
    transacted(ended(store.transact(one_token_for_both.0).await));
    assert_eq!(fence(&store, "orders/1").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn observed_and_enforced_resources_mix() {
    let watched = Policy { mode: Mode::Observe, ..Policy::default() };
    let spec = |keys: &str, policy| GuardSpec { keys: keys.into(), resource: None, policy, engine: None };
    let guards = Guards::new(vec![spec("watched/*", watched)]).unwrap();
    let (store, _) = memory_store_of(Ownership::Exclusive, guards).await;
    applied(put(&store, "watched/a", token("5"), "five").await);
    // The write that the observed guard would refuse is applied, and only the other fence moves.
    let asked = txn()
        .token("x", token("1"))
        .token("watched/a", token("4"))
        .put("watched/a", "four")
        .put("x", "x")
        .add("watched/b", 1);
    let all = transacted(asked.send(&store).await);
    let expected = [(resource("watched/a"), Reason::Stale), (resource("watched/b"), Reason::MissingToken)];
    assert_eq!(all.observed, expected);
    assert_eq!(fences(&store, ["watched/a", "watched/b", "x"]).await, [Some("5".into()), None, Some("1".into())]);
    assert_eq!(text(&store, "watched/a").await.as_deref(), Some("four"));
    assert_eq!(text(&store, "watched/b").await.as_deref(), Some("1"));
    // If the enforcing resource refuses, the observed one is not changed, and its fence is not raised.
    applied(put(&store, "x", token("9"), "taken over").await);
    let asked = txn().token("watched/a", token("6")).token("x", token("1")).put("watched/a", "six").put("x", "zombie");
    assert_eq!(refusals(asked.send(&store).await), [("x".to_owned(), Reason::Stale)]);
    assert_eq!(text(&store, "watched/a").await.as_deref(), Some("four"));
    assert_eq!(fence(&store, "watched/a").await.as_deref(), Some("5"));
}

#[tokio::test]
async fn equal_reject_spends_a_token_for_all_keys_of_its_resource() {
    let policy = Policy { equal: Equal::Reject, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, guard("a/**", Some("a"), policy)).await;
    let failed = txn().token("a", token("5")).when("a/1", Condition::Exists).put("a/1", "x").send(&store).await;
    assert_eq!(failed_at(failed), 0);
    let failed = txn().token("a", token("5")).add_within("a/1", 1, 5, 9).send(&store).await;
    impossible(failed);
    let both = || txn().token("a", token("5")).put("a/1", "one").put("a/2", "two");
    transacted(both().send(&store).await);
    assert_eq!(reason(both().send(&store).await), Reason::Spent);
    assert_eq!(reason(delete(&store, "a/1", token("5")).await), Reason::Spent);
    transacted(txn().token("a", token("5")).get("a/1").send(&store).await);
}

#[tokio::test]
async fn gets_that_are_too_large_change_nothing() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("1"), "ten bytes!").await);
    applied(put(&store, "b", token("1"), "ten bytes!").await);
    let commits = memory.commits().len();
    let asked = |max| txn().token("c", token("9")).put("c", "x").get("a").get("b").max_bytes(max);
    let ended = asked(19).send(&store).await;
    assert_eq!(ended, Ok(Outcome::TooLarge { bytes: 20, limit: 19 }));
    assert_eq!((memory.commits().len(), fence(&store, "c").await), (commits, None));
    assert_eq!(done(asked(20).send(&store).await).len(), 3);
}

#[tokio::test]
async fn a_transaction_sees_what_its_batch_wrote_before_it() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::Hold);
    let first = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    let write = queue(txn().token("a", token("5")).put("a", "1").send(&store)).await;
    let add = queue(txn().token("a", token("5")).when("a", Condition::AtLeast(1)).add("a", 41).send(&store)).await;
    let look =
        queue(txn().token("a", token("5")).when("a", Condition::Equals("42".into())).get("a").send(&store)).await;
    let remove = queue(txn().token("a", token("6")).delete("a").send(&store)).await;
    let gone = queue(txn().token("a", token("6")).when("a", Condition::Absent).get("a").send(&store)).await;
    let stale =
        queue(txn().token("a", token("5")).token("b", token("1")).put("a", "x").put("b", "x").send(&store)).await;
    memory.release();
    applied(first.answer().await);
    let written = done(write.answer().await).remove(0);
    let Done::Sum(version, 42) = done(add.answer().await).remove(0) else { panic!("not the sum") };
    assert!(matches!(written, Done::Put(first) if first < version));
    assert!(
        matches!(&done(look.answer().await)[0], Done::Read(found, value) if *found == version && value.body == "42")
    );
    assert_eq!(done(remove.answer().await), [Done::Absent]);
    assert_eq!(done(gone.answer().await), [Done::Absent]);
    assert_eq!(refused(stale.answer().await).found.token().unwrap().to_string(), "6");
    assert_eq!((text(&store, "b").await, fence(&store, "b").await), (None, None));
}

/// Another gateway commits in between: every record that the transaction read is compared.
#[tokio::test]
async fn t33_what_a_transaction_reads_is_compared() {
    let (store, memory) = memory_store_of(Ownership::Shared, Guards::default()).await;
    applied(put(&store, "stock", token("1"), "1").await);
    let other = crate::testbed::open(std::sync::Arc::new(memory.clone()), Guards::default()).await;
    memory.inject(Fault::Hold);
    let buy = || txn().token("stock", token("1")).add_within("stock", -1, 0, 9);
    let ours = queue(buy().send(&store)).await;
    within(memory.wait_held()).await;
    transacted(within(buy().send(&other)).await);
    memory.release();
    assert!(matches!(impossible(ours.answer().await).1, Impossible::OutOfBounds { value: 0, .. }));
}

#[tokio::test]
async fn issuers_are_judged_per_resource() {
    let (store, _) = memory_store().await;
    applied(put(&store, "a", issued("5", "A#1", "etcd:1"), "x").await);
    let asked = |issuer| {
        txn()
            .token("a", issued("6", "B#1", issuer))
            .token("b", issued("6", "B#1", "redis:1"))
            .put("a", "y")
            .put("b", "y")
    };
    assert_eq!(refusals(asked("redis:1").send(&store).await), [("a".to_owned(), Reason::ForeignIssuer)]);
    transacted(asked("etcd:1").send(&store).await);
}
