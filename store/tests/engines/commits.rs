//! Compare-and-commit: E1, E2 and E4 on one thread.

use fencepost_store::engine::Commit;

use super::bench::{Bench, commit, commit_after, load, one, remove, text, write};

pub(crate) async fn e1_records_come_in_the_order_asked(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", "1"), write("c", "3")]).await;
    let loaded = load(&*engine, &["c", "b", "a", "c"]).await;
    let texts: Vec<_> = loaded.records.iter().map(|record| record.as_ref().map(|record| &record.bytes[..])).collect();
    assert_eq!(texts, [Some(&b"3"[..]), None, Some(b"1"), Some(b"3")]);
    assert!(load(&*engine, &[]).await.records.is_empty());
}

pub(crate) async fn e2_compare_covers_present_records(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", "old")]).await;
    let loaded = load(&*engine, &["a"]).await;
    commit(&*engine, vec![write("a", "theirs")]).await;
    assert_eq!(commit_after(&*engine, &loaded, &["a"], vec![write("a", "ours")]).await, Commit::Conflict);
    assert_eq!(text(&*engine, "a").await.as_deref(), Some("theirs"));
}

pub(crate) async fn e2_compare_covers_absent_records(bench: Bench) {
    let engine = bench.open().await;
    let loaded = load(&*engine, &["a"]).await;
    commit(&*engine, vec![write("a", "theirs")]).await;
    assert_eq!(commit_after(&*engine, &loaded, &["a"], vec![write("a", "ours")]).await, Commit::Conflict);
    assert_eq!(text(&*engine, "a").await.as_deref(), Some("theirs"));
}

pub(crate) async fn e2_compare_covers_removed_records(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", "old")]).await;
    let loaded = load(&*engine, &["a"]).await;
    commit(&*engine, vec![remove("a")]).await;
    assert_eq!(commit_after(&*engine, &loaded, &["a"], vec![write("a", "ours")]).await, Commit::Conflict);
    assert_eq!(one(&*engine, "a").await, None);
}

pub(crate) async fn e2_compare_covers_records_that_are_not_written(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("fence", "33")]).await;
    let loaded = load(&*engine, &["fence", "unseen"]).await;
    commit(&*engine, vec![write("fence", "34")]).await;
    let ours = vec![write("value", "from 33")];
    assert_eq!(commit_after(&*engine, &loaded, &["fence", "unseen"], ours.clone()).await, Commit::Conflict);
    assert_eq!(one(&*engine, "value").await, None);

    let loaded = load(&*engine, &["fence", "unseen"]).await;
    commit(&*engine, vec![write("unseen", "seen")]).await;
    assert_eq!(commit_after(&*engine, &loaded, &["fence", "unseen"], ours).await, Commit::Conflict);
    assert_eq!(one(&*engine, "value").await, None);
}

pub(crate) async fn e2_one_difference_among_many_is_a_conflict(bench: Bench) {
    let engine = bench.open().await;
    let names: Vec<String> = (0..50).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    commit(&*engine, names.iter().map(|name| write(name, "old")).collect()).await;
    for changed in ["n0", "n25", "n49"] {
        let loaded = load(&*engine, &names).await;
        commit(&*engine, vec![write(changed, "theirs")]).await;
        let ours = vec![write("ours", changed)];
        assert_eq!(commit_after(&*engine, &loaded, &names, ours).await, Commit::Conflict, "{changed}");
        assert_eq!(one(&*engine, "ours").await, None);
    }
}

pub(crate) async fn e2_an_unrelated_commit_in_between_is_no_conflict(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", "old")]).await;
    let loaded = load(&*engine, &["a", "b"]).await;
    commit(&*engine, vec![write("other", "theirs")]).await;
    let done = commit_after(&*engine, &loaded, &["a", "b"], vec![write("a", "ours")]).await;
    assert!(matches!(done, Commit::Done { .. }), "{done:?}");
    assert_eq!(text(&*engine, "a").await.as_deref(), Some("ours"));
}

/// An engine may skip the comparison only if nothing at all was committed since the load.
pub(crate) async fn e2_a_commit_in_between_is_noticed_although_other_versions_are_equal(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("meta", "m"), write("a", "1"), write("b", "1")]).await;
    let names = ["meta", "a", "b"];
    let early = load(&*engine, &names).await;
    commit(&*engine, vec![write("b", "2")]).await;
    let late = load(&*engine, &names).await;
    assert_eq!(early.records[..2], late.records[..2]);
    assert_eq!(commit_after(&*engine, &early, &names, vec![write("a", "ours")]).await, Commit::Conflict);
    assert_eq!(text(&*engine, "a").await.as_deref(), Some("1"));
    let done = commit_after(&*engine, &late, &names, vec![write("a", "ours")]).await;
    assert!(matches!(done, Commit::Done { .. }), "{done:?}");
    // The same load cannot be used twice.
    assert_eq!(commit_after(&*engine, &late, &names, vec![write("a", "again")]).await, Commit::Conflict);
}

pub(crate) async fn e4_a_conflict_writes_nothing(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", "1"), write("gone", "1")]).await;
    let loaded = load(&*engine, &["a"]).await;
    commit(&*engine, vec![write("a", "2")]).await;
    let before = load(&*engine, &["a", "new", "gone"]).await;
    let ours = vec![write("new", "ours"), remove("gone"), write("a", "ours")];
    assert_eq!(commit_after(&*engine, &loaded, &["a"], ours).await, Commit::Conflict);
    assert_eq!(load(&*engine, &["a", "new", "gone"]).await.records, before.records);
}

pub(crate) async fn e4_a_batch_without_changes_only_compares(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, vec![write("a", "1")]).await;
    let loaded = load(&*engine, &["a"]).await;
    assert!(matches!(commit_after(&*engine, &loaded, &["a"], vec![]).await, Commit::Done { .. }));
    commit(&*engine, vec![write("a", "2")]).await;
    assert_eq!(commit_after(&*engine, &loaded, &["a"], vec![]).await, Commit::Conflict);
}

pub(crate) async fn large_and_empty_values_come_back(bench: Bench) {
    let engine = bench.open().await;
    let size = engine.limits().bytes.min(5 << 20);
    let large: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let long_name = "n".repeat(1024);
    commit(&*engine, vec![write("large", &large), write("empty", ""), write(&long_name, "long")]).await;
    assert_eq!(one(&*engine, "large").await.unwrap().bytes, large);
    assert!(one(&*engine, "empty").await.unwrap().bytes.is_empty());
    assert_eq!(text(&*engine, &long_name).await.as_deref(), Some("long"));
}
