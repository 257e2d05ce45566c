//! HTTP/2 without TLS: the same answers as HTTP/1.1, with third-party clients.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use fencepost_conformance::wait;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::process::GatewayProcess;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// Runs curl with HTTP/2 prior knowledge. Returns status, headers with names in lower case, and body.
fn curl(gateway: &GatewayProcess, path: &str, arguments: &[&str]) -> (String, String, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let (head, body) = (dir.path().join("head"), dir.path().join("body"));
    let output = Command::new("curl")
        .args(["-s", "-S", "--http2-prior-knowledge", "-w", "%{http_version} %{http_code}", "--path-as-is"])
        .arg("-D")
        .arg(&head)
        .arg("-o")
        .arg(&body)
        .args(arguments)
        .arg(format!("{}{path}", gateway.url()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let status = said.strip_prefix("2 ").unwrap_or_else(|| panic!("not HTTP/2: {said}")).to_owned();
    (status, std::fs::read_to_string(head).unwrap(), std::fs::read(body).unwrap_or_default())
}

#[test]
fn writes_reads_and_refusals() {
    let gateway = Fresh::memory(&[]);
    let put = |token: &str, body: &str| {
        let token = format!("Fencing-Token: {token}");
        curl(&gateway, "/v1/kv/k", &["-X", "PUT", "-H", &token, "-H", "Content-Type: text/plain", "-d", body])
    };
    let (status, head, _) = put("34", "paid");
    assert_eq!(status, "204");
    assert!(
        head.contains("\r\nfence: 34\r\n") && head.contains("\r\netag: \"") && head.contains("\r\nrequest-id: "),
        "{head}"
    );
    let (status, head, body) = put("33", "late");
    assert_eq!(status, "409");
    assert!(head.contains("\r\ncontent-type: application/problem+json\r\n"), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("urn:fencepost:problem:stale"));
    let (status, head, body) = curl(&gateway, "/v1/kv/k", &[]);
    assert_eq!((status.as_str(), body.as_slice()), ("200", &b"paid"[..]));
    assert!(head.contains("\r\nfencing-token: 34\r\n") && head.contains("\r\ncontent-type: text/plain\r\n"), "{head}");
    let (status, head, _) = curl(&gateway, "/v1/kv/k", &["-I"]);
    assert_eq!(status, "200");
    assert!(head.contains("\r\ncontent-length: 4\r\n"), "{head}");
    assert_eq!(curl(&gateway, "/v1/claim/k", &["-X", "POST", "-H", "Fencing-Token: 35"]).0, "200");
    assert_eq!(curl(&gateway, "/v1/kv/k", &["-X", "DELETE", "-H", "Fencing-Token: 34"]).0, "409");
    assert_eq!(curl(&gateway, "/v1/kv/k", &["-X", "DELETE", "-H", "Fencing-Token: 35"]).0, "204");
}

#[test]
fn limits_and_malformed_requests() {
    let gateway = Fresh::memory(&["--max-body", "1KiB", "--max-headers", "4KiB"]);
    let token = ["-H", "Fencing-Token: 1"];
    let put = |body: &str, more: &[&str]| {
        curl(&gateway, "/v1/kv/k", &[&["-X", "PUT", "-d", body][..], &token, more].concat()).0
    };
    assert_eq!(put(&"x".repeat(1024), &[]), "204");
    assert_eq!(put("v", &["-H", "Fencing-Token: 2"]), "400", "a token twice");
    let long = format!("x-long: {}", "x".repeat(5000));
    assert_eq!(curl(&gateway, "/v1/kv/k", &["-H", &long]).0, "431");
    assert_eq!(curl(&gateway, "/v1/kv/a/../b", &[]).0, "400");
    assert_eq!(curl(&gateway, "/v1/kv/a%2F%2Fb", &[]).0, "400");
    assert_eq!(curl(&gateway, "/nowhere", &[]).0, "404");
    assert_eq!(curl(&gateway, "/v1/kv/k", &["-X", "PATCH"]).0, "405");
    assert_eq!(curl(&gateway, "/v1/kv/k", &["-X", "PUT", "-d", "v"]).0, "428");
    assert_eq!(gateway.client().get("k").body.len(), 1024);
}

/// A connection of hyper's own client, which sends many requests over it at once.
async fn connect(gateway: &GatewayProcess) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(gateway.address()).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn put(gateway: &GatewayProcess, key: &str, token: u64, body: &str) -> Request<Full<Bytes>> {
    let request = Request::put(format!("{}/v1/kv/{key}", gateway.url())).header("fencing-token", token);
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

#[tokio::test]
async fn many_streams_of_one_connection_are_judged_as_by_many_clients() {
    let gateway = Fresh::rocksdb(&[]);
    let mut sender = connect(&gateway).await;
    let tokens = 1..=200;
    let pending: Vec<_> = tokens
        .map(|token| {
            let answer = sender.send_request(put(&gateway, "k", token, &token.to_string()));
            tokio::spawn(async move { (token, answer.await.unwrap()) })
        })
        .collect();
    let mut applied = Vec::new();
    for answer in pending {
        let (token, answer) = answer.await.unwrap();
        match answer.status().as_u16() {
            204 => applied.push(token),
            409 => {}
            other => panic!("{other}"),
        }
        assert!(answer.headers().contains_key("request-id"));
    }
    // Whatever the order of effects, the highest token won and wrote last.
    assert_eq!(applied.last(), Some(&200));
    let get = gateway.client().get("k");
    assert_eq!((get.text().as_str(), get.header("fence")), ("200", Some("200")));
}

#[tokio::test]
async fn a_refused_stream_leaves_the_others_alone() {
    let gateway = Fresh::memory(&["--max-body", "1KiB"]);
    let mut sender = connect(&gateway).await;
    // Not with curl: version 7.88 cannot read an answer that arrives before its body was sent.
    let large = sender.send_request(put(&gateway, "large", 1, &"x".repeat(100 << 10)));
    let small = sender.send_request(put(&gateway, "small", 1, "v"));
    assert_eq!(large.await.unwrap().status(), 413);
    assert_eq!(small.await.unwrap().status(), 204);
    let again = sender.send_request(put(&gateway, "small", 1, "w")).await.unwrap();
    assert_eq!(again.status(), 204, "the connection lives on");
    assert_eq!(gateway.client().get("large").status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_stream_leaves_the_queue_of_a_lock_and_the_others_wait_on() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let held = client.acquire("k", "a#1", 60_000).json()["lease"].as_str().unwrap().to_owned();
    let waiting = |client: &mut Client, count: u64| {
        wait::until("the queue's length", Duration::from_secs(10), || {
            let lock = client.request("GET", "/v1/locks/k", &[], b"").json();
            (lock["waiting"] == count).then_some(())
        });
    };
    let mut sender = connect(&gateway).await;
    let mut streams = Vec::new();
    for at in 1..=3 {
        let body = format!("{{\"holder\": \"w#{at}\", \"ttl_ms\": 60000, \"wait_ms\": 60000}}");
        let request = Request::post(format!("{}/v1/locks/k", gateway.url())).body(Full::from(body)).unwrap();
        streams.push(tokio::spawn(sender.send_request(request)));
        tokio::task::block_in_place(|| waiting(&mut client, at));
    }
    streams[0].abort();
    tokio::task::block_in_place(|| waiting(&mut client, 2));
    assert_eq!(client.release("k", &held).status, 204);
    let answer = streams.remove(1).await.unwrap().unwrap();
    assert_eq!(answer.status(), 201);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("w#2"), "{body:?}");
}

#[tokio::test]
async fn silence_between_two_requests_is_normal() {
    let gateway = Fresh::memory(&["--header-timeout", "1s"]);
    let mut sender = connect(&gateway).await;
    for key in ["a", "b"] {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let answer = sender.send_request(put(&gateway, key, 1, "v")).await.unwrap();
        assert_eq!(answer.status(), 204, "{key}");
    }
}

#[tokio::test]
async fn head_has_no_body() {
    let gateway = Fresh::memory(&[]);
    let mut sender = connect(&gateway).await;
    assert_eq!(sender.send_request(put(&gateway, "k", 1, "four")).await.unwrap().status(), 204);
    for (key, status, length) in [("k", 200, Some("4")), ("absent", 404, None)] {
        let head = Request::head(format!("{}/v1/kv/{key}", gateway.url())).body(Full::default()).unwrap();
        let (head, body) = sender.send_request(head).await.unwrap().into_parts();
        assert_eq!(head.status, status);
        if length.is_some() {
            assert_eq!(head.headers.get("content-length").and_then(|value| value.to_str().ok()), length);
        }
        let body = body.collect().await.unwrap_or_else(|error| panic!("{key}: {error}")).to_bytes();
        assert_eq!(body.len(), 0, "{key}: {body:?}");
    }
}

#[test]
fn an_upgrade_from_http_1_is_not_needed_and_not_harmful() {
    let gateway = Fresh::memory(&[]);
    let output = Command::new("curl")
        .args(["-s", "-S", "--http2", "-w", " %{http_code}", &format!("{}/healthz", gateway.url())])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "ok\n 200");
}
