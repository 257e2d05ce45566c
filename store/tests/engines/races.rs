//! Races between two gateways over the same records. Each ends with the number of commits that were done, or with the
//! violation of E2 that it saw; so they prove an engine, and find the mistakes that `mutants` makes on purpose.

use std::sync::Arc;

use fencepost_store::engine::{Commit, Engine};
use tokio::task::JoinSet;

use super::bench::{commit, commit_after, load, number, one, remove, write};

/// Commits that were done, or what went wrong.
pub(crate) type Raced = Result<usize, String>;

pub(crate) type Pair = [Arc<dyn Engine>; 2];

/// Pairs of records that are raced for at the same time, so that the commits of a race do not always start together.
const AT_ONCE: usize = 3;

/// Runs races in parallel, up to the first violation.
pub(crate) async fn in_parallel<F>(races: impl IntoIterator<Item = F>) -> Raced
where
    F: Future<Output = Raced> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for race in races {
        tasks.spawn(race);
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        done += ended.unwrap()?;
    }
    Ok(done)
}

/// Whether it was done. Anything but a conflict is a failure.
pub(crate) fn is_done(commit: &Commit) -> bool {
    match commit {
        Commit::Done { .. } => true,
        Commit::Conflict => false,
        other => panic!("{other:?}"),
    }
}

/// Both gateways add to one number. An addition that was done counts.
pub(crate) async fn additions(engines: Pair, rounds: u64) -> Raced {
    const TASKS: u64 = 4;
    let before = number(one(&*engines[0], "sum").await.as_ref());
    let tasks = (0..TASKS).flat_map(|_| engines.clone());
    let done = in_parallel(tasks.map(|engine| add(engine, rounds))).await?;
    let (found, expected) = (number(one(&*engines[0], "sum").await.as_ref()) - before, done as u64);
    match found == expected {
        true => Ok(done),
        false => Err(format!("{expected} additions were done, and the number grew by {found}")),
    }
}

async fn add(engine: Arc<dyn Engine>, rounds: u64) -> Raced {
    let mut done = 0;
    while done < rounds {
        let loaded = load(&*engine, &["sum"]).await;
        let sum = number(loaded.records[0].as_ref()) + 1;
        let added = commit_after(&*engine, &loaded, &["sum"], vec![write("sum", sum.to_string())]).await;
        done += u64::from(is_done(&added));
    }
    Ok(done as usize)
}

/// Two are on call, and each leaves if the other stays: both records are compared, one is removed (trap 17).
pub(crate) async fn on_call(engines: Pair, rounds: usize) -> Raced {
    in_parallel((0..AT_ONCE).map(|pair| leave(engines.clone(), pair, rounds))).await
}

async fn leave([ours, theirs]: Pair, pair: usize, rounds: usize) -> Raced {
    let (x, y) = (format!("on-call/{pair}/x"), format!("on-call/{pair}/y"));
    let names = [x.as_str(), y.as_str()];
    let mut done = 0;
    for round in 0..rounds {
        commit(&*ours, vec![write(&x, "here"), write(&y, "here")]).await;
        let loaded = load(&*ours, &names).await;
        let (our, their) = tokio::join!(
            commit_after(&*ours, &loaded, &names, vec![remove(&x)]),
            commit_after(&*theirs, &loaded, &names, vec![remove(&y)]),
        );
        done += usize::from(is_done(&our)) + usize::from(is_done(&their));
        if load(&*ours, &names).await.records.iter().all(Option::is_none) {
            return Err(format!("round {round}: each left, and had compared that the other was there"));
        }
    }
    Ok(done)
}

/// Each makes its own record if the other's is absent.
pub(crate) async fn either_or(engines: Pair, rounds: usize) -> Raced {
    in_parallel((0..AT_ONCE).map(|pair| make(engines.clone(), pair, rounds))).await
}

async fn make([ours, theirs]: Pair, pair: usize, rounds: usize) -> Raced {
    let (x, y) = (format!("either/{pair}/x"), format!("either/{pair}/y"));
    let names = [x.as_str(), y.as_str()];
    let mut done = 0;
    for round in 0..rounds {
        commit(&*ours, vec![remove(&x), remove(&y)]).await;
        let loaded = load(&*ours, &names).await;
        let (our, their) = tokio::join!(
            commit_after(&*ours, &loaded, &names, vec![write(&x, "made")]),
            commit_after(&*theirs, &loaded, &names, vec![write(&y, "made")]),
        );
        done += usize::from(is_done(&our)) + usize::from(is_done(&their));
        if load(&*ours, &names).await.records.iter().all(Option::is_some) {
            return Err(format!("round {round}: both were made, and each had compared that the other was absent"));
        }
    }
    Ok(done)
}
