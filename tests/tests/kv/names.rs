//! Names in every encoding: decoded exactly once, never normalised, and refused before anything happens.

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};

/// A PUT of a raw path, byte by byte; the value is the text of the path.
fn put(client: &mut Client, path: &[u8]) -> std::io::Result<Answer> {
    let mut request = b"PUT /v1/kv/".to_vec();
    request.extend_from_slice(path);
    request.extend_from_slice(b" HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\ncontent-length: 1\r\n\r\nv");
    client.send(&request)?;
    client.receive()
}

fn keys(client: &mut Client) -> Vec<String> {
    let page = client.request("GET", "/v1/kv?limit=1000", &[], b"").json();
    page["keys"].as_array().unwrap().iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn names_are_decoded_exactly_once() {
    for (raw, name) in [
        ("orders/123", "orders/123"),
        ("orders%2F123", "orders/123"),
        ("orders%2f123", "orders/123"),
        ("%6Frders/123", "orders/123"),
        ("a%252Fb", "a%2Fb"),
        ("a%2525", "a%25"),
        ("a+b", "a+b"),
        ("a%2Bb", "a+b"),
        ("a%20b", "a b"),
        ("a;b=c", "a;b=c"),
        ("a%3Fb", "a?b"),
        ("a%23b", "a#b"),
        ("a:b@c", "a:b@c"),
        ("a&b=c", "a&b=c"),
        ("%C3%A4", "ä"),
        ("%F0%9F%94%92", "🔒"),
        ("...", "..."),
        ("a/.../b", "a/.../b"),
        (".hidden", ".hidden"),
        ("a..", "a.."),
        ("a%2E", "a."),
        ("*", "*"),
        ("**", "**"),
        ("a\\b", "a\\b"),
        ("%5c..%5c", "\\..\\"),
        ("v1/kv/x", "v1/kv/x"),
        ("a%E2%80%A8b", "a\u{2028}b"),
    ] {
        let gateway = Fresh::memory(&[]);
        let mut client = gateway.client();
        let answer = put(&mut client, raw.as_bytes()).unwrap();
        assert_eq!(answer.status, 204, "{raw}: {}", answer.text());
        assert_eq!(keys(&mut client), [name], "{raw}");
        assert_eq!(client.get(raw).status, 200, "{raw}");
        let fence = client.request("GET", &format!("/v1/fences/{raw}"), &[], b"").json();
        assert_eq!((&fence["resource"], &fence["fence"]["token"]), (&name.into(), &"1".into()), "{raw}");
        assert_eq!(client.claim(raw, "2").json()["values"][0]["key"], name);
    }
}

#[test]
fn nothing_is_normalised_and_case_matters() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    // é composed and decomposed; ß; Kelvin sign and k.
    let names = ["%C3%A9", "e%CC%81", "A", "a", "K", "%E2%84%AA", "ss", "%C3%9F"];
    for name in names {
        assert_eq!(put(&mut client, name.as_bytes()).unwrap().status, 204);
    }
    assert_eq!(keys(&mut client).len(), names.len());
}

#[test]
fn names_that_break_the_rules_are_400_before_anything_happens() {
    let gateway = Fresh::memory(&[]);
    for (raw, word) in [
        ("", "empty"),
        ("/", "empty segment"),
        ("/a", "empty segment"),
        ("a/", "empty segment"),
        ("a//b", "empty segment"),
        ("%2Fa", "empty segment"),
        ("a%2F", "empty segment"),
        ("a%2F/b", "empty segment"),
        (".", "`.` segment"),
        ("..", "`..` segment"),
        ("a/./b", "`.` segment"),
        ("a/../b", "`..` segment"),
        ("../../etc/passwd", "`..` segment"),
        ("%2e", "`.` segment"),
        ("%2E%2e/a", "`..` segment"),
        (".%2e/a", "`..` segment"),
        ("a%2F..%2Fb", "`..` segment"),
        ("a%00b", "control character"),
        ("a%0Ab", "control character"),
        ("a%0D%0AFencing-Token:%2099", "control character"),
        ("a%7F", "control character"),
        ("a%C2%85", "control character"),
        ("%FF", "not UTF-8"),
        ("%C0%AF", "not UTF-8"),
        ("%C0%AE%C0%AE", "not UTF-8"),
        ("%E0%80%AF", "not UTF-8"),
        ("%ED%A0%80", "not UTF-8"),
        ("%F5%80%80%80", "not UTF-8"),
        ("%C3", "not UTF-8"),
        ("a%", "hexadecimal"),
        ("a%2", "hexadecimal"),
        ("a%zz", "hexadecimal"),
        ("a%%32F", "hexadecimal"),
        ("a%u0041", "hexadecimal"),
    ] {
        let mut client = gateway.client();
        let answer = put(&mut client, raw.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-name"), "{raw}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(word), "{raw}: {detail}");
        for (method, base) in [("GET", "/v1/kv"), ("DELETE", "/v1/kv"), ("POST", "/v1/claim"), ("GET", "/v1/fences")] {
            let answer = client.request(method, &format!("{base}/{raw}"), &[("fencing-token", "1")], b"");
            assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-name"), "{method} {base}/{raw}");
        }
    }
    let mut client = gateway.client();
    assert_eq!(keys(&mut client), Vec::<String>::new());
    assert_eq!(client.request("GET", "/v1/fences", &[], b"").json()["fences"].as_array().unwrap().len(), 0);
}

#[test]
fn length_is_counted_in_bytes_after_decoding() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for (raw, status) in [
        ("x".repeat(1024), 204),
        ("x".repeat(1025), 400),
        ("%41".repeat(1024), 204),
        ("%41".repeat(1025), 400),
        ("%C3%A4".repeat(512), 204),
        ("%C3%A4".repeat(513), 400),
        (vec!["a"; 512].join("/"), 204),
        (vec!["a"; 513].join("/"), 400),
    ] {
        let answer = put(&mut client, raw.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{} bytes of {}…", raw.len(), &raw[..6]);
        if status == 204 {
            assert_eq!(client.get(&raw).status, 200);
        } else {
            assert!(answer.json()["detail"].as_str().unwrap().contains("limit is 1024"), "{}", answer.text());
        }
    }
}

#[test]
fn a_query_is_not_part_of_a_name_and_not_ignored() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let answer = put(&mut client, b"a?b=c").unwrap();
    assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-query"));
    assert!(answer.json()["detail"].as_str().unwrap().contains("%3F"), "{}", answer.text());
    assert_eq!(put(&mut client, b"a?").unwrap().status, 204);
    assert_eq!(keys(&mut client), ["a"]);
}

#[test]
fn bytes_that_do_not_belong_in_a_path_are_refused_or_read_as_utf8() {
    let gateway = Fresh::memory(&[]);
    // Unescaped but valid UTF-8: stored as it is, or refused; never changed.
    let answer = put(&mut gateway.client(), "ä".as_bytes()).unwrap();
    match answer.status {
        204 => assert_eq!(keys(&mut gateway.client()), ["ä"]),
        400 => assert_eq!(keys(&mut gateway.client()), Vec::<String>::new()),
        other => panic!("{other}"),
    }
    assert!(gateway.client().request("GET", "/healthz", &[], b"").status == 200);
    for raw in [&b"a\xff"[..], b"a b", b"a\tb", b"a\x01b", b"a\x7fb", b"a\0b"] {
        let gateway = Fresh::memory(&[]);
        if let Ok(answer) = put(&mut gateway.client(), raw) {
            assert_eq!(answer.status, 400, "{raw:?}: {}", answer.text());
        }
        assert_eq!(keys(&mut gateway.client()), Vec::<String>::new(), "{raw:?}");
    }
    // A fragment is not part of a name. Clients drop it before they send; one that does not reaches the same key.
    let gateway = Fresh::memory(&[]);
    let status = put(&mut gateway.client(), b"a#b").unwrap().status;
    let found = keys(&mut gateway.client());
    assert!(status == 400 && found.is_empty() || status == 204 && found == ["a"], "{status} {found:?}");
}
