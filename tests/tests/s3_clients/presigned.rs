//! Presigned URLs, fetched with plain HTTP, and requests without a signature.

use std::net::SocketAddr;
use std::time::Duration;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::http::{Answer, Client};
use object_store::path::Path;
use object_store::signer::{Method, Signer};

use crate::awscli::AwsCli;
use crate::boto3::Boto3;
use crate::client::S3Client;
use crate::object_store::ObjectStore;
use crate::rclone::{Current, Debian, Rclone};
use crate::s3cmd::S3cmd;

/// Sends one request, signed by its URL alone.
fn fetch(method: &str, url: &str, body: &[u8]) -> Answer {
    let (address, target) = url.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut client = Client::connect(address);
    // The signature covers the host.
    let length = body.len().to_string();
    let request = format!("{method} /{target} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
    client.send(&[request.as_bytes(), body].concat()).unwrap();
    client.receive_after(method).unwrap()
}

fn client<C: S3Client>(gateway: &Bucketed, credentials: &Credentials) -> C {
    C::new(&format!("http://{}", gateway.s3()), credentials)
}

/// The code in an S3 error.
fn code(answer: &Answer) -> String {
    let text = answer.text();
    text.split("<Code>").nth(1).and_then(|rest| rest.split('<').next()).unwrap_or(&text).to_owned()
}

const NAME: &str = "a b+ü%.txt";

fn with_an_object() -> (Bucketed, Credentials) {
    let gateway = Bucketed::filled(|objects| std::fs::write(objects.join("reports").join(NAME), "hello").unwrap());
    let credentials = gateway.credentials("reports", "33");
    (gateway, credentials)
}

/// A URL presigned by boto3 with this signature version. By default boto3 uses `s3`, version 2, and so does `aws s3
/// presign`.
fn presigned_as(version: &str, gateway: &Bucketed, by: &Credentials, call: &str, key: &str, seconds: &str) -> String {
    let boto3: Boto3 = client(gateway, by);
    let url = boto3.call("presign", &[call, "reports", key, seconds, version]).expect_ok("presign");
    assert_eq!(url.contains("AWSAccessKeyId="), version == "s3", "{url}");
    url
}

/// A URL presigned by boto3.
fn presigned(gateway: &Bucketed, by: &Credentials, call: &str, key: &str, seconds: &str) -> String {
    presigned_as("s3v4", gateway, by, call, key, seconds)
}

fn assert_reads(url: &str) {
    let answer = fetch("GET", url, b"");
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"), "{url}: {}", answer.text());
}

#[test]
fn boto3_presigns_get() {
    let (gateway, credentials) = with_an_object();
    assert_reads(&presigned(&gateway, &credentials, "get_object", NAME, "60"));
}

#[test]
fn aws_presigns_get() {
    let (gateway, credentials) = with_an_object();
    let aws: AwsCli = client(&gateway, &credentials);
    aws.run(&["configure", "set", "default.s3.signature_version", "s3v4"]).expect_ok("configure");
    let url = aws.run(&["s3", "presign", &format!("s3://reports/{NAME}"), "--expires-in", "60"]).expect_ok("presign");
    assert_reads(&url);
}

#[test]
fn rclone_links() {
    let (gateway, credentials) = with_an_object();
    let link = ["link", "--expire", "1m", &format!("fp:reports/{NAME}")];
    assert_reads(&client::<Rclone<Current>>(&gateway, &credentials).run(&link).expect_ok("link"));
    assert_reads(&client::<Rclone<Debian>>(&gateway, &credentials).run(&link).expect_ok("link"));
}

/// Version 2 does not cover the whole request. It is refused, and the answer names the reason. s3cmd supports no other
/// for URLs.
#[test]
fn s17_urls_of_version_2_are_refused() {
    let (gateway, credentials) = with_an_object();
    let s3cmd: S3cmd = client(&gateway, &credentials);
    let signed = s3cmd.run(&["signurl", &format!("s3://reports/{NAME}"), "+60"]).expect_ok("signurl");
    assert!(signed.contains("AWSAccessKeyId=") && signed.contains("Signature="), "{signed}");
    let get = presigned_as("s3", &gateway, &credentials, "get_object", NAME, "60");
    let put = presigned_as("s3", &gateway, &credentials, "put_object", "out/put", "60");
    for (method, url, body) in [("GET", &signed, &b""[..]), ("GET", &get, b""), ("PUT", &put, b"x")] {
        let refused = fetch(method, url, body);
        assert_eq!((refused.status, code(&refused).as_str()), (400, "InvalidRequest"), "{}", refused.text());
        assert!(refused.text().contains("Sign with version 4"), "{}", refused.text());
    }
    assert_eq!(gateway.files().len(), 1);
}

#[test]
fn object_store_signs_get_and_put() {
    let (gateway, credentials) = with_an_object();
    let store: ObjectStore = client(&gateway, &credentials);
    let bucket = store.bucket("reports");
    let sign = |method: Method, key: &str| {
        let (key, minute) = (Path::parse(key).unwrap(), Duration::from_secs(60));
        store.runtime().block_on(bucket.signed_url(method, &key, minute)).unwrap().to_string()
    };
    assert_reads(&sign(Method::GET, NAME));
    let answer = fetch("PUT", &sign(Method::PUT, "new"), b"by a signed URL");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.files()["reports/new"], b"by a signed URL");
}

/// The URL is fenced like its credentials: its user writes as their holder, and no longer than the holder can.
#[test]
fn a_presigned_put_ends_with_the_lease() {
    let (gateway, credentials) = with_an_object();
    let url = presigned(&gateway, &credentials, "put_object", "out/put", "600");
    let answer = fetch("PUT", &url, b"of 33");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(gateway.files()["reports/out/put"], b"of 33");
    gateway.credentials("reports", "34");
    let refused = fetch("PUT", &url, b"late");
    assert_eq!((refused.status, code(&refused).as_str()), (403, "StaleFencingToken"), "{}", refused.text());
    assert_eq!(refused.header("fence"), Some("34"));
    assert_eq!(refused.header("content-type"), Some("application/xml"));
    assert_eq!(gateway.files()["reports/out/put"], b"of 33");
    // A URL of the same holder that only reads keeps working.
    assert_reads(&presigned(&gateway, &credentials, "get_object", NAME, "600"));
}

#[test]
fn a_url_is_good_for_its_own_request_only() {
    let (gateway, credentials) = with_an_object();
    let get = presigned(&gateway, &credentials, "get_object", NAME, "600");
    let put = presigned(&gateway, &credentials, "put_object", "put", "600");
    let longer = put.replacen("Expires=", "Expires=1", 1);
    for (what, answer) in [
        ("another verb", fetch("PUT", &get, b"x")),
        ("another verb", fetch("DELETE", &get, b"")),
        ("another key", fetch("PUT", &put.replacen("/put?", "/other?", 1), b"x")),
        ("more time", fetch("PUT", &longer, b"x")),
    ] {
        let found = (answer.status, code(&answer));
        assert_eq!(found, (403, "SignatureDoesNotMatch".to_owned()), "{what}: {}", answer.text());
    }
    assert_eq!(gateway.files().len(), 1);
}

#[test]
fn a_url_expires() {
    let (gateway, credentials) = with_an_object();
    let url = presigned(&gateway, &credentials, "get_object", NAME, "1");
    let answer = wait::until("the URL to expire", PATIENCE, || {
        let answer = fetch("GET", &url, b"");
        (answer.status != 200).then_some(answer)
    });
    assert_eq!((answer.status, code(&answer).as_str()), (403, "AccessDenied"), "{}", answer.text());
}

/// There is no anonymous access: neither reading, nor writing, nor listing buckets.
#[test]
fn without_a_signature_nothing_is_answered() {
    let (gateway, _) = with_an_object();
    let address: SocketAddr = gateway.s3();
    let object = format!("http://{address}/reports/a");
    for (method, url) in [
        ("GET", object.as_str()),
        ("HEAD", &object),
        ("PUT", &object),
        ("DELETE", &object),
        ("GET", &format!("http://{address}/reports")),
        ("GET", &format!("http://{address}/")),
        ("POST", &format!("http://{address}/reports?delete")),
        ("POST", &format!("{object}?uploads")),
    ] {
        let answer = fetch(method, url, b"");
        assert_eq!(answer.status, 403, "{method} {url}: {}", answer.text());
        if method != "HEAD" {
            assert_eq!(code(&answer), "AccessDenied", "{method} {url}: {}", answer.text());
        }
    }
    assert_eq!(gateway.files().len(), 1);
}
