//! Places: `prepare` detects every obstacle to a rename in advance (L3). Also buckets.

use std::fs;
use std::time::Duration;

use super::{Storage, key};
use crate::layout::{Layout, LayoutError};

fn clash(error: &LayoutError) -> bool {
    matches!(error, LayoutError::Clash(_))
}

#[tokio::test]
async fn l3_a_file_and_a_directory_of_one_name_clash() {
    let storage = Storage::new();
    storage.put("bucket/a", b"file").await.unwrap();
    let error = storage.prepare_error("bucket/a/b").await;
    assert!(clash(&error) && error.to_string().contains("`bucket/a` is an object"), "{error}");
    assert!(clash(&storage.prepare_error("bucket/a/b/c").await));
    storage.put("bucket/x/y", b"file").await.unwrap();
    let error = storage.prepare_error("bucket/x").await;
    assert!(clash(&error) && error.to_string().contains("below `bucket/x/`"), "{error}");
    assert!(storage.layout.tree.reservations.is_idle(), "refused places reserve nothing");
}

#[tokio::test]
async fn l3_of_two_places_that_clash_the_second_is_refused() {
    for (first, second) in [("bucket/a", "bucket/a/b"), ("bucket/a/b", "bucket/a"), ("bucket/a/b/c", "bucket/a")] {
        let storage = Storage::new();
        let place = storage.layout.prepare(&key(first)).await.unwrap();
        assert!(clash(&storage.prepare_error(second).await), "{first} {second}");
        // The same name, and a sibling, do not clash.
        drop(storage.layout.prepare(&key(first)).await.unwrap());
        drop(storage.layout.prepare(&key("bucket/ab")).await.unwrap());
        assert!(clash(&storage.prepare_error(second).await), "{first} is still held once");
        drop(place);
        storage.put(second, b"now").await.unwrap();
    }
}

#[tokio::test]
async fn parents_made_in_vain_are_removed_by_the_last_one_out() {
    let storage = Storage::new();
    fs::create_dir(storage.path("bucket/kept")).unwrap();
    let first = storage.layout.prepare(&key("bucket/kept/a/b/one")).await.unwrap();
    let second = storage.layout.prepare(&key("bucket/kept/a/two")).await.unwrap();
    drop(first);
    assert!(!storage.path("bucket/kept/a/b").exists());
    assert!(storage.path("bucket/kept/a").is_dir(), "somebody else needs it");
    drop(second);
    assert!(!storage.path("bucket/kept/a").exists());
    assert!(storage.path("bucket/kept").is_dir(), "it was not made for them");
}

#[tokio::test]
async fn empty_directories_left_by_a_crash_are_in_nobodys_way() {
    let storage = Storage::new();
    fs::create_dir_all(storage.path("bucket/a/b/c")).unwrap();
    fs::create_dir_all(storage.path("bucket/a/d")).unwrap();
    storage.put("bucket/a", b"file").await.unwrap();
    assert_eq!(storage.get("bucket/a").await.unwrap(), b"file");
    fs::create_dir_all(storage.path("bucket/x/y")).unwrap();
    fs::write(storage.path("bucket/x/y/z"), b"file").unwrap();
    assert!(clash(&storage.prepare_error("bucket/x").await));
    assert_eq!(storage.get("bucket/x/y/z").await.unwrap(), b"file");
}

#[tokio::test]
async fn l3_long_names_are_refused_with_the_limit() {
    let storage = Storage::new();
    let longest = format!("bucket/{}/{}", "d".repeat(255), "f".repeat(255));
    storage.put(&longest, b"x").await.unwrap();
    for name in [format!("bucket/{}", "f".repeat(256)), format!("bucket/{}/f", "é".repeat(128))] {
        let error = storage.prepare_error(&name).await;
        assert!(matches!(error, LayoutError::Name(_)) && error.to_string().contains("at most 255"), "{error}");
        assert!(matches!(storage.get(&name).await, Err(LayoutError::Missing(_))));
    }
    let deep = format!("bucket{}", "/d".repeat(508));
    assert_eq!(deep.len(), 1022);
    storage.put(&deep, b"deep").await.unwrap();
    assert_eq!(storage.get(&deep).await.unwrap(), b"deep");
    storage.layout.remove(&key(&deep)).await.unwrap();
    assert!(!storage.path("bucket/d").exists());
}

#[tokio::test]
async fn l3_only_files_are_replaced() {
    let storage = Storage::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, storage.path("bucket/fifo"), 0o600.into()).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(storage.path("bucket/socket")).unwrap();
    for (name, kind) in [("fifo", "a FIFO"), ("socket", "a socket")] {
        for key in [format!("bucket/{name}"), format!("bucket/{name}/below")] {
            let error = storage.prepare_error(&key).await;
            assert!(matches!(error, LayoutError::Name(_)) && error.to_string().contains(kind), "{error}");
            let Ok(got) = tokio::time::timeout(Duration::from_secs(10), storage.get(&key)).await else {
                // Opening it for writing unblocks the reader, so that the test can end.
                let _writer = fs::OpenOptions::new().read(true).write(true).open(storage.path("bucket/fifo"));
                panic!("reading `{key}` waits for a writer");
            };
            assert!(matches!(got, Err(LayoutError::Missing(_))), "{key}");
        }
    }
    fs::create_dir(storage.path("bucket/dir")).unwrap();
    assert!(matches!(storage.get("bucket/dir").await, Err(LayoutError::Missing(_))));
}

#[tokio::test]
async fn l3_without_a_bucket_there_is_no_place() {
    let storage = Storage::new();
    fs::create_dir(storage.path("Not-A-Bucket")).unwrap();
    fs::write(storage.path("file"), b"x").unwrap();
    for name in ["other/a", "Not-A-Bucket/a", "file/a", ".fencepost/a", ".fencepost/staging/0000000000000001"] {
        let error = storage.prepare_error(name).await;
        assert!(matches!(error, LayoutError::NoBucket(_)), "{name}: {error}");
    }
    assert!(matches!(storage.prepare_error("bucket").await, LayoutError::Name(_)));
    assert!(!storage.path("other").exists());
}

#[tokio::test]
async fn buckets_are_made_listed_and_removed() {
    let storage = Storage::new();
    let layout = &storage.layout;
    assert!(layout.create_bucket("zoo").await.unwrap());
    assert!(layout.create_bucket("ant.1").await.unwrap());
    assert!(!layout.create_bucket("zoo").await.unwrap(), "it was there");
    assert!(matches!(layout.create_bucket(".fencepost").await, Err(LayoutError::Name(_))));
    fs::write(storage.path("afile"), b"x").unwrap();
    assert!(matches!(layout.create_bucket("afile").await, Err(LayoutError::Clash(_))));
    fs::create_dir(storage.path("UPPER")).unwrap();
    let found = layout.buckets().await.unwrap();
    assert_eq!(found.iter().map(|bucket| bucket.name.as_str()).collect::<Vec<_>>(), ["ant.1", "bucket", "zoo"]);
    let made = fs::metadata(storage.path("zoo")).unwrap().modified().unwrap();
    let made = made.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(u128::from(found[2].created_ms).abs_diff(made) < 60_000, "{} {made}", found[2].created_ms);
    assert!(layout.has_bucket("zoo").await.unwrap());
    for other in ["UPPER", "afile", "none", ".fencepost", ".."] {
        assert!(!layout.has_bucket(other).await.unwrap(), "{other}");
    }
    storage.put("zoo/a/b", b"x").await.unwrap();
    fs::create_dir_all(storage.path("zoo/empty/inner")).unwrap();
    assert!(!layout.delete_bucket("zoo").await.unwrap(), "something is in it");
    assert_eq!(storage.get("zoo/a/b").await.unwrap(), b"x");
    layout.remove(&key("zoo/a/b")).await.unwrap();
    fs::create_dir_all(storage.path("zoo/empty/inner")).unwrap();
    let place = layout.prepare(&key("zoo/c/d")).await.unwrap();
    assert!(!layout.delete_bucket("zoo").await.unwrap(), "somebody is about to write");
    drop(place);
    assert!(layout.delete_bucket("zoo").await.unwrap());
    assert!(!storage.path("zoo").exists());
    for none in ["zoo", "UPPER", "afile", ".fencepost"] {
        assert!(matches!(layout.delete_bucket(none).await, Err(LayoutError::NoBucket(_))), "{none}");
    }
    assert!(layout.create_bucket("zoo").await.unwrap());
    storage.put("zoo/a/b", b"again").await.unwrap();
}
