//! Publication and removal, first and repeated (L4).

use std::fs;

use super::{Storage, key};
use crate::layout::{Layout, LayoutError, Mark};

#[tokio::test]
async fn l4_publishing_replaces_and_removing_removes() {
    let storage = Storage::new();
    storage.put("bucket/a/b", b"one").await.unwrap();
    let mark = storage.put("bucket/a/b", b"two").await.unwrap();
    assert_eq!(storage.get("bucket/a/b").await.unwrap(), b"two");
    assert_eq!(storage.layout.open(&key("bucket/a/b")).await.unwrap().mark(), mark);
    assert_eq!(storage.layout.staged().await.unwrap(), []);
    storage.layout.remove(&key("bucket/a/b")).await.unwrap();
    storage.layout.remove(&key("bucket/a/b")).await.unwrap();
    storage.layout.remove(&key("bucket/never/was/there")).await.unwrap();
    assert!(matches!(storage.get("bucket/a/b").await, Err(LayoutError::Missing(_))));
}

#[tokio::test]
async fn l4_a_rename_not_done_before_the_crash_is_done_after_it() {
    let storage = Storage::new();
    let place = storage.layout.prepare(&key("bucket/a/b")).await.unwrap();
    let (id, mark) = storage.stage(b"bytes").await;
    drop(place);
    assert!(!storage.path("bucket/a").exists(), "the parents must be made again");
    let storage = storage.restart();
    storage.layout.publish(&key("bucket/a/b"), id, mark).await.unwrap();
    assert_eq!(storage.get("bucket/a/b").await.unwrap(), b"bytes");
}

#[tokio::test]
async fn l4_a_rename_done_before_the_crash_is_known_by_its_mark() {
    let storage = Storage::new();
    let (id, mark) = storage.stage(b"bytes").await;
    storage.layout.publish(&key("bucket/a/b"), id, mark).await.unwrap();
    let storage = storage.restart();
    storage.layout.publish(&key("bucket/a/b"), id, mark).await.unwrap();
    assert_eq!(storage.get("bucket/a/b").await.unwrap(), b"bytes");
    for other in [Mark { size: mark.size + 1, ..mark }, Mark { inode: mark.inode + 1, ..mark }] {
        let error = storage.layout.publish(&key("bucket/a/b"), id, other).await.unwrap_err();
        assert!(matches!(error, LayoutError::Missing(_)), "{error}");
    }
    assert_eq!(storage.get("bucket/a/b").await.unwrap(), b"bytes");
}

#[tokio::test]
async fn l4_lost_bytes_are_missing_and_nothing_is_shown() {
    let storage = Storage::new();
    let (id, mark) = storage.stage(b"bytes").await;
    storage.layout.discard(id).await.unwrap();
    let error = storage.layout.publish(&key("bucket/a/b"), id, mark).await.unwrap_err();
    assert!(matches!(error, LayoutError::Missing(_)), "{error}");
    assert!(!storage.path("bucket/a").exists(), "parents made in vain are removed");
}

#[tokio::test]
async fn l4_staged_bytes_that_are_not_as_recorded_are_not_shown() {
    let storage = Storage::new();
    storage.put("bucket/a", b"before").await.unwrap();
    let (id, mark) = storage.stage(b"bytes").await;
    fs::write(storage.path(&format!(".fencepost/staging/{id}")), b"byt").unwrap();
    let error = storage.layout.publish(&key("bucket/a"), id, mark).await.unwrap_err();
    assert!(error.to_string().contains("recorded are 5 bytes"), "{error}");
    assert_eq!(storage.get("bucket/a").await.unwrap(), b"before");
}

#[tokio::test]
async fn removing_prunes_what_became_empty_up_to_the_bucket() {
    let storage = Storage::new();
    storage.put("bucket/a/b/c/d", b"x").await.unwrap();
    storage.put("bucket/a/y", b"y").await.unwrap();
    storage.layout.remove(&key("bucket/a/b/c/d")).await.unwrap();
    assert!(!storage.path("bucket/a/b").exists());
    assert_eq!(storage.get("bucket/a/y").await.unwrap(), b"y");
    storage.layout.remove(&key("bucket/a/y")).await.unwrap();
    assert!(!storage.path("bucket/a").exists());
    assert!(storage.path("bucket").is_dir());
    assert!(storage.layout.tree.reservations.is_idle());
}

#[tokio::test]
async fn removing_leaves_alone_what_is_no_object() {
    let storage = Storage::new();
    fs::create_dir_all(storage.path("bucket/dir/inner")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, storage.path("bucket/fifo"), 0o600.into()).unwrap();
    for name in ["bucket/dir", "bucket/fifo", "bucket/fifo/below"] {
        storage.layout.remove(&key(name)).await.unwrap();
    }
    assert!(storage.path("bucket/dir/inner").is_dir());
    assert!(storage.path("bucket/fifo").symlink_metadata().is_ok());
}

#[tokio::test]
async fn l4_a_removal_is_done_again_where_a_crash_left_directories() {
    let storage = Storage::new();
    fs::create_dir_all(storage.path("bucket/a/b")).unwrap();
    storage.layout.remove(&key("bucket/a/b/c")).await.unwrap();
    assert!(!storage.path("bucket/a").exists());
}
