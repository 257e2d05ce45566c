//! Refusals of the S3 front end are counted in `/metrics` like all others: once each, by reason, and by whether the
//! guard enforces or only observes.

use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Answer;

use crate::digests::md5_of;
use crate::parsing::{code, element, etag};
use crate::signing::Signer;
use crate::takeovers::assert_stale;
use crate::world::until_some_is_staged;

/// The value of a counter, by its name and labels as written.
fn counter(gateway: &Bucketed, name: &str, labels: &[&str]) -> u64 {
    let metrics = gateway.client().request("GET", "/metrics", &[], b"").text();
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label));
    let line = metrics.lines().find(is_it).unwrap_or_else(|| panic!("no {name} with {labels:?} in {metrics}"));
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a counter is a number")
}

fn refusals(gateway: &Bucketed, reason: &str, mode: &str) -> u64 {
    let (reason, mode) = (format!("reason=\"{reason}\""), format!("mode=\"{mode}\""));
    counter(gateway, "fencepost_refusals_total", &[&reason, &mode])
}

/// The number of object writes with this outcome.
fn writes(gateway: &Bucketed, outcome: &str) -> u64 {
    counter(gateway, "fencepost_object_writes_total", &[&format!("outcome=\"{outcome}\"")])
}

#[test]
fn every_refused_write_is_counted_once_by_its_reason() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let first = Signer::holder(&gateway, "reports", "33");
    assert_eq!(first.put("reports/x", b"x").status, 200);
    let upload = first.begin_upload("reports/x");
    let part = etag(&first.put_part("reports/x", &upload, 1, b"part"));
    let second = Signer::holder(&gateway, "reports", "34");
    let source = ("x-amz-copy-source", "/reports/x");
    let of_upload = |number: &str| format!("/reports/x?{number}uploadId={upload}");
    let part_1 = of_upload("partNumber=1&");
    type Call<'c> = (&'c str, Box<dyn Fn(&Signer) -> Answer + 'c>);
    let calls: [Call<'_>; 10] = [
        ("PutObject", Box::new(|by| by.put("reports/x", b"late"))),
        ("DeleteObject", Box::new(|by| by.delete("reports/x"))),
        ("DeleteObjects", Box::new(|by| by.delete_all("reports", &["x", "y"]))),
        ("CopyObject", Box::new(|by| by.request("PUT", "/reports/y", &[source], b""))),
        ("CreateMultipartUpload", Box::new(|by| by.request("POST", "/reports/x?uploads=", &[], b""))),
        ("UploadPart", Box::new(|by| by.request("PUT", &part_1, &[], b"late"))),
        ("UploadPartCopy", Box::new(|by| by.request("PUT", &part_1, &[source], b""))),
        ("CompleteMultipartUpload", Box::new(|by| by.complete("reports/x", &upload, std::slice::from_ref(&part)))),
        ("AbortMultipartUpload", Box::new(|by| by.request("DELETE", &of_upload(""), &[], b""))),
        ("DeleteBucket", Box::new(|by| by.request("DELETE", "/reports", &[], b""))),
    ];
    let reader = Signer::reader(&gateway);
    for (call, ask) in &calls {
        let before = (refusals(&gateway, "stale", "enforce"), writes(&gateway, "refused"), writes(&gateway, "applied"));
        assert_stale(&ask(&first));
        let now = (refusals(&gateway, "stale", "enforce"), writes(&gateway, "refused"), writes(&gateway, "applied"));
        assert_eq!(now, (before.0 + 1, before.1 + 1, before.2), "{call} of a stale holder");
        let before = (refusals(&gateway, "missing-token", "enforce"), writes(&gateway, "refused"));
        assert_eq!(code(&ask(&reader)), "MissingFencingToken", "{call}");
        let now = (refusals(&gateway, "missing-token", "enforce"), writes(&gateway, "refused"));
        assert_eq!(now, (before.0 + 1, before.1 + 1), "{call} without a token");
    }
    // Admitted at first, and refused at the commit.
    let before = refusals(&gateway, "stale", "enforce");
    let mut slow = second.begin("PUT", "/reports/slow", &[], 2000);
    slow.send(&[b'x'; 1000]).unwrap();
    until_some_is_staged(&gateway.objects());
    Signer::holder(&gateway, "reports", "35");
    slow.send(&[b'x'; 1000]).unwrap();
    assert_eq!(code(&slow.receive().unwrap()), "StaleFencingToken");
    assert_eq!(refusals(&gateway, "stale", "enforce"), before + 1);
    assert_eq!(refusals(&gateway, "stale", "observe"), 0);
}

/// A failed condition of the client is not a refusal.
#[test]
fn writes_and_conditions_are_counted_and_are_no_refusals() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let refused = || (refusals(&gateway, "stale", "enforce"), writes(&gateway, "refused"));
    let before = (writes(&gateway, "applied"), writes(&gateway, "condition-failed"), refused());
    assert_eq!(signer.put("reports/x", b"x").status, 200);
    assert_eq!(signer.request("PUT", "/reports/x", &[("if-none-match", "*")], b"y").status, 412);
    assert_eq!(signer.delete("reports/x").status, 204);
    let now = (writes(&gateway, "applied"), writes(&gateway, "condition-failed"), refused());
    assert_eq!(now, (before.0 + 2, before.1 + 1, before.2));
}

/// Operators rely on these numbers when they introduce fencing: an uncounted call would be refused unexpectedly later.
#[test]
fn t37_every_call_that_would_be_refused_is_counted_where_the_guard_observes() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let reader = Signer::reader(&gateway);
    let counted = || refusals(&gateway, "missing-token", "observe");
    let counts = |call: &str, wanted: u16, answer: &dyn Fn() -> Answer| {
        let before = counted();
        let answer = answer();
        assert_eq!(answer.status, wanted, "{call}: {}", answer.text());
        assert_eq!(counted(), before + 1, "{call}");
        answer
    };
    let ask = |method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]| {
        reader.request(method, target, headers, body)
    };
    let source = [("x-amz-copy-source", "/watched/x")];
    counts("PutObject", 200, &|| reader.put("watched/x", b"seen"));
    counts("CopyObject", 200, &|| ask("PUT", "/watched/y", &source, b""));
    let begin = || counts("CreateMultipartUpload", 200, &|| ask("POST", "/watched/x?uploads=", &[], b""));
    let upload = element(&begin().text(), "UploadId").unwrap();
    counts("UploadPart", 200, &|| reader.put_part("watched/x", &upload, 1, b"part"));
    let copied = format!("/watched/x?partNumber=2&uploadId={upload}");
    counts("UploadPartCopy", 200, &|| ask("PUT", &copied, &source, b""));
    counts("CompleteMultipartUpload", 200, &|| reader.complete("watched/x", &upload, &[md5_of(b"part")]));
    let upload = element(&begin().text(), "UploadId").unwrap();
    counts("AbortMultipartUpload", 204, &|| ask("DELETE", &format!("/watched/x?uploadId={upload}"), &[], b""));
    counts("DeleteObject", 204, &|| reader.delete("watched/y"));
    counts("DeleteObjects", 200, &|| reader.delete_all("watched", &["x"]));
    counts("DeleteBucket", 204, &|| ask("DELETE", "/watched", &[], b""));
    counts("CreateBucket", 200, &|| ask("PUT", "/watched", &[], b""));
    assert_eq!(gateway.client().fence("watched"), None, "observing raises nothing");
    // A stale lease is counted as well, once per call.
    let (first, _) = (Signer::holder(&gateway, "watched", "33"), Signer::holder(&gateway, "watched", "34"));
    let before = refusals(&gateway, "stale", "observe");
    assert_eq!(first.put("watched/x", b"late").status, 200);
    let upload = first.begin_upload("watched/x");
    assert_eq!(first.put_part("watched/x", &upload, 1, b"late").status, 200);
    assert_eq!(refusals(&gateway, "stale", "observe"), before + 3);
    assert_eq!(gateway.client().fence("watched").as_deref(), Some("34"));
}
