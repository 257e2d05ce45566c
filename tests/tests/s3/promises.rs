//! What a sender announces about its body is checked before anything is committed.

use data_encoding::{BASE64, HEXLOWER};
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Answer;
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::digests::{crc32_of, crc32c_of};
use crate::parsing::code;
use crate::signing::Signer;
use crate::world::{agreed, until_nothing_is_staged};

const BODY: &[u8] = b"what was meant";

/// SHA-1 in the form of `x-amz-checksum-sha1`: of `BODY`, and of other bytes.
const SHA1: [&str; 2] = ["4MEYN1I2EdaHc+5LphKOx7ZShAs=", "Y3gowDquOK9jnMchIA8lhIZOh5c="];

/// A body in chunks with a trailer, as clients send it over TLS.
fn with_trailer(signer: &Signer, target: &str, announced: &str, trailer: &str, decoded: usize) -> Answer {
    let body = format!("{:x}\r\n{}\r\n0\r\n{trailer}\r\n", BODY.len(), String::from_utf8_lossy(BODY));
    let decoded = decoded.to_string();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-decoded-content-length", decoded.as_str()),
        ("x-amz-trailer", announced),
    ];
    signer.request("PUT", target, &headers, body.as_bytes())
}

#[test]
fn promises_that_are_kept() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let md5 = BASE64.encode(&Md5::digest(BODY));
    let sha256 = BASE64.encode(&Sha256::digest(BODY));
    let crc32 = crc32_of(BODY);
    assert_eq!(crc32_of(b"123456789"), BASE64.encode(&0xcbf4_3926_u32.to_be_bytes()));
    assert_eq!(crc32c_of(b"123456789"), BASE64.encode(&0xe306_9283_u32.to_be_bytes()));
    let headers: [&[(&str, &str)]; 6] = [
        &[("content-md5", &md5)],
        &[("x-amz-checksum-crc32", &crc32)],
        &[("x-amz-checksum-crc32c", &crc32c_of(BODY))],
        &[("x-amz-checksum-sha1", SHA1[0])],
        &[("x-amz-checksum-sha256", &sha256)],
        &[("x-amz-content-sha256", &HEXLOWER.encode(&Sha256::digest(BODY)))],
    ];
    for (at, headers) in headers.iter().enumerate() {
        let answer = signer.request("PUT", &format!("/reports/{at}"), headers, BODY);
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
        let (name, value) = headers[0];
        if name.starts_with("x-amz-checksum-") {
            let head = signer.request("HEAD", &format!("/reports/{at}"), &[("x-amz-checksum-mode", "ENABLED")], b"");
            assert_eq!((answer.header(name), head.header(name)), (Some(value), Some(value)), "{answer:?} {head:?}");
        }
    }
    let trailer = format!("x-amz-checksum-crc32:{crc32}\r\n");
    let answer = with_trailer(&signer, "/reports/trailer", "x-amz-checksum-crc32", &trailer, BODY.len());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let head = signer.request("HEAD", "/reports/trailer", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert_eq!(head.header("x-amz-checksum-crc32"), Some(crc32.as_str()), "{head:?}");
    assert_eq!(head.header("content-encoding"), None, "how it was sent is no property of it: {head:?}");
    assert!(agreed(&signer, "reports").values().all(|bytes| bytes == BODY));
}

#[test]
fn promises_that_are_broken_change_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let upload = signer.begin_upload("reports/x");
    let before = (agreed(&signer, "reports"), gateway.files());
    let part = format!("/reports/x?partNumber=1&uploadId={upload}");
    let other = b"something else";
    let md5 = BASE64.encode(&Md5::digest(other));
    let (crc32, sha256) = (crc32_of(other), BASE64.encode(&Sha256::digest(other)));
    let hex = HEXLOWER.encode(&Sha256::digest(other));
    let crc32_trailer = format!("x-amz-checksum-crc32:{crc32}\r\n");
    let right = format!("x-amz-checksum-crc32:{}\r\n", crc32_of(BODY));
    for target in ["/reports/x", "/reports/new", &part] {
        let headers: [&[(&str, &str)]; 10] = [
            &[("content-md5", &md5)],
            &[("content-md5", "no base64 at all")],
            &[("x-amz-checksum-crc32", &crc32)],
            &[("x-amz-checksum-crc32", "AAAA")],
            &[("x-amz-checksum-crc32c", &crc32c_of(other))],
            &[("x-amz-checksum-sha1", SHA1[1])],
            &[("x-amz-checksum-sha256", &sha256)],
            &[("x-amz-content-sha256", &hex)],
            &[("x-amz-checksum-crc32", &crc32_of(BODY)), ("content-md5", &md5)],
            &[("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")],
        ];
        for headers in headers {
            let answer = signer.request("PUT", target, headers, BODY);
            assert_eq!(answer.status, 400, "{target} {headers:?}: {answer:?} {}", answer.text());
            if headers[0].0 == "x-amz-content-sha256" {
                assert_eq!(code(&answer), "BadDigest");
                assert!(answer.text().contains("x-amz-content-sha256 is not the SHA-256 of the body"));
            }
        }
        let trailers = [
            ("x-amz-checksum-crc32", crc32_trailer.as_str(), BODY.len(), "another checksum"),
            ("x-amz-checksum-crc32", "", BODY.len(), "none came"),
            ("x-amz-checksum-sha256", &right, BODY.len(), "another one came"),
            ("x-amz-checksum-crc32", &right, BODY.len() + 1, "shorter than it said"),
            ("x-amz-checksum-crc32", &right, BODY.len() - 1, "longer than it said"),
            ("x-amz-meta-x", &right, BODY.len(), "not a checksum"),
        ];
        for (announced, trailer, decoded, why) in trailers {
            let answer = with_trailer(&signer, target, announced, trailer, decoded);
            assert_eq!(answer.status, 400, "{target}, {why}: {answer:?} {}", answer.text());
            assert!(!code(&answer).is_empty());
        }
        assert_eq!((agreed(&signer, "reports"), gateway.files()), before, "{target}");
        until_nothing_is_staged(&gateway.objects());
    }
    let parts = signer.request("GET", &format!("/reports/x?uploadId={upload}"), &[], b"").text();
    assert!(!parts.contains("<Part>"), "{parts}");
}

/// A list of names is a body too: if it was changed on the way, other objects would be removed.
#[test]
fn a_deletion_with_another_checksum_removes_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for name in ["reports/a", "reports/b"] {
        assert_eq!(signer.put(name, b"x").status, 200);
    }
    let before = (agreed(&signer, "reports"), gateway.files());
    let (body, meant) = (Signer::deletion(&["a", "b"]), Signer::deletion(&["c"]));
    let sums = |text: &str| {
        [
            ("content-md5", BASE64.encode(&Md5::digest(text))),
            ("x-amz-checksum-crc32", crc32_of(text.as_bytes())),
            ("x-amz-checksum-crc32c", crc32c_of(text.as_bytes())),
            ("x-amz-checksum-sha256", BASE64.encode(&Sha256::digest(text))),
        ]
    };
    for (name, sum) in sums(&meant) {
        let answer = signer.request("POST", "/reports?delete=", &[(name, &sum)], body.as_bytes());
        assert_eq!((answer.status, code(&answer).as_str()), (400, "BadDigest"), "{name}: {}", answer.text());
        assert_eq!((agreed(&signer, "reports"), gateway.files()), before, "{name}");
    }
    for (name, sum) in sums(&body) {
        let answer = signer.request("POST", "/reports?delete=", &[(name, &sum)], body.as_bytes());
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert!(gateway.files().is_empty(), "{name}");
        assert_eq!(signer.put("reports/a", b"x").status, 200);
    }
}

/// A checksum that was not computed cannot be compared, so it is not trusted.
#[test]
fn a_completion_with_a_checksum_that_its_part_has_not_changes_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let upload = signer.begin_upload("reports/x");
    let target = format!("/reports/x?uploadId={upload}");
    let etag = crate::parsing::etag(&signer.put_part("reports/x", &upload, 1, BODY));
    let sha256 = BASE64.encode(&Sha256::digest(BODY));
    let complete = |sum: &str| {
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag>{sum}</Part>");
        let body = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
        signer.request("POST", &target, &[], body.as_bytes())
    };
    let right = format!("<ChecksumSHA256>{sha256}</ChecksumSHA256>");
    for (when, sum) in [
        ("not measured", right.clone()),
        ("not measured", format!("<ChecksumCRC32>{}</ChecksumCRC32>", crc32_of(BODY))),
        ("another one", format!("<ChecksumSHA256>{}</ChecksumSHA256>", BASE64.encode(&Sha256::digest("other")))),
    ] {
        let answer = complete(&sum);
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidPart"), "{when}: {}", answer.text());
        assert_eq!(agreed(&signer, "reports")["x"], b"before", "{when}");
    }
    // Once the part is sent again with its checksum, the checksum is known.
    let part = format!("/reports/x?partNumber=1&uploadId={upload}");
    assert_eq!(signer.request("PUT", &part, &[("x-amz-checksum-sha256", &sha256)], BODY).status, 200);
    assert_eq!(complete(&format!("<ChecksumCRC32>{}</ChecksumCRC32>", crc32_of(BODY))).status, 400);
    // The whole may also be announced by the checksum of its parts' checksums.
    let whole = |sum: &[u8]| {
        let composite = format!("{}-1", BASE64.encode(&Sha256::digest(sum)));
        let body = Signer::completion(std::slice::from_ref(&etag));
        signer.request("POST", &target, &[("x-amz-checksum-sha256", &composite)], body.as_bytes())
    };
    let answer = whole(b"other");
    assert_eq!((answer.status, code(&answer).as_str()), (400, "BadDigest"), "{}", answer.text());
    assert_eq!(agreed(&signer, "reports")["x"], b"before");
    let answer = whole(&Sha256::digest(BODY));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = complete(&right);
    assert_eq!(answer.status, 200, "a retry: {}", answer.text());
    assert_eq!(agreed(&signer, "reports")["x"], BODY);
    until_nothing_is_staged(&gateway.objects());
}

/// A completion names parts by their ETags; other parts are not accepted.
#[test]
fn a_completion_of_other_parts_changes_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let upload = signer.begin_upload("reports/x");
    let small = crate::parsing::etag(&signer.put_part("reports/x", &upload, 1, b"small"));
    let last = crate::parsing::etag(&signer.put_part("reports/x", &upload, 2, b"last"));
    let before = (agreed(&signer, "reports"), gateway.files());
    let wrong = "0".repeat(32);
    for (etags, wanted) in [
        (vec![wrong.clone()], "InvalidPart"),
        (vec![small.clone(), wrong], "InvalidPart"),
        (vec![small.clone(), last.clone()], "EntityTooSmall"),
        (vec![small.clone(), last, small.clone()], "InvalidPart"),
    ] {
        let answer = signer.complete("reports/x", &upload, &etags);
        assert_eq!((answer.status, code(&answer).as_str()), (400, wanted), "{}", answer.text());
    }
    for body in ["", "<CompleteMultipartUpload></CompleteMultipartUpload>", "<Complete", "{}"] {
        let answer = signer.request("POST", &format!("/reports/x?uploadId={upload}"), &[], body.as_bytes());
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    assert_eq!(signer.complete("reports/x", &upload, &[small]).status, 200);
    assert_eq!(agreed(&signer, "reports")["x"], b"small");
    until_nothing_is_staged(&gateway.objects());
}
