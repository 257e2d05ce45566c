//! What is synced and when (L2, L4), and the behaviour after a failed sync. Scenarios run in a process of their own
//! under strace, which records the system calls and injects faults.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::{NamedTempFile, TempDir};

use super::{Storage, key};
use crate::directory::{Directory, OpenError};
use crate::layout::{Layout, LayoutError, Ref};

/// The variable with the storage directory of the scenario.
const HOME: &str = "FENCEPOST_TEST_STORAGE";

/// Runs a scenario of this file under strace, in a directory with the buckets `bucket` and `other`. Returns the
/// system calls.
fn trace(scenario: &str, calls: &str, inject: impl Fn(&Path) -> Vec<String>) -> Vec<String> {
    let home = TempDir::new().unwrap();
    let root = home.path().canonicalize().unwrap();
    for bucket in ["bucket", "other"] {
        fs::create_dir(root.join(bucket)).unwrap();
    }
    let seen = NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-s", "200", "-e", &format!("trace={calls}"), "-o"]).arg(seen.path());
    command.args(inject(&root)).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{}::{scenario}", module_path!().split_once("::").unwrap().1)]);
    command.args(["--ignored", "--nocapture", "--test-threads=1"]).env(HOME, &root);
    let output = command.output().expect("strace can be started: `scripts/setup test` installs it");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let shown = format!("{}/", root.display());
    let calls = fs::read_to_string(seen.path()).unwrap();
    let ours = calls.lines().filter(|line| line.contains(&*root.to_string_lossy()));
    ours.map(|line| line.replace(&shown, "").replace(&*root.to_string_lossy(), "ROOT")).collect()
}

/// Opens the storage in the process that runs the scenario.
fn play() -> Directory {
    Directory::open(Path::new(&std::env::var(HOME).expect("run by the other tests of this file"))).unwrap()
}

/// A short form of the call: `sync bucket/a`, `make bucket/a`, `rename … to …`, `remove …`.
fn short(line: &str) -> String {
    let words: Vec<&str> = line.split(['<', '>', '"']).collect();
    let (call, first) = (words[0], words[1]);
    let name = |at: usize| words.get(at).copied().unwrap_or_default();
    let below = |dir: &str, name: &str| if dir == "ROOT" { name.to_owned() } else { format!("{dir}/{name}") };
    match call {
        call if call.contains("fsync(") => format!("sync {first}"),
        call if call.contains("mkdirat(") => format!("make {}", below(first, name(3))),
        call if call.contains("renameat") => format!("rename {} to {}", below(first, name(3)), below(name(5), name(7))),
        call if call.contains("unlinkat(") => format!("remove {}", below(first, name(3))),
        _ => panic!("{line}"),
    }
}

#[tokio::test]
#[ignore = "played under strace by l2_and_l4_names_and_bytes_are_synced_before_the_answer"]
async fn write_and_remove() {
    let layout = play();
    // Short and of known length, so it is opened, written and synced in one step.
    let mut staging = layout.stage(Ref(1), Some(5)).await.unwrap();
    staging.write("bytes".into()).await.unwrap();
    let mark = staging.seal().await.unwrap();
    let place = layout.prepare(&key("bucket/a/b/c")).await.unwrap();
    layout.publish(&key("bucket/a/b/c"), Ref(1), mark).await.unwrap();
    // A repeated publication syncs again, because a crash may have preceded the first sync.
    layout.publish(&key("bucket/a/b/c"), Ref(1), mark).await.unwrap();
    drop(place);
    layout.remove(&key("bucket/a/b/c")).await.unwrap();
    layout.create_bucket("new").await.unwrap();
    layout.delete_bucket("new").await.unwrap();
}

#[test]
fn l2_and_l4_names_and_bytes_are_synced_before_the_answer() {
    let calls = trace("write_and_remove", "fsync,mkdirat,renameat,renameat2,unlinkat", |_| Vec::new());
    let calls: Vec<String> = calls.iter().map(|line| short(line)).collect();
    let opened = calls.iter().rposition(|call| call.contains("probe")).unwrap();
    let staged = ".fencepost/staging/0000000000000001";
    assert_eq!(
        calls[opened + 1..],
        [
            &format!("sync {staged}"),
            "sync .fencepost/staging",
            "sync ROOT",
            "make bucket/a",
            "sync bucket",
            "make bucket/a/b",
            "sync bucket/a",
            &format!("rename {staged} to bucket/a/b/c"),
            "sync bucket/a/b",
            "sync bucket/a/b",
            "remove bucket/a/b/c",
            "sync bucket/a/b",
            "remove bucket/a/b",
            "remove bucket/a",
            "make new",
            "sync ROOT",
            "remove new",
            "sync ROOT",
        ]
    );
    assert!(calls[..opened].contains(&"sync ROOT".to_owned()));
    assert!(calls[..opened].contains(&"sync .fencepost".to_owned()));
}

#[tokio::test]
#[ignore = "played under strace by g8_after_a_failed_sync_of_names_nothing_is_written"]
async fn write_where_the_sync_fails() {
    let layout = play();
    layout.stage(Ref(1), None).await.unwrap().seal().await.unwrap();
    let mark = layout.stage(Ref(2), None).await.unwrap().seal().await.unwrap();
    let mut unsealed = layout.stage(Ref(3), None).await.unwrap();
    unsealed.write("x".into()).await.unwrap();
    let unmade = layout.stage(Ref(5), Some(1)).await.unwrap();
    let error = layout.publish(&key("bucket/a"), Ref(2), mark).await.unwrap_err();
    assert!(error.to_string().starts_with("syncing the directory `bucket`: "), "{error}");
    for error in [
        layout.publish(&key("bucket/a"), Ref(2), mark).await.unwrap_err(),
        layout.prepare(&key("other/a")).await.err().unwrap(),
        layout.remove(&key("other/a")).await.unwrap_err(),
        layout.stage(Ref(4), None).await.err().unwrap(),
        layout.stage(Ref(4), Some(1)).await.err().unwrap(),
        unsealed.seal().await.unwrap_err(),
        unmade.seal().await.unwrap_err(),
        layout.create_bucket("new").await.unwrap_err(),
        layout.delete_bucket("other").await.unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains("only be read until the gateway is started again"), "{text}");
        assert!(text.contains("syncing the directory `bucket` failed"), "{text}");
    }
    assert_eq!(layout.open(&key("bucket/a")).await.unwrap().mark(), mark);
}

#[test]
fn g8_after_a_failed_sync_of_names_nothing_is_written() {
    // Fail only the first sync: the kernel would report success for a second attempt.
    let calls = trace("write_where_the_sync_fails", "fsync", |root| {
        let bucket = root.join("bucket").display().to_string();
        ["-P", &bucket, "-e", "inject=fsync:error=EIO:when=1"].map(str::to_owned).to_vec()
    });
    assert_eq!(calls.iter().filter(|call| call.contains("INJECTED")).count(), 1, "{calls:?}");
}

#[tokio::test]
#[ignore = "played under strace by a_full_disk_is_told_as_that"]
async fn write_on_a_full_disk() {
    let layout = play();
    let mut staging = layout.stage(Ref(7), None).await.unwrap();
    staging.write(vec![0; 300_000].into()).await.unwrap();
    let error = staging.seal().await.unwrap_err();
    assert!(matches!(&error, LayoutError::NoSpace(text) if text.contains(&Ref(7).to_string())), "{error}");
    // A file that could not be written does not affect other writers.
    let mark = layout.stage(Ref(8), None).await.unwrap().seal().await.unwrap();
    layout.publish(&key("bucket/a"), Ref(8), mark).await.unwrap();
}

#[test]
fn a_full_disk_is_told_as_that() {
    for (call, error) in [("write", "ENOSPC"), ("write", "EDQUOT"), ("fsync", "ENOSPC")] {
        let calls = trace("write_on_a_full_disk", call, |root| {
            let staged = root.join(".fencepost/staging").join(Ref(7).to_string()).display().to_string();
            ["-P", &staged, "-e", &format!("inject={call}:error={error}")].map(str::to_owned).to_vec()
        });
        assert!(calls.iter().any(|call| call.contains("INJECTED")), "{calls:?}");
    }
}

#[test]
#[ignore = "played under strace by what_the_system_does_not_offer_is_found_when_opening"]
fn open_where_something_is_missing() {
    let home = std::env::var(HOME).expect("run by the other tests of this file");
    let error = Directory::open(Path::new(&home)).unwrap_err();
    assert!(matches!(error, OpenError::Unfit { .. }), "{error}");
    assert!(!Path::new(&home).join(".fencepost/probe").exists());
}

#[test]
fn what_the_system_does_not_offer_is_found_when_opening() {
    for (call, inject, path) in [
        ("openat2", "openat2:error=ENOSYS", ""),
        ("openat2", "openat2:error=EPERM", ""),
        ("fsync", "fsync:error=EINVAL", ".fencepost/probe"),
    ] {
        let calls = trace("open_where_something_is_missing", call, |root| {
            let path = root.join(path).display().to_string();
            ["-P", path.trim_end_matches('/'), "-e", &format!("inject={inject}")].map(str::to_owned).to_vec()
        });
        assert!(calls.iter().any(|call| call.contains("INJECTED")), "{calls:?}");
    }
}

/// A directory whose creator ended before syncing it is synced by the next writer that needs it.
#[tokio::test]
async fn directories_found_are_synced_once() {
    let storage = Storage::new();
    fs::create_dir_all(storage.path("bucket/found")).unwrap();
    let known = |dir: &str| storage.layout.tree.reservations.is_durable(dir);
    assert!(!known("bucket/found"));
    storage.put("bucket/found/a", b"x").await.unwrap();
    assert!(known("bucket") && known("bucket/found"));
    storage.layout.remove(&key("bucket/found/a")).await.unwrap();
    assert!(!known("bucket/found"), "made again, it is synced again");
}
