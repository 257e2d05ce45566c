//! Opening a directory.

use std::fs;

use tempfile::TempDir;

use super::{Storage, everything, key};
use crate::directory::{Directory, OpenError};
use crate::layout::{Layout, Ref};

#[test]
fn a_directory_must_be_there() {
    let home = TempDir::new().unwrap();
    let missing = home.path().join("missing");
    let error = Directory::open(&missing).unwrap_err();
    assert!(matches!(error, OpenError::NotThere(_)) && error.to_string().contains("make it first"), "{error}");
    assert!(!missing.exists());
    fs::write(&missing, b"a file").unwrap();
    assert!(matches!(Directory::open(&missing), Err(OpenError::NotThere(_))));
}

#[test]
fn one_gateway_alone_uses_a_directory() {
    let home = TempDir::new().unwrap();
    let first = Directory::open(home.path()).unwrap();
    let error = Directory::open(home.path()).unwrap_err();
    assert!(error.to_string().contains(&format!("(process {})", std::process::id())), "{error}");
    assert!(matches!(error, OpenError::InUse { .. }));
    drop(first);
    Directory::open(home.path()).unwrap();
}

#[tokio::test]
async fn the_directory_is_held_as_long_as_somebody_works_with_it() {
    let storage = Storage::new();
    let staging = storage.layout.stage(Ref(9), None).await.unwrap();
    let Storage { home, layout, .. } = storage;
    drop(layout);
    assert!(matches!(Directory::open(home.path()), Err(OpenError::InUse { .. })));
    drop(staging);
    Directory::open(home.path()).unwrap();
}

#[tokio::test]
async fn leftovers_of_a_crash_stay_to_be_collected_and_those_of_the_probe_go() {
    let storage = Storage::new();
    let (id, mark) = storage.stage(b"left over").await;
    drop(storage.layout.stage(Ref(99), None).await.unwrap());
    fs::create_dir_all(storage.path("bucket/empty/inner")).unwrap();
    fs::create_dir(storage.path(".fencepost/probe")).unwrap();
    fs::write(storage.path(".fencepost/probe/target"), b"of an interrupted start").unwrap();
    let storage = storage.restart();
    assert_eq!(storage.layout.staged().await.unwrap(), [id, Ref(99)]);
    assert_eq!(storage.layout.open_staged(id).await.unwrap().mark(), mark);
    assert!(!storage.path(".fencepost/probe").exists());
    assert_eq!(storage.layout.walk("bucket", None, 9).await.unwrap().found, []);
    storage.layout.discard(Ref(99)).await.unwrap();
    storage.layout.publish(&key("bucket/empty"), id, mark).await.unwrap();
    assert_eq!(storage.get("bucket/empty").await.unwrap(), b"left over");
}

#[test]
fn opening_makes_nothing_but_its_own_directory() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("file"), b"x").unwrap();
    drop(Directory::open(home.path()).unwrap());
    let names: Vec<String> = everything(home.path())
        .into_iter()
        .map(|(path, _)| path.strip_prefix(home.path()).unwrap().display().to_string())
        .collect();
    assert_eq!(names, [".fencepost", ".fencepost/lock", ".fencepost/staging", "file"]);
}
