//! Details of answers that clients and their test suites check.

use data_encoding::BASE64;
use fencepost_harness::bucketed::Bucketed;
use md5::{Digest, Md5};

use crate::parsing::{code, element, elements};
use crate::signing::Signer;
use crate::world::World;

fn delete_with(signer: &Signer, objects: &str) -> fencepost_harness::http::Answer {
    let body = format!("<Delete>{objects}</Delete>");
    let md5 = BASE64.encode(&Md5::digest(&body));
    signer.request("POST", "/reports?delete=", &[("content-md5", &md5)], body.as_bytes())
}

#[test]
fn b04_deletes_on_a_size_or_a_time_are_refused() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/o", b"bytes").status, 200);
    for condition in
        ["<Size>99</Size>", "<Size>5</Size>", "<LastModifiedTime>Mon, 01 Jan 2001 00:00:00 GMT</LastModifiedTime>"]
    {
        let answer = delete_with(&signer, &format!("<Object><Key>o</Key>{condition}</Object>"));
        assert_eq!((answer.status, code(&answer).as_str()), (501, "NotImplemented"), "{condition}: {}", answer.text());
    }
    assert_eq!(signer.get("reports/o").body, b"bytes");
}

#[test]
fn b05_a_part_is_not_copied_from_past_the_end() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/source", b"bytes").status, 200);
    let upload = signer.begin_upload("reports/x");
    let target = format!("/reports/x?partNumber=1&uploadId={upload}");
    let copy = |range: &str| {
        let headers = [("x-amz-copy-source", "/reports/source"), ("x-amz-copy-source-range", range)];
        signer.request("PUT", &target, &headers, b"")
    };
    for range in ["bytes=0-21", "bytes=0-5", "bytes=5-5", "bytes=2-", "bytes=-2", "bytes=+0-1", "bytes=0-1,3-4"] {
        let answer = copy(range);
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidArgument"), "{range}: {}", answer.text());
    }
    assert_eq!(copy("bytes=0-4").status, 200);
}

#[test]
fn b_small_errors_name_their_request() {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    let mut ids = Vec::new();
    let mut fail = |signer: &Signer| {
        let answer = signer.get("reports/none%20&here");
        let text = answer.text();
        let id = element(&text, "RequestId");
        assert_eq!(id.as_deref(), answer.header("x-amz-request-id"), "{text}");
        assert_eq!(element(&text, "Resource").as_deref(), Some("/reports/none%20&amp;here"), "{text}");
        ids.push(id.unwrap());
    };
    fail(&signer);
    fail(&signer);
    running.gateway.kill();
    let running = world.start();
    fail(&running.again(&signer));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each request has an id of its own, also after a restart: {ids:?}");
}

#[test]
fn b_small_lists_name_owners_and_echo_what_was_asked() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/a%20b", b"x").status, 200);
    let list = |query: &str| signer.request("GET", &format!("/reports?{query}"), &[], b"").text();
    assert!(
        list("").contains("<Owner><DisplayName>fencepost</DisplayName>") || list("").contains("<ID>fencepost</ID>")
    );
    assert!(!list("list-type=2").contains("<Owner>"));
    assert!(list("fetch-owner=true&list-type=2").contains("<Owner>"));
    for query in ["delimiter=", "delimiter=&list-type=2"] {
        assert!(!list(query).contains("Delimiter"), "{query}");
    }
    let encoded = list("encoding-type=url&prefix=a%20");
    assert_eq!(element(&encoded, "Prefix").as_deref(), Some("a "), "{encoded}");
    assert_eq!(element(&encoded, "Key").as_deref(), Some("a%20b"), "{encoded}");
    assert_eq!(element(&list("encoding-type=url&list-type=2&prefix=a%20"), "Prefix").as_deref(), Some("a%20"));
}

#[test]
fn b_small_buckets_are_listed_in_pages() {
    let gateway = Bucketed::start();
    let reader = Signer::reader(&gateway);
    let list = |query: &str| reader.request("GET", &format!("/?{query}"), &[], b"").text();
    let first = list("max-buckets=3");
    assert_eq!(elements(&first, "Name"), ["free", "reports", "shared"], "{first}");
    let token = element(&first, "ContinuationToken").unwrap();
    let second = list(&format!("continuation-token={token}&max-buckets=3"));
    assert_eq!((elements(&second, "Name"), element(&second, "ContinuationToken")), (vec!["watched"], None), "{second}");
    assert_eq!(elements(&list("prefix=re"), "Name"), ["reports"]);
    assert_eq!(elements(&list(""), "Name").len(), 4);
    assert_eq!(reader.request("GET", "/?max-buckets=0", &[], b"").status, 400);
}

#[test]
fn b_small_what_a_request_expects_is_looked_at() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let signer = Signer::holder(&gateway, "reports", "33");
    let put = |headers: &[(&str, &str)]| signer.request("PUT", "/reports/x", headers, b"x");
    for (header, value, wanted) in [
        ("content-md5", "", (400, "InvalidDigest")),
        ("content-md5", "no base64", (400, "InvalidDigest")),
        ("content-md5", "AAAA", (400, "InvalidDigest")),
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==", (400, "BadDigest")),
        ("x-amz-expected-bucket-owner", "111122223333", (403, "AccessDenied")),
        ("x-amz-storage-class", "GLACIER", (400, "InvalidStorageClass")),
        ("x-amz-storage-class", "nonsense", (400, "InvalidStorageClass")),
    ] {
        let answer = put(&[(header, value)]);
        assert_eq!((answer.status, code(&answer).as_str()), wanted, "{header}: {value}: {}", answer.text());
    }
    assert_eq!(signer.get("reports/x").status, 404);
    for (header, value) in [("x-amz-expected-bucket-owner", "fencepost"), ("x-amz-storage-class", "STANDARD")] {
        assert_eq!(put(&[(header, value)]).status, 200, "{header}: {value}");
    }
    let wrong = signer.request("GET", "/reports/x", &[("x-amz-expected-bucket-owner", "111122223333")], b"");
    assert_eq!((wrong.status, code(&wrong).as_str()), (403, "AccessDenied"), "{}", wrong.text());
    assert_eq!(put(&[("content-encoding", "deflate, gzip")]).status, 200);
    assert_eq!(signer.get("reports/x").header("content-encoding"), Some("deflate, gzip"));
    for name in ["foo.-bar", "foo-.bar"] {
        let maker = Signer::holder(&gateway, name, "33");
        let answer = maker.request("PUT", &format!("/{name}"), &[], b"");
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidBucketName"), "{name}: {}", answer.text());
    }
}

#[test]
fn b_recreating_a_bucket_is_done_unless_another_region_is_named() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let signer = Signer::holder(&gateway, "reports", "33");
    let of = |region: &str| {
        format!(
            "<CreateBucketConfiguration><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
        )
    };
    for body in [String::new(), of("us-east-1")] {
        let made = signer.request("PUT", "/reports", &[], body.as_bytes());
        assert_eq!((made.status, made.header("location")), (200, Some("/reports")), "{}", made.text());
    }
    let other = signer.request("PUT", "/reports", &[], of("eu-west-1").as_bytes());
    assert_eq!((other.status, code(&other).as_str()), (409, "BucketAlreadyOwnedByYou"), "{}", other.text());
    Signer::holder(&gateway, "reports", "34");
    crate::takeovers::assert_stale(&signer.request("PUT", "/reports", &[], b""));
}

#[test]
fn b_versions_are_listed_as_null() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for name in ["a", "b", "d/e"] {
        assert_eq!(signer.put(&format!("reports/{name}"), b"x").status, 200);
    }
    let list = |query: &str| signer.request("GET", &format!("/reports?{query}versions="), &[], b"").text();
    let all = list("");
    assert_eq!(elements(&all, "Key"), ["a", "b", "d/e"], "{all}");
    assert_eq!(elements(&all, "VersionId"), ["null"; 3], "{all}");
    assert_eq!(elements(&all, "IsLatest"), ["true"; 3], "{all}");
    let first = list("max-keys=1&");
    assert_eq!(element(&first, "NextKeyMarker").as_deref(), Some("a"), "{first}");
    let rest = list("delimiter=%2F&key-marker=a&version-id-marker=null&");
    assert_eq!((elements(&rest, "Key"), elements(&rest, "CommonPrefixes").len()), (vec!["b"], 1), "{rest}");
    let version = "<Object><Key>a</Key><VersionId>null</VersionId></Object>";
    assert_eq!(delete_with(&signer, version).status, 200, "as clean-up scripts do it");
    assert_eq!(elements(&list(""), "Key"), ["b", "d/e"]);
}

#[test]
fn b_settings_that_are_not_set_are_404() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for (query, wanted) in [
        ("cors=", "NoSuchCORSConfiguration"),
        ("encryption=", "ServerSideEncryptionConfigurationNotFoundError"),
        ("lifecycle=", "NoSuchLifecycleConfiguration"),
        ("object-lock=", "ObjectLockConfigurationNotFoundError"),
        ("ownershipControls=", "OwnershipControlsNotFoundError"),
        ("policy=", "NoSuchBucketPolicy"),
        ("policyStatus=", "NoSuchBucketPolicy"),
        ("publicAccessBlock=", "NoSuchPublicAccessBlockConfiguration"),
        ("replication=", "ReplicationConfigurationNotFoundError"),
        ("tagging=", "NoSuchTagSet"),
        ("website=", "NoSuchWebsiteConfiguration"),
    ] {
        let answer = signer.request("GET", &format!("/reports?{query}"), &[], b"");
        assert_eq!((answer.status, code(&answer).as_str()), (404, wanted), "{query}: {}", answer.text());
        let none = signer.request("GET", &format!("/nosuchbucket?{query}"), &[], b"");
        assert_eq!((none.status, code(&none).as_str()), (404, "NoSuchBucket"), "{query}: {}", none.text());
    }
    for query in ["accelerate=", "logging=", "notification=", "requestPayment="] {
        let answer = signer.request("GET", &format!("/reports?{query}"), &[], b"");
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    }
}
