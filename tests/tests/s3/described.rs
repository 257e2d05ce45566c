//! Properties that a client gives an object besides its bytes: stored and returned, or refused. Never accepted and
//! dropped.

use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Answer;

use crate::parsing::{code, element, etag};
use crate::signing::Signer;
use crate::world::{agreed, until_nothing_is_staged};

const KEPT: [(&str, &str); 9] = [
    ("cache-control", "max-age=60, public"),
    ("content-disposition", "attachment; filename=\"a b.csv\""),
    ("content-encoding", "gzip"),
    ("content-language", "de-CH"),
    ("content-type", "text/csv; charset=utf-8"),
    ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
    ("x-amz-meta-made-by", "night shift"),
    ("x-amz-meta-number", "7"),
    ("x-amz-website-redirect-location", "/other"),
];

/// Asserts that every answer about the object has these headers, or lacks them.
fn assert_described(signer: &Signer, name: &str, wanted: &[(&str, Option<&str>)]) {
    for method in ["GET", "HEAD"] {
        let answer = signer.request(method, &format!("/{name}"), &[], b"");
        assert_eq!(answer.status, 200, "{method} {name}");
        for (header, value) in wanted {
            assert_eq!(answer.header(header), *value, "{method} {name}: {header} in {answer:?}");
        }
    }
}

#[test]
fn headers_are_kept_through_every_way_to_write() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let kept = KEPT.map(|(name, value)| (name, Some(value)));
    let put = signer.request("PUT", "/reports/put", &KEPT, b"put");
    assert_eq!(put.status, 200, "{}", put.text());
    assert_described(&signer, "reports/put", &kept);

    let begun = signer.request("POST", "/reports/joined?uploads=", &KEPT, b"");
    let upload = element(&begun.text(), "UploadId").unwrap_or_else(|| panic!("{}", begun.text()));
    let part = etag(&signer.put_part("reports/joined", &upload, 1, b"part"));
    assert_eq!(signer.complete("reports/joined", &upload, &[part]).status, 200);
    assert_described(&signer, "reports/joined", &kept);

    // A copy keeps the properties, unless it gives its own; then none of the old ones remains.
    let source = ("x-amz-copy-source", "/reports/put");
    assert_eq!(signer.request("PUT", "/reports/copy", &[source], b"").status, 200);
    assert_described(&signer, "reports/copy", &kept);
    let replace = [source, ("x-amz-metadata-directive", "REPLACE"), ("content-type", "text/x"), ("x-amz-meta-b", "c")];
    let own = KEPT.map(|(name, _)| match name {
        "content-type" => (name, Some("text/x")),
        _ => (name, None),
    });
    for target in ["/reports/replaced", "/reports/put"] {
        assert_eq!(signer.request("PUT", target, &replace, b"").status, 200, "{target}");
        assert_described(&signer, &target[1..], &[&own[..], &[("x-amz-meta-b", Some("c"))]].concat());
        assert_eq!(signer.get(&target[1..]).body, b"put", "{target}");
    }
    // A new write has only the properties that it gives.
    assert_eq!(signer.put("reports/copy", b"anew").status, 200);
    let nothing = KEPT.map(|(name, _)| match name {
        "content-type" => (name, Some("binary/octet-stream")),
        _ => (name, None),
    });
    assert_described(&signer, "reports/copy", &nothing);
}

/// The same three ways to write.
fn ways(signer: &Signer, headers: &[(&str, &str)]) -> [(&'static str, Answer); 3] {
    let copy = [("x-amz-copy-source", "/reports/there"), ("x-amz-metadata-directive", "REPLACE")];
    [
        ("PutObject", signer.request("PUT", "/reports/x", headers, b"other")),
        ("CopyObject", signer.request("PUT", "/reports/x", &[&copy, headers].concat(), b"")),
        ("CreateMultipartUpload", signer.request("POST", "/reports/x?uploads=", headers, b"")),
    ]
}

#[test]
fn metadata_has_a_limit() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/there", b"there").status, 200);
    // The common prefix of the names does not count.
    let most = "m".repeat(2048 - "name".len() - "b2".len());
    for (call, answer) in ways(&signer, &[("x-amz-meta-b", "2"), ("x-amz-meta-name", &most)]) {
        assert_eq!(answer.status, 200, "{call}: {}", answer.text());
    }
    let state = || (agreed(&signer, "reports"), gateway.files());
    let before = state();
    for (call, answer) in ways(&signer, &[("x-amz-meta-b", "22"), ("x-amz-meta-name", &most)]) {
        let found = (answer.status, code(&answer));
        assert_eq!(found, (400, "MetadataTooLarge".to_owned()), "{call}: {}", answer.text());
        assert!(answer.text().contains("2049") && answer.text().contains("2048"), "{call}: {}", answer.text());
    }
    assert_eq!(state(), before);
    until_nothing_is_staged(&gateway.objects());
}

/// Accepting a property and ignoring it would be worse than refusing it.
#[test]
fn what_is_not_kept_is_refused() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/there", b"there").status, 200);
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let before = (agreed(&signer, "reports"), gateway.files());
    let key = data_encoding::BASE64.encode(&[7; 32]);
    let asked: [(&[(&str, &str)], &str); 12] = [
        (&[("x-amz-acl", "public-read")], "public-read"),
        (&[("x-amz-acl", "authenticated-read")], "authenticated-read"),
        (&[("x-amz-grant-read", "uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"")], "Granting rights"),
        (&[("x-amz-grant-full-control", "id=\"somebody\"")], "Granting rights"),
        (&[("x-amz-server-side-encryption", "AES256")], "Encryption by the server"),
        (&[("x-amz-server-side-encryption", "aws:kms")], "Encryption by the server"),
        (&[("x-amz-server-side-encryption-aws-kms-key-id", "key")], "Encryption by the server"),
        (
            &[
                ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
                ("x-amz-server-side-encryption-customer-key", &key),
            ],
            "Encryption by the server",
        ),
        (&[("x-amz-tagging", "a=b")], "Tagging"),
        (&[("x-amz-object-lock-mode", "GOVERNANCE")], "Object Lock"),
        (&[("x-amz-object-lock-legal-hold", "ON")], "Object Lock"),
        (&[("x-amz-object-lock-retain-until-date", "2033-12-01T16:00:00Z")], "Object Lock"),
    ];
    for (headers, words) in asked {
        for (call, answer) in ways(&signer, headers) {
            let found = (answer.status, code(&answer));
            assert_eq!(found, (501, "NotImplemented".to_owned()), "{call} {headers:?}: {}", answer.text());
            assert!(answer.text().contains(words), "{call} {headers:?}: {}", answer.text());
        }
    }
    let append = signer.request("PUT", "/reports/x", &[("x-amz-write-offset-bytes", "6")], b"more");
    assert_eq!((append.status, code(&append).as_str()), (501, "NotImplemented"), "{}", append.text());
    for (method, query) in [("GET", "versionId=7"), ("HEAD", "versionId=7"), ("DELETE", "versionId=7")] {
        let answer = signer.request(method, &format!("/reports/x?{query}"), &[], b"");
        assert_eq!(answer.status, 501, "{method} {query}: {}", answer.text());
    }
    let version = [("x-amz-copy-source", "/reports/there?versionId=7")];
    assert_eq!(code(&signer.request("PUT", "/reports/x", &version, b"")), "NotImplemented");
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    assert!(!signer.request("GET", "/reports?uploads=", &[], b"").text().contains("<Upload>"));
    until_nothing_is_staged(&gateway.objects());
    // A request for the behaviour that applies anyway is accepted.
    for acl in ["private", "bucket-owner-full-control", "bucket-owner-read"] {
        for (call, answer) in ways(&signer, &[("x-amz-acl", acl)]) {
            assert_eq!(answer.status, 200, "{call} {acl}: {}", answer.text());
        }
    }
}
