//! Findings of an audit of 0.1.0 about bodies that S3 clients send, one test per finding.

use std::time::Duration;

use data_encoding::HEXLOWER;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::fresh::write_config;
use fencepost_harness::http::{Answer, Client};
use sha2::{Digest, Sha256};

use crate::chunked::Upload;
use crate::large::Flat;
use crate::parsing::code;
use crate::signing::Signer;
use crate::world::until_some_is_staged;

/// Long enough that some of the body is staged.
const LONG: usize = 1 << 20;

fn hash(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// A POST with a signed payload.
fn post(signer: &Signer, target: &str, body: &str) -> Answer {
    signer.request("POST", target, &[("x-amz-content-sha256", &hash(body.as_bytes()))], body.as_bytes())
}

/// Each peer gets a share of the memory for bodies; what does not fit waits and is not refused.
#[test]
fn s06_signed_chunks_have_a_budget() {
    const UPLOADS: usize = 160;
    let gateway = Bucketed::with(&["--max-bodies", "8MiB", "--body-timeout", "10min"]);
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", &vec![0; 1 << 20]).status, 200);
    let flat = Flat::of(gateway.pid());
    let bytes = vec![b'x'; 1 << 20];
    let mut uploads: Vec<(Client, Vec<u8>)> = Vec::new();
    for number in 0..UPLOADS {
        let (mut client, mut body) = Upload::of(&[&bytes], None).begin(&signer, &format!("/reports/{number}"), |_| {});
        client.set_timeout(PATIENCE);
        let rest = body.split_off(bytes.len() - 1000);
        client.send(&body).unwrap();
        uploads.push((client, rest));
    }
    // After these requests, the gateway has read everything that it is going to read.
    for _ in 0..100 {
        assert_eq!(signer.get("reports/x").status, 200);
    }
    flat.assert("signed chunks of 160 uploads");
    for (client, rest) in &mut uploads {
        client.send(rest).unwrap();
    }
    for (client, _) in &mut uploads {
        let answer = client.receive().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(gateway.files().len(), UPLOADS + 1);
}

#[test]
fn s07_a_list_is_counted_before_it_is_parsed() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let upload = signer.begin_upload("reports/x");
    let flat = Flat::of(gateway.pid());
    let parts = format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", "<Part/>".repeat(500_000));
    let answer = post(&signer, &format!("/reports/x?uploadId={upload}"), &parts);
    assert_eq!((answer.status, code(&answer).as_str()), (400, "MalformedXML"), "{}", answer.text());
    assert!(answer.text().contains("at most 10000 entries"), "{}", answer.text());
    let keys = format!("<Delete>{}</Delete>", "<Object><Key>a</Key></Object>".repeat(1001));
    let answer = post(&signer, "/reports?delete=", &keys);
    assert_eq!((answer.status, code(&answer).as_str()), (400, "MalformedXML"), "{}", answer.text());
    let long = signer.begin("POST", "/reports?delete=", &[], (2 << 20) + 1).receive().unwrap();
    assert_eq!((long.status, code(&long).as_str()), (400, "MaxMessageLengthExceeded"), "{}", long.text());
    flat.assert("lists");
}

/// No part of the body is sent here: the answer comes without it.
#[test]
fn s07_a_key_without_a_token_is_refused_before_its_list() {
    let gateway = Bucketed::start();
    let holder = Signer::holder(&gateway, "reports", "33");
    let upload = holder.begin_upload("reports/x");
    let reader = Signer::reader(&gateway);
    for target in ["/reports?delete=", &format!("/reports/x?uploadId={upload}")] {
        let mut client = reader.begin("POST", target, &[], 1 << 20);
        client.set_timeout(PATIENCE);
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, code(&answer).as_str()), (403, "MissingFencingToken"), "{target}");
    }
    assert_eq!(reader.delete_all("watched", &["x"]).status, 200, "where the guard only observes");
}

/// The S3 library drops CDATA content, so the object deleted would not be the one that was named.
#[test]
fn s14_cdata_is_refused() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for key in ["ac", "abc"] {
        assert_eq!(signer.put(&format!("reports/{key}"), b"x").status, 200);
    }
    let body = "<Delete><Object><Key>a<![CDATA[b]]>c</Key></Object></Delete>";
    let answer = post(&signer, "/reports?delete=", body);
    assert_eq!((answer.status, code(&answer).as_str()), (400, "MalformedXML"), "{}", answer.text());
    assert_eq!(gateway.files().len(), 2);
}

/// A malformed request is the client's error, not the gateway's.
#[test]
fn s24_a_list_that_is_sent_wrong_is_the_clients_fault() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let signer = Signer::holder(&gateway, "made", "33");
    for payload in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"] {
        let headers = [
            ("x-amz-content-sha256", payload),
            ("x-amz-decoded-content-length", "5"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        let answer = signer.request("PUT", "/made", &headers, b"zz\r\nno chunk\r\n");
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequest"), "{payload}: {}", answer.text());
    }
    let wrong = [("x-amz-content-sha256", &*hash(b"another body"))];
    for (method, target) in [("PUT", "/made"), ("POST", "/reports?delete=")] {
        let answer = signer.request(method, target, &wrong, b"<Delete/>");
        assert_eq!((answer.status, code(&answer).as_str()), (400, "BadDigest"), "{method}: {}", answer.text());
    }
    assert!(!gateway.objects().join("made").exists());
}

/// Before the fix, a byte now and then kept an upload alive for days.
#[test]
fn s11_a_body_that_trickles_is_ended() {
    let gateway = Bucketed::with(&["--body-timeout", "1s"]);
    let signer = Signer::holder(&gateway, "reports", "33");
    let mut client = signer.begin("PUT", "/reports/x", &[], 1 << 20);
    client.set_timeout(Duration::from_millis(300));
    let answer = wait::until("the trickle to be ended", PATIENCE, || {
        // The gateway may already have answered and closed the connection.
        let _ = client.send(b"x");
        client.wait_for_answer().ok().map(|()| client.receive().unwrap())
    });
    assert_eq!((answer.status, code(&answer).as_str()), (400, "IncompleteBody"), "{}", answer.text());
    assert!(answer.text().contains("too slow"), "{}", answer.text());
    assert!(gateway.files().is_empty());
}

#[test]
fn s11_credentials_that_expire_during_an_upload_do_not_finish_it() {
    let gateway = Bucketed::start();
    let signer = Signer { address: gateway.s3(), credentials: gateway.credentials_for("reports", "33", 2) };
    let upload = Signer::holder(&gateway, "reports", "33").begin_upload("reports/part");
    let part = format!("/reports/part?partNumber=1&uploadId={upload}");
    let mut begun = ["/reports/x", part.as_str()].map(|target| {
        let mut client = signer.begin("PUT", target, &[], LONG + 1);
        client.set_timeout(PATIENCE);
        client.send(&vec![b'x'; LONG]).unwrap();
        client
    });
    until_some_is_staged(&gateway.objects());
    wait::until("the credentials to expire", PATIENCE, || {
        let answer = signer.get("reports/x");
        (answer.status == 400).then_some(())
    });
    for client in &mut begun {
        client.send(b"x").unwrap();
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, code(&answer).as_str()), (400, "ExpiredToken"), "{}", answer.text());
    }
    assert!(gateway.files().is_empty());
}

#[test]
fn s11_a_key_that_is_taken_out_during_an_upload_does_not_finish_it() {
    let gateway = Bucketed::start();
    let signer = Signer { address: gateway.s3(), credentials: Credentials::reader() };
    let mut client = signer.begin("PUT", "/watched/x", &[], LONG + 1);
    client.set_timeout(PATIENCE);
    client.send(&vec![b'x'; LONG]).unwrap();
    until_some_is_staged(&gateway.objects());
    let directory = gateway.admin_socket().parent().unwrap().parent().unwrap().to_owned();
    let guards = std::fs::read_to_string(directory.join("fencepost.toml")).unwrap();
    write_config(&directory, guards.split("[[s3.key]]").next().unwrap());
    let reloaded = Client::connect_unix(&gateway.admin_socket()).request("POST", "/v1/admin/reload", &[], b"");
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    client.send(b"x").unwrap();
    let answer = client.receive().unwrap();
    assert_eq!((answer.status, code(&answer).as_str()), (403, "InvalidAccessKeyId"), "{}", answer.text());
    assert!(gateway.files().is_empty());
}
