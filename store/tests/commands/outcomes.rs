//! Idempotency keys: a retry returns the outcome of the first attempt, and nothing is applied twice (G7).

use std::path::Path;
use std::sync::Arc;

use crate::testbed::directory::roomy;
use crate::testbed::requests::{Txn, done, idempotency_key, once, once_by, replayed, transacted, txn};
use crate::testbed::{
    Ended, Outcome, applied, claim, claimed, ended, fence, key, memory_store, put, put_of, queue, read, reason, text,
    token, within,
};
use fencepost_core::{Guards, Reason};
use fencepost_store::engines::memory::Fault;
use fencepost_store::engines::rocksdb::RocksDb;
use fencepost_store::{
    Applied, Condition, Delete, Done, Failure, FinalOutcome, NoObserver, Once, Put, Rejected, Store, StoreOptions,
};
use tempfile::TempDir;

/// A put that may be retried.
async fn put_once(store: &Store, name: &str, number: &str, body: &str, once: Once) -> Ended {
    put_if_once(store, name, number, Condition::Always, body, once).await
}

async fn put_if_once(store: &Store, name: &str, number: &str, when: Condition, body: &str, once: Once) -> Ended {
    ended(store.put(Put { once: Some(once), ..put_of(name, Some(token(number)), when, body) }).await)
}

async fn recorded(store: &Store, name: &str) -> Option<Outcome> {
    store.outcome("anonymous", &idempotency_key(name)).await.unwrap().map(|recorded| recorded.outcome.into())
}

/// Adds one, so that the value counts how often it was applied.
fn count(name: &str) -> Txn {
    txn().token("n", token("5")).add("n", 1).once(once(name, 1))
}

#[tokio::test]
async fn an_applied_write_is_replayed_with_its_version() {
    let (store, memory) = memory_store().await;
    let first = applied(put_once(&store, "a", "5", "one", once("k", 1)).await);
    let commits = memory.commits().len();
    for _ in 0..3 {
        assert_eq!(replayed(put_once(&store, "a", "5", "one", once("k", 1)).await), Outcome::Applied(first.clone()));
    }
    assert_eq!(memory.commits().len(), commits, "a replay writes nothing");
    assert_eq!(first.version, read(&store, "a").await.value.map(|(version, _)| version));
    let remove = || Delete {
        key: key("a"),
        presented: Some(token("5")),
        condition: Condition::Always,
        once: Some(once("d", 1)),
    };
    let gone = applied(ended(store.delete(remove()).await));
    assert_eq!(gone.version, None);
    applied(put(&store, "a", token("5"), "back again").await);
    assert_eq!(replayed(ended(store.delete(remove()).await)), Outcome::Applied(gone));
    assert_eq!(text(&store, "a").await.as_deref(), Some("back again"), "the retry of a delete deletes nothing new");
}

/// Trap 3: within one holder, a delayed duplicate of an earlier write does not undo a later one.
#[tokio::test]
async fn t03_a_delayed_duplicate_does_not_undo_a_later_write() {
    let (store, _) = memory_store().await;
    applied(put_once(&store, "a", "5", "one", once("first", 1)).await);
    applied(put_once(&store, "a", "5", "two", once("second", 2)).await);
    replayed(put_once(&store, "a", "5", "one", once("first", 1)).await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("two"));
}

/// Trap 4: the answer was lost, the lock was taken over, and the client retries.
#[tokio::test]
async fn t04_an_applied_write_is_never_reported_as_fenced() {
    let (store, _) = memory_store().await;
    let first = applied(put_once(&store, "a", "33", "from 33", once("k", 1)).await);
    claimed(claim(&store, "a", token("34")).await);
    assert_eq!(reason(put(&store, "a", token("33"), "unkeyed").await), Reason::Stale, "the fence is known, and cached");
    assert_eq!(replayed(put_once(&store, "a", "33", "from 33", once("k", 1)).await), Outcome::Applied(first));
    let fenced = put_once(&store, "a", "33", "never sent before", once("other", 2)).await;
    assert_eq!(reason(fenced), Reason::Stale);
}

#[tokio::test]
async fn t04_a_retry_after_a_rotation_is_replayed_too() {
    let (store, _) = memory_store().await;
    transacted(count("k").send(&store).await);
    store.rotate_all(0).await.unwrap();
    assert!(matches!(replayed(count("k").send(&store).await), Outcome::Transacted(_)));
    assert_eq!(reason(count("other").send(&store).await), Reason::RetiredGeneration);
}

#[tokio::test]
async fn a_failure_that_raised_a_fence_is_replayed() {
    let (store, memory) = memory_store().await;
    let seen = crate::testbed::version(put(&store, "a", token("5"), "one").await);
    let failed = put_if_once(&store, "a", "6", Condition::Absent, "two", once("412", 1)).await;
    let Ok(Outcome::ConditionFailed { current, .. }) = &failed else { panic!("{failed:?}") };
    assert_eq!(*current, Some(seen));
    applied(crate::testbed::delete(&store, "a", token("6")).await);
    let again = put_if_once(&store, "a", "6", Condition::Absent, "two", once("412", 1)).await;
    assert_eq!(Ok(replayed(again)), failed, "although the condition would hold by now");
    assert_eq!(text(&store, "a").await, None);

    applied(put(&store, "n", token("1"), "seven").await);
    let add = |number, name| txn().token("n", token(number)).add("n", 1).once(once(name, 1));
    let failed = add("2", "422").send(&store).await;
    assert!(matches!(failed, Ok(Outcome::Impossible { .. })), "{failed:?}");
    applied(put(&store, "n", token("2"), "7").await);
    let commits = memory.commits().len();
    assert_eq!(Ok(replayed(add("2", "422").send(&store).await)), failed);
    assert_eq!(Some(failed.unwrap()), recorded(&store, "422").await);
    assert_eq!((memory.commits().len(), text(&store, "n").await.as_deref()), (commits, Some("7")));
}

/// Nothing was committed, so nothing is recorded, and the same key may still succeed.
#[tokio::test]
async fn a_failure_that_raised_nothing_is_judged_again() {
    let (store, memory) = memory_store().await;
    applied(put(&store, "a", token("5"), "one").await);
    let commits = memory.commits().len();
    let failed = put_if_once(&store, "a", "5", Condition::Absent, "two", once("412", 1)).await;
    assert!(matches!(failed, Ok(Outcome::ConditionFailed { .. })), "{failed:?}");
    let short = |name| txn().token("a", token("5")).add("a", 1).once(once(name, 1));
    assert!(matches!(short("422").send(&store).await, Ok(Outcome::Impossible { .. })));
    assert_eq!(reason(put_once(&store, "a", "4", "stale", once("409", 1)).await), Reason::Stale);
    let large = txn().token("b", token("9")).put("b", "x").get("a").max_bytes(1).once(once("large", 1));
    assert!(matches!(large.send(&store).await, Ok(Outcome::TooLarge { .. })));
    assert_eq!(memory.commits().len(), commits);
    for name in ["412", "422", "409", "large"] {
        assert_eq!(recorded(&store, name).await, None, "{name}");
    }
    applied(put(&store, "a", token("5"), "1").await);
    assert_eq!(transacted(short("422").send(&store).await).results.len(), 1);
    applied(crate::testbed::delete(&store, "a", token("5")).await);
    applied(put_if_once(&store, "a", "5", Condition::Absent, "two", once("412", 1)).await);
    applied(put_once(&store, "a", "6", "not stale any more", once("409", 1)).await);
}

#[tokio::test]
async fn a_key_belongs_to_one_request_of_one_caller() {
    let (store, _) = memory_store().await;
    applied(put_once(&store, "a", "5", "one", once("k", 1)).await);
    assert_eq!(put_once(&store, "a", "5", "two", once("k", 2)).await, Ok(Outcome::KeyReused));
    let elsewhere = txn().token("other", token("9")).put("other", "x").once(once("k", 3));
    assert_eq!(elsewhere.send(&store).await, Ok(Outcome::KeyReused));
    assert_eq!((text(&store, "a").await.as_deref(), fence(&store, "other").await), (Some("one"), None));
    applied(put_once(&store, "a", "5", "theirs", once_by("somebody", "k", 2)).await);
    assert_eq!(text(&store, "a").await.as_deref(), Some("theirs"));
}

/// The fingerprint does not cover the token: a new holder may query the outcome of the request.
#[tokio::test]
async fn another_token_for_the_same_request_is_a_replay() {
    let (store, _) = memory_store().await;
    let first = applied(put_once(&store, "a", "33", "one", once("k", 1)).await);
    assert_eq!(replayed(put_once(&store, "a", "40", "one", once("k", 1)).await), Outcome::Applied(first));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("33"), "a replay is not judged, and raises nothing");
}

#[tokio::test]
async fn duplicates_in_one_batch_apply_once() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::Hold);
    let busy = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    let mut sent = Vec::new();
    for n in 0..40 {
        sent.push(queue(count(if n % 2 == 0 { "even" } else { "odd" }).send(&store)).await);
    }
    memory.release();
    applied(busy.answer().await);
    let mut answers = Vec::new();
    for one in sent {
        answers.push(one.answer().await);
    }
    for of_key in [[0, 1], [1, 0]].map(|[from, _]| answers.iter().skip(from).step_by(2).cloned().collect::<Vec<_>>()) {
        let first = Outcome::Transacted(Box::new(transacted(of_key[0].clone())));
        for again in &of_key[1..] {
            assert_eq!(replayed(again.clone()), first, "also the version that the commit gave");
        }
    }
    assert_eq!(text(&store, "n").await.as_deref(), Some("2"));
    let Done::Sum(version, 2) = done(answers[1].clone()).remove(0) else { panic!("not the second") };
    assert_eq!(read(&store, "n").await.value.unwrap().0, version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_in_any_batches_apply_once() {
    let options = StoreOptions { batch_commands: 3, ..StoreOptions::default() };
    let (store, _, _) = crate::testbed::requests::reported(Guards::default(), options).await;
    let store = Arc::new(store);
    let mut sending = tokio::task::JoinSet::new();
    for n in 0..400 {
        let store = store.clone();
        sending.spawn(async move { count(&format!("k{}", n % 50)).send(&store).await });
    }
    let (mut first, mut again) = (0, 0);
    while let Some(ended) = within(sending.join_next()).await {
        match ended.unwrap() {
            Ok(Outcome::Transacted(_)) => first += 1,
            ended => drop((replayed(ended), again += 1)),
        }
    }
    assert_eq!((first, again, text(&store, "n").await.as_deref()), (50, 350, Some("50")));
}

/// Another gateway applied it first: the absence of the record is part of what is compared (E2).
#[tokio::test]
async fn a_duplicate_through_another_gateway_applies_once() {
    let memory = fencepost_store::engines::memory::Memory::new(fencepost_store::engine::Ownership::Shared);
    let a = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    let b = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
    // Different keys and no common condition: only the record of the outcome can conflict.
    let write = |name: &'static str| txn().token(name, token("1")).put(name, "x").once(once("k", 1));
    memory.inject(Fault::Hold);
    let held = queue(write("one").send(&a)).await;
    within(memory.wait_held()).await;
    let first = within(write("two").send(&b)).await;
    memory.release();
    assert_eq!(replayed(held.answer().await), Outcome::Transacted(Box::new(transacted(first))));
    assert_eq!((text(&a, "one").await, fence(&a, "one").await), (None, None));
}

async fn open(dir: &Path, options: StoreOptions) -> Store {
    let engine = Arc::new(RocksDb::open(dir, &roomy()).unwrap());
    Store::open(engine, Guards::default(), options, Arc::new(NoObserver)).await.unwrap()
}

#[tokio::test]
async fn replays_after_a_restart_are_the_original_answers() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path(), StoreOptions::default()).await;
    applied(put(&store, "seen", token("1"), "an old value").await);
    let all = |name| {
        let asked = txn().token("a", token("5")).token("n", token("6")).token("d", token("7"));
        asked.put("a", "x").add("n", 3).delete("d").get("seen").get("none").once(once(name, 1))
    };
    // Concurrent, so that they share commits and their records are not the first change of a commit.
    let names = ["k1", "k2", "k3", "k4"];
    let sent =
        names.map(|name| -> std::pin::Pin<Box<dyn Future<Output = Ended> + '_>> { Box::pin(all(name).send(&store)) });
    let originals: Vec<_> = crate::testbed::together(sent.into()).await.into_iter().map(transacted).collect();
    let put_first = applied(put_once(&store, "p", "5", "x", once("p", 1)).await);
    let failed = put_if_once(&store, "a", "9", Condition::Absent, "y", once("412", 1)).await.unwrap();
    store.close().await;
    let store = open(dir.path(), StoreOptions::default()).await;
    for (name, original) in names.iter().zip(originals) {
        assert_eq!(replayed(all(name).send(&store).await), Outcome::Transacted(Box::new(original.clone())));
        assert_eq!(recorded(&store, name).await, Some(Outcome::Transacted(Box::new(original))));
    }
    assert_eq!(replayed(put_once(&store, "p", "5", "x", once("p", 1)).await), Outcome::Applied(put_first.clone()));
    assert_eq!(put_first.version, read(&store, "p").await.value.map(|(version, _)| version));
    let again = put_if_once(&store, "a", "9", Condition::Absent, "y", once("412", 1)).await;
    assert_eq!(replayed(again), failed);
    assert_eq!(text(&store, "n").await.as_deref(), Some("12"), "four times three, and no retry counted");
}

#[tokio::test]
async fn a_write_that_was_surely_not_applied_leaves_no_record() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::NoSpace);
    let ended = count("k").send(&store).await;
    assert!(matches!(ended, Err(Failure::Rejected(Rejected::NoSpace { .. }))), "{ended:?}");
    assert_eq!(recorded(&store, "k").await, None);
    transacted(count("k").send(&store).await);
    assert_eq!(text(&store, "n").await.as_deref(), Some("1"));
}

/// The client received an unknown outcome. After a restart the record shows whether it was applied.
#[tokio::test]
async fn t04_an_unknown_outcome_is_learned_after_a_restart() {
    for (fault, happened) in [(Fault::UnknownApplied, true), (Fault::UnknownLost, false)] {
        let (store, memory) = memory_store().await;
        memory.inject(fault);
        assert!(matches!(count("k").send(&store).await, Err(Failure::Unknown(_))));
        store.close().await;
        let store = crate::testbed::open(Arc::new(memory.clone()), Guards::default()).await;
        assert_eq!(recorded(&store, "k").await.is_some(), happened);
        match count("k").send(&store).await {
            Ok(Outcome::Replayed(..)) => assert!(happened),
            ended => assert!(!happened && transacted(ended).results.len() == 1),
        }
        assert_eq!(text(&store, "n").await.as_deref(), Some("1"), "applied exactly once either way");
    }
}

/// Trap 35: a delayed request can still arrive, unless its key is abandoned.
#[tokio::test]
async fn t35_not_recorded_is_not_final_and_abandoned_is() {
    let (store, _) = memory_store().await;
    assert_eq!(recorded(&store, "late").await, None);
    applied(put_once(&store, "a", "5", "late, but it came", once("late", 1)).await);
    assert!(matches!(recorded(&store, "late").await, Some(Outcome::Transacted(_))));

    assert_eq!(store.abandon("anonymous", &idempotency_key("never")).await, Ok(FinalOutcome::Abandoned));
    assert_eq!(recorded(&store, "never").await, Some(Outcome::Abandoned));
    for fingerprint in [1, 2] {
        let late = put_once(&store, "a", "9", "too late", once("never", fingerprint)).await;
        assert_eq!(late, Ok(Outcome::Abandoned));
    }
    assert_eq!(store.abandon("anonymous", &idempotency_key("never")).await, Ok(FinalOutcome::Abandoned));
    assert_eq!(text(&store, "a").await.as_deref(), Some("late, but it came"));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("5"), "it was not even judged");
    applied(put_once(&store, "a", "9", "another caller", once_by("somebody", "never", 1)).await);
}

#[tokio::test]
async fn abandoning_what_was_applied_says_so() {
    let (store, _) = memory_store().await;
    let Applied { version, .. } = applied(put_once(&store, "a", "5", "one", once("k", 1)).await);
    match store.abandon("anonymous", &idempotency_key("k")).await {
        Ok(FinalOutcome::Transacted(all)) => assert_eq!(all.results, [(key("a"), Done::Put(version.unwrap()))]),
        other => panic!("{other:?}"),
    }
    assert!(matches!(replayed(put_once(&store, "a", "5", "one", once("k", 1)).await), Outcome::Applied(_)));
}

/// Within one batch, the first of the two commands decides.
#[tokio::test]
async fn abandoning_and_applying_exclude_each_other() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::Hold);
    let busy = queue(put(&store, "busy", token("1"), "busy")).await;
    within(memory.wait_held()).await;
    let (early, late) = (idempotency_key("early"), idempotency_key("late"));
    let abandoned = queue(store.abandon("anonymous", &early)).await;
    let too_late = queue(count("early").send(&store)).await;
    let in_time = queue(count("late").send(&store)).await;
    let found = queue(store.abandon("anonymous", &late)).await;
    memory.release();
    applied(busy.answer().await);
    assert_eq!(abandoned.answer().await, Ok(Outcome::Abandoned));
    assert_eq!(too_late.answer().await, Ok(Outcome::Abandoned));
    let done = transacted(in_time.answer().await);
    assert_eq!(transacted(found.answer().await), done);
    assert_eq!(text(&store, "n").await.as_deref(), Some("1"));
}
