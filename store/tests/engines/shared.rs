//! Several gateways over the same records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fencepost_conformance::random::Random;
use fencepost_store::engine::{Batch, Change, Commit, Engine, Loaded, Purpose, Version};
use fencepost_store::record::RecordKey;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::bench::{Bench, at, commit, commit_after, load, names, one, remove, text, under, write};
use super::races::{Raced, additions, either_or, in_parallel, is_done, on_call};

const DEADLINE: Duration = Duration::from_secs(60);

/// The record that every commit compares.
const SHARED: &str = "shared";

/// Commits, comparing the shared record with what was loaded first.
async fn commit_sharing(engine: &dyn Engine, loaded: &Loaded, changes: Vec<(RecordKey, Change)>) -> Commit {
    let version = loaded.records[0].as_ref().expect("the shared record is there").version;
    let shared = vec![(at(SHARED), version)];
    let batch = Batch { as_of: loaded.as_of, shared, compare: Vec::new(), changes, purpose: Purpose::Store };
    engine.commit(batch).await.unwrap()
}

/// What a race must end with: no violation, and some commits.
async fn pass(race: impl Future<Output = Raced>) {
    let done = timeout(DEADLINE, race).await.expect("the race ends in time").unwrap();
    assert!(done > 0, "every commit was a conflict");
}

pub(crate) async fn one_gateway_sees_what_another_committed(bench: Bench) {
    let [ours, theirs] = bench.pair().await;
    for round in 0..20 {
        let name = format!("n{round}");
        commit(&*ours, vec![write("a", &name), write(&name, "1")]).await;
        assert_eq!(text(&*theirs, "a").await.as_deref(), Some(&name[..]));
        commit(&*theirs, vec![remove(&name)]).await;
        assert_eq!(one(&*ours, &name).await, None);
    }
    assert_eq!(names(&*ours, under("")).await.0, ["a"]);
}

pub(crate) async fn e2_no_increment_is_lost_between_gateways(bench: Bench) {
    pass(additions(bench.pair().await, 20)).await;
}

/// Trap 17, write skew.
pub(crate) async fn e2_records_that_are_only_compared_hold_until_the_commit(bench: Bench) {
    pass(on_call(bench.pair().await, 100)).await;
}

pub(crate) async fn e2_absent_records_stay_absent_until_the_commit(bench: Bench) {
    pass(either_or(bench.pair().await, 100)).await;
}

pub(crate) async fn e2_a_commit_that_compared_an_old_shared_record_conflicts(bench: Bench) {
    let [ours, theirs] = bench.pair().await;
    commit(&*ours, vec![write(SHARED, "old")]).await;
    let old = load(&*ours, &[SHARED]).await;
    assert!(is_done(&commit_sharing(&*theirs, &old, vec![write("a", "1")]).await), "others may share it");
    assert!(is_done(&commit_sharing(&*theirs, &old, vec![write(SHARED, "new")]).await));
    assert_eq!(commit_sharing(&*ours, &old, vec![write("a", "2")]).await, Commit::Conflict);
    assert_eq!(commit_sharing(&*ours, &old, vec![write(SHARED, "ours")]).await, Commit::Conflict);
    assert_eq!(commit_sharing(&*ours, &old, Vec::new()).await, Commit::Conflict, "without changes, too");
    assert_eq!(text(&*ours, "a").await.as_deref(), Some("1"));
    assert_eq!(text(&*ours, SHARED).await.as_deref(), Some("new"));
    let new = load(&*ours, &[SHARED]).await;
    assert!(is_done(&commit_sharing(&*ours, &new, vec![write("a", "3")]).await));
}

/// Notes under which state of the shared record it commits, until it is stopped.
async fn note_state(engine: Arc<dyn Engine>, writer: usize, count: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    for note in 0.. {
        if stop.load(Ordering::Acquire) {
            return;
        }
        let loaded = load(&*engine, &[SHARED]).await;
        let state = String::from_utf8(loaded.records[0].as_ref().unwrap().bytes.to_vec()).unwrap();
        let change = write(&format!("note/{state}/{writer}/{note}"), "");
        if is_done(&commit_sharing(&*engine, &loaded, vec![change]).await) {
            count.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// How many commits were done in a state of the shared record.
async fn notes(engine: &dyn Engine, state: u64) -> usize {
    names(engine, under(&format!("note/{state}/"))).await.0.len()
}

/// Changes the shared record, against writers that compare it all the time.
pub(crate) async fn e2_a_change_of_the_shared_record_has_every_earlier_commit_before_it(bench: Bench) {
    const WRITERS: usize = 6;
    const STATES: u64 = 8;
    /// Commits between two changes.
    const BETWEEN: u64 = 12;
    /// Writers do not hold up a change for longer.
    const PATIENCE: Duration = Duration::from_secs(15);
    let engine = bench.open().await;
    commit(&*engine, vec![write(SHARED, "0")]).await;
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(note_state(bench.open().await, writer, count.clone(), stop.clone()));
    }
    let mut seen = Vec::new();
    for state in 0..STATES {
        let due = count.load(Ordering::Acquire) + BETWEEN;
        let progress = async {
            while count.load(Ordering::Acquire) < due {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(DEADLINE, progress).await.expect("writers make progress");
        let change = async {
            loop {
                let loaded = load(&*engine, &[SHARED]).await;
                let next = write(SHARED, (state + 1).to_string());
                if is_done(&commit_sharing(&*engine, &loaded, vec![next]).await) {
                    return;
                }
            }
        };
        timeout(PATIENCE, change).await.expect("the change is not held up by writers");
        seen.push(notes(&*engine, state).await);
    }
    stop.store(true, Ordering::Release);
    while let Some(ended) = timeout(DEADLINE, writers.join_next()).await.expect("writers end") {
        ended.unwrap();
    }
    for (state, seen) in (0..).zip(seen) {
        assert!(seen > 0, "no commit in state {state}");
        assert_eq!(notes(&*engine, state).await, seen, "commits in state {state} came after it had ended");
    }
}

/// Records that are compared before or behind those that are written, present or absent, in any order.
pub(crate) async fn commits_that_need_the_same_records_in_any_order_all_end(bench: Bench) {
    const GATEWAYS: u64 = 3;
    const TASKS: u64 = 2;
    const EACH: usize = 50;
    let random = Random::from_environment();
    let mut tasks = Vec::new();
    for gateway in 0..GATEWAYS {
        let engine = bench.open().await;
        tasks.extend((0..TASKS).map(|task| cross(engine.clone(), random.fork(gateway * TASKS + task), EACH)));
    }
    pass(in_parallel(tasks)).await;
}

async fn cross(engine: Arc<dyn Engine>, mut random: Random, commits: usize) -> Raced {
    const RECORDS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut done = 0;
    for _ in 0..commits {
        let (mut compared, mut changes) = (Vec::new(), Vec::new());
        for name in RECORDS {
            let part = random.below(10);
            if part < 3 {
                compared.push(name);
            }
            match part {
                1 | 3 | 4 => changes.push(write(name, "written")),
                2 | 5 => changes.push(remove(name)),
                _ => {}
            }
        }
        if random.chance(50) {
            changes.reverse();
        }
        let loaded = load(&*engine, &compared).await;
        done += usize::from(is_done(&commit_after(&*engine, &loaded, &compared, changes).await));
    }
    Ok(done)
}

/// The same record several times in one batch, which compares it as absent or as present.
pub(crate) async fn changes_of_one_compared_key_apply_in_order(bench: Bench) {
    let [ours, theirs] = bench.pair().await;
    let both = ["a", "b"];
    let absent = load(&*ours, &both).await;
    let changes = vec![write("a", "1"), write("b", "1"), remove("b"), write("a", "2")];
    let Commit::Done { first } = commit_after(&*ours, &absent, &both, changes.clone()).await else {
        panic!("both are absent")
    };
    let a = one(&*theirs, "a").await.unwrap();
    assert_eq!((a.version, &a.bytes[..], one(&*theirs, "b").await), (Version(first.0 + 3), &b"2"[..], None));
    assert_eq!(commit_after(&*theirs, &absent, &both, changes).await, Commit::Conflict);

    let present = load(&*theirs, &both).await;
    let changes = vec![remove("a"), write("a", "3"), remove("a"), write("a", "4"), remove("b"), write("b", "4")];
    let Commit::Done { first } = commit_after(&*theirs, &present, &both, changes).await else {
        panic!("nothing has changed")
    };
    let versions = [Version(first.0 + 3), Version(first.0 + 5)];
    let found = load(&*ours, &both).await.records;
    assert_eq!(found.iter().flatten().map(|record| record.version).collect::<Vec<_>>(), versions);

    let present = load(&*ours, &both).await;
    assert!(is_done(&commit_after(&*ours, &present, &both, vec![write("a", "5"), remove("a"), remove("b")]).await));
    assert_eq!(names(&*theirs, under("")).await.0, Vec::<String>::new());
}

pub(crate) async fn a_batch_as_large_as_the_limits_is_committed(bench: Bench) {
    let [ours, theirs] = bench.pair().await;
    let count = ours.limits().records.min(20_000);
    let all: Vec<String> = (0..count).map(|n| format!("n/{n:05}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let absent = load(&*ours, &all).await;
    let made = all.iter().map(|name| write(name, "made")).collect();
    assert!(is_done(&commit_after(&*ours, &absent, &all, made).await));
    let present = load(&*theirs, &all).await;
    assert_eq!(present.records.iter().flatten().count(), count);
    let changed = |name: &str| if name < "n/00100" { remove(name) } else { write(name, "changed") };
    let changes: Vec<_> = all.iter().map(|name| changed(name)).collect();
    assert!(is_done(&commit_after(&*theirs, &present, &all, changes.clone()).await));
    assert_eq!(commit_after(&*ours, &present, &all, changes).await, Commit::Conflict);
    assert_eq!(names(&*ours, under("n/")).await.0.len(), count - 100);

    let bytes = ours.limits().bytes.min(16 << 20);
    commit(&*ours, vec![write("bytes", vec![7u8; bytes])]).await;
    assert_eq!(one(&*theirs, "bytes").await.unwrap().size, bytes);
}

pub(crate) async fn large_records_of_two_gateways_replace_each_other(bench: Bench) {
    const SIZE: usize = 300_000;
    let [ours, theirs] = bench.pair().await;
    let write_all = |engine: Arc<dyn Engine>, letter: &'static str| async move {
        for round in 0..10 {
            let body = letter.repeat(SIZE + round);
            commit(&*engine, vec![write("a", &body), write("b", &body)]).await;
        }
        Ok(10)
    };
    pass(in_parallel([write_all(ours.clone(), "o"), write_all(theirs, "t")])).await;
    let loaded = load(&*ours, &["a", "b"]).await;
    let [Some(a), Some(b)] = &loaded.records[..] else { panic!("both were written") };
    assert_eq!((a.size, &a.bytes), (SIZE + 9, &b.bytes), "both are of one commit");
}
