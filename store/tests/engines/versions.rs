//! Versions: E3, and the order of changes within a commit.

use std::collections::HashSet;

use fencepost_store::engine::Version;

use super::bench::{Bench, commit, one, remove, text, write};

pub(crate) async fn e3_the_ith_change_has_version_first_plus_i(bench: Bench) {
    let engine = bench.open().await;
    for round in 0..3 {
        let changes =
            vec![write("a", "1"), write("b", "1"), remove("absent"), write("c", "1"), remove("b"), write("d", "1")];
        let first = commit(&*engine, changes).await;
        for (name, at) in [("a", 0), ("c", 3), ("d", 5)] {
            assert_eq!(one(&*engine, name).await.unwrap().version, Version(first.0 + at), "{name} in round {round}");
        }
        assert_eq!(one(&*engine, "b").await, None);
    }
}

pub(crate) async fn e3_a_record_made_again_has_a_new_version(bench: Bench) {
    let engine = bench.open().await;
    let mut seen = HashSet::new();
    for round in 0..10 {
        commit(&*engine, vec![write("a", "same")]).await;
        let version = one(&*engine, "a").await.unwrap().version;
        assert!(seen.insert(version), "{version:?} came again in round {round}");
        commit(&*engine, vec![remove("a")]).await;
        assert_eq!(one(&*engine, "a").await, None);
    }
    // This also holds within one commit.
    let first = commit(&*engine, vec![write("a", "same"), remove("a"), write("a", "same")]).await;
    let version = one(&*engine, "a").await.unwrap().version;
    assert_eq!(version, Version(first.0 + 2));
    assert!(seen.insert(version));
}

pub(crate) async fn changes_of_one_key_apply_in_order(bench: Bench) {
    let engine = bench.open().await;
    commit(
        &*engine,
        vec![write("a", "1"), write("a", "2"), remove("a"), write("a", "4"), write("b", "1"), remove("b")],
    )
    .await;
    assert_eq!(text(&*engine, "a").await.as_deref(), Some("4"));
    assert_eq!(one(&*engine, "b").await, None);
    commit(&*engine, vec![remove("a"), write("b", "2"), write("b", "3")]).await;
    assert_eq!(one(&*engine, "a").await, None);
    assert_eq!(text(&*engine, "b").await.as_deref(), Some("3"));
}
