//! Links that point out of the directory, at every position (L6).

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::{Storage, everything, key};
use crate::directory::{Directory, OpenError};
use crate::layout::{Layout, LayoutError, Ref};

/// A directory outside the storage whose contents must not be touched.
fn outside() -> TempDir {
    let outside = TempDir::new().unwrap();
    fs::create_dir_all(outside.path().join("dir/inner")).unwrap();
    fs::write(outside.path().join("dir/secret"), b"secret").unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    outside
}

#[tokio::test]
async fn l6_links_are_not_followed_at_any_position() {
    let (storage, outside) = (Storage::new(), outside());
    let before = everything(outside.path());
    symlink(outside.path().join("dir"), storage.path("linked")).unwrap();
    symlink(outside.path().join("dir"), storage.path("bucket/parent")).unwrap();
    fs::create_dir(storage.path("bucket/real")).unwrap();
    symlink(outside.path().join("dir"), storage.path("bucket/real/parent")).unwrap();
    symlink(outside.path().join("secret"), storage.path("bucket/target")).unwrap();
    symlink(outside.path().join("nothing"), storage.path("bucket/dangling")).unwrap();
    symlink("real", storage.path("bucket/inside")).unwrap();
    let inside = everything(&storage.path("bucket"));

    for name in ["linked/secret", "linked/new"] {
        assert!(matches!(storage.prepare_error(name).await, LayoutError::NoBucket(_)), "{name}");
    }
    for name in [
        "bucket/parent/secret",
        "bucket/parent/new",
        "bucket/parent/new/deep",
        "bucket/real/parent/new",
        "bucket/target",
        "bucket/dangling",
        "bucket/inside/new",
    ] {
        let error = storage.prepare_error(name).await;
        assert!(matches!(error, LayoutError::Name(_)) && error.to_string().contains("a symbolic link"), "{error}");
        let (id, mark) = storage.stage(b"x").await;
        assert!(storage.layout.publish(&key(name), id, mark).await.is_err(), "{name}");
        storage.layout.discard(id).await.unwrap();
    }
    for name in
        ["linked/secret", "bucket/parent/secret", "bucket/real/parent/secret", "bucket/target", "bucket/dangling"]
    {
        assert!(matches!(storage.get(name).await, Err(LayoutError::Missing(_))), "{name}");
        storage.layout.remove(&key(name)).await.unwrap();
    }
    assert!(!storage.layout.has_bucket("linked").await.unwrap());
    assert!(matches!(storage.layout.create_bucket("linked").await, Err(LayoutError::Clash(_))));
    assert!(matches!(storage.layout.delete_bucket("linked").await, Err(LayoutError::NoBucket(_))));
    assert!(matches!(storage.layout.walk("linked", None, 9).await, Err(LayoutError::NoBucket(_))));
    assert_eq!(storage.layout.buckets().await.unwrap().len(), 1);
    assert!(!storage.layout.delete_bucket("bucket").await.unwrap());
    let walked = storage.layout.walk("bucket", None, 100).await.unwrap();
    assert_eq!(walked.found, []);
    let foreign: Vec<(&str, &str)> = walked.foreign.iter().map(|found| (&*found.path, &*found.why)).collect();
    let link = "it is a symbolic link";
    assert_eq!(
        foreign,
        [
            ("bucket/dangling", link),
            ("bucket/inside", link),
            ("bucket/parent", link),
            ("bucket/real/parent", link),
            ("bucket/target", link)
        ]
    );
    assert_eq!(everything(outside.path()), before);
    assert_eq!(everything(&storage.path("bucket")), inside);
}

#[tokio::test]
async fn l6_a_parent_replaced_by_a_link_after_it_was_known_is_seen() {
    let (storage, outside) = (Storage::new(), outside());
    storage.put("bucket/a/b", b"x").await.unwrap();
    let place = storage.layout.prepare(&key("bucket/a/c")).await.unwrap();
    let (id, mark) = storage.stage(b"y").await;
    fs::rename(storage.path("bucket/a"), storage.path("bucket/was-a")).unwrap();
    symlink(outside.path(), storage.path("bucket/a")).unwrap();
    let before = everything(outside.path());
    assert!(matches!(storage.layout.publish(&key("bucket/a/c"), id, mark).await, Err(LayoutError::Name(_))));
    storage.layout.remove(&key("bucket/a/secret")).await.unwrap();
    drop(place);
    assert_eq!(everything(outside.path()), before);
}

#[tokio::test]
async fn l6_links_in_our_own_directory_are_not_followed() {
    let (storage, outside) = (Storage::new(), outside());
    let staged = |id: Ref| storage.path(&format!(".fencepost/staging/{id}"));
    symlink(outside.path().join("secret"), staged(Ref(50))).unwrap();
    symlink(outside.path().join("new"), staged(Ref(51))).unwrap();
    for id in [Ref(50), Ref(51)] {
        assert!(storage.layout.stage(id, None).await.is_err());
        assert!(matches!(storage.layout.open_staged(id).await.err(), Some(LayoutError::Missing(_))));
    }
    storage.layout.discard(Ref(50)).await.unwrap();
    assert!(!outside.path().join("new").exists());
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn l6_a_linked_state_directory_is_refused() {
    for (link, name) in [(".fencepost", "dir"), (".fencepost/staging", "dir"), (".fencepost/lock", "secret")] {
        let (home, outside) = (TempDir::new().unwrap(), outside());
        let before = everything(outside.path());
        if link != ".fencepost" {
            fs::create_dir(home.path().join(".fencepost")).unwrap();
        }
        symlink(outside.path().join(name), home.path().join(link)).unwrap();
        let error = Directory::open(home.path()).unwrap_err();
        assert!(matches!(error, OpenError::Unfit { .. } | OpenError::Failed { .. }), "{error}");
        assert_eq!(everything(outside.path()), before);
    }
}

#[tokio::test]
async fn the_root_itself_may_be_reached_through_a_link() {
    let storage = Storage::new();
    storage.put("bucket/a", b"x").await.unwrap();
    let other = TempDir::new().unwrap();
    symlink(storage.root(), other.path().join("root")).unwrap();
    let Storage { home, layout, .. } = storage;
    drop(layout);
    let again = Directory::open(&other.path().join("root")).unwrap();
    assert_eq!(again.open(&key("bucket/a")).await.unwrap().mark().size, 1);
    drop(home);
}
