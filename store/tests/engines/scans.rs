//! Scans: order, range and limits.

use fencepost_store::engine::{Engine, Scan};

use super::bench::{Bench, commit, names, remove, scan_bytes, under, write};

async fn fill(engine: &dyn Engine, wanted: &[&str]) {
    commit(engine, wanted.iter().map(|name| write(name, format!("of {name}"))).collect()).await;
}

pub(crate) async fn in_key_order_and_only_the_prefix(bench: Bench) {
    let engine = bench.open().await;
    fill(&*engine, &["b", "a/2", "a", "a/10", "aé", "c", "a0", "a/1"]).await;
    assert_eq!(names(&*engine, under("")).await.0, ["a", "a/1", "a/10", "a/2", "a0", "aé", "b", "c"]);
    assert_eq!(names(&*engine, under("a/")).await, (vec!["a/1".into(), "a/10".into(), "a/2".into()], false));
    assert_eq!(names(&*engine, under("a/10")).await.0, ["a/10"]);
    assert_eq!(names(&*engine, under("z")).await, (vec![], false));
    let scanned = engine.scan(under("c")).await.unwrap();
    assert_eq!(scanned.records[0].1.bytes, "of c");
}

pub(crate) async fn the_start_is_inclusive_or_exclusive(bench: Bench) {
    let engine = bench.open().await;
    fill(&*engine, &["a", "b", "c"]).await;
    let from = |start: &str, inclusive| Scan { from: scan_bytes(start), inclusive, ..under("") };
    assert_eq!(names(&*engine, from("b", true)).await.0, ["b", "c"]);
    assert_eq!(names(&*engine, from("b", false)).await.0, ["c"]);
    assert_eq!(names(&*engine, from("bb", true)).await.0, ["c"]);
    assert_eq!(names(&*engine, from("bb", false)).await.0, ["c"]);
    assert_eq!(names(&*engine, from("c", false)).await, (vec![], false));
}

pub(crate) async fn a_start_outside_of_the_prefix(bench: Bench) {
    let engine = bench.open().await;
    fill(&*engine, &["a", "b/1", "b/2", "c"]).await;
    let from = |start: &str| Scan { from: scan_bytes(start), inclusive: false, ..under("b/") };
    assert_eq!(names(&*engine, from("a")).await.0, ["b/1", "b/2"]);
    assert_eq!(names(&*engine, from("b/1")).await.0, ["b/2"]);
    assert_eq!(names(&*engine, from("c")).await, (vec![], false));
    // An exclusive start before the prefix does not exclude the record at the prefix itself.
    fill(&*engine, &["b"]).await;
    let scan = Scan { from: scan_bytes("a"), inclusive: false, ..under("b") };
    assert_eq!(names(&*engine, scan).await.0, ["b", "b/1", "b/2"]);
}

pub(crate) async fn limits_end_it_and_say_so(bench: Bench) {
    let engine = bench.open().await;
    commit(&*engine, ["a", "b", "c", "d"].iter().map(|name| write(name, [0; 100])).collect()).await;
    let limited = |limit, max_bytes| Scan { limit, max_bytes, ..under("") };
    assert_eq!(names(&*engine, limited(2, usize::MAX)).await, (vec!["a".into(), "b".into()], true));
    assert!(!names(&*engine, limited(4, usize::MAX)).await.1);
    assert!(!names(&*engine, limited(5, usize::MAX)).await.1);
    assert_eq!(names(&*engine, limited(0, usize::MAX)).await, (vec![], true));
    // A scan stops after the record that exceeds the limit, so it always returns at least one record.
    assert_eq!(names(&*engine, limited(9, 0)).await, (vec!["a".into()], true));
    assert_eq!(names(&*engine, limited(9, 150)).await, (vec!["a".into(), "b".into()], true));
    assert!(!names(&*engine, limited(9, 1000)).await.1);
    // Records after the prefix do not count as more.
    assert_eq!(names(&*engine, Scan { limit: 1, ..under("d") }).await, (vec!["d".into()], false));
    assert_eq!(names(&*engine, Scan { limit: 1, ..under("a") }).await, (vec!["a".into()], false));
}

pub(crate) async fn pages_put_together_are_the_whole(bench: Bench) {
    let engine = bench.open().await;
    let wanted: Vec<String> = (0..97).map(|n| format!("p/{n:03}")).collect();
    commit(&*engine, wanted.iter().map(|name| write(name, [1; 50])).collect()).await;
    fill(&*engine, &["o", "q"]).await;
    for (limit, max_bytes) in [(1, usize::MAX), (10, usize::MAX), (97, usize::MAX), (usize::MAX, 200)] {
        let (mut found, mut from, mut inclusive) = (Vec::new(), scan_bytes("p/"), true);
        loop {
            let scan = Scan { from, inclusive, limit, max_bytes, ..under("p/") };
            let (page, more) = names(&*engine, scan).await;
            found.extend(page);
            if !more {
                break;
            }
            (from, inclusive) = (scan_bytes(found.last().unwrap()), false);
        }
        assert_eq!(found, wanted, "limit {limit}, {max_bytes} bytes");
    }
}

pub(crate) async fn removed_records_are_gone(bench: Bench) {
    let engine = bench.open().await;
    fill(&*engine, &["a", "b", "c"]).await;
    commit(&*engine, vec![remove("b")]).await;
    assert_eq!(names(&*engine, under("")).await.0, ["a", "c"]);
    assert_eq!(names(&*engine, Scan { limit: 2, ..under("") }).await, (vec!["a".into(), "c".into()], false));
}
