//! Links out of the directory, FIFOs and other files that are not objects: not followed, not opened, not replaced.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fencepost_harness::bucketed::{Bucketed, tree};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::names::assert_clear;
use crate::signing::Signer;
use crate::world::until_nothing_is_staged;

const SECRET: &str = "the secret outside";

fn outside(objects: &Path) -> PathBuf {
    objects.parent().unwrap().join("outside")
}

/// Creates a directory outside, and several kinds of paths to it.
fn trapped() -> Bucketed {
    Bucketed::filled(|objects| {
        let outside = outside(objects);
        std::fs::create_dir_all(outside.join("in")).unwrap();
        std::fs::write(outside.join("secret"), SECRET).unwrap();
        std::fs::write(outside.join("in/secret"), SECRET).unwrap();
        symlink(&outside, objects.join("linked")).unwrap();
        symlink("../outside", objects.join("relative")).unwrap();
        let bucket = objects.join("reports");
        symlink(&outside, bucket.join("parent")).unwrap();
        symlink(outside.join("secret"), bucket.join("target")).unwrap();
        symlink("../../outside/new", bucket.join("dangling")).unwrap();
        symlink("/proc/self/root", bucket.join("magic")).unwrap();
        symlink(".", bucket.join("itself")).unwrap();
        mknodat(CWD, bucket.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        std::fs::write(bucket.join("plain"), "plain").unwrap();
    })
}

const NAMES: [&str; 12] = [
    "linked/secret",
    "linked/in/secret",
    "relative/secret",
    "reports/parent/secret",
    "reports/parent/in/secret",
    "reports/parent/new",
    "reports/target",
    "reports/dangling",
    "reports/magic/etc/passwd",
    "reports/itself/plain",
    "reports/itself/itself/new",
    "reports/pipe",
];

#[test]
fn nothing_is_read_written_or_removed_through_links() {
    let gateway = trapped();
    let before = tree(&outside(&gateway.objects()));
    let signer = |name: &str| {
        let resource = if name.starts_with("reports/") { "reports" } else { name };
        Signer::holder(&gateway, resource, "33")
    };
    for name in NAMES {
        let signer = signer(name);
        for (method, body) in [("GET", &b""[..]), ("HEAD", b""), ("PUT", b"evil")] {
            let answer = signer.request(method, &format!("/{name}"), &[], body);
            assert_clear(&format!("{method} {name}"), &answer);
            assert!(!answer.text().contains(SECRET), "{method} {name}: {}", answer.text());
        }
        let source = format!("/{name}");
        let copy = Signer::holder(&gateway, "reports", "33");
        let copied = copy.request("PUT", "/reports/copy", &[("x-amz-copy-source", &source)], b"");
        assert_clear(&format!("copy of {name}"), &copied);
        let answer = signer.delete(name);
        assert!(answer.status == 204 || answer.status == 404, "DELETE {name}: {}", answer.text());
    }
    assert_eq!(tree(&outside(&gateway.objects())), before);
    let signer = Signer::holder(&gateway, "reports", "33");
    let listed: Vec<String> = signer.list("reports", 1000).into_iter().map(|entry| entry.key).collect();
    assert_eq!(listed, ["plain"], "what was there before was taken in, and nothing else");
    for name in ["parent", "target", "dangling", "magic", "itself"] {
        let kind = gateway.objects().join("reports").join(name).symlink_metadata().unwrap();
        assert!(kind.is_symlink(), "{name} is what it was");
    }
    let buckets = signer.request("GET", "/", &[], b"").text();
    assert!(!buckets.contains("linked") && !buckets.contains("relative"), "{buckets}");
    until_nothing_is_staged(&gateway.objects());
}

/// Another process replaces a directory that the gateway knows with a link.
#[test]
fn a_directory_that_becomes_a_link_is_not_followed() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let outside = outside(&gateway.objects());
    std::fs::create_dir_all(&outside).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(signer.put(&format!("reports/d/{name}"), b"inside").status, 200);
        std::fs::write(outside.join(name), SECRET).unwrap();
    }
    let before = tree(&outside);
    let directory = gateway.objects().join("reports/d");
    std::fs::rename(&directory, gateway.objects().parent().unwrap().join("moved")).unwrap();
    symlink(&outside, &directory).unwrap();

    let answer = signer.get("reports/d/a");
    assert!(answer.status >= 400 && !answer.text().contains(SECRET), "{}", answer.text());
    let answer = signer.put("reports/d/b", b"evil");
    assert!(answer.status >= 400, "{}", answer.text());
    let answer = signer.put("reports/d/new", b"evil");
    assert!(answer.status >= 400, "{}", answer.text());
    signer.delete("reports/d/c");
    signer.delete_all("reports", &["d/a", "d/b"]);
    assert_eq!(tree(&outside), before);
    assert_eq!(signer.put("reports/else", b"else").status, 200, "everything else goes on");
}
