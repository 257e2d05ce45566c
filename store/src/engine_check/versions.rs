//! Versions: E3, and the order of changes within a commit.

use std::collections::HashSet;

use super::bench::Bench;
use super::failure::{Checked, ensure, same};
use super::records::{remove, write};
use crate::engine::Version;

pub(super) async fn e3_the_ith_change_has_version_first_plus_i(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    for round in 0..3 {
        let changes =
            vec![write("a", "1"), write("b", "1"), remove("absent"), write("c", "1"), remove("b"), write("d", "1")];
        let first = engine.commit(changes).await?;
        for (name, at) in [("a", 0), ("c", 3), ("d", 5)] {
            let version = engine.one(name).await?.map(|record| record.version);
            same!(version, Some(Version(first.0 + at)), "E4: the version of {name} in round {round}");
        }
        same!(engine.one("b").await?, None, "a record that was written and removed");
    }
    Ok(())
}

pub(super) async fn e3_a_record_made_again_has_a_new_version(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    let mut seen = HashSet::new();
    for round in 0..10 {
        engine.commit(vec![write("a", "same")]).await?;
        let version = engine.one("a").await?.map(|record| record.version);
        ensure!(seen.insert(version), "E3: {version:?} came again in round {round}");
        other.commit(vec![remove("a")]).await?;
        same!(engine.one("a").await?, None, "a record that was removed");
    }
    // This also holds within one commit.
    let first = engine.commit(vec![write("a", "same"), remove("a"), write("a", "same")]).await?;
    let version = engine.one("a").await?.map(|record| record.version);
    same!(version, Some(Version(first.0 + 2)), "E4: the version of the last change");
    ensure!(seen.insert(version), "E3: {version:?} came again");
    Ok(())
}

pub(super) async fn changes_of_one_key_apply_in_order(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    let changes = vec![write("a", "1"), write("a", "2"), remove("a"), write("a", "4"), write("b", "1"), remove("b")];
    engine.commit(changes).await?;
    same!(engine.text("a").await?.as_deref(), Some("4"), "the last change of a record wins");
    same!(engine.one("b").await?, None, "the last change of a record wins");
    engine.commit(vec![remove("a"), write("b", "2"), write("b", "3")]).await?;
    same!(engine.one("a").await?, None, "the last change of a record wins");
    same!(engine.text("b").await?.as_deref(), Some("3"), "the last change of a record wins");
    Ok(())
}
