//! Commits that need the same records in different orders: all of them must end, and deadlocks must not hold them up.

use std::time::{Duration, Instant};

use super::bench::Bench;
use super::failure::{Checked, ensure};
use super::races::{Pair, in_parallel, pass};
use super::random::Random;
use super::records::{Named, Records, is_done, remove, write};
use crate::engine::{AsOf, Limits, Loaded};

/// What two gateways commit at the same time. Each needs the records of both groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// Each compares one group and writes the other, so one of them writes before what it compares.
    CompareAndWrite,
    /// Each writes one group and removes the other, and compares nothing.
    WriteAndRemove,
    /// One removes both groups, the other writes them.
    WriteOrRemove,
}

impl Crossing {
    /// Every kind.
    pub const ALL: [Crossing; 3] = [Crossing::CompareAndWrite, Crossing::WriteAndRemove, Crossing::WriteOrRemove];
}

/// What is compared, as it was loaded, and the changes.
struct Part<'n> {
    loaded: Loaded,
    compared: &'n [&'n str],
    changes: Vec<Named>,
}

impl Part<'_> {
    async fn commit(&self, engine: &Records) -> Checked<bool> {
        is_done(&engine.commit_after(&self.loaded, self.compared, self.changes.clone()).await?)
    }
}

/// Two groups of records: all names of one come before all of the other.
struct Groups {
    low: Vec<String>,
    high: Vec<String>,
}

fn named(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn written(names: &[&str]) -> Vec<Named> {
    names.iter().map(|name| write(name, "written")).collect()
}

fn removed(names: &[&str]) -> Vec<Named> {
    names.iter().map(|name| remove(name)).collect()
}

impl Groups {
    /// As many records as one commit may write, up to 200.
    fn new(limits: Limits) -> Groups {
        let records = (limits.records / 2).min(100);
        let group = |letter: &str| (0..records).map(|n| format!("{letter}/{n:03}")).collect();
        Groups { low: group("a"), high: group("z") }
    }
}

/// How two commits went.
pub struct Crossed {
    /// The time until both had ended.
    pub took: Duration,
    /// How many were done.
    pub done: usize,
}

/// Both gateways commit, at the same time or one after the other.
pub async fn cross([ours, theirs]: &Pair, crossing: Crossing, at_once: bool) -> Checked<Crossed> {
    let groups = Groups::new(ours.engine().limits());
    let (low, high) = (named(&groups.low), named(&groups.high));
    ours.commit([written(&high), written(&low)].concat()).await?;
    let nothing = || Loaded { records: Vec::new(), as_of: AsOf(0) };
    let blind = |changes| Part { loaded: nothing(), compared: &[], changes };
    let (our, their) = match crossing {
        Crossing::CompareAndWrite => {
            let (lows, highs) = (ours.load(&low).await?, ours.load(&high).await?);
            (
                Part { loaded: highs, compared: &high, changes: written(&low) },
                Part { loaded: lows, compared: &low, changes: written(&high) },
            )
        }
        Crossing::WriteAndRemove => {
            (blind([written(&high), removed(&low)].concat()), blind([written(&low), removed(&high)].concat()))
        }
        Crossing::WriteOrRemove => {
            (blind([removed(&high), removed(&low)].concat()), blind([written(&low), written(&high)].concat()))
        }
    };
    let started = Instant::now();
    let (our, their) = match at_once {
        true => {
            let (our, their) = tokio::join!(our.commit(ours), their.commit(theirs));
            (our?, their?)
        }
        false => (our.commit(ours).await?, their.commit(theirs).await?),
    };
    Ok(Crossed { took: started.elapsed(), done: usize::from(our) + usize::from(their) })
}

/// A round is held up if it takes this long, and [`TIMES`] as long as one after the other. PostgreSQL looks for deadlocks
/// after a second.
const HELD_UP: Duration = Duration::from_millis(900);

/// See [`HELD_UP`].
const TIMES: u32 = 5;

/// The fewest rounds of a kind.
const ROUNDS: usize = 10;

/// Crosses again and again. A deadlock that the server must resolve holds up both commits: one may happen, many may not.
pub(super) async fn commits_that_cross_do_not_hold_each_other_up(bench: Bench, time: Duration) -> Checked<String> {
    let pair = bench.pair();
    let (mut total, mut worst) = (0, Duration::ZERO);
    for crossing in Crossing::ALL {
        let mut alone = Duration::ZERO;
        for _ in 0..3 {
            alone = alone.max(cross(&pair, crossing, false).await?.took);
        }
        let (until, mut rounds, mut held_up) = (Instant::now() + time / 3, 0, 0);
        while rounds < ROUNDS || Instant::now() < until {
            let Crossed { took, done } = cross(&pair, crossing, true).await?;
            worst = worst.max(took);
            rounds += 1;
            held_up += usize::from(done == 0 || took >= HELD_UP.max(alone * TIMES));
            ensure!(
                held_up < 3 || held_up * 10 < rounds,
                "{held_up} of {rounds} pairs of crossing commits took {HELD_UP:?} or more, or neither was done; one after the \
                 other they took {alone:?}: they meet in deadlocks ({crossing:?})"
            );
        }
        total += rounds;
    }
    Ok(format!("{total} rounds, the slowest {} ms", worst.as_millis()))
}

/// Records that are compared before or behind those that are written, present or absent, in any order.
pub(super) async fn commits_that_need_the_same_records_in_any_order_all_end(bench: Bench) -> Checked {
    const TASKS: usize = 6;
    const EACH: usize = 40;
    let tasks = (0..TASKS).map(|task| commit_at_random(bench.gateway(task), EACH));
    pass(in_parallel(tasks)).await
}

async fn commit_at_random(engine: Records, commits: usize) -> Checked<usize> {
    const RECORDS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut random = Random::new();
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
        let loaded = engine.load(&compared).await?;
        done += usize::from(is_done(&engine.commit_after(&loaded, &compared, changes).await?)?);
    }
    Ok(done)
}
