//! Invalid tokens over a raw socket: 400, and nothing changes.

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};

/// A request whose token consists of exactly these bytes.
fn send(client: &mut Client, method: &str, path: &str, token: &[u8]) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nfencing-token: ").into_bytes();
    request.extend_from_slice(token);
    request.extend_from_slice(b"\r\ncontent-length: 0\r\n\r\n");
    client.send(&request).unwrap();
    client.receive_after(method).unwrap()
}

const MALFORMED: &[&str] = &[
    "",
    "-1",
    "+1",
    "-0",
    "01",
    "00",
    "007",
    "0",
    "1e3",
    "1E3",
    "0x10",
    "1.0",
    "1.",
    ".1",
    "1_000",
    "1,000",
    "34, 35",
    "34,34",
    "34;35",
    "3 4",
    "\"34\"",
    "'34'",
    "34abc",
    "abc",
    "NaN",
    "inf",
    "null",
    "true",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "340282366920938463463374607431768211456",
    ":",
    ":1",
    "1:",
    "0:34",
    "00:1",
    "01:1",
    "1:01",
    "1:0",
    "1:2:3",
    "1:-2",
    "-1:2",
    "1 :2",
    "1: 2",
    "4294967296:1",
    "٣٤",
    "３４",
    "34\u{200b}",
    "\u{feff}34",
    "²",
    "34\u{a0}",
    "%33%34",
    "[34]",
    "{\"token\":\"34\"}",
];

#[test]
fn malformed_tokens_are_400_on_every_call_and_change_nothing() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "5", "v").status, 204);
    for token in MALFORMED {
        for (method, path) in
            [("PUT", "/v1/kv/k"), ("DELETE", "/v1/kv/k"), ("POST", "/v1/claim/k"), ("GET", "/v1/kv/k")]
        {
            let answer = send(&mut client, method, path, token.as_bytes());
            assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-token"), "{method} {token:?}");
            assert!(answer.json()["advice"].as_str().unwrap().contains("unchanged"), "{}", answer.text());
        }
        assert_eq!(send(&mut client, "HEAD", "/v1/kv/k", token.as_bytes()).status, 400, "HEAD {token:?}");
    }
    let get = client.get("k");
    assert_eq!((get.text().as_str(), get.header("fence")), ("v", Some("5")));
}

#[test]
fn tokens_that_are_no_text_are_400() {
    let gateway = Fresh::memory(&[]);
    for token in [&b"\xff\xfe"[..], b"\xc0\xb3\xb4", b"34\xe2\x80", b"3\t4"] {
        let answer = send(&mut gateway.client(), "PUT", "/v1/kv/k", token);
        assert_eq!(answer.status, 400, "{token:?}: {}", answer.text());
        assert!(matches!(answer.problem().as_str(), "malformed-token" | "malformed-header"), "{token:?}");
    }
    assert_eq!(gateway.client().fence("k"), None);
}

#[test]
fn a_long_token_is_not_echoed_whole() {
    let gateway = Fresh::memory(&[]);
    let answer = send(&mut gateway.client(), "PUT", "/v1/kv/k", "9".repeat(8000).as_bytes());
    assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-token"));
    assert!(answer.body.len() < 1000, "{}", answer.body.len());
}

#[test]
fn space_around_a_header_value_is_not_part_of_it() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(send(&mut client, "PUT", "/v1/kv/k", b"  34 \t ").status, 204);
    assert_eq!(client.fence("k").as_deref(), Some("34"));
}

#[test]
fn the_first_and_the_last_token_are_tokens() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for token in ["1", "2", "9", "10", "99", "100", "4294967296", "9223372036854775808", "18446744073709551615"] {
        assert_eq!(client.put("k", token, token).header("fence"), Some(token), "compared as numbers, not as text");
    }
    assert_eq!(client.put("k", "18446744073709551615", "again").status, 204, "the last one still writes");
}
