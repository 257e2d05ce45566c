//! Races between two gateways over the same records. Each ends with the number of commits that were done, or with the
//! violation of E2 that it saw.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::bench::Bench;
use super::failure::{Checked, Failure, ensure};
use super::records::{Records, is_done, number, remove, write};

/// Two gateways.
pub type Pair = [Records; 2];

/// Pairs of records that are raced for at the same time, so that the commits of a race do not always start together.
const AT_ONCE: usize = 3;

/// The time in which a race must end.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs races in parallel, up to the first failure. Returns the commits that were done.
pub async fn in_parallel<F>(races: impl IntoIterator<Item = F>) -> Checked<usize>
where
    F: Future<Output = Checked<usize>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for race in races {
        tasks.spawn(race);
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        done += ended.map_err(|error| Failure::Unusable(format!("a task of the case failed: {error}")))??;
    }
    Ok(done)
}

/// What a race must end with: no violation, in time, and some commits.
pub(super) async fn pass(race: impl Future<Output = Checked<usize>>) -> Checked {
    let late = |_| Failure::Unusable(format!("the race did not end within {DEADLINE:?}"));
    let done = timeout(DEADLINE, race).await.map_err(late)??;
    ensure!(done > 0, "every commit was a conflict");
    Ok(())
}

/// Both gateways add to one number. An addition that was done counts.
pub async fn additions(engines: Pair, rounds: u64) -> Checked<usize> {
    const TASKS: u64 = 4;
    let before = engines[0].number("sum").await?;
    let tasks = (0..TASKS).flat_map(|_| engines.clone());
    let done = in_parallel(tasks.map(|engine| add(engine, rounds))).await?;
    let grown = engines[0].number("sum").await?.saturating_sub(before);
    ensure!(grown == done as u64, "E2: {done} additions were done, and the number grew by {grown}");
    Ok(done)
}

async fn add(engine: Records, rounds: u64) -> Checked<usize> {
    let mut done = 0;
    while done < rounds {
        let loaded = engine.load(&["sum"]).await?;
        let sum = number(loaded.records[0].as_ref())? + 1;
        tokio::task::yield_now().await;
        let added = engine.commit_after(&loaded, &["sum"], vec![write("sum", sum.to_string())]).await?;
        done += u64::from(is_done(&added)?);
    }
    Ok(done as usize)
}

/// Two are on call, and each leaves if the other stays: both records are compared, one is removed (trap 17, write skew).
pub async fn on_call(engines: Pair, rounds: usize) -> Checked<usize> {
    in_parallel((0..AT_ONCE).map(|pair| leave(engines.clone(), pair, rounds))).await
}

async fn leave([ours, theirs]: Pair, pair: usize, rounds: usize) -> Checked<usize> {
    let (x, y) = (format!("on-call/{pair}/x"), format!("on-call/{pair}/y"));
    let names = [x.as_str(), y.as_str()];
    let mut done = 0;
    for round in 0..rounds {
        ours.commit(vec![write(&x, "here"), write(&y, "here")]).await?;
        let loaded = ours.load(&names).await?;
        let (our, their) = tokio::join!(
            ours.commit_after(&loaded, &names, vec![remove(&x)]),
            theirs.commit_after(&loaded, &names, vec![remove(&y)]),
        );
        done += usize::from(is_done(&our?)?) + usize::from(is_done(&their?)?);
        let left = ours.load(&names).await?.records.iter().all(Option::is_none);
        ensure!(!left, "E2: in round {round} each of two left, and had compared that the other was there");
    }
    Ok(done)
}

/// Each makes its own record if the other's is absent.
pub async fn either_or(engines: Pair, rounds: usize) -> Checked<usize> {
    in_parallel((0..AT_ONCE).map(|pair| make(engines.clone(), pair, rounds))).await
}

async fn make([ours, theirs]: Pair, pair: usize, rounds: usize) -> Checked<usize> {
    let (x, y) = (format!("either/{pair}/x"), format!("either/{pair}/y"));
    let names = [x.as_str(), y.as_str()];
    let mut done = 0;
    for round in 0..rounds {
        ours.commit(vec![remove(&x), remove(&y)]).await?;
        let loaded = ours.load(&names).await?;
        let (our, their) = tokio::join!(
            ours.commit_after(&loaded, &names, vec![write(&x, "made")]),
            theirs.commit_after(&loaded, &names, vec![write(&y, "made")]),
        );
        done += usize::from(is_done(&our?)?) + usize::from(is_done(&their?)?);
        let made = ours.load(&names).await?.records.iter().all(Option::is_some);
        ensure!(!made, "E2: in round {round} both of two were made, and each had compared that the other was absent");
    }
    Ok(done)
}

pub(super) async fn e2_no_increment_is_lost(bench: Bench) -> Checked {
    pass(additions(bench.pair(), 20)).await
}

pub(super) async fn e2_records_that_are_only_compared_hold_until_the_commit(bench: Bench) -> Checked {
    pass(on_call(bench.pair(), 60)).await
}

pub(super) async fn e2_absent_records_stay_absent_until_the_commit(bench: Bench) -> Checked {
    pass(either_or(bench.pair(), 60)).await
}

/// The record that every commit compares.
const SHARED: &str = "shared";

/// Writers that compare the shared record, until they are stopped.
#[derive(Default)]
struct Noting {
    commits: AtomicU64,
    stopped: AtomicBool,
}

/// Notes under which state of the shared record it commits.
async fn note_state(engine: Records, writer: usize, noting: Arc<Noting>) -> Checked<usize> {
    let mut done = 0;
    for note in 0.. {
        if noting.stopped.load(Ordering::Acquire) {
            break;
        }
        let loaded = engine.load(&[SHARED]).await?;
        let state = number(loaded.records[0].as_ref())?;
        let change = write(&format!("note/{state}/{writer}/{note}"), "");
        if engine.commit_sharing(&loaded, SHARED, vec![change]).await? {
            noting.commits.fetch_add(1, Ordering::AcqRel);
            done += 1;
        }
        tokio::task::yield_now().await;
    }
    Ok(done)
}

/// How many commits were done in a state of the shared record.
async fn notes(engine: &Records, state: u64) -> Checked<usize> {
    Ok(engine.all_names(&format!("note/{state}/")).await?.len())
}

/// Changes the shared record several times. Returns the commits that were there when each state had ended.
async fn change_state(engine: &Records, noting: &Noting) -> Checked<Vec<usize>> {
    const STATES: u64 = 8;
    /// Commits between two changes.
    const BETWEEN: u64 = 12;
    let mut seen = Vec::new();
    for state in 0..STATES {
        let due = noting.commits.load(Ordering::Acquire) + BETWEEN;
        while noting.commits.load(Ordering::Acquire) < due {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        loop {
            let loaded = engine.load(&[SHARED]).await?;
            let next = write(SHARED, (state + 1).to_string());
            if engine.commit_sharing(&loaded, SHARED, vec![next]).await? {
                break;
            }
        }
        seen.push(notes(engine, state).await?);
    }
    Ok(seen)
}

/// Changes the shared record, against writers that compare it all the time. They must not hold it up for ever, and nothing
/// that compared a state may come after it.
pub(super) async fn e2_a_change_of_the_shared_record_has_every_earlier_commit_before_it(bench: Bench) -> Checked {
    const WRITERS: usize = 6;
    let engine = bench.gateway(0);
    engine.commit(vec![write(SHARED, "0")]).await?;
    let noting = Arc::new(Noting::default());
    let count = noting.clone();
    let writing = in_parallel((0..WRITERS).map(|writer| note_state(bench.gateway(writer), writer, noting.clone())));
    let changing = async {
        let seen = change_state(&engine, &count).await;
        count.stopped.store(true, Ordering::Release);
        seen
    };
    let late = |_| Failure::Unusable(format!("writers held up a change of the shared record for {DEADLINE:?}"));
    let both = async { tokio::try_join!(writing, changing) };
    let (_, seen) = timeout(DEADLINE, both).await.map_err(late)??;
    for (state, seen) in (0..).zip(seen) {
        ensure!(seen > 0, "no commit in state {state} of the shared record");
        let found = notes(&engine, state).await?;
        ensure!(found == seen, "E2: {} commits in state {state} came after it had ended", found.saturating_sub(seen));
    }
    Ok(())
}
