//! Limits of size, time and number: a clear answer at each, and nothing applied.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;

const HEAD: &str = "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\n";

fn send(client: &mut Client, text: &str) {
    client.send(text.as_bytes()).unwrap();
}

#[test]
fn s413_a_body_announced_too_large_is_refused_before_it_is_sent() {
    let gateway = Fresh::memory(&["--max-body", "1KiB"]);
    let mut client = gateway.client();
    send(&mut client, &format!("{HEAD}content-length: 1025\r\n\r\n"));
    let answer = client.receive().unwrap();
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"));
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(answer.json()["detail"].as_str().unwrap().contains("1024 bytes"), "{}", answer.text());
    assert!(client.is_closed());
    assert_eq!((gateway.client().get("k").status, gateway.client().fence("k")), (404, None));
    assert_eq!(gateway.client().put("k", "1", &"x".repeat(1024)).status, 204, "exactly the limit");
}

#[test]
fn s413_a_chunked_body_is_refused_when_it_passes_the_limit() {
    let gateway = Fresh::memory(&["--max-body", "1KiB"]);
    let mut client = gateway.client();
    send(&mut client, &format!("{HEAD}transfer-encoding: chunked\r\n\r\n"));
    for _ in 0..3 {
        send(&mut client, &format!("200\r\n{}\r\n", "x".repeat(512)));
    }
    let answer = client.receive().unwrap();
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too-large"));
    assert_eq!((gateway.client().get("k").status, gateway.client().fence("k")), (404, None));
    let mut client = gateway.client();
    let half = "x".repeat(512);
    send(&mut client, &format!("{HEAD}transfer-encoding: chunked\r\n\r\n200\r\n{half}\r\n200\r\n{half}\r\n0\r\n\r\n"));
    assert_eq!(client.receive().unwrap().status, 204, "exactly the limit");
    assert_eq!(gateway.client().get("k").body.len(), 1024);
}

#[test]
fn s413_the_default_is_four_mebibytes() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    send(&mut client, &format!("{HEAD}content-length: {}\r\n\r\n", (4 << 20) + 1));
    assert_eq!(client.receive().unwrap().status, 413);
    assert_eq!(gateway.client().put("k", "1", &"x".repeat(4 << 20)).status, 204);
}

#[test]
fn s431_headers_over_the_limit_and_far_over_it() {
    let gateway = Fresh::memory(&["--max-headers", "4KiB"]);
    let within = "x".repeat(3900);
    let mut client = gateway.client();
    assert_eq!(client.request("GET", "/readyz", &[("x-long", &within)], b"").status, 200);
    let over = "x".repeat(4100);
    let answer = client.request("GET", "/readyz", &[("x-long", &over)], b"");
    assert_eq!((answer.status, answer.problem().as_str()), (431, "headers-too-large"));
    assert!(client.is_closed());
    // Far beyond the buffer size the bytes are not even parsed; the status is the same.
    let mut client = gateway.client();
    let far = "x".repeat(1 << 20);
    // The gateway may close while we still send.
    let _ = client.send(format!("GET /readyz HTTP/1.1\r\nhost: localhost\r\nx-long: {far}\r\n\r\n").as_bytes());
    let answer = client.receive().expect("an answer before the connection is closed");
    assert_eq!(answer.status, 431);
    let mut client = gateway.client();
    let many: String = (0..1000).map(|n| format!("x-{n}: 1\r\n")).collect();
    let _ = client.send(format!("GET /readyz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes());
    assert_eq!(client.receive().expect("an answer").status, 431, "many small headers");
    assert_eq!(gateway.client().request("GET", "/readyz", &[], b"").status, 200);
}

#[test]
fn s431_a_long_path_is_refused_too() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let _ = client.send(format!("GET /v1/kv/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(200 << 10)).as_bytes());
    let status = client.receive().expect("an answer").status;
    assert!(matches!(status, 400 | 414 | 431), "{status}");
}

#[test]
fn s408_headers_that_do_not_arrive() {
    // Long enough to send a part of the headers.
    let gateway = Fresh::memory(&["--header-timeout", "3s"]);
    let started = Instant::now();
    let mut half = gateway.client();
    send(&mut half, HEAD);
    // A few bytes, too few to distinguish HTTP/1 from HTTP/2.
    let mut three = gateway.client();
    send(&mut three, "PRI");
    let answer = half.receive().unwrap();
    assert_eq!((answer.status, answer.problem().as_str()), (408, "timeout"));
    assert!(started.elapsed() >= Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(answer.header("request-id").is_some());
    assert!(half.is_closed());
    assert_eq!(three.receive().unwrap().status, 408);
}

#[test]
fn s408_a_trickle_of_headers_does_not_extend_the_deadline() {
    let gateway = Fresh::memory(&["--header-timeout", "1s"]);
    let mut client = gateway.client();
    send(&mut client, HEAD);
    client.set_timeout(Duration::from_millis(20));
    let answer = wait::until("the gateway to lose patience", PATIENCE, || {
        let _ = client.send(b"x-a: 1\r\n");
        client.receive().ok()
    });
    assert_eq!(answer.status, 408);
}

#[test]
fn s408_an_idle_connection_is_closed_in_silence() {
    let gateway = Fresh::memory(&["--header-timeout", "1s"]);
    let mut silent = gateway.client();
    silent.set_timeout(Duration::from_secs(10));
    assert!(silent.is_closed(), "a connection that never asked gets no answer");
    let mut idle = gateway.client();
    idle.set_timeout(Duration::from_secs(10));
    assert_eq!(idle.request("GET", "/readyz", &[], b"").status, 200);
    assert!(idle.is_closed(), "nor does one between two requests");
}

#[test]
fn a_request_that_is_answered_late_is_not_cut_off() {
    let gateway = Fresh::memory(&["--header-timeout", "1s"]);
    let body = |holder: &str, wait_ms: u64| format!(r#"{{"holder":"{holder}","ttl_ms":60000,"wait_ms":{wait_ms}}}"#);
    let taken = gateway.client().request("POST", "/v1/locks/l", &[], body("a#1", 0).as_bytes());
    assert_eq!(taken.status, 201);
    let mut waiting = gateway.client();
    let started = Instant::now();
    assert_eq!(waiting.request("POST", "/v1/locks/l", &[], body("b#1", 2500).as_bytes()).status, 423);
    assert!(started.elapsed() >= Duration::from_millis(2500));
    // The timeout for the next head begins with the answer, however long that took.
    assert_eq!(waiting.request("GET", "/readyz", &[], b"").status, 200);
}

#[test]
fn a_client_that_reads_slowly_is_not_cut_off() {
    let gateway = Fresh::memory(&["--header-timeout", "1s", "--max-body", "64MiB", "--max-bodies", "256MiB"]);
    let value = "x".repeat(32 << 20);
    // On a busy machine, sending the head may exceed its timeout.
    wait::until("a large value", Duration::from_secs(60), || {
        let put = gateway.client().try_request("PUT", "/v1/kv/large", &[("fencing-token", "1")], value.as_bytes());
        put.ok().filter(|answer| answer.status == 204)
    });
    let mut slow = gateway.client();
    send(&mut slow, "GET /v1/kv/large HTTP/1.1\r\nhost: localhost\r\n\r\n");
    // Long enough that the answer fills every buffer on the way, and the head timeout passes several times.
    wait::pause(Duration::from_millis(3500));
    let answer = slow.receive().unwrap();
    assert_eq!((answer.status, answer.body.len()), (200, value.len()));
}

#[test]
fn s408_a_body_that_does_not_arrive_is_not_applied() {
    let gateway = Fresh::memory(&["--body-timeout", "300ms"]);
    for framing in ["content-length: 4\r\n\r\nab", "transfer-encoding: chunked\r\n\r\n2\r\nab\r\n"] {
        let mut client = gateway.client();
        send(&mut client, &format!("{HEAD}{framing}"));
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, answer.problem().as_str()), (408, "timeout"), "{framing}");
        assert!(client.is_closed());
    }
    assert_eq!((gateway.client().get("k").status, gateway.client().fence("k")), (404, None));
}

#[test]
fn s503_too_many_connections_are_told_so() {
    let gateway = Fresh::memory(&["--max-connections", "2"]);
    let (mut first, mut second) = (gateway.client(), gateway.client());
    for client in [&mut first, &mut second] {
        send(client, "PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\ncontent-length: 1\r\n\r\n");
    }
    wait::until("both to be under way", PATIENCE, || gateway.has_read_everything().then_some(()));
    let mut third = gateway.client();
    let answer = third.receive().unwrap();
    assert_eq!((answer.status, answer.problem().as_str()), (503, "overloaded"));
    assert_eq!((answer.header("retry-after"), answer.header("connection")), (Some("1"), Some("close")));
    assert_eq!(answer.header("request-id"), answer.json()["request_id"].as_str());
    assert!(answer.json()["detail"].as_str().unwrap().contains("2 connections"), "{}", answer.text());
    assert!(third.is_closed());
    // Active connections keep their place, and a place that was given up can be reused.
    send(&mut second, "w");
    assert_eq!(second.receive().unwrap().status, 204);
    drop(first);
    let mut client = wait::until("a free place", Duration::from_secs(10), || {
        let mut client = gateway.client();
        (client.try_request("GET", "/readyz", &[], b"").ok()?.status == 200).then_some(client)
    });
    assert_eq!(client.get("k").text(), "w");
}

#[test]
fn s503_the_bodies_of_all_requests_have_a_budget() {
    let gateway = Fresh::memory(&["--max-body", "64KiB", "--max-bodies", "64KiB"]);
    let mut holder = gateway.client();
    send(&mut holder, &format!("{HEAD}content-length: {}\r\n\r\n{}", 56 << 10, "x".repeat(48 << 10)));
    // Otherwise the second body could be the one that finds room.
    wait::until("the first body to be read", Duration::from_secs(10), || gateway.has_read_everything().then_some(()));
    let large = "y".repeat(32 << 10);
    let answer = wait::until("the first body to be in memory", Duration::from_secs(10), || {
        let answer = gateway.client().put("other", "1", &large);
        assert!(matches!(answer.status, 204 | 503), "{}", answer.text());
        (answer.status == 503).then_some(answer)
    });
    assert_eq!((answer.problem().as_str(), answer.header("retry-after")), ("overloaded", Some("1")));
    assert_eq!(answer.json()["outcome"], "not-applied");
    // What was refused counts until it is dropped, a moment after its answer.
    wait::until("the second body to be dropped", PATIENCE, || {
        (gateway.client().put("small", "1", "there is room for this").status == 204).then_some(())
    });
    // And so does the small one: the first leaves room for it.
    send(&mut holder, &"x".repeat(8 << 10));
    assert_eq!(holder.receive().unwrap().status, 204, "who was first is not disturbed");
    // A body counts until its batch is dropped, a moment after its answer.
    wait::until("who was first to give its room back", PATIENCE, || {
        (gateway.client().put("other", "1", &large).status == 204).then_some(())
    });
}

#[test]
fn s503_an_abandoned_body_gives_its_budget_back() {
    let gateway = Fresh::memory(&["--max-body", "64KiB", "--max-bodies", "64KiB"]);
    for _ in 0..4 {
        let mut client = gateway.client();
        send(&mut client, &format!("{HEAD}content-length: 65536\r\n\r\n{}", "x".repeat(48 << 10)));
        drop(client);
    }
    let whole = "y".repeat(64 << 10);
    wait::until("the budget to be whole again", Duration::from_secs(10), || {
        (gateway.client().put("k", "1", &whole).status == 204).then_some(())
    });
}

#[test]
fn a_client_that_stops_reading_holds_up_nobody_for_long() {
    let gateway = Fresh::memory(&["--max-bodies", "32MiB", "--max-body", "32MiB", "--write-timeout", "4s"]);
    let mut client = gateway.client();
    // A body counts until its batch is dropped, a moment after its answer; a full budget closes the connection.
    let put = |key: &str, body: &str| {
        wait::until("a write", Duration::from_secs(2), || {
            (gateway.client().put(key, "1", body).status == 204).then_some(())
        })
    };
    put("small", "v");
    // More than the buffers of both sockets hold.
    put("large", &"x".repeat(32 << 20));
    let mut stuck = TcpStream::connect(gateway.address()).unwrap();
    stuck.write_all(b"GET /v1/kv/large HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut beginning = [0; 12];
    stuck.read_exact(&mut beginning).unwrap();
    assert_eq!(&beginning, b"HTTP/1.1 200");
    // Its answer fills the budget for answers, so other reads are refused; writes have a budget of their own.
    let refused = client.get("small");
    assert_eq!((refused.status, refused.problem().as_str()), (503, "overloaded"));
    // A claim is refused before it raises the fence: once it is made, its answer would have to be sent.
    for path in ["/v1/kv", "/v1/fences"] {
        assert_eq!(client.request("GET", path, &[], b"").status, 503, "{path}");
    }
    let claim = client.claim("small", "2");
    assert_eq!((claim.status, claim.problem().as_str()), (503, "overloaded"));
    assert_eq!(client.fence("small").as_deref(), Some("1"));
    put("small", "w");
    wait::until("the stuck client to be let go", Duration::from_secs(15), || {
        (client.get("small").status == 200).then_some(())
    });
}
