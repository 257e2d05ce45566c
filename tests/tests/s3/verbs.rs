//! Trap 9, the other verbs: every call of the S3 protocol is a read, or refused for a stale token, or not offered.

use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Client;

use crate::parsing::{code, etag};
use crate::signing::Signer;
use crate::takeovers::assert_stale;
use crate::world::{agreed, staged};

/// Configuration of a bucket that S3 can read, write and remove, by the name in the query.
const SETTINGS: [&str; 24] = [
    "accelerate=",
    "acl=",
    "analytics=&id=1",
    "cors=",
    "encryption=",
    "id=1&intelligent-tiering=",
    "id=1&inventory=",
    "id=1&metrics=",
    "lifecycle=",
    "logging=",
    "metadataTable=",
    "notification=",
    "object-lock=",
    "ownershipControls=",
    "policy=",
    "policyStatus=",
    "publicAccessBlock=",
    "replication=",
    "requestPayment=",
    "session=",
    "tagging=",
    "versioning=",
    "versions=",
    "website=",
];

/// Those of them that cannot be read either. The others can, because clients ask for them.
const UNANSWERED: [&str; 6] =
    ["analytics=&id=1", "id=1&intelligent-tiering=", "id=1&inventory=", "id=1&metrics=", "metadataTable=", "session="];

/// Calls about one object that are not offered.
const NOT_OFFERED: [(&str, &str); 16] = [
    ("GET", "legal-hold="),
    ("GET", "retention="),
    ("GET", "torrent="),
    ("PUT", "acl="),
    ("PUT", "legal-hold="),
    ("PUT", "retention="),
    ("PUT", "tagging="),
    ("DELETE", "tagging="),
    ("POST", "select=&select-type=2"),
    ("POST", "restore="),
    ("POST", ""),
    ("POST", "append=&position=0"),
    ("PATCH", ""),
    ("OPTIONS", ""),
    ("COPY", ""),
    ("MOVE", ""),
];

#[test]
fn t09_calls_that_are_not_offered_say_so() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"x").status, 200);
    let before = (agreed(&signer, "reports"), gateway.files());
    let mut calls: Vec<(&str, String)> = Vec::new();
    for query in SETTINGS {
        let reads: &[&str] = if UNANSWERED.contains(&query) { &["GET"] } else { &[] };
        // Methods without a configuration call of that name would be routed to creating or deleting the bucket.
        let routed: &[&str] = match query {
            "policyStatus=" | "session=" | "versions=" => &[],
            "metadataTable=" => &["POST", "DELETE"],
            "accelerate=" | "acl=" | "logging=" | "notification=" | "object-lock=" | "requestPayment="
            | "versioning=" => &["PUT"],
            _ => &["PUT", "DELETE"],
        };
        calls.extend(reads.iter().chain(routed).map(|method| (*method, format!("/reports?{query}"))));
    }
    for query in ["analytics=", "intelligent-tiering=", "inventory=", "metrics="] {
        calls.push(("GET", format!("/reports?{query}")));
    }
    calls.extend(NOT_OFFERED.iter().map(|(method, query)| (*method, format!("/reports/x?{query}"))));
    calls.push(("GET", "/?x-id=ListDirectoryBuckets".to_owned()));
    for method in ["HEAD", "POST", "PUT", "DELETE"] {
        calls.push((method, "/".to_owned()));
    }
    for (method, target) in &calls {
        let answer = signer.request(method, target, &[], b"");
        assert_eq!(answer.status, 501, "{method} {target}: {answer:?} {}", answer.text());
        if *method != "HEAD" {
            assert_eq!(code(&answer), "NotImplemented", "{method} {target}");
        }
    }
    let route = [("x-amz-request-route", "r"), ("x-amz-request-token", "t")];
    assert_eq!(code(&signer.request("POST", "/reports", &route, b"")), "NotImplemented");
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    println!("{} calls", calls.len() + 1);
}

#[test]
fn t09_every_call_that_writes_is_refused_for_a_stale_token() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    assert_eq!(first.put("reports/x", b"x").status, 200);
    assert_eq!(first.put("reports/y", b"y").status, 200);
    let upload = first.begin_upload("reports/x");
    let part = etag(&first.put_part("reports/x", &upload, 1, b"part"));
    let second = Signer::holder(&gateway, "reports", "34");
    let before = (agreed(&second, "reports"), gateway.files(), staged(&gateway.objects()));
    let uploads = second.request("GET", "/reports?uploads=", &[], b"").text();

    let (source, range) = (("x-amz-copy-source", "/reports/y"), ("x-amz-copy-source-range", "bytes=0-0"));
    let of_upload = |number: &str| format!("/reports/x?{number}uploadId={upload}");
    assert_stale(&first.put("reports/x", b"late"));
    assert_stale(&first.put("reports/new", b"late"));
    assert_stale(&first.put("reports/x", b""));
    assert_stale(&first.delete("reports/x"));
    assert_stale(&first.delete("reports/none"));
    assert_stale(&first.request("DELETE", "/reports/x?versionId=null", &[], b""));
    assert_stale(&first.delete_all("reports", &["x", "y"]));
    assert_stale(&first.delete_all("reports", &["none"]));
    assert_stale(&first.request("PUT", "/reports/x", &[source], b""));
    let replace = [source, ("x-amz-metadata-directive", "REPLACE")];
    assert_stale(&first.request("PUT", "/reports/y", &replace, b""));
    assert_stale(&first.request("POST", "/reports/x?uploads=", &[], b""));
    assert_stale(&first.put_part("reports/x", &upload, 1, b"late"));
    assert_stale(&first.put_part("reports/x", &upload, 2, b"late"));
    assert_stale(&first.request("PUT", &of_upload("partNumber=2&"), &[source], b""));
    assert_stale(&first.request("PUT", &of_upload("partNumber=2&"), &[source, range], b""));
    assert_stale(&first.complete("reports/x", &upload, &[part]));
    assert_stale(&first.request("DELETE", &of_upload(""), &[], b""));

    assert_eq!((agreed(&second, "reports"), gateway.files(), staged(&gateway.objects())), before);
    assert_eq!(second.request("GET", "/reports?uploads=", &[], b"").text(), uploads);
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("34"));
    assert_eq!(second.put("reports/x", b"in time").status, 200, "the holder goes on");
}

/// A browser form can upload too, with its signature inside the form.
#[test]
fn t09_forms_are_not_taken() {
    let gateway = Bucketed::start();
    for fields in ["", "Content-Disposition: form-data; name=\"key\"\r\n\r\nfrom-a-form\r\n--b\r\n"] {
        let file = "Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nevil\r\n--b--\r\n";
        let body = format!("--b\r\n{fields}{file}");
        let headers = [("content-type", "multipart/form-data; boundary=b")];
        let mut client = Client::connect(&gateway.s3().to_string());
        let answer = client.request("POST", "/reports", &headers, body.as_bytes());
        assert_eq!((answer.status, code(&answer).as_str()), (501, "NotImplemented"), "{}", answer.text());
    }
    assert!(gateway.files().is_empty());
}

/// Reads are answered whatever the token.
#[test]
fn t09_reads_are_answered_to_the_stale() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    assert_eq!(first.put("reports/x", b"x").status, 200);
    let upload = first.begin_upload("reports/x");
    Signer::holder(&gateway, "reports", "34");
    for (method, target) in [
        ("GET", "/"),
        ("HEAD", "/reports"),
        ("GET", "/reports"),
        ("GET", "/reports?list-type=2"),
        ("GET", "/reports?location="),
        ("GET", "/reports?acl="),
        ("GET", "/reports?versioning="),
        ("GET", "/reports?versions="),
        ("GET", "/reports?requestPayment="),
        ("GET", "/reports?uploads="),
        ("GET", "/reports/x"),
        ("HEAD", "/reports/x"),
        ("GET", "/reports/x?acl="),
        ("GET", "/reports/x?tagging="),
        ("GET", &format!("/reports/x?uploadId={upload}")),
    ] {
        let answer = first.request(method, target, &[], b"");
        assert_eq!(answer.status, 200, "{method} {target}: {answer:?} {}", answer.text());
    }
}
