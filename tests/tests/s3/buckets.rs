//! Buckets, created and removed over S3: where that is allowed, by the holder of the lock with the bucket's name.

use std::fs;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Answer;

use crate::parsing::code;
use crate::signing::Signer;
use crate::steps::Steps;
use crate::takeovers::assert_stale;
use crate::world::World;

fn make(signer: &Signer, bucket: &str) -> Answer {
    signer.request("PUT", &format!("/{bucket}"), &[], b"")
}

fn remove(signer: &Signer, bucket: &str) -> Answer {
    signer.request("DELETE", &format!("/{bucket}"), &[], b"")
}

fn assert_refused(answer: &Answer, status: u16, wanted: &str) {
    assert_eq!((answer.status, code(answer).as_str()), (status, wanted), "{}", answer.text());
}

/// Where it is not allowed no lease helps, and the directories stay as they are.
#[test]
fn t09_buckets_are_neither_made_nor_removed_where_that_is_not_allowed() {
    let gateway = Bucketed::start();
    let (reports, made) = (Signer::holder(&gateway, "reports", "33"), Signer::holder(&gateway, "newbucket", "33"));
    let reader = Signer::reader(&gateway);
    for answer in [make(&made, "newbucket"), make(&reports, "newbucket"), make(&reader, "newbucket")] {
        assert_refused(&answer, 403, "AccessDenied");
        assert!(answer.text().contains("--s3-create-buckets"), "{}", answer.text());
    }
    assert_eq!((make(&reports, "reports").status, make(&reader, "free").status), (200, 200), "these are there");
    for answer in [remove(&reports, "reports"), remove(&reports, "free"), remove(&reader, "free")] {
        assert_refused(&answer, 403, "AccessDenied");
    }
    assert_refused(&remove(&made, "newbucket"), 403, "AccessDenied");
    assert!(!gateway.objects().join("newbucket").exists());
    assert!(gateway.objects().join("free").exists() && gateway.objects().join("reports").exists());
}

#[test]
fn a_bucket_is_made_filled_emptied_and_removed() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let holder = Signer::holder(&gateway, "newbucket", "33");
    let writer = Signer::holder(&gateway, "newbucket/x", "33");
    assert_refused(&writer.put("newbucket/x", b"x"), 404, "NoSuchBucket");
    let made = make(&holder, "newbucket");
    assert_eq!((made.status, made.header("location")), (200, Some("/newbucket")), "{}", made.text());
    let directory = gateway.objects().join("newbucket");
    assert!(directory.is_dir());
    assert_eq!(make(&holder, "newbucket").status, 200, "as in us-east-1, the region here");

    assert_eq!(writer.put("newbucket/x", b"x").status, 200);
    assert_refused(&remove(&holder, "newbucket"), 409, "BucketNotEmpty");
    assert_eq!(writer.get("newbucket/x").body, b"x");
    assert_eq!(writer.delete("newbucket/x").status, 204);
    // A begun upload counts as content, although no list shows it.
    let upload = writer.begin_upload("newbucket/x");
    assert_refused(&remove(&holder, "newbucket"), 409, "BucketNotEmpty");
    assert_eq!(writer.request("DELETE", &format!("/newbucket/x?uploadId={upload}"), &[], b"").status, 204);
    // So does a file that is not in the index.
    fs::write(directory.join("by-hand"), "precious").unwrap();
    assert_refused(&remove(&holder, "newbucket"), 409, "BucketNotEmpty");
    assert_eq!(fs::read(directory.join("by-hand")).unwrap(), b"precious");
    fs::remove_file(directory.join("by-hand")).unwrap();

    let removed = remove(&holder, "newbucket");
    assert_eq!(removed.status, 204, "{}", removed.text());
    assert!(!directory.exists());
    assert_refused(&remove(&holder, "newbucket"), 404, "NoSuchBucket");
    assert_refused(&writer.put("newbucket/x", b"x"), 404, "NoSuchBucket");
    assert_eq!(make(&holder, "newbucket").status, 200, "and again");
    assert_eq!(writer.put("newbucket/x", b"x again").status, 200);
    assert_eq!(crate::world::agreed(&writer, "newbucket")["x"], b"x again");
}

/// G2: 34 took over; requests of 33 change neither directories nor fences.
#[test]
fn t09_buckets_are_made_and_removed_by_the_holder_only() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let first = Signer::holder(&gateway, "newbucket", "33");
    let second = Signer::holder(&gateway, "newbucket", "34");
    let directory = gateway.objects().join("newbucket");
    assert_stale(&make(&first, "newbucket"));
    assert!(!directory.exists(), "made for a stale token");
    assert_eq!(make(&second, "newbucket").status, 200);
    assert_stale(&remove(&first, "newbucket"));
    assert!(directory.is_dir(), "removed for a stale token");
    assert_eq!(remove(&second, "newbucket").status, 204);
    // Trap 8: the fence outlives the bucket.
    assert_stale(&make(&first, "newbucket"));
    assert!(!directory.exists());
    assert_eq!(gateway.client().fence("newbucket").as_deref(), Some("34"));

    // A guard puts the bucket's own name under the fence of its content.
    let (old, new) = (Signer::holder(&gateway, "reports", "33"), Signer::holder(&gateway, "reports", "34"));
    assert_stale(&remove(&old, "reports"));
    assert!(gateway.objects().join("reports").is_dir());
    assert_eq!(remove(&new, "reports").status, 204);
    assert_stale(&make(&old, "reports"));
    assert!(!gateway.objects().join("reports").exists());
    assert_eq!(make(&new, "reports").status, 200);
}

/// The client has disconnected. A removal that was admitted is completed nevertheless; otherwise a directory that is
/// made by hand later would be taken for one whose files are indexed.
#[test]
fn a_bucket_is_removed_to_its_end_without_its_client() {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    assert_eq!(make(&signer, "made").status, 200);
    assert_eq!(signer.put("made/x", b"x").status, 200);
    assert_eq!(signer.delete("made/x").status, 204);
    let mut steps = Steps::hold(running.pid(), world.path());
    let leaving = signer.begin("DELETE", "/made", &[], 0);
    wait::until("its directory to be about to go", PATIENCE, || {
        steps.look();
        steps.seen.iter().any(|step| step == "unlinkat objects").then_some(())
    });
    drop((leaving, steps));
    let directory = world.objects().join("made");
    wait::until("its directory to be gone", PATIENCE, || (!directory.exists()).then_some(()));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("by-hand"), "precious").unwrap();
    wait::until("its file to be taken in", PATIENCE, || {
        (signer.get("made/by-hand").text() == "precious").then_some(())
    });
    assert_eq!(world.buckets(&signer), ["made", "reports"]);
}

/// Trap 15: a lease of something else, or no lease, gives no right to a bucket.
#[test]
fn t15_buckets_are_not_made_or_removed_without_their_lease() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let (reports, reader) = (Signer::holder(&gateway, "reports", "33"), Signer::reader(&gateway));
    assert_refused(&make(&reports, "newbucket"), 403, "AccessDenied");
    assert_refused(&remove(&reports, "free"), 403, "AccessDenied");
    assert_refused(&make(&reader, "newbucket"), 403, "MissingFencingToken");
    assert_refused(&remove(&reader, "free"), 403, "MissingFencingToken");
    for name in ["ab", "Upper", "under_score", ".fencepost", "a..b"] {
        let answer = make(&reports, name);
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidBucketName"), "{name}: {}", answer.text());
    }
    assert!(!gateway.objects().join("newbucket").exists());
    assert!(gateway.objects().join("free").is_dir());
    assert_eq!(gateway.client().fence("newbucket"), None);
}
