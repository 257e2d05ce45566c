//! Multipart uploads that outlive their holder, ranges, conditions and the older listing, through boto3.

use std::path::{Path, PathBuf};

use fencepost_harness::bucketed::Bucketed;
use serde_json::Value;
use tempfile::TempDir;

use crate::boto3::Boto3;
use crate::client::{S3Client, Said, path};

fn holder(gateway: &Bucketed, token: &str) -> Boto3 {
    Boto3::new(&format!("http://{}", gateway.s3()), &gateway.credentials("reports", token))
}

fn file(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("file");
    std::fs::write(&file, text).unwrap();
    file
}

fn json(said: Said) -> Value {
    serde_json::from_str(&said.expect_ok("a result")).unwrap()
}

/// Begun by 33, which uploaded a part; then 34 took over. Nothing that 33 does with the upload has an effect any more.
#[test]
fn an_upload_of_33_cannot_be_finished_after_34_took_over() {
    let (gateway, dir) = (Bucketed::start(), TempDir::new().unwrap());
    let file = file(dir.path(), "of 33");
    let old = holder(&gateway, "33");
    let begun = json(old.call("begin_upload", &[path(&file), "reports", "big"]));
    let (upload, etag) = (begun[0].as_str().unwrap(), begun[1].as_str().unwrap());
    let new = holder(&gateway, "34");
    let words = ["StaleFencingToken", "33", "34"];
    old.call("next_part", &[path(&file), "reports", "big", upload]).expect_failure("another part", &words);
    old.call("complete_upload", &["reports", "big", upload, etag]).expect_failure("complete", &words);
    old.call("abort_upload", &["reports", "big", upload]).expect_failure("abort", &words);
    assert!(gateway.files().is_empty());
    assert_eq!(json(new.call("list_uploads", &["reports"])), serde_json::json!(["big"]));
    new.call("abort_upload", &["reports", "big", upload]).expect_ok("the successor tidies up");
    assert_eq!(json(new.call("list_uploads", &["reports"])), serde_json::json!([]));
}

#[test]
fn an_upload_of_the_holder_is_finished() {
    let (gateway, dir) = (Bucketed::start(), TempDir::new().unwrap());
    let (client, file) = (holder(&gateway, "34"), file(dir.path(), "one part"));
    let begun = json(client.call("begin_upload", &[path(&file), "reports", "big"]));
    let (upload, etag) = (begun[0].as_str().unwrap(), begun[1].as_str().unwrap());
    assert!(gateway.files().is_empty(), "an upload is nothing before it is complete");
    client.call("complete_upload", &["reports", "big", upload, etag]).expect_ok("complete");
    assert_eq!(gateway.files()["reports/big"], b"one part");
    let again = client.call("abort_upload", &["reports", "big", upload]);
    again.expect_failure("abort after complete", &["NoSuchUpload"]);
}

#[test]
fn ranges_are_read() {
    let (gateway, dir) = (Bucketed::start(), TempDir::new().unwrap());
    let client = holder(&gateway, "34");
    client.put(&file(dir.path(), "0123456789"), "reports/digits").expect_ok("put");
    for (which, range, text) in
        [("bytes=2-4", "bytes 2-4/10", "234"), ("bytes=-3", "bytes 7-9/10", "789"), ("bytes=8-", "bytes 8-9/10", "89")]
    {
        let found = json(client.call("range_of", &["reports", "digits", which]));
        assert_eq!(found, serde_json::json!({"range": range, "text": text}));
    }
    let beyond = client.call("range_of", &["reports", "digits", "bytes=10-20"]);
    beyond.expect_failure("a range beyond the end", &["InvalidRange"]);
}

/// A failed condition of the client is 412; a stale token is not, whatever the condition.
#[test]
fn a_condition_that_fails_is_not_a_refusal_by_the_fence() {
    let (gateway, dir) = (Bucketed::start(), TempDir::new().unwrap());
    let (client, file) = (holder(&gateway, "33"), file(dir.path(), "once"));
    client.call("put_if_absent", &[path(&file), "reports", "once"]).expect_ok("it is absent");
    let failed = client.call("put_if_absent", &[path(&file), "reports", "once"]);
    failed.expect_failure("it is there", &["PreconditionFailed"]);
    holder(&gateway, "34");
    for key in ["once", "never"] {
        let stale = client.call("put_if_absent", &[path(&file), "reports", key]);
        stale.expect_failure("stale", &["StaleFencingToken"]);
    }
    assert_eq!(gateway.files().len(), 1);
}

#[test]
fn the_older_listing_pages_too() {
    let names: Vec<String> = (0..1_100).map(|number| format!("many/{number:04} ü+&")).collect();
    let gateway = Bucketed::filled(|objects| {
        std::fs::create_dir(objects.join("reports/many")).unwrap();
        names.iter().for_each(|name| std::fs::write(objects.join("reports").join(name), "x").unwrap());
    });
    let found = json(holder(&gateway, "34").call("list_all_v1", &["reports", "many/"]));
    assert_eq!(found, serde_json::json!(names));
}
