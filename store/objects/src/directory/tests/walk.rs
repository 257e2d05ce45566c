//! Walks through a bucket.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use fencepost_core::Key;
use proptest::prelude::*;

use super::{Storage, key};
use crate::directory::walk::walk_by;
use crate::layout::{Layout, LayoutError, Walked};

fn names(walked: &Walked) -> Vec<String> {
    walked.found.iter().map(|found| found.key.to_string()).collect()
}

/// Every file and foreign entry, collected over several runs.
fn walk_all(storage: &Storage, after: Option<&Key>, limit: usize, page: usize) -> (Vec<String>, Vec<String>) {
    let (mut found, mut foreign, mut after) = (Vec::new(), Vec::new(), after.cloned());
    loop {
        let walked = walk_by(&storage.layout.tree, "bucket", after.as_ref(), limit, page).unwrap();
        assert!(walked.found.len() <= limit);
        found.extend(names(&walked));
        foreign.extend(walked.foreign.into_iter().map(|foreign| foreign.path));
        match walked.next {
            Some(next) => {
                assert!(Some(&next) > after.as_ref(), "the next run begins further on");
                after = Some(next);
            }
            None => return (found, foreign),
        }
    }
}

#[tokio::test]
async fn a_directory_is_sorted_as_if_its_name_ended_in_a_slash() {
    let storage = Storage::new();
    // In byte order: ` ` `!` `-` `.` come before `/`, digits and letters after it.
    let sorted = ["a", "a b", "a!", "a-b", "a.txt", "a/b", "a/c/d", "a0", "a0/x", "aa", "b"]
        .iter()
        .filter(|name| !["a", "a0"].contains(name))
        .map(|name| format!("bucket/{name}"))
        .collect::<Vec<_>>();
    for name in sorted.iter().rev() {
        storage.put(name, name.as_bytes()).await.unwrap();
    }
    assert_eq!(walk_all(&storage, None, 100, 100).0, sorted);
    for (at, name) in sorted.iter().enumerate() {
        let after = key(name);
        assert_eq!(walk_all(&storage, Some(&after), 2, 100).0, sorted[at + 1..]);
    }
    let walked = storage.layout.walk("bucket", None, 1).await.unwrap();
    let opened = storage.layout.open(&walked.found[0].key).await.unwrap();
    assert_eq!((walked.found[0].mark, walked.found[0].modified_ms), (opened.mark(), opened.modified_ms()));
    for (after, count) in [("aaa/z", sorted.len()), ("bucket", sorted.len()), ("bucket-2/a", sorted.len()), ("c", 0)] {
        let walked = storage.layout.walk("bucket", Some(&key(after)), 100).await.unwrap();
        assert_eq!(walked.found.len(), count, "{after}");
    }
    assert!(matches!(storage.layout.walk("no-bucket", None, 1).await, Err(LayoutError::NoBucket(_))));
}

#[tokio::test]
async fn what_cannot_be_an_object_is_named_with_the_reason() {
    let storage = Storage::new();
    let bucket = storage.path("bucket");
    for file in ["a", "m", "z"] {
        storage.put(&format!("bucket/{file}"), b"x").await.unwrap();
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, bucket.join("fifo"), 0o600.into()).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(bucket.join("socket")).unwrap();
    std::os::unix::fs::symlink("a", bucket.join("link")).unwrap();
    fs::write(bucket.join(OsStr::from_bytes(b"bad\xff")), b"x").unwrap();
    fs::create_dir(bucket.join(OsStr::from_bytes(b"dir\xff"))).unwrap();
    fs::write(bucket.join(OsStr::from_bytes(b"dir\xff/inner")), b"x").unwrap();
    fs::write(bucket.join("new\nline"), b"x").unwrap();
    let mut deep = bucket.join("n".repeat(250));
    for _ in 0..3 {
        deep = deep.join("n".repeat(250));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("fits"), b"x").unwrap();
    fs::write(deep.join("long".repeat(10)), b"x").unwrap();
    let expected = [
        ("bucket/bad\u{fffd}", "its name is not UTF-8"),
        ("bucket/dir\u{fffd}", "its name is not UTF-8"),
        ("bucket/fifo", "it is a FIFO"),
        ("bucket/link", "it is a symbolic link"),
        ("bucket/new\nline", "the name contains the control character '\\n'"),
        ("/longlong", "the name has 1051 bytes, the limit is 1024"),
        ("bucket/socket", "it is a socket"),
    ];
    let walked = storage.layout.walk("bucket", None, 100).await.unwrap();
    assert_eq!(walked.found.len(), 4);
    assert_eq!(walked.foreign.len(), expected.len(), "{:?}", walked.foreign);
    for (foreign, (path, why)) in walked.foreign.iter().zip(expected) {
        assert!(foreign.path.contains(path), "{} {path}", foreign.path);
        assert_eq!(foreign.why, why);
    }
    // With any run length, each entry is reported once.
    let all: Vec<String> = walked.foreign.iter().map(|foreign| foreign.path.clone()).collect();
    for limit in 1..12 {
        for page in [1, 2, 3, 100] {
            let (found, foreign) = walk_all(&storage, None, limit, page);
            assert_eq!(found, names(&walked), "{limit} {page}");
            assert_eq!(foreign, all, "{limit} {page}");
        }
    }
}

#[tokio::test]
async fn a_directory_too_deep_for_any_name_is_not_entered() {
    let storage = Storage::new();
    let mut dir = rustix::fs::open(storage.path("bucket"), DIRECTORY, 0.into()).unwrap();
    for _ in 0..700 {
        rustix::fs::mkdirat(&dir, "d", 0o755.into()).unwrap();
        dir = rustix::fs::openat(&dir, "d", DIRECTORY, 0.into()).unwrap();
    }
    let walked = storage.layout.walk("bucket", None, 9).await.unwrap();
    assert_eq!((walked.found.len(), walked.foreign.len()), (0, 1));
    assert!(walked.foreign[0].why.contains("longer than 1024"), "{:?}", walked.foreign);
    assert!(!storage.layout.delete_bucket("bucket").await.unwrap());
}

const DIRECTORY: rustix::fs::OFlags = rustix::fs::OFlags::DIRECTORY;

fn segment() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop::sample::select(vec!["a", "b", "-", ".x", " ", "0", "é", "~"]), 1..3)
        .prop_map(|parts| parts.concat())
}

fn tree() -> impl Strategy<Value = Vec<String>> {
    let name = proptest::collection::vec(segment(), 1..5).prop_map(|segments| segments.join("/"));
    proptest::collection::vec(name, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn walks_are_in_the_order_of_sorted_keys(
        names in tree(),
        after in proptest::option::of(tree().prop_map(|names| names.into_iter().next().unwrap_or("m".into()))),
        limit in 1..20_usize,
        page in 1..20_usize,
    ) {
        let storage = Storage::new();
        let mut sorted = Vec::new();
        for name in names {
            let path = storage.path("bucket").join(&name);
            // A name that clashes with an earlier one is skipped.
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.exists() && fs::write(&path, b"x").is_ok() {
                sorted.push(format!("bucket/{name}"));
            }
        }
        sorted.sort();
        let after = after.map(|after| key(&format!("bucket/{after}")));
        if let Some(after) = &after {
            sorted.retain(|name| name.as_str() > after.as_str());
        }
        let (found, foreign) = walk_all(&storage, after.as_ref(), limit, page);
        prop_assert_eq!(found, sorted);
        prop_assert_eq!(foreign, Vec::<String>::new());
    }
}
