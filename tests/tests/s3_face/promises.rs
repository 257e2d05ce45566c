//! What a sender says of its body is checked before anything is committed.

use data_encoding::{BASE64, HEXLOWER};
use fencepost_conformance::harness::bucketed::Bucketed;
use fencepost_conformance::harness::http::Answer;
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::signing::{Signer, code, crc32_of};
use crate::world::{agreed, until_nothing_is_staged};

const BODY: &[u8] = b"what was meant";

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
    let headers: [&[(&str, &str)]; 4] = [
        &[("content-md5", &md5)],
        &[("x-amz-checksum-crc32", &crc32)],
        &[("x-amz-checksum-sha256", &sha256)],
        &[("x-amz-content-sha256", &HEXLOWER.encode(&Sha256::digest(BODY)))],
    ];
    for (at, headers) in headers.iter().enumerate() {
        let answer = signer.request("PUT", &format!("/reports/{at}"), headers, BODY);
        assert_eq!(answer.status, 200, "{headers:?}: {}", answer.text());
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
        let headers: [&[(&str, &str)]; 8] = [
            &[("content-md5", &md5)],
            &[("content-md5", "no base64 at all")],
            &[("x-amz-checksum-crc32", &crc32)],
            &[("x-amz-checksum-crc32", "AAAA")],
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

/// The parts of an upload are named with their ETags; other ones are not put together.
#[test]
fn a_completion_of_other_parts_changes_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let upload = signer.begin_upload("reports/x");
    let small = crate::signing::etag(&signer.put_part("reports/x", &upload, 1, b"small"));
    let last = crate::signing::etag(&signer.put_part("reports/x", &upload, 2, b"last"));
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
