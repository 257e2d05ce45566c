//! Checksums and parts of objects: stored, returned, and used to read.

use data_encoding::BASE64;
use fencepost_harness::bucketed::Bucketed;
use sha2::{Digest, Sha256};

use crate::digests::crc32_of;
use crate::parsing::{code, element, elements, etag};
use crate::signing::Signer;

const PART: usize = 5 << 20;

fn bytes() -> Vec<u8> {
    (0..2 * PART + 777).map(|at| (at % 251) as u8 ^ (at >> 16) as u8).collect()
}

/// Uploads an object in three parts, each with a checksum. Returns the answer to its completion.
fn uploaded(
    signer: &Signer,
    begin: &[(&str, &str)],
    sum: (&str, fn(&[u8]) -> String),
) -> fencepost_harness::http::Answer {
    let whole = bytes();
    let begun = signer.request("POST", "/reports/x?uploads=", begin, b"");
    assert_eq!(begun.status, 200, "{}", begun.text());
    let upload = element(&begun.text(), "UploadId").unwrap();
    let mut etags = Vec::new();
    for (number, part) in (1..).zip(whole.chunks(PART)) {
        let target = format!("/reports/x?partNumber={number}&uploadId={upload}");
        let answer = signer.request("PUT", &target, &[(sum.0, &(sum.1)(part))], part);
        assert_eq!(answer.status, 200, "{}", answer.text());
        etags.push(etag(&answer));
    }
    signer.complete("reports/x", &upload, &etags)
}

fn sha256_of(bytes: &[u8]) -> String {
    BASE64.encode(&Sha256::digest(bytes))
}

#[test]
fn b_checksums_of_uploads_are_returned() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let enabled = [("x-amz-checksum-mode", "ENABLED")];
    // The checksum of the whole object, combined from those of the parts.
    let begin = [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "FULL_OBJECT")];
    let completed = uploaded(&signer, &begin, ("x-amz-checksum-crc32", crc32_of)).text();
    let whole = crc32_of(&bytes());
    assert_eq!(element(&completed, "ChecksumCRC32").as_deref(), Some(whole.as_str()), "{completed}");
    assert_eq!(element(&completed, "ChecksumType").as_deref(), Some("FULL_OBJECT"), "{completed}");
    let head = signer.request("HEAD", "/reports/x", &enabled, b"");
    assert_eq!(head.header("x-amz-checksum-crc32"), Some(whole.as_str()), "{head:?}");
    assert_eq!(head.header("x-amz-checksum-type"), Some("FULL_OBJECT"), "{head:?}");
    assert_eq!(signer.request("HEAD", "/reports/x", &[], b"").header("x-amz-checksum-type"), None, "unless asked");
    // A copy has the checksum of its source, or the one that is requested.
    let copied = signer.request("PUT", "/reports/copy", &[("x-amz-copy-source", "/reports/x")], b"").text();
    assert_eq!(element(&copied, "ChecksumCRC32").as_deref(), Some(whole.as_str()), "{copied}");
    assert_eq!(element(&copied, "ChecksumType").as_deref(), Some("FULL_OBJECT"), "{copied}");
    let asked = [("x-amz-copy-source", "/reports/x"), ("x-amz-checksum-algorithm", "SHA256")];
    let copied = signer.request("PUT", "/reports/copy", &asked, b"").text();
    assert_eq!(element(&copied, "ChecksumSHA256"), Some(sha256_of(&bytes())), "{copied}");
    // The checksum of the parts' checksums.
    let begin = [("x-amz-checksum-algorithm", "SHA256")];
    let completed = uploaded(&signer, &begin, ("x-amz-checksum-sha256", sha256_of)).text();
    let sums: Vec<u8> = bytes().chunks(PART).flat_map(|part| Sha256::digest(part).to_vec()).collect();
    let composite = format!("{}-3", sha256_of(&sums));
    assert_eq!(element(&completed, "ChecksumSHA256").as_deref(), Some(composite.as_str()), "{completed}");
    assert_eq!(element(&completed, "ChecksumType").as_deref(), Some("COMPOSITE"), "{completed}");
    let get = signer.request("GET", "/reports/x", &enabled, b"");
    assert_eq!(get.header("x-amz-checksum-sha256"), Some(composite.as_str()));
    assert_eq!(get.header("x-amz-checksum-type"), Some("COMPOSITE"));
    // An object that was uploaded in one piece.
    let put = signer.request("PUT", "/reports/p", &[("x-amz-checksum-crc32", &crc32_of(b"p"))], b"p");
    assert_eq!(put.header("x-amz-checksum-type"), Some("FULL_OBJECT"), "{put:?}");
    for wrong in [
        [("x-amz-checksum-algorithm", "SHA1"), ("x-amz-checksum-type", "FULL_OBJECT")],
        [("x-amz-checksum-algorithm", "CRC64NVME"), ("x-amz-checksum-type", "COMPOSITE")],
    ] {
        let answer = signer.request("POST", "/reports/x?uploads=", &wrong, b"");
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidRequest"), "{}", answer.text());
    }
}

#[test]
fn b_part_number_reads_a_part() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let completed = uploaded(&signer, &[], ("x-amz-checksum-crc32", crc32_of));
    assert_eq!(completed.status, 200, "{}", completed.text());
    let whole = bytes();
    for (number, part) in (1..).zip(whole.chunks(PART)) {
        let (first, last) = (PART * (number - 1), PART * (number - 1) + part.len() - 1);
        let range = format!("bytes {first}-{last}/{}", whole.len());
        for method in ["GET", "HEAD"] {
            let answer = signer.request(method, &format!("/reports/x?partNumber={number}"), &[], b"");
            assert_eq!(answer.status, 206, "{method} {number}: {answer:?}");
            assert_eq!(answer.header("content-range"), Some(range.as_str()), "{method} {number}");
            assert_eq!(answer.header("content-length"), Some(part.len().to_string().as_str()), "{method} {number}");
            assert_eq!(answer.header("x-amz-mp-parts-count"), Some("3"), "{method} {number}");
            assert!(method == "HEAD" || answer.body == part, "part {number} has other bytes");
        }
    }
    for number in ["0", "4", "-1"] {
        let answer = signer.request("GET", &format!("/reports/x?partNumber={number}"), &[], b"");
        assert_eq!((answer.status, code(&answer).as_str()), (416, "InvalidPartNumber"), "{number}: {}", answer.text());
    }
    let both = signer.request("GET", "/reports/x?partNumber=1", &[("range", "bytes=0-1")], b"");
    assert_eq!((both.status, code(&both).as_str()), (400, "InvalidRequest"), "{}", both.text());
    // An object that was uploaded in one piece has one part.
    assert_eq!(signer.put("reports/p", b"piece").status, 200);
    let piece = signer.get("reports/p?partNumber=1");
    assert_eq!((piece.status, piece.body.as_slice()), (206, &b"piece"[..]));
    assert_eq!(piece.header("x-amz-mp-parts-count"), None);
    assert_eq!(signer.get("reports/p?partNumber=2").status, 416);
    assert_eq!(signer.put("reports/empty", b"").status, 200);
    assert_eq!(signer.get("reports/empty?partNumber=1").status, 200);
    assert_eq!(signer.request("PUT", "/reports/copy", &[("x-amz-copy-source", "/reports/x")], b"").status, 200);
    assert_eq!(signer.get("reports/copy?partNumber=2").status, 416, "a copy is one piece");
}

#[test]
fn b_object_attributes_are_returned() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let begin = [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "FULL_OBJECT")];
    let completed = uploaded(&signer, &begin, ("x-amz-checksum-crc32", crc32_of));
    assert_eq!(completed.status, 200, "{}", completed.text());
    let all = [("x-amz-object-attributes", "ETag,Checksum,ObjectParts,StorageClass,ObjectSize")];
    let answer = signer.request("GET", "/reports/x?attributes=", &all, b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    assert_eq!(element(&text, "ObjectSize"), Some(bytes().len().to_string()), "{text}");
    assert_eq!(element(&text, "ChecksumCRC32"), Some(crc32_of(&bytes())), "{text}");
    assert_eq!(element(&text, "StorageClass").as_deref(), Some("STANDARD"), "{text}");
    assert_eq!(elements(&text, "PartNumber"), ["1", "2", "3"], "{text}");
    assert!(element(&text, "ETag").is_some(), "{text}");
    let one = signer.request("GET", "/reports/x?attributes=", &[("x-amz-object-attributes", "ObjectSize")], b"").text();
    assert!(!one.contains("Checksum") && !one.contains("ETag"), "{one}");
    let none = signer.request("GET", "/reports/none?attributes=", &all, b"");
    assert_eq!((none.status, code(&none).as_str()), (404, "NoSuchKey"));
}
