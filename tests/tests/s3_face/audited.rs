//! What an audit of 0.1.0 found at the S3 front end, one test per finding.

use fencepost_conformance::harness::bucketed::Bucketed;
use fencepost_conformance::harness::http::{Answer, Client};

use crate::signing::{Signer, code, http_date};

/// Sends a request that was written by hand.
fn send(gateway: &Bucketed, head: &str, body: &[u8]) -> Answer {
    let mut client = Client::connect(&gateway.s3().to_string());
    client.send(head.as_bytes()).and_then(|()| client.send(body)).unwrap();
    client.receive().unwrap()
}

/// A parameter that the S3 library does not know must not make another call of this one.
#[test]
fn b01_a_parameter_that_is_not_known_changes_nothing() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let signer = Signer::holder(&gateway, "reports", "33");
    let watcher = Signer::holder(&gateway, "watched", "33");
    assert_eq!(signer.put("reports/x", b"bytes").status, 200);
    let before = gateway.files();
    let puts = "renameObject encryption annotation partNumber=1 uploadId=x append=&position=5 restore torrent x-id=RenameObject \
        x-amz-copy-source=%2Freports%2Fy policy website lifecycle";
    let deletes = "acl annotation retention legal-hold uploads torrent tagging policy";
    let buckets = "abac metadataInventoryTable metadataConfiguration object-lock unknown versioning";
    let calls = (puts.split_whitespace().map(|query| (&signer, "PUT", "/reports/x", query)))
        .chain(deletes.split_whitespace().map(|query| (&signer, "DELETE", "/reports/x", query)))
        .chain(buckets.split_whitespace().map(|query| (&watcher, "DELETE", "/watched", query)))
        .chain(buckets.split_whitespace().map(|query| (&watcher, "PUT", "/watched", query)))
        .chain(["unknown", "select&select-type=2"].map(|query| (&signer, "POST", "/reports/x", query)));
    for (signer, method, path, query) in calls {
        let query: Vec<String> = query
            .split('&')
            .map(|part| if part.contains('=') { part.to_owned() } else { format!("{part}=") })
            .collect();
        let answer = signer.request(method, &format!("{path}?{}", query.join("&")), &[], b"");
        assert_eq!((answer.status, code(&answer).as_str()), (501, "NotImplemented"), "{method} {path} {query:?}");
    }
    assert_eq!(gateway.files(), before);
    assert!(gateway.objects().join("watched").is_dir());
}

/// A read of something that S3 has and this gateway has not is not a read of the object.
#[test]
fn b01_a_read_of_what_is_not_kept_is_not_answered_with_the_object() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"bytes").status, 200);
    for (path, query) in [("/reports/x", "annotation"), ("/reports/x", "renameObject"), ("/reports", "abac")] {
        for method in ["GET", "HEAD"] {
            let answer = signer.request(method, &format!("{path}?{query}="), &[], b"");
            assert_eq!(answer.status, 501, "{method} {path}?{query}: {}", answer.text());
        }
    }
    for target in ["/reports/x?unknown=1", "/reports/x?response-content-type=text%2Fplain&x-id=GetObject"] {
        assert_eq!(signer.request("GET", target, &[], b"").body, b"bytes", "{target}");
    }
}

/// The `Authorization` header is not signed itself, so whoever saw a request could write it in another way.
#[test]
fn s02_two_lists_of_signed_headers() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let secret = Signer::holder(&gateway, "free/secret", "33");
    assert_eq!(secret.put("free/secret", b"secret").status, 200);
    assert_eq!(signer.put("reports/x", b"mine").status, 200);
    let captured = signer.head("PUT", "/reports/x", &[("content-length", "0")]);
    let list = "SignedHeaders=host;x-amz-content-sha256;x-amz-copy-source;x-amz-date";
    for forged in [
        captured.replace("AWS4-HMAC-SHA256 ", &format!("AWS4-X,{list} ")),
        captured.replace("AWS4-HMAC-SHA256 ", &format!("AWS4-HMAC-SHA256,{list} ")),
        captured.replace("AWS4-HMAC-SHA256 ", &format!("AWS4-HMAC-SHA256 {list}, ")),
        captured.replace(", Signature=", &format!(", {list}, Signature=")),
    ] {
        assert_ne!(forged, captured);
        let head = forged.replace("\r\n\r\n", "\r\nx-amz-copy-source: /free/secret\r\n\r\n");
        let answer = send(&gateway, &head, b"");
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequest"), "{head}: {}", answer.text());
        assert_eq!(signer.get("reports/x").body, b"mine", "{head}");
    }
}

/// A request for one gateway must not be good at another one with the same keys.
#[test]
fn s17_the_host_must_be_signed() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let head = signer.head_without("PUT", "/reports/x", &[("content-length", "1")], &["host"]);
    let answer = send(&gateway, &head, b"x");
    assert_eq!((answer.status, code(&answer).as_str()), (403, "AccessDenied"), "{}", answer.text());
    assert!(gateway.files().is_empty());
}

#[test]
fn s17_version_2_in_a_header_is_told_so() {
    let gateway = Bucketed::start();
    for scheme in ["AWS READER:bm90IGEgc2lnbmF0dXJl", "AWS4-ECDSA-P256-SHA256 Credential=READER", "Bearer x"] {
        let head = format!(
            "GET /reports/x HTTP/1.1\r\nhost: {}\r\ndate: {}\r\nauthorization: {scheme}\r\n\r\n",
            gateway.s3(),
            http_date()
        );
        let answer = send(&gateway, &head, b"");
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequest"), "{scheme}: {}", answer.text());
        assert!(answer.text().contains("Please use AWS4-HMAC-SHA256."), "{}", answer.text());
    }
}

/// SigV4 allows either date; libraries without `x-amz-date` sign the other one.
#[test]
fn s17_a_signed_date_will_do() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let date = http_date();
    let headers = [("content-length", "1"), ("date", date.as_str())];
    let answer = send(&gateway, &signer.head("PUT", "/reports/x", &headers), b"x");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let unsigned = send(&gateway, &signer.head_without("PUT", "/reports/y", &headers, &["date"]), b"x");
    assert_eq!((unsigned.status, code(&unsigned).as_str()), (400, "InvalidRequest"), "{}", unsigned.text());
    assert_eq!(gateway.files().len(), 1);
}
