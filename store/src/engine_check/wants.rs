//! How much of a record is loaded (E6), and large records, which an engine may store differently from small ones.

use std::collections::HashSet;

use super::bench::Bench;
use super::failure::{Checked, Failure, ensure, same};
use super::records::{Records, remove, write};
use crate::engine::{Loaded, Record, Version, Want};

/// The size of a large record.
const LARGE: usize = 300_000;

fn large(letter: &str) -> String {
    letter.repeat(LARGE)
}

/// The size of each record, and whether its bytes came along.
fn sizes(loaded: &Loaded) -> Checked<Vec<Option<(usize, bool)>>> {
    for record in loaded.records.iter().flatten() {
        let (size, bytes) = (record.size, record.bytes.len());
        ensure!(bytes == 0 || bytes == size, "E6: {bytes} bytes of a record of {size}");
    }
    let size = |record: &Record| (record.size, record.is_whole());
    Ok(loaded.records.iter().map(|record| record.as_ref().map(size)).collect())
}

/// Which records came with their bytes.
fn came(loaded: &Loaded) -> Checked<Vec<bool>> {
    Ok(sizes(loaded)?.into_iter().map(|found| found.is_some_and(|(_, came)| came)).collect())
}

fn versions(loaded: &Loaded) -> Vec<Option<Version>> {
    loaded.records.iter().map(|record| record.as_ref().map(|record| record.version)).collect()
}

pub(super) async fn e6_a_version_comes_with_the_size_and_without_bytes(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    engine.commit(vec![write("small", "abc"), write("large", large("x"))]).await?;
    let names = ["small", "none", "large"];
    let loaded = engine.load_wanted(&names.map(|name| (name, Want::Version)), usize::MAX).await?;
    same!(sizes(&loaded)?, [Some((3, false)), None, Some((LARGE, false))], "E6: sizes without bytes");
    let whole = engine.load(&names).await?;
    same!(versions(&loaded), versions(&whole), "E6: versions without bytes, and with them");
    same!(sizes(&whole)?, [Some((3, true)), None, Some((LARGE, true))], "E6: sizes with bytes");
    Ok(())
}

pub(super) async fn e6_bytes_come_as_far_as_they_are_wanted(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    engine.commit(vec![write("small", "abc"), write("large", large("x"))]).await?;
    for (want, comes) in [(Want::UpTo(2), false), (Want::UpTo(3), true), (Want::Bytes, true)] {
        let loaded = engine.load_wanted(&[("small", want)], 100).await?;
        same!(sizes(&loaded)?, [Some((3, comes))], "E6: a small record, {want:?}");
    }
    for (want, comes) in [(Want::UpTo(LARGE - 1), false), (Want::UpTo(LARGE), true), (Want::Bytes, true)] {
        let loaded = engine.load_wanted(&[("large", want)], LARGE).await?;
        same!(sizes(&loaded)?, [Some((LARGE, comes))], "E6: a large record, {want:?}");
    }
    Ok(())
}

pub(super) async fn e6_spare_bounds_what_is_read(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    let letters = ["a", "b", "c"].iter().map(|name| write(name, large(name)));
    engine.commit(letters.chain([write("d", "four")]).collect()).await?;
    let all = ["a", "b", "c", "d"].map(|name| (name, Want::UpTo(LARGE)));
    for (spare, expected) in [
        (2 * LARGE + 4, [true, true, false, true]),
        (2 * LARGE + 3, [true, true, false, false]),
        (0, [false, false, false, false]),
    ] {
        let loaded = engine.load_wanted(&all, spare).await?;
        same!(came(&loaded)?, expected, "E6: three large records and one of four bytes, {spare} bytes to spare");
    }
    let mut first = all;
    first[0].1 = Want::Bytes;
    let loaded = engine.load_wanted(&first, LARGE).await?;
    same!(came(&loaded)?, [true, true, false, false], "E6: what must come takes nothing from what is to spare");
    Ok(())
}

pub(super) async fn e2_compare_covers_records_of_which_only_the_version_was_loaded(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    engine.commit(vec![write("a", large("a"))]).await?;
    let loaded = engine.load_wanted(&[("a", Want::Version)], 0).await?;
    other.commit(vec![write("other", "in between")]).await?;
    engine.must_commit(&loaded, &["a"], vec![write("b", "one")]).await?;
    other.commit(vec![write("a", large("a"))]).await?;
    let rule = "E2, a version that was loaded without its bytes";
    engine.must_conflict(&loaded, &["a"], vec![write("b", "two")], rule).await?;
    same!(engine.text("b").await?.as_deref(), Some("one"), "E4: a conflict writes nothing");
    Ok(())
}

pub(super) async fn large_records_replace_small_ones_and_back(bench: Bench) -> Checked {
    let [engine, other] = bench.pair();
    let mut seen = HashSet::new();
    for round in 0..3 {
        for body in ["small".to_owned(), large("x"), large("y"), "small again".to_owned(), large("z")] {
            let first = engine.commit(vec![write("other", "1"), write("a", &body)]).await?;
            let missing = || Failure::Broken(format!("E4: a committed record of {} bytes is missing", body.len()));
            let found = other.one("a").await?.ok_or_else(missing)?;
            same!((found.version.0, found.size), (first.0 + 1, body.len()), "E4: version and size of a record");
            ensure!(found.bytes == body.as_bytes(), "E4: a record of {} bytes has others", body.len());
            ensure!(seen.insert(found.version), "E3: {:?} came again", found.version);
        }
        engine.commit(vec![remove("a")]).await?;
        same!(other.one("a").await?, None, "a large record that was removed in round {round}");
        same!(other.all_names("").await?, ["other"], "the records that are left");
    }
    Ok(())
}

pub(super) async fn large_records_of_one_key_in_one_commit_apply_in_order(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    let (x, y) = (large("x"), large("y"));
    for (changes, left) in [
        (vec![write("a", &x), write("a", "small")], Some("small")),
        (vec![write("a", &x), remove("a")], None),
        (vec![write("a", &x), remove("a"), write("a", &y)], Some(y.as_str())),
        (vec![remove("a"), write("a", &x), write("b", &x)], Some(x.as_str())),
        (vec![write("a", "small"), write("a", &y)], Some(y.as_str())),
    ] {
        let count = changes.len() as u64;
        let first = engine.commit(changes).await?;
        let found = engine.one("a").await?;
        let matches = found.as_ref().map(|record| &record.bytes[..]) == left.map(str::as_bytes);
        ensure!(matches, "the last of {count} changes of one record wins");
        if let Some(found) = found {
            ensure!((first.0..first.0 + count).contains(&found.version.0), "E4: {:?} after {first:?}", found.version);
        }
        let next = engine.commit(vec![write("next", "1")]).await?;
        ensure!(!(first.0..first.0 + count).contains(&next.0), "E3: {next:?} came again");
    }
    Ok(())
}

pub(super) async fn large_records_are_scanned_like_others(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    let changes = vec![write("a", "1"), write("b", large("b")), write("c", "3"), write("d", large("d"))];
    engine.commit(changes).await?;
    engine.commit(vec![write("d", "small"), write("e", large("e")), remove("b")]).await?;
    let scanned = engine.engine().scan(engine.under("")).await?;
    let sizes: Vec<_> = scanned.records.iter().map(|(_, record)| (record.bytes.len(), record.size)).collect();
    same!(sizes, [(1, 1), (1, 1), (5, 5), (LARGE, LARGE)], "the sizes of what a scan returns");
    for (name, (_, record)) in ["a", "c", "d", "e"].iter().zip(scanned.records) {
        ensure!(engine.one(name).await? == Some(record), "a scan and a load of {name} differ");
    }
    Ok(())
}

pub(super) async fn large_records_of_two_gateways_replace_each_other(bench: Bench) -> Checked {
    const ROUNDS: usize = 10;
    let [ours, theirs] = bench.pair();
    let (our, their) = tokio::join!(replace(&ours, "o", ROUNDS), replace(&theirs, "t", ROUNDS));
    our?;
    their?;
    let loaded = ours.load(&["a", "b"]).await?;
    let sizes: Vec<_> = loaded.records.iter().flatten().map(|record| record.size).collect();
    same!(sizes, [LARGE + ROUNDS - 1; 2], "E4: the sizes of what was committed last");
    let bytes: Vec<_> = loaded.records.iter().flatten().map(|record| &record.bytes).collect();
    ensure!(bytes[0] == bytes[1], "E4: two records are not of one commit");
    Ok(())
}

/// Writes two records of the same bytes in each commit.
async fn replace(engine: &Records, letter: &str, rounds: usize) -> Checked {
    for round in 0..rounds {
        let body = letter.repeat(LARGE + round);
        engine.commit(vec![write("a", &body), write("b", &body)]).await?;
    }
    Ok(())
}
