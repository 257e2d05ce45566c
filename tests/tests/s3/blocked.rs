//! A committed object that the storage cannot publish: the answer reports it, the object is served from staging and
//! accepts no writes meanwhile, and it is published as soon as possible.

use std::fs;

use fencepost_harness::http::Answer;

use crate::parsing::{code, element};
use crate::signing::Signer;
use crate::steps::Injected;
use crate::world::{Running, World, until_nothing_is_staged, until_so_many_are_staged};

/// The calls that `publish` makes, on all machines.
const RENAMES: &str = "renameat,renameat2";

/// What unblocks a name, once the cause is fixed.
#[derive(Clone, Copy, Debug)]
enum Healed {
    ByTheNextWrite,
    ByARestart,
}

const EVERY_WAY: [Healed; 2] = [Healed::ByTheNextWrite, Healed::ByARestart];

fn message(answer: &Answer) -> String {
    element(&answer.text(), "Message").unwrap_or_default()
}

/// Committed, but its file is not up to date: the answer is neither success nor failure, and names the next step.
fn assert_unshown(answer: &Answer, name: &str) {
    assert_eq!((answer.status, code(answer).as_str()), (500, "InternalError"), "{}", answer.text());
    let message = message(answer);
    for words in [name, "is committed", "Input/output error", "Repair the cause", "restart"] {
        assert!(message.contains(words), "`{words}` in {message}");
    }
}

/// Asserts that the write was certainly not applied.
fn assert_blocked(answer: &Answer, name: &str) {
    assert_eq!((answer.status, code(answer).as_str()), (503, "ServiceUnavailable"), "{}", answer.text());
    let message = message(answer);
    for words in [name, "an earlier write", "Input/output error", "the next write of it tries again"] {
        assert!(message.contains(words), "`{words}` in {message}");
    }
}

/// The check reports the object to the administrator, as unshown and not as a fault of the storage.
fn assert_reported(world: &World, name: &str, why: &str) {
    let (exit, out, _) = world.administer(&["check"]);
    let line = out.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name} in {out}"));
    assert!(exit == 1 && line.starts_with(&format!("unshown: {name}: ")) && line.contains(why), "{exit}: {out}");
    assert!(out.contains(" 1 differences, 0 repaired"), "{out}");
}

fn assert_nothing_differs(world: &World) {
    let (exit, out, _) = world.administer(&["check"]);
    assert!(exit == 0 && out.contains(" 0 differences"), "{exit}: {out}");
}

/// Unblocks the name, once the failing call works again.
fn heal(how: Healed, running: Running, world: &World, signer: &Signer) -> (Running, Signer) {
    match how {
        Healed::ByTheNextWrite => (running, signer.clone()),
        Healed::ByARestart => {
            running.gateway.kill();
            let running = world.start();
            let signer = running.again(signer);
            (running, signer)
        }
    }
}

/// A gateway with the objects `x` and `bystander`, and their holder.
fn two_objects() -> (World, Running, Signer) {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    assert_eq!(signer.put("reports/x", b"old").status, 200);
    assert_eq!(signer.put("reports/bystander", b"by").status, 200);
    (world, running, signer)
}

#[test]
fn a_put_that_cannot_be_renamed_is_served_from_staging_until_it_is() {
    for how in EVERY_WAY {
        let (world, running, signer) = two_objects();
        let failing = Injected::error(running.pid(), RENAMES, "EIO");
        assert_unshown(&signer.put("reports/x", b"committed"), "reports/x");
        assert_eq!(fs::read(world.objects().join("reports/x")).unwrap(), b"old", "the file is still the old one");
        let shown = crate::world::agreed(&signer, "reports");
        assert_eq!((shown["x"].as_slice(), shown["bystander"].as_slice()), (&b"committed"[..], &b"by"[..]));
        // Only writes of the object itself are blocked.
        for answer in [
            signer.put("reports/x", b"later"),
            signer.delete("reports/x"),
            signer.delete_all("reports", &["bystander", "x"]),
            signer.request("PUT", "/reports/x", &[("x-amz-copy-source", "/reports/bystander")], b""),
        ] {
            assert_blocked(&answer, "reports/x");
        }
        assert_eq!(signer.delete("reports/bystander").status, 204);
        assert_eq!(signer.get("reports/x").text(), "committed");
        until_so_many_are_staged(&world.objects(), 1);
        assert_reported(&world, "reports/x", "Input/output error");
        drop(failing);

        let (running, signer) = heal(how, running, &world, &signer);
        match how {
            Healed::ByTheNextWrite => {
                // This condition holds only if the committed object is published first.
                let own = format!("\"{}\"", crate::digests::md5_of(b"committed"));
                let answer = signer.request("PUT", "/reports/x", &[("if-match", &own)], b"after");
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(world.seen(&signer)["x"], b"after");
            }
            Healed::ByARestart => assert_eq!(world.seen(&signer)["x"], b"committed"),
        }
        until_nothing_is_staged(&world.objects());
        assert_nothing_differs(&world);
        assert_eq!(running.client().fence("reports").as_deref(), Some("33"), "{how:?}");
    }
}

/// The same for a new name, and for one below a folder of its own.
#[test]
fn a_new_name_that_cannot_be_renamed_appears_later() {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    let failing = Injected::error(running.pid(), RENAMES, "EIO");
    assert_unshown(&signer.put("reports/new/deep", b"committed"), "reports/new/deep");
    assert!(!world.objects().join("reports/new/deep").exists());
    assert_eq!(signer.get("reports/new/deep").text(), "committed");
    assert_eq!(signer.list("reports", 10).len(), 1);
    // The path that it needs is not given to other objects.
    let clash = signer.put("reports/new", b"a file where it needs a folder");
    assert_eq!((clash.status, code(&clash).as_str()), (409, "ObjectNameClash"), "{}", clash.text());
    assert_reported(&world, "reports/new/deep", "Input/output error");
    drop(failing);
    assert_eq!(signer.delete("reports/new/deep").status, 204);
    assert!(world.seen(&signer).is_empty());
    until_nothing_is_staged(&world.objects());
    assert_nothing_differs(&world);
}

#[test]
fn a_delete_that_cannot_be_unlinked_is_done_later() {
    for how in EVERY_WAY {
        let (world, running, signer) = two_objects();
        let failing = Injected::error(running.pid(), "unlinkat", "EIO");
        assert_unshown(&signer.delete("reports/x"), "reports/x");
        assert!(world.objects().join("reports/x").exists(), "the file is still there");
        assert_eq!(code(&signer.get("reports/x")), "NoSuchKey");
        assert_eq!(signer.request("HEAD", "/reports/x", &[], b"").status, 404);
        assert_eq!(signer.list("reports", 10).len(), 1);
        assert_blocked(&signer.delete("reports/x"), "reports/x");
        assert_blocked(&signer.delete_all("reports", &["bystander", "x"]), "reports/x");
        assert_eq!(signer.get("reports/bystander").text(), "by", "refused whole");
        assert_reported(&world, "reports/x", "Input/output error");
        drop(failing);

        let (running, signer) = heal(how, running, &world, &signer);
        if let Healed::ByTheNextWrite = how {
            let answer = signer.request("PUT", "/reports/x", &[("if-none-match", "*")], b"after");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(world.seen(&signer)["x"], b"after");
        } else {
            assert_eq!(world.seen(&signer).keys().collect::<Vec<_>>(), ["bystander"]);
        }
        until_nothing_is_staged(&world.objects());
        assert_nothing_differs(&world);
        assert_eq!(running.client().fence("reports").as_deref(), Some("33"), "{how:?}");
    }
}

/// The object cannot be restored: that is reported, nothing else is served in its place, and the administrator decides.
#[test]
fn a_committed_object_whose_bytes_are_lost_is_blocked_until_the_storage_is_believed() {
    for before in [Some("old"), None] {
        let world = World::new();
        let running = world.start();
        let signer = running.holder("33");
        assert_eq!(signer.put("reports/bystander", b"by").status, 200);
        if let Some(before) = before {
            assert_eq!(signer.put("reports/x", before.as_bytes()).status, 200);
        }
        let failing = Injected::error(running.pid(), RENAMES, "EIO");
        assert_unshown(&signer.put("reports/x", b"committed"), "reports/x");
        running.gateway.kill();
        drop(failing);
        let staging = world.objects().join(".fencepost/staging");
        for name in world.staged() {
            fs::remove_file(staging.join(name)).unwrap();
        }

        let running = world.start();
        let signer = running.again(&signer);
        let read = signer.get("reports/x");
        assert_eq!((read.status, code(&read).as_str()), (500, "InternalError"), "{}", read.text());
        assert!(read.text().contains("objects check"), "it says what to do: {}", read.text());
        let write = signer.put("reports/x", b"later");
        assert_eq!((write.status, code(&write).as_str()), (503, "ServiceUnavailable"), "{}", write.text());
        assert_eq!(signer.get("reports/bystander").text(), "by");
        assert_reported(&world, "reports/x", "is not in the storage");

        let (_, out, _) = world.administer(&["check", "--adopt"]);
        assert!(out.contains(" 1 differences, 1 repaired"), "{out}");
        let seen = world.seen(&signer);
        assert_eq!(seen.get("x").map(Vec::as_slice), before.map(str::as_bytes));
        assert_nothing_differs(&world);
        assert_eq!(running.client().fence("reports").as_deref(), Some("33"), "the fence stays");
        until_nothing_is_staged(&world.objects());
        // The case is closed: the next start finds nothing to redo.
        running.gateway.kill();
        let running = world.start();
        let signer = running.again(&signer);
        assert_eq!(world.seen(&signer), seen);
        assert_nothing_differs(&world);
        assert_eq!(signer.put("reports/x", b"after").status, 200);
        assert_eq!(world.seen(&signer)["x"], b"after");
    }
}

/// A removed object stays removed although its file still exists: a bucket removal that fails because of that file does
/// not take the file in again.
#[test]
fn a_delete_that_cannot_be_unlinked_is_not_undone_by_removing_its_bucket() {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    assert_eq!(signer.put("reports/x", b"old").status, 200);
    let failing = Injected::error(running.pid(), "unlinkat", "EIO");
    assert_unshown(&signer.delete("reports/x"), "reports/x");
    let answer = signer.request("DELETE", "/reports", &[], b"");
    assert_eq!((answer.status, code(&answer).as_str()), (409, "BucketNotEmpty"), "{}", answer.text());
    assert_eq!(code(&signer.get("reports/x")), "NoSuchKey");
    assert!(signer.list("reports", 10).is_empty());
    drop(failing);
    running.gateway.kill();
    let running = world.start();
    let signer = running.again(&signer);
    assert!(world.seen(&signer).is_empty());
    assert_eq!(signer.request("DELETE", "/reports", &[], b"").status, 204);
}
