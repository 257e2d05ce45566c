//! Conditional reads, ranges, and response header overrides.

use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::{Answer, Client};

use crate::parsing::{code, etag};
use crate::signing::Signer;

const LONG_AGO: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
const BODY: &[u8] = b"0123456789";

/// A gateway with an object, its ETag in quotes, and when it was written.
fn with_an_object() -> (Bucketed, Signer, String, String) {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", BODY).status, 200);
    let answer = signer.get("reports/x");
    let written = answer.header("last-modified").unwrap().to_owned();
    (gateway, signer, format!("\"{}\"", etag(&answer)), written)
}

/// In the order of RFC 9110: with a condition on the ETag, the one on the time is ignored.
#[test]
fn conditions_of_get_and_head() {
    let (_gateway, signer, own, written) = with_an_object();
    let other = "\"00000000000000000000000000000000\"";
    let cases: [(&[(&str, &str)], u16); 16] = [
        (&[("if-match", &own)], 200),
        (&[("if-match", "*")], 200),
        (&[("if-match", other)], 412),
        (&[("if-none-match", &own)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", other)], 200),
        (&[("if-modified-since", &written)], 304),
        (&[("if-modified-since", LONG_AGO)], 200),
        (&[("if-unmodified-since", &written)], 200),
        (&[("if-unmodified-since", LONG_AGO)], 412),
        (&[("if-match", &own), ("if-unmodified-since", LONG_AGO)], 200),
        (&[("if-match", other), ("if-unmodified-since", &written)], 412),
        (&[("if-none-match", &own), ("if-modified-since", LONG_AGO)], 304),
        (&[("if-none-match", other), ("if-modified-since", &written)], 200),
        (&[("if-match", &own), ("if-none-match", &own)], 304),
        (&[("if-match", other), ("if-none-match", &own)], 412),
    ];
    for (headers, wanted) in cases {
        for method in ["GET", "HEAD"] {
            let answer = signer.request(method, "/reports/x", headers, b"");
            assert_eq!(answer.status, wanted, "{method} {headers:?}: {answer:?}");
            match (method, wanted) {
                ("GET", 200) => assert_eq!(answer.body, BODY, "{headers:?}"),
                ("GET", 412) => assert_eq!(code(&answer), "PreconditionFailed", "{headers:?}"),
                _ => assert!(answer.body.is_empty(), "{method} {headers:?}: {}", answer.text()),
            }
        }
    }
    // No condition makes a missing object exist.
    for headers in [("if-match", other), ("if-none-match", "*"), ("if-modified-since", LONG_AGO)] {
        assert_eq!(code(&signer.request("GET", "/reports/none", &[headers], b"")), "NoSuchKey", "{headers:?}");
    }
}

/// An answer without a body is followed directly by the next one, and includes the ETag (RFC 9110, 15.4.5).
#[test]
fn not_modified_is_a_head_and_nothing_else() {
    let (gateway, signer, own, written) = with_an_object();
    let mut client = Client::connect(&gateway.s3().to_string());
    let mut ask = |method: &str, headers: &[(&str, &str)]| -> Answer {
        client.send(signer.head(method, "/reports/x", headers).as_bytes()).unwrap();
        client.receive_after(method).unwrap()
    };
    for method in ["GET", "HEAD"] {
        let answer = ask(method, &[("if-none-match", &own)]);
        assert_eq!((answer.status, answer.header("etag")), (304, Some(own.as_str())), "{method}: {answer:?}");
        assert_eq!(answer.header("last-modified"), Some(written.as_str()), "{method}: {answer:?}");
        assert_eq!(answer.header("content-type"), None, "there is nothing to have one: {method}: {answer:?}");
        assert_eq!(ask("GET", &[]).body, BODY, "on the same connection");
    }
}

#[test]
fn ranges_are_answered_in_part() {
    let (_gateway, signer, own, _) = with_an_object();
    let ask = |method: &str, headers: &[(&str, &str)]| signer.request(method, "/reports/x", headers, b"");
    for (range, told, bytes) in [
        ("bytes=0-0", "bytes 0-0/10", &b"0"[..]),
        ("bytes=2-4", "bytes 2-4/10", b"234"),
        ("bytes=7-", "bytes 7-9/10", b"789"),
        ("bytes=-3", "bytes 7-9/10", b"789"),
        ("bytes=8-100", "bytes 8-9/10", b"89"),
        ("bytes=-100", "bytes 0-9/10", BODY),
        ("bytes=0-9", "bytes 0-9/10", BODY),
    ] {
        let length = bytes.len().to_string();
        for method in ["GET", "HEAD"] {
            let answer = ask(method, &[("range", range)]);
            assert_eq!((answer.status, answer.header("content-range")), (206, Some(told)), "{method} {range}");
            assert_eq!(answer.header("content-length"), Some(length.as_str()), "{method} {range}");
            assert_eq!(answer.header("etag"), Some(own.as_str()), "of the whole: {method} {range}");
            assert_eq!(answer.body, if method == "GET" { bytes } else { b"" }, "{method} {range}");
        }
    }
    for range in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
        let answer = ask("GET", &[("range", range)]);
        assert_eq!((answer.status, code(&answer).as_str()), (416, "InvalidRange"), "{range}: {}", answer.text());
    }
    assert_eq!(ask("GET", &[("range", "bytes=2-4"), ("if-match", "\"0\"")]).status, 412);
    assert_eq!(ask("GET", &[("range", "bytes=2-4"), ("if-none-match", &own)]).status, 304);
}

/// For links whose content is saved under another name.
#[test]
fn a_reader_may_ask_for_other_headers() {
    let (_gateway, signer, ..) = with_an_object();
    let query = "response-cache-control=no-store&response-content-disposition=attachment%3B%20filename%3Dy.csv&\
                 response-content-encoding=x&response-content-language=de&response-content-type=text%2Fcsv";
    let answer = signer.request("GET", &format!("/reports/x?{query}"), &[], b"");
    assert_eq!((answer.status, answer.body.as_slice()), (200, BODY), "{}", answer.text());
    for (name, value) in [
        ("cache-control", "no-store"),
        ("content-disposition", "attachment; filename=y.csv"),
        ("content-encoding", "x"),
        ("content-language", "de"),
        ("content-type", "text/csv"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{answer:?}");
    }
    let plain = signer.get("reports/x");
    assert_eq!(plain.header("content-type"), Some("binary/octet-stream"), "for that answer alone");
}
