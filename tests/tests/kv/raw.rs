//! Raw sockets: framing, smuggling, and bodies that arrive late or never.

use std::time::Duration;

use fencepost_conformance::wait;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};

/// A write that must never happen.
const SMUGGLED: &str =
    "PUT /v1/kv/smuggled HTTP/1.1\r\nhost: localhost\r\nfencing-token: 99\r\ncontent-length: 1\r\n\r\nx";

/// A last request. Its answer shows that everything before it was parsed as the sender meant it.
const LAST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// The course of a connection.
#[derive(Debug)]
struct Talk {
    answers: Vec<Answer>,
    /// The gateway answered the last request; otherwise it closed before.
    went_on: bool,
}

impl Talk {
    fn statuses(&self) -> Vec<u16> {
        self.answers.iter().map(|answer| answer.status).collect()
    }

    /// There was one answer, and no further byte was read from the connection.
    fn ended_with(&self, status: u16) -> bool {
        self.statuses() == [status] && !self.went_on
    }
}

/// Sends bytes, then a last request, and returns every answer until the gateway closes.
fn talk(gateway: &Fresh, bytes: &[u8]) -> Talk {
    let mut client = gateway.client();
    client.set_timeout(Duration::from_secs(20));
    // The gateway may close while we still send.
    let _ = client.send(&[bytes, LAST].concat());
    let mut answers = client.receive_all();
    let went_on = answers.last().is_some_and(|answer| answer.body == b"ok\n");
    if went_on {
        answers.pop();
    }
    Talk { answers, went_on }
}

#[test]
fn g2_a_body_held_while_a_newer_token_commits_is_refused() {
    let gateway = Fresh::rocksdb(&[]);
    let mut slow = gateway.client();
    slow.send(b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 33\r\ncontent-length: 4\r\n\r\nla").unwrap();
    let mut quick = gateway.client();
    assert_eq!(quick.put("k", "34", "new").status, 204);
    slow.send(b"te").unwrap();
    let late = slow.receive().unwrap();
    assert_eq!((late.status, late.problem().as_str()), (409, "stale"), "the commit is the moment that counts");
    assert_eq!(quick.get("k").text(), "new");
    // The same for a delete, with its body in chunks, that a claim overtakes.
    slow.send(b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        .unwrap();
    assert_eq!(quick.claim("k", "35").status, 200);
    slow.send(b"0\r\n\r\n").unwrap();
    assert_eq!(slow.receive().unwrap().status, 409);
    assert_eq!(quick.get("k").text(), "new");
}

#[test]
fn a_half_sent_body_neither_blocks_others_nor_raises_the_fence() {
    let gateway = Fresh::memory(&[]);
    let mut slow = gateway.client();
    slow.send(b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 99\r\ncontent-length: 4\r\n\r\nla").unwrap();
    let mut quick = gateway.client();
    assert_eq!(quick.put("k", "1", "v").status, 204, "99 has not shown itself yet");
    slow.send(b"st").unwrap();
    assert_eq!(slow.receive().unwrap().status, 204);
    assert_eq!(quick.get("k").text(), "last");
    assert_eq!(quick.put("k", "1", "v").status, 409);
}

#[test]
fn a_body_cut_off_writes_nothing() {
    let gateway = Fresh::memory(&[]);
    for framing in
        ["content-length: 4\r\n\r\nab", "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n", "content-length: 4\r\n\r\n"]
    {
        let mut client = gateway.client();
        let head = "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\n";
        client.send(format!("{head}{framing}").as_bytes()).unwrap();
        client.finish_sending();
        let answers = client.receive_all();
        assert!(answers.iter().all(|answer| answer.status == 400), "{framing}: {answers:?}");
        drop(client);
    }
    // A later write on the same resource shows that none of them happened.
    let mut client = gateway.client();
    assert_eq!((client.get("k").status, client.fence("k")), (404, None));
}

#[test]
fn both_lengths_smuggle_nothing_and_end_the_connection() {
    let gateway = Fresh::memory(&[]);
    let body = format!("0\r\n\r\n{SMUGGLED}");
    let length = format!("content-length: {}\r\n", body.len());
    let chunked = "transfer-encoding: chunked\r\n".to_owned();
    for (name, framing) in [("length first", length.clone() + &chunked), ("chunked first", chunked + &length)] {
        let head = "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\n";
        let talk = talk(&gateway, format!("{head}{framing}\r\n{body}").as_bytes());
        assert_eq!((talk.answers.len(), talk.went_on), (1, false), "{name}: {talk:?}");
        assert_eq!(gateway.client().get("smuggled").status, 404, "{name}");
    }
}

#[test]
fn framing_that_two_servers_could_read_differently_is_refused() {
    let gateway = Fresh::memory(&[]);
    for (name, framing) in [
        ("two lengths", "content-length: 1\r\ncontent-length: 100\r\n\r\nx"),
        ("a list of two lengths", "content-length: 1, 100\r\n\r\nx"),
        ("a negative length", "content-length: -1\r\n\r\nx"),
        ("a signed length", "content-length: +1\r\n\r\nx"),
        ("a length in hexadecimal", "content-length: 0x1\r\n\r\nx"),
        ("an enormous length", "content-length: 99999999999999999999\r\n\r\nx"),
        ("an empty length", "content-length: \r\n\r\nx"),
        ("chunked, then something else", "transfer-encoding: chunked, gzip\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
        ("unknown coding", "transfer-encoding: xchunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
        ("a space before the colon", "transfer-encoding : chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
        ("a folded line", "x-folded: a\r\n content-length: 1\r\ncontent-length: 1\r\n\r\nx"),
        ("a NUL in a header", "x-nul: a\0b\r\ncontent-length: 1\r\n\r\nx"),
        ("a CR in a header", "x-cr: a\rb\r\ncontent-length: 1\r\n\r\nx"),
        ("chunk size with a sign", "transfer-encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n"),
        ("chunk size with a prefix", "transfer-encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n"),
        ("chunk size that is none", "transfer-encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n"),
        ("chunk size too large", "transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nx\r\n0\r\n\r\n"),
        ("chunk longer than its size", "transfer-encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n"),
        ("chunk without an end", "transfer-encoding: chunked\r\n\r\n1\r\nx0\r\n\r\n"),
    ] {
        let request = format!("PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\n{framing}{SMUGGLED}");
        let talk = talk(&gateway, request.as_bytes());
        assert!(talk.ended_with(400), "{name}: {talk:?}");
        let mut client = gateway.client();
        assert_eq!((client.get("smuggled").status, client.get("k").status), (404, 404), "{name}");
        assert_eq!(client.fence("k"), None, "{name}");
    }
}

#[test]
fn equal_lengths_twice_are_one_length() {
    let gateway = Fresh::memory(&[]);
    let request = "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx";
    let talk = talk(&gateway, request.as_bytes());
    assert!(talk.statuses() == [204] && talk.went_on || talk.ended_with(400), "{talk:?}");
}

#[test]
fn lines_that_end_in_a_bare_lf_smuggle_nothing() {
    let gateway = Fresh::memory(&[]);
    let bare = "PUT /v1/kv/k HTTP/1.1\nhost: localhost\nfencing-token: 34\ncontent-length: 1\n\nx";
    let bare = talk(&gateway, bare.as_bytes());
    assert!(bare.statuses() == [204] && bare.went_on || bare.ended_with(400), "{bare:?}");
    // A bare LF ends a line or is refused; it is never part of a value.
    let hidden = "GET /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nx: a\nfencing-token: 1\r\n\r\n";
    let hidden = talk(&gateway, hidden.as_bytes());
    assert!(matches!(hidden.statuses()[..], [409 | 400]), "{hidden:?}");
    let folded = "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 3\r\n 4\r\ncontent-length: 1\r\n\r\nx";
    let folded = talk(&gateway, folded.as_bytes());
    assert!(folded.ended_with(400), "a token must not be unfolded to 34, nor cut to 3: {folded:?}");
}

#[test]
fn repeated_headers_of_ours_are_refused_even_if_equal() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for (name, first, second) in [
        ("fencing-token", "34", "35"),
        ("fencing-token", "34", "34"),
        ("Fencing-Token", "34", ""),
        ("fencing-holder", "a#1", "b#2"),
        ("fencing-holder", "a#1", "a#1"),
        ("fencing-issuer", "etcd:1", "etcd:1"),
        ("if-none-match", "*", "*"),
        ("content-type", "text/plain", "text/html"),
    ] {
        let token = if name.eq_ignore_ascii_case("fencing-token") { &[][..] } else { &[("fencing-token", "34")] };
        let shouted = name.to_uppercase();
        let headers = [token, &[(name, first), (&shouted, second)]].concat();
        let answer = client.request("PUT", "/v1/kv/k", &headers, b"v");
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-header"), "{name}: {first} {second}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("more than once"), "{}", answer.text());
    }
    let reads = client.request("GET", "/v1/kv/k", &[("fencing-token", "1"), ("fencing-token", "1")], b"");
    assert_eq!(reads.status, 400);
    assert_eq!((client.get("k").status, client.fence("k")), (404, None));
}

#[test]
fn labels_that_cannot_be_read_are_refused() {
    let gateway = Fresh::memory(&[]);
    let long = "x".repeat(257);
    for name in ["fencing-holder", "fencing-issuer"] {
        for value in [&b""[..], long.as_bytes(), b"a\xffb", b"a\tb"] {
            let mut request =
                format!("PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\n{name}: ").into_bytes();
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\ncontent-length: 1\r\n\r\nx");
            let talk = talk(&gateway, &request);
            assert_eq!((talk.statuses(), talk.went_on), (vec![400], true), "{name}: {value:?}");
            assert_eq!(talk.answers[0].problem(), "malformed-header");
        }
    }
    let mut client = gateway.client();
    assert_eq!((client.get("k").status, client.fence("k")), (404, None));
    let german = [("fencing-token", "1"), ("fencing-holder", "grün#1")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &german, b"v").status, 204, "any UTF-8 is a holder");
    assert_eq!(client.claim("k", "1").json()["fence"]["holder"], "grün#1");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let gateway = Fresh::memory(&[]);
    let put = |token: &str, body: &str| {
        let length = body.len();
        format!(
            "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: {token}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let get = "GET /v1/kv/k HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let all = [put("34", "a"), get.to_owned(), put("33", "b"), put("35", "c"), get.to_owned()].concat();
    let talk = talk(&gateway, all.as_bytes());
    assert_eq!((talk.statuses(), talk.went_on), (vec![204, 200, 409, 204, 200], true));
    assert_eq!((talk.answers[1].text().as_str(), talk.answers[4].text().as_str()), ("a", "c"));
}

#[test]
fn a_connection_lives_on_after_an_error_that_left_nothing_unread() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "x", "a body that was read").status, 400);
    assert_eq!(client.get("k").status, 404);
    assert_eq!(client.request("PATCH", "/v1/kv/k", &[], b"").status, 405);
    assert_eq!(client.request("GET", "/nowhere", &[], b"").status, 404);
    assert_eq!(client.request("HEAD", "/v1/kv/k", &[], b"").status, 404);
    assert_eq!(client.request("PUT", "/v1/kv/k", &[], b"v").status, 428);
    assert_eq!(client.put("k", "34", "v").status, 204);
    assert_eq!(client.put("k", "33", "w").status, 409);
    assert_eq!(client.get("k").text(), "v");
}

#[test]
fn an_unread_body_is_never_taken_for_the_next_request() {
    let gateway = Fresh::memory(&[]);
    for path in ["GET /v1/kv/k", "DELETE /v1/kv/k", "PATCH /v1/kv/k", "PUT /nowhere", "GET /healthz"] {
        let length = SMUGGLED.len();
        let request = format!(
            "{path} HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}"
        );
        let talk = talk(&gateway, request.as_bytes());
        assert!(matches!(talk.statuses()[..], [400..500]), "{path}: {talk:?}");
        assert_eq!(gateway.client().get("smuggled").status, 404, "{path}");
    }
}

#[test]
fn http_1_0_is_answered_and_closed() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    client.send(b"PUT /v1/kv/k HTTP/1.0\r\nfencing-token: 34\r\ncontent-length: 1\r\n\r\nv").unwrap();
    assert_eq!(client.receive().unwrap().status, 204);
    assert!(client.is_closed());
    let chunked = "PUT /v1/kv/k HTTP/1.0\r\nfencing-token: 35\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    assert!(talk(&gateway, chunked.as_bytes()).ended_with(400), "HTTP/1.0 has no chunks");
    assert_eq!(gateway.client().fence("k").as_deref(), Some("34"));
    let unknown = talk(&gateway, b"GET /v1/kv/k HTTP/3.7\r\nhost: localhost\r\n\r\n");
    assert!(unknown.ended_with(400), "{unknown:?}");
}

#[test]
fn expect_100_continue_is_honoured_before_the_body() {
    let gateway = Fresh::memory(&["--max-body", "1KiB"]);
    let mut client = gateway.client();
    let head = "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\nexpect: 100-continue\r\n";
    client.send(format!("{head}content-length: 1\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(client.receive().unwrap().status, 100);
    client.send(b"v").unwrap();
    assert_eq!(client.receive().unwrap().status, 204);
    // A body that would be refused is not asked for.
    client.send(format!("{head}content-length: 4096\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(client.receive().unwrap().status, 413);
}

#[test]
fn absolute_form_and_asterisk() {
    let gateway = Fresh::memory(&[]);
    let put = |target: &str, host: &str| {
        let rest = "fencing-token: 34\r\ncontent-length: 1\r\n\r\nv";
        talk(&gateway, format!("PUT http://{target}/v1/kv/k HTTP/1.1\r\nhost: {host}\r\n{rest}").as_bytes()).statuses()
    };
    assert_eq!(put("localhost", "example.org"), [400], "two hosts");
    assert_eq!(put("example.org", "example.org"), [421]);
    assert_eq!(put("localhost:1", "localhost:1"), [204]);
    assert_eq!(gateway.client().get("k").text(), "v");
    let options = talk(&gateway, b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(matches!(options.statuses()[..], [200 | 204 | 400 | 404 | 405]), "{options:?}");
    let connect = talk(&gateway, b"CONNECT example.org:80 HTTP/1.1\r\nhost: example.org\r\n\r\n");
    assert!(matches!(connect.statuses()[..], [400 | 404 | 405 | 421]), "no tunnel: {connect:?}");
}

#[test]
fn nonsense_is_400_or_silence_and_does_no_harm() {
    let gateway = Fresh::memory(&[]);
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"hello\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/kv/k\r\n\r\n",
        b"\0\0\0\0\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut client = gateway.client();
        client.send(nonsense).unwrap();
        client.finish_sending();
        client.drain();
        assert_eq!(gateway.client().request("GET", "/healthz", &[], b"").status, 200, "{nonsense:?}");
    }
}

#[test]
fn a_slow_reader_does_not_stop_others() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("large", "1", &"x".repeat(4 << 20)).status, 204);
    let mut slow = gateway.client();
    for _ in 0..8 {
        slow.send(b"GET /v1/kv/large HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    }
    wait::until("a write while somebody does not read", Duration::from_secs(10), || {
        (client.put("k", "1", "v").status == 204).then_some(())
    });
    let mut rest: Vec<Client> = (0..20).map(|_| gateway.client()).collect();
    assert!(rest.iter_mut().all(|client| client.get("k").status == 200));
}

#[test]
fn http_1_1_has_exactly_one_host() {
    let gateway = Fresh::memory(&[]);
    for hosts in ["", "host: a\r\nhost: b\r\n", "host: a\r\nhost: a\r\n"] {
        let request = format!("PUT /v1/kv/k HTTP/1.1\r\n{hosts}fencing-token: 34\r\ncontent-length: 1\r\n\r\nv");
        let talk = talk(&gateway, request.as_bytes());
        assert_eq!(
            (talk.answers[0].status, talk.answers[0].problem().as_str()),
            (400, "malformed-header"),
            "{hosts:?}"
        );
    }
    assert_eq!(gateway.client().get("k").status, 404);
}
