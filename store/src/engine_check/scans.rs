//! Scans: order, range and limits.

use super::bench::Bench;
use super::failure::{Checked, same};
use super::records::{Records, remove, write};
use crate::engine::Scan;

async fn fill(engine: &Records, wanted: &[&str]) -> Checked {
    engine.commit(wanted.iter().map(|name| write(name, format!("of {name}"))).collect()).await.map(drop)
}

pub(super) async fn in_key_order_and_only_the_prefix(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    fill(&engine, &["b", "a/2", "a", "a/10", "aé", "c", "a0", "a/1"]).await?;
    let all = ["a", "a/1", "a/10", "a/2", "a0", "aé", "b", "c"];
    same!(engine.all_names("").await?, all, "all records in key order");
    same!(engine.all_names("a/").await?, ["a/1", "a/10", "a/2"], "the records under a/");
    same!(engine.all_names("a/10").await?, ["a/10"], "a prefix that is a name");
    same!(engine.names(engine.under("z")).await?, (vec![], false), "a prefix that no record has");
    let scanned = engine.engine().scan(engine.under("c")).await?;
    same!(scanned.records.first().map(|(_, record)| &record.bytes[..]), Some(&b"of c"[..]), "scans return bytes");
    Ok(())
}

pub(super) async fn the_start_is_inclusive_or_exclusive(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    fill(&engine, &["a", "b", "c"]).await?;
    for (start, inclusive, expected) in [
        ("b", true, vec!["b", "c"]),
        ("b", false, vec!["c"]),
        ("bb", true, vec!["c"]),
        ("bb", false, vec!["c"]),
        ("c", false, vec![]),
    ] {
        let scan = Scan { from: engine.scan_bytes(start), inclusive, ..engine.under("") };
        let (names, more) = engine.names(scan).await?;
        same!(names, expected, "a scan from {start}, inclusive: {inclusive}");
        same!(more, false, "a scan to the end has more");
    }
    Ok(())
}

pub(super) async fn a_start_outside_of_the_prefix(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    fill(&engine, &["a", "b/1", "b/2", "c"]).await?;
    for (start, expected) in [("a", vec!["b/1", "b/2"]), ("b/1", vec!["b/2"]), ("c", vec![])] {
        let scan = Scan { from: engine.scan_bytes(start), inclusive: false, ..engine.under("b/") };
        same!(engine.names(scan).await?.0, expected, "a scan of b/ after {start}");
    }
    // An exclusive start before the prefix does not exclude the record at the prefix itself.
    fill(&engine, &["b"]).await?;
    let scan = Scan { from: engine.scan_bytes("a"), inclusive: false, ..engine.under("b") };
    same!(engine.names(scan).await?.0, ["b", "b/1", "b/2"], "a scan of b after a");
    Ok(())
}

pub(super) async fn limits_end_it_and_say_so(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    engine.commit(["a", "b", "c", "d"].iter().map(|name| write(name, [0; 100])).collect()).await?;
    let prefix = engine.scan_bytes("").len() - 1;
    let one = 100 + prefix + 2;
    for (limit, max_bytes, expected, more) in [
        (2, usize::MAX, 2, true),
        (4, usize::MAX, 4, false),
        (5, usize::MAX, 4, false),
        (0, usize::MAX, 0, true),
        // A scan stops after the record that exceeds the limit, so it always returns at least one record.
        (9, 0, 1, true),
        (9, one + one / 2, 2, true),
        (9, 10 * one, 4, false),
    ] {
        let scan = Scan { limit, max_bytes, ..engine.under("") };
        let (names, found_more) = engine.names(scan).await?;
        let bounds = format!("{limit} records and {max_bytes} bytes");
        same!((names.len(), found_more), (expected, more), "a scan of four records of {one} bytes, within {bounds}");
    }
    // Records after the prefix do not count as more.
    for name in ["d", "a"] {
        let scan = Scan { limit: 1, ..engine.under(name) };
        same!(engine.names(scan).await?, (vec![name.to_owned()], false), "a scan of one record within one record");
    }
    Ok(())
}

pub(super) async fn pages_put_together_are_the_whole(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    let wanted: Vec<String> = (0..97).map(|n| format!("p/{n:03}")).collect();
    engine.commit(wanted.iter().map(|name| write(name, [1; 50])).collect()).await?;
    fill(&engine, &["o", "q"]).await?;
    for (limit, max_bytes) in [(7, usize::MAX), (10, usize::MAX), (97, usize::MAX), (usize::MAX, 200)] {
        let (mut found, mut from, mut inclusive) = (Vec::new(), engine.scan_bytes("p/"), true);
        loop {
            let scan = Scan { from, inclusive, limit, max_bytes, ..engine.under("p/") };
            let (page, more) = engine.names(scan).await?;
            let last = page.last().cloned();
            found.extend(page);
            match last {
                Some(last) if more => (from, inclusive) = (engine.scan_bytes(&last), false),
                _ => break,
            }
        }
        same!(found, wanted, "pages of {limit} records and {max_bytes} bytes");
    }
    Ok(())
}

pub(super) async fn removed_records_are_gone(bench: Bench) -> Checked {
    let engine = bench.gateway(0);
    fill(&engine, &["a", "b", "c"]).await?;
    engine.commit(vec![remove("b")]).await?;
    same!(engine.all_names("").await?, ["a", "c"], "a scan without the record that was removed");
    let (names, more) = engine.names(Scan { limit: 2, ..engine.under("") }).await?;
    same!((names.len(), more), (2, false), "a record that was removed does not count");
    Ok(())
}
