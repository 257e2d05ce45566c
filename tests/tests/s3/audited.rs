//! Findings of an audit of 0.1.0 about the S3 front end, one test per finding.

use std::net::SocketAddr;

use data_encoding::HEXLOWER;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::fresh::write_config;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::{GatewayProcess, binary, run};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::parsing::code;
use crate::signing::{Signer, http_date};

/// Sends a hand-written request.
fn send(gateway: &Bucketed, head: &str, body: &[u8]) -> Answer {
    let mut client = Client::connect(&gateway.s3().to_string());
    client.send(head.as_bytes()).and_then(|()| client.send(body)).unwrap();
    client.receive().unwrap()
}

/// A parameter that the S3 library does not know must not turn this call into another one.
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

/// A read of an S3 feature that this gateway does not have is not answered with the object.
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

/// The `Authorization` header itself is not signed, so an observer of a request could rewrite it.
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

/// A request for one gateway must not be valid at another one with the same keys.
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

/// SigV4 allows either date header; libraries without `x-amz-date` sign the other one.
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

/// A client that puts the bucket into the host name would write to another bucket.
#[test]
fn b06_a_host_that_names_a_bucket_is_refused() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let port = gateway.s3().port();
    let put = |host: &str| {
        let headers = [("content-length", "1"), ("host", host)];
        send(&gateway, &signer.head("PUT", "/reports/x", &headers), b"x")
    };
    for host in [format!("bkt.127.0.0.1:{port}"), format!("bkt.localhost:{port}")] {
        let answer = put(&host);
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequest"), "{host}: {}", answer.text());
        assert!(answer.text().contains("path style"), "{}", answer.text());
    }
    assert!(gateway.files().is_empty());
    assert_eq!(put(&format!("localhost:{port}")).status, 200);
    assert_eq!(put("storage.example").status, 200, "no endpoint was given, so it may have names");
}

/// A gateway whose S3 listener is reachable from other machines.
struct Reachable {
    dir: TempDir,
    gateway: GatewayProcess,
    signer: Signer,
}

impl Reachable {
    fn start() -> Reachable {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("objects/reports")).unwrap();
        let config = "[s3]\nendpoint = 'http://files.example:9000'\ninsecure_plaintext = true\n";
        let config = write_config(dir.path(), config).display().to_string();
        let place = format!("dir:{}", dir.path().join("objects").display());
        let arguments = ["--config", &config, "--s3-listen", "0.0.0.0:0", "--objects", &place];
        let gateway = GatewayProcess::start(&dir.path().join("data"), &arguments);
        let address = SocketAddr::from(([127, 0, 0, 1], gateway.s3_address().port()));
        let body = br#"{"resource": "reports/x"}"#;
        let issued = gateway.client().request("POST", "/v1/s3/credentials", &[("fencing-token", "33")], body);
        let signer = Signer { address, credentials: Credentials::issued(&issued) };
        Reachable { dir, gateway, signer }
    }

    fn send(&self, head: &str, body: &[u8]) -> Answer {
        let mut client = Client::connect(&self.signer.address.to_string());
        client.send(head.as_bytes()).and_then(|()| client.send(body)).unwrap();
        client.receive().unwrap()
    }
}

/// An intermediary could replace a body or a header that is not signed.
#[test]
fn s09_without_encryption_bodies_and_headers_are_signed() {
    let reachable = Reachable::start();
    let signer = &reachable.signer;
    let hash = HEXLOWER.encode(&Sha256::digest(b"x"));
    let signed = [("content-length", "1"), ("x-amz-content-sha256", hash.as_str()), ("cache-control", "no-store")];
    let denied = |answer: Answer, words: &str| {
        assert_eq!((answer.status, code(&answer).as_str()), (403, "AccessDenied"), "{}", answer.text());
        assert!(answer.text().contains(words), "{}", answer.text());
    };
    denied(signer.put("reports/x", b"x"), "The body is not signed");
    let unsigned = signer.head_without("PUT", "/reports/x", &signed, &["cache-control"]);
    denied(reachable.send(&unsigned, b"x"), "cache-control is not signed");
    let url = signer.presigned("PUT", "/reports/x", 60);
    let by_url = format!("PUT {url} HTTP/1.1\r\nhost: {}\r\ncontent-length: 1\r\n\r\n", signer.address);
    denied(reachable.send(&by_url, b"x"), "The body is not signed");
    assert!(!reachable.dir.path().join("objects/reports/x").exists());
    let answer = reachable.send(&signer.head("PUT", "/reports/x", &signed), b"x");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let url = signer.presigned("GET", "/reports/x", 60);
    let read = reachable.send(&format!("GET {url} HTTP/1.1\r\nhost: {}\r\n\r\n", signer.address), b"");
    assert_eq!((read.status, read.text().as_str()), (200, "x"));
    // The endpoint was configured, so other host names are mistakes.
    let other = [&signed[..], &[("host", "other.example")]].concat();
    assert_eq!(code(&reachable.send(&signer.head("PUT", "/reports/x", &other), b"x")), "InvalidRequest");
    let own = [&signed[..], &[("host", "files.example:9000")]].concat();
    assert_eq!(reachable.send(&signer.head("PUT", "/reports/x", &own), b"x").status, 200);
}

#[test]
fn s19_a_listener_without_encryption_is_asked_for_and_warned_of() {
    let reachable = Reachable::start();
    let warned = "S3 requests are not encrypted";
    wait::until("the warning", PATIENCE, || reachable.gateway.stderr().contains(warned).then_some(()));
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    let place = format!("dir:{}", dir.path().display());
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--data", &data, "--s3-listen", "0.0.0.0:0", "--objects", &place];
    let output = run(&arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("--s3-insecure-plaintext"), "{said}");
    let mut command = std::process::Command::new(binary());
    command.args(["serve", "--listen", "0.0.0.0:0", "--insecure-no-auth", "--data"]).arg(dir.path().join("open"));
    let open = GatewayProcess::spawn(command).unwrap();
    wait::until("the warning", PATIENCE, || open.stderr().contains("--insecure-no-auth").then_some(()));
}

#[test]
fn s10_a_lease_reads_its_own_resource_if_told_so() {
    let gateway = Bucketed::with(&["--s3-read", "own"]);
    let mine = Signer::holder(&gateway, "shared/mine", "33");
    let theirs = Signer::holder(&gateway, "shared/theirs", "33");
    assert_eq!(mine.put("shared/mine/x", b"mine").status, 200);
    assert_eq!(theirs.put("shared/theirs/x", b"theirs").status, 200);
    assert_eq!(mine.get("shared/mine/x").body, b"mine");
    assert_eq!(mine.request("GET", "/shared?list-type=2&prefix=mine%2F", &[], b"").status, 200);
    assert_eq!(mine.request("HEAD", "/shared", &[], b"").status, 200);
    for answer in [
        mine.get("shared/theirs/x"),
        mine.request("GET", "/shared/theirs/x?acl=", &[], b""),
        mine.request("GET", "/shared?list-type=2", &[], b""),
        mine.request("GET", "/shared?prefix=theirs%2F", &[], b""),
        mine.request("GET", "/shared?uploads=", &[], b""),
        mine.request("GET", "/", &[], b""),
        mine.request("PUT", "/shared/mine/y", &[("x-amz-copy-source", "/shared/theirs/x")], b""),
    ] {
        assert_eq!((answer.status, code(&answer).as_str()), (403, "AccessDenied"), "{}", answer.text());
    }
    let upload = mine.begin_upload("shared/mine/y");
    let part = format!("/shared/mine/y?partNumber=1&uploadId={upload}");
    let copied = mine.request("PUT", &part, &[("x-amz-copy-source", "/shared/theirs/x")], b"");
    assert_eq!((copied.status, code(&copied).as_str()), (403, "AccessDenied"), "{}", copied.text());
    let reader = Signer::reader(&gateway);
    assert_eq!(reader.get("shared/theirs/x").body, b"theirs", "long-term keys read everything");
    assert_eq!(reader.request("GET", "/", &[], b"").status, 200);
}

#[test]
fn s18_refused_signatures_are_counted_and_logged() {
    let gateway = Bucketed::start();
    let mut wrong = Signer::reader(&gateway);
    wrong.credentials.secret_access_key = "another-secret-of-nobody".to_owned();
    for _ in 0..300 {
        assert_eq!(code(&wrong.get("reports/x")), "SignatureDoesNotMatch");
    }
    let metrics = gateway.client().request("GET", "/metrics", &[], b"").text();
    assert!(metrics.contains("fencepost_s3_denied_total{code=\"SignatureDoesNotMatch\"} 300"), "{metrics}");
    assert!(metrics.contains("fencepost_s3_denied_total{code=\"ExpiredToken\"} 0"), "{metrics}");
    let lines = wait::until("a line in the log", PATIENCE, || {
        let log = gateway.stderr();
        let lines = log.lines().filter(|line| line.contains("not let in")).count();
        assert!(lines == 0 || (log.contains("READER") && log.contains("127.0.0.1")), "{log}");
        (lines > 0).then_some(lines)
    });
    assert!(lines < 100, "{lines} lines");
    assert!(!gateway.stderr().contains("another-secret"), "{}", gateway.stderr());
}
