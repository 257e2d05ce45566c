//! Compare-and-commit: E1, E2 and E4, one commit after the other.

use super::bench::Bench;
use super::failure::{Checked, same};
use super::records::{remove, write};
use crate::engine::{Commit, Version};

pub(super) async fn e1_records_come_in_the_order_asked(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    engine.commit(vec![write("a", "1"), write("c", "3")]).await?;
    let loaded = engine.load(&["c", "b", "a", "c"]).await?;
    let texts: Vec<_> = loaded.records.iter().map(|record| record.as_ref().map(|record| &record.bytes[..])).collect();
    same!(texts, [Some(&b"3"[..]), None, Some(&b"1"[..]), Some(&b"3"[..])], "E1: records c, absent b, a and c");
    same!(engine.load(&[]).await?.records.len(), 0, "E1: a load of nothing");
    Ok(())
}

const COVERS: &str = "E2, the comparison covers what was loaded";

pub(super) async fn e2_compare_covers_present_records(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    engine.commit(vec![write("a", "old")]).await?;
    let loaded = engine.load(&["a"]).await?;
    other.commit(vec![write("a", "theirs")]).await?;
    engine.must_conflict(&loaded, &["a"], vec![write("a", "ours")], COVERS).await?;
    same!(engine.text("a").await?.as_deref(), Some("theirs"), "E4: a conflict writes nothing");
    Ok(())
}

pub(super) async fn e2_compare_covers_absent_records(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    let loaded = engine.load(&["a"]).await?;
    other.commit(vec![write("a", "theirs")]).await?;
    engine.must_conflict(&loaded, &["a"], vec![write("a", "ours")], COVERS).await?;
    same!(engine.text("a").await?.as_deref(), Some("theirs"), "E4: a conflict writes nothing");
    Ok(())
}

pub(super) async fn e2_compare_covers_removed_records(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    engine.commit(vec![write("a", "old")]).await?;
    let loaded = engine.load(&["a"]).await?;
    other.commit(vec![remove("a")]).await?;
    engine.must_conflict(&loaded, &["a"], vec![write("a", "ours")], COVERS).await?;
    same!(engine.one("a").await?, None, "E4: a conflict writes nothing");
    Ok(())
}

pub(super) async fn e2_compare_covers_records_that_are_not_written(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    let both = ["fence", "unseen"];
    engine.commit(vec![write("fence", "33")]).await?;
    let loaded = engine.load(&both).await?;
    other.commit(vec![write("fence", "34")]).await?;
    let ours = vec![write("value", "from 33")];
    engine.must_conflict(&loaded, &both, ours.clone(), COVERS).await?;
    same!(engine.one("value").await?, None, "E4: a conflict writes nothing");

    let loaded = engine.load(&both).await?;
    other.commit(vec![write("unseen", "seen")]).await?;
    engine.must_conflict(&loaded, &both, ours, COVERS).await?;
    same!(engine.one("value").await?, None, "E4: a conflict writes nothing");
    Ok(())
}

pub(super) async fn e2_one_difference_among_many_is_a_conflict(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    let names: Vec<String> = (0..50).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    engine.commit(names.iter().map(|name| write(name, "old")).collect()).await?;
    for changed in ["n0", "n25", "n49"] {
        let loaded = engine.load(&names).await?;
        other.commit(vec![write(changed, "theirs")]).await?;
        engine.must_conflict(&loaded, &names, vec![write("ours", changed)], COVERS).await?;
        same!(engine.one("ours").await?, None, "E4: a conflict writes nothing");
    }
    Ok(())
}

pub(super) async fn e2_an_unrelated_commit_in_between_is_no_conflict(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    engine.commit(vec![write("a", "old")]).await?;
    let loaded = engine.load(&["a", "b"]).await?;
    other.commit(vec![write("other", "theirs")]).await?;
    engine.must_commit(&loaded, &["a", "b"], vec![write("a", "ours")]).await?;
    same!(engine.text("a").await?.as_deref(), Some("ours"), "E4: what was committed is there");
    Ok(())
}

/// An engine may skip the comparison only if nothing at all was committed since the load.
pub(super) async fn e2_a_commit_in_between_is_noticed_although_other_versions_are_equal(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    engine.commit(vec![write("meta", "m"), write("a", "1"), write("b", "1")]).await?;
    let names = ["meta", "a", "b"];
    let early = engine.load(&names).await?;
    other.commit(vec![write("b", "2")]).await?;
    let late = engine.load(&names).await?;
    same!(early.records[..2], late.records[..2], "E3: the versions of records that nobody wrote");
    engine.must_conflict(&early, &names, vec![write("a", "ours")], COVERS).await?;
    same!(engine.text("a").await?.as_deref(), Some("1"), "E4: a conflict writes nothing");
    engine.must_commit(&late, &names, vec![write("a", "ours")]).await?;
    // The same load cannot be used twice.
    engine.must_conflict(&late, &names, vec![write("a", "again")], COVERS).await
}

pub(super) async fn e4_a_conflict_writes_nothing(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    let all = ["a", "new", "gone"];
    engine.commit(vec![write("a", "1"), write("gone", "1")]).await?;
    let loaded = engine.load(&["a"]).await?;
    other.commit(vec![write("a", "2")]).await?;
    let before = engine.load(&all).await?;
    let ours = vec![write("new", "ours"), remove("gone"), write("a", "ours")];
    engine.must_conflict(&loaded, &["a"], ours, COVERS).await?;
    same!(engine.load(&all).await?.records, before.records, "E4: a conflict writes nothing");
    Ok(())
}

pub(super) async fn e4_a_batch_without_changes_only_compares(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    engine.commit(vec![write("a", "1")]).await?;
    let loaded = engine.load(&["a"]).await?;
    engine.must_commit(&loaded, &["a"], vec![]).await?;
    other.commit(vec![write("a", "2")]).await?;
    engine.must_conflict(&loaded, &["a"], vec![], COVERS).await
}

pub(super) async fn large_and_empty_values_come_back(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    let size = engine.engine().limits().bytes.min(5 << 20);
    let large: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let long_name = "n".repeat(1000);
    engine.commit(vec![write("large", &large), write("empty", ""), write(&long_name, "long")]).await?;
    let found = engine.load(&["large", "empty", &long_name]).await?;
    let sizes: Vec<_> = found.records.iter().flatten().map(|record| record.bytes.len()).collect();
    same!(sizes, [size, 0, 4], "the sizes of a large record, an empty one, and one with a long name");
    let came_back = found.records[0].as_ref().is_some_and(|record| record.bytes == large);
    same!(came_back, true, "the bytes of a large record come back");
    Ok(())
}

/// The same record several times in one batch, which compares it as absent or as present.
pub(super) async fn changes_of_one_compared_key_apply_in_order(bench: Bench) -> Checked {
    let [ours, theirs] = bench.pair();
    let both = ["a", "b"];
    let absent = ours.load(&both).await?;
    let changes = vec![write("a", "1"), write("b", "1"), remove("b"), write("a", "2")];
    let first = ours.must_commit(&absent, &both, changes.clone()).await?;
    let found = theirs.load(&both).await?.records;
    let found: Vec<_> =
        found.iter().map(|record| record.as_ref().map(|found| (found.version, &found.bytes[..]))).collect();
    same!(found, [Some((Version(first.0 + 3), &b"2"[..])), None], "the last change of a record wins");
    theirs.must_conflict(&absent, &both, changes, COVERS).await?;

    let present = theirs.load(&both).await?;
    let changes = vec![remove("a"), write("a", "3"), remove("a"), write("a", "4"), remove("b"), write("b", "4")];
    let first = theirs.must_commit(&present, &both, changes).await?;
    let found = ours.load(&both).await?.records;
    let versions: Vec<Version> = found.iter().flatten().map(|record| record.version).collect();
    same!(versions, [Version(first.0 + 3), Version(first.0 + 5)], "E4: change i has version first + i");

    let present = ours.load(&both).await?;
    ours.must_commit(&present, &both, vec![write("a", "5"), remove("a"), remove("b")]).await?;
    same!(theirs.all_names("").await?.len(), 0, "records that were removed last are gone");
    Ok(())
}

/// As many records, and as many bytes, as the engine says that a commit can have.
pub(super) async fn a_batch_as_large_as_the_limits_is_committed(bench: Bench) -> Checked {
    let [ours, theirs] = bench.pair();
    let count = ours.engine().limits().records.min(20_000);
    let all: Vec<String> = (0..count).map(|n| format!("n/{n:05}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let absent = ours.load(&all).await?;
    ours.must_commit(&absent, &all, all.iter().map(|name| write(name, "made")).collect()).await?;
    let present = theirs.load(&all).await?;
    same!(present.records.iter().flatten().count(), count, "E4: all records of a commit are there");
    let removed = count / 100;
    let changes =
        all.iter().enumerate().map(|(n, name)| if n < removed { remove(name) } else { write(name, "changed") });
    let changes: Vec<_> = changes.collect();
    theirs.must_commit(&present, &all, changes.clone()).await?;
    ours.must_conflict(&present, &all, changes, COVERS).await?;
    same!(ours.all_names("n/").await?.len(), count - removed, "E4: what a commit removed is gone, and nothing else");

    let bytes = ours.engine().limits().bytes.min(16 << 20);
    ours.commit(vec![write("bytes", vec![7u8; bytes])]).await?;
    same!(theirs.one("bytes").await?.map(|record| record.size), Some(bytes), "the size of the largest record");
    Ok(())
}

pub(super) async fn one_gateway_sees_what_another_committed(bench: Bench) -> Checked {
    let [ours, theirs] = bench.pair();
    for round in 0..20 {
        let name = format!("n{round}");
        ours.commit(vec![write("a", &name), write(&name, "1")]).await?;
        same!(theirs.text("a").await?.as_deref(), Some(&name[..]), "what another gateway committed");
        theirs.commit(vec![remove(&name)]).await?;
        same!(ours.one(&name).await?, None, "what another gateway removed");
    }
    same!(ours.all_names("").await?, ["a"], "the records that are left");
    Ok(())
}

/// Every commit compares the shared record, and one that has an old version of it is a conflict.
pub(super) async fn e2_a_commit_that_compared_an_old_shared_record_conflicts(bench: Bench) -> Checked {
    const SHARED: &str = "shared";
    let [ours, theirs] = bench.pair();
    ours.commit(vec![write(SHARED, "old")]).await?;
    let old = ours.load(&[SHARED]).await?;
    same!(theirs.commit_sharing(&old, SHARED, vec![write("a", "1")]).await?, true, "others may share it");
    same!(theirs.commit_sharing(&old, SHARED, vec![write(SHARED, "new")]).await?, true, "it may be changed");
    for changes in [vec![write("a", "2")], vec![write(SHARED, "ours")], Vec::new()] {
        let named = format!("E2: a commit with {} changes that compared an old shared record is done", changes.len());
        same!(ours.commit_sharing(&old, SHARED, changes).await?, false, "{named}");
    }
    same!(ours.text("a").await?.as_deref(), Some("1"), "E4: a conflict writes nothing");
    same!(ours.text(SHARED).await?.as_deref(), Some("new"), "E4: a conflict writes nothing");
    let new = ours.load(&[SHARED]).await?;
    same!(ours.commit_sharing(&new, SHARED, vec![write("a", "3")]).await?, true, "a commit that compared the new one");
    Ok(())
}

/// Nothing of an engine's answers contradicts that it was done: the version is that of the first change.
pub(super) async fn e4_a_commit_that_is_done_is_there(bench: Bench) -> Checked {
    let [ours, theirs] = bench.pair();
    for round in 0..10 {
        let loaded = ours.load(&["a"]).await?;
        let commit = ours.commit_after(&loaded, &["a"], vec![write("a", round.to_string())]).await?;
        let found = theirs.one("a").await?;
        let expected = match commit {
            Commit::Done { first } => Some(first),
            _ => loaded.records[0].as_ref().map(|record| record.version),
        };
        same!(found.map(|record| record.version), expected, "E4: the version after {commit:?}");
    }
    Ok(())
}
