//! The built-in locks: waiters never starve the holder or each other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fencepost_client::locks::{Acquired, Wanted};
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_core::{Holder, Resource};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::{GatewayProcess, run};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

const LONG: u64 = 600_000;

fn lease(answer: &Answer) -> String {
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["lease"].as_str().unwrap().to_owned()
}

/// Requests the lock `k` on a connection of its own, and does not read the answer yet.
fn ask(gateway: &GatewayProcess, holder: &str, wait_ms: u64) -> Client {
    let mut client = gateway.client();
    let body = json!({"holder": holder, "ttl_ms": LONG, "wait_ms": wait_ms}).to_string();
    let head = format!("POST /v1/locks/k HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    client.send((head + &body).as_bytes()).unwrap();
    client
}

fn show(client: &mut Client) -> Value {
    client.request("GET", "/v1/locks/k", &[], b"").json()
}

fn wait_for_waiting(client: &mut Client, count: u64) {
    wait::until("the queue's length", PATIENCE, || (show(client)["waiting"] == count).then_some(()));
}

#[test]
fn c05_waiters_leave_connections_for_the_holder() {
    let gateway = Fresh::memory(&["--max-connections", "8"]);
    let mut client = gateway.client();
    let held = lease(&client.acquire("k", "holder#1", LONG));
    let waiters: Vec<Client> = (0..4).map(|at| ask(&gateway, &format!("w#{at}"), LONG)).collect();
    wait_for_waiting(&mut client, 4);
    // Further waiters are refused at once, and may retry.
    for at in 4..8 {
        let refused = ask(&gateway, &format!("w#{at}"), LONG).receive().unwrap();
        assert_eq!((refused.status, refused.problem().as_str()), (503, "overloaded"), "{}", refused.text());
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("too many wait for locks: 4 connections may"), "{detail}");
        assert!(refused.header("retry-after").is_some() && refused.json()["outcome"] == "not-applied");
    }
    drop(client);
    // The holder uses new connections, as curl and `fencepost lock` do.
    assert_eq!(gateway.client().renew("k", &held, LONG).status, 200);
    assert_eq!(gateway.client().put("k", "1", "v").status, 204);
    let mut free = gateway.client().post("/v1/locks/other", &json!({"holder": "a#1", "ttl_ms": LONG, "wait_ms": LONG}));
    assert_eq!(free.status, 201, "a free lock needs no wait: {}", free.text());
    free = gateway.client().post("/v1/locks/other", &json!({"holder": "a#2", "ttl_ms": LONG}));
    assert_eq!(free.status, 423, "nor does who does not wait");
    assert_eq!(gateway.client().release("k", &held).status, 204);
    drop(waiters);
    let mut client = gateway.client();
    wait::until("the places of those who left", PATIENCE, || {
        (ask(&gateway, "late#1", 1).receive().unwrap().status != 503).then_some(())
    });
    assert_eq!(client.request("GET", "/readyz", &[], b"").status, 200);
}

type Stream = SendRequest<Full<Bytes>>;

async fn http2(gateway: &GatewayProcess) -> Stream {
    let stream = tokio::net::TcpStream::connect(gateway.address()).await.unwrap();
    let (client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn acquire(stream: &Stream, url: &str, lock: &str, wait_ms: u64) -> (u16, Value) {
    let body = json!({"holder": "w#1", "ttl_ms": LONG, "wait_ms": wait_ms}).to_string();
    let request = Request::post(format!("{url}/v1/locks/{lock}")).body(Full::from(body)).unwrap();
    let answer = stream.clone().send_request(request).await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap())
}

#[tokio::test]
async fn s08_one_lock_or_connection_does_not_take_every_place() {
    let gateway = Fresh::memory(&[]);
    let url = gateway.url().to_owned();
    let first = http2(&gateway).await;
    assert_eq!(acquire(&first, &url, "k", 0).await.0, 201);
    let refused = Arc::new(AtomicUsize::new(0));
    let mut connections = Vec::new();
    // Nine connections with 129 waiters each: one too many per connection, and more in total than one lock accepts.
    for _ in 0..9 {
        let stream = http2(&gateway).await;
        for _ in 0..129 {
            let (stream, url, refused) = (stream.clone(), url.clone(), refused.clone());
            tokio::spawn(async move {
                let (status, problem) = acquire(&stream, &url, "k", LONG).await;
                assert_eq!(status, 503, "{problem}");
                let detail = problem["detail"].as_str().unwrap();
                assert!(
                    detail.contains("limit for this lock is 1024") || detail.contains("128 requests of one"),
                    "{detail}"
                );
                refused.fetch_add(1, Ordering::Relaxed);
            });
        }
        connections.push(stream);
    }
    let deadline = Instant::now() + PATIENCE;
    while refused.load(Ordering::Relaxed) < 9 * 129 - 1024 {
        assert!(Instant::now() < deadline, "{} refused", refused.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stuck = tokio::task::spawn_blocking({
        let address = gateway.address().to_owned();
        move || show(&mut Client::connect(&address))["waiting"].clone()
    });
    assert_eq!(stuck.await.unwrap(), 1024);
    // Free locks and requests that do not wait need no place in the queue, and the queues of other locks are
    // unaffected.
    for (lock, wait_ms, status) in [("free", 0, 201), ("also-free", LONG, 201), ("k", 0, 423), ("k", LONG, 503)] {
        assert_eq!(acquire(&first, &url, lock, wait_ms).await.0, status, "{lock} {wait_ms}");
    }
    assert_eq!(acquire(&first, &url, "free", 50).await.0, 423, "it may wait there");
}

#[test]
fn p02_who_does_not_wait_is_not_refused_in_favour_of_others_who_do_not() {
    let gateway = Fresh::memory(&[]);
    for round in 0..40 {
        let lock = format!("r/{round}");
        let all: Vec<_> = (0..8)
            .map(|at| {
                let (mut client, lock) = (gateway.client(), lock.clone());
                std::thread::spawn(move || client.acquire(&lock, &format!("w#{at}"), LONG))
            })
            .collect();
        let answers: Vec<Answer> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        let granted: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
        assert_eq!(granted.len(), 1, "round {round}: {answers:?}");
        let holder = granted[0].json()["holder"].clone();
        for refused in answers.iter().filter(|answer| answer.status != 201) {
            let json = refused.json();
            assert_eq!((refused.status, &json["holder"], &json["waiting"]), (423, &holder, &0.into()), "{json}");
            assert!(json["detail"].as_str().unwrap().contains("is held by"), "{json}");
        }
    }
    // A resource of another lock service is refused for that reason, however many clients ask.
    let headers = [("fencing-token", "7"), ("fencing-issuer", "etcd:1")];
    assert_eq!(gateway.client().request("PUT", "/v1/kv/foreign", &headers, b"v").status, 204);
    let all: Vec<_> = (0..32)
        .map(|at| {
            let mut client = gateway.client();
            let body = json!({"holder": format!("w#{at}"), "ttl_ms": LONG, "wait_ms": at % 2 * LONG});
            std::thread::spawn(move || client.post("/v1/locks/foreign", &body))
        })
        .collect();
    for thread in all {
        let answer = thread.join().unwrap();
        assert_eq!((answer.status, answer.problem().as_str()), (409, "foreign-issuer"), "{}", answer.text());
    }
}

#[test]
fn p03_a_lease_that_a_foreign_token_overtook_is_over_at_once() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let (old, second) = (lease(&client.acquire("k", "old#1", LONG)), lease(&client.acquire("other", "old#1", LONG)));
    let mut waiter = ask(&gateway, "next#1", LONG);
    wait_for_waiting(&mut client, 1);
    assert_eq!(client.put("k", "1", "the holder's own write wakes no waiter").status, 204);
    assert_eq!((&show(&mut client)["holder"], &show(&mut client)["waiting"]), (&"old#1".into(), &1.into()));
    let started = Instant::now();
    for key in ["k", "other"] {
        assert_eq!(client.put(key, "99", "from another lock service").status, 204);
    }
    let granted = waiter.receive().unwrap();
    assert_eq!((granted.status, &granted.json()["token"]), (201, &"100".into()), "{}", granted.text());
    assert!(started.elapsed() < Duration::from_millis(LONG / 10), "{:?}", started.elapsed());
    assert_eq!(client.renew("k", &old, LONG).problem(), "lease-lost");
    // The same for a request that arrives later and does not wait.
    let shown = client.request("GET", "/v1/locks/other", &[], b"").json();
    assert_eq!((&shown["holder"], &shown["remaining_ms"]), (&"old#1".into(), &0.into()), "{shown}");
    assert_eq!(client.acquire("other", "next#2", LONG).json()["token"], "100");
    let lost = client.renew("other", &second, LONG);
    assert_eq!((lost.problem().as_str(), &lost.json()["holder"]), ("lease-lost", &"next#2".into()));
}

#[test]
fn p03_a_replayed_answer_also_names_the_fence_now() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let put = |client: &mut Client| {
        client.request("PUT", "/v1/kv/k", &[("fencing-token", "34"), ("idempotency-key", "put")], b"v")
    };
    let first = put(&mut client);
    assert_eq!((first.status, first.header("fence"), first.header("fence-now")), (204, Some("34"), None));
    let transact = |client: &mut Client| {
        let body =
            json!({"tokens": {"a": "1", "b": "1"}, "then": [{"put": "a", "text": "v"}, {"put": "b", "text": "v"}]});
        client.request("POST", "/v1/txn", &[("idempotency-key", "txn")], body.to_string().as_bytes())
    };
    let transacted = transact(&mut client);
    assert_eq!((transacted.status, transacted.json().get("fences_now")), (200, None));
    let fails = |client: &mut Client| {
        let headers = [("fencing-token", "5"), ("idempotency-key", "fails"), ("if-match", "*")];
        client.request("PUT", "/v1/kv/absent", &headers, b"v")
    };
    assert_eq!((fails(&mut client).status, fails(&mut client).header("fence-now")), (412, Some("5")));
    // A successor takes over. The retry is still answered like the first attempt, and also reports the takeover.
    for (resource, token) in [("k", "36"), ("b", "2"), ("absent", "6")] {
        assert_eq!(client.claim(resource, token).status, 200);
    }
    let again = put(&mut client);
    assert_eq!((again.status, again.header("idempotent-replayed")), (204, Some("true")));
    assert_eq!((again.header("fence"), again.header("fence-now")), (Some("34"), Some("36")));
    let again = transact(&mut client);
    let now = json!([{"resource": "a", "fence": "1"}, {"resource": "b", "fence": "2"}]);
    assert_eq!((&again.json()["fences_now"], &again.json()["results"]), (&now, &transacted.json()["results"]));
    let again = fails(&mut client);
    assert_eq!((again.status, again.header("fence"), again.header("fence-now")), (412, Some("5"), Some("6")));
}

#[test]
fn p03_a_failed_condition_that_raised_nothing_leaves_its_key_usable() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.claim("k", "34").status, 200);
    let headers = [("fencing-token", "34"), ("idempotency-key", "7"), ("if-match", "*")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &headers, b"v").status, 412);
    assert_eq!(client.request("GET", "/v1/outcomes/7", &[], b"").json()["outcome"], "not-recorded");
    assert_eq!(client.put("k", "34", "now it exists").status, 204);
    assert_eq!(client.request("PUT", "/v1/kv/k", &headers, b"v").status, 204, "as docs/outcomes.md says");
}

#[test]
fn p03_the_type_that_curl_makes_up_is_no_type() {
    let gateway = Fresh::memory(&[]);
    let put = |more: &[&str]| {
        let url = format!("{}/v1/kv/orders/123", gateway.url());
        let curl = ["-sS", "-f", "-X", "PUT", "-H", "Fencing-Token: 34", "-d", "paid", &url];
        assert!(Command::new("curl").args(curl).args(more).status().unwrap().success());
        gateway.client().get("orders/123").header("content-type").unwrap().to_owned()
    };
    assert_eq!(put(&[]), "application/octet-stream");
    assert_eq!(put(&["-H", "Content-Type: text/plain"]), "text/plain");
}

#[test]
fn c08_a_wait_above_ten_minutes_is_made_of_several() {
    let gateway = Fresh::memory(&[]);
    let lock = format!("fencepost://{}", gateway.address());
    let url = gateway.url().to_owned();
    let job = ["run", "--url", &url, "--lock", &lock, "--resource", "jobs/nightly", "--wait", "11min", "--", "true"];
    let output = run(&job);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A gateway that refuses the lock during the first ten minutes: it answers at once, and records what was requested.
#[tokio::test]
async fn c08_the_next_call_asks_for_the_time_that_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            loop {
                let (mut length, mut line) = (0, String::new());
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = bytes.trim().parse().unwrap();
                    }
                    line.clear();
                }
                if length == 0 {
                    break;
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                asked.push(serde_json::from_slice::<Value>(&body).unwrap());
                let (status, kind, answer) = match asked.len() {
                    1 | 2 => {
                        let problem = json!({"type": "urn:fencepost:problem:lock-held", "title": "", "status": 423, "detail": ""});
                        ("423 Locked", "application/problem+json", problem)
                    }
                    _ => {
                        let lease = json!({"name": "k", "lease": "0".repeat(32), "token": "7", "holder": "a#1",
                            "issuer": "fencepost:1", "ttl_ms": 30_000});
                        ("201 Created", "application/json", lease)
                    }
                };
                let answer = answer.to_string();
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", answer.len());
                (&stream).write_all((head + &answer).as_bytes()).unwrap();
                if asked.len() == 3 {
                    return asked;
                }
            }
        }
        asked
    });
    let backend = fencepost_client::locks::connect(&format!("fencepost://{address}")).await.unwrap();
    let (name, holder) = (Resource::new("k").unwrap(), Holder::new("a#1").unwrap());
    let (ttl, wait) = (Duration::from_secs(30), Duration::from_secs(25 * 60));
    let acquired =
        backend.acquire(&Wanted { name: &name, holder: &holder, ttl, wait, floor: 0, generation: 0 }).await.unwrap();
    assert!(matches!(acquired, Acquired::Held(_)), "{acquired:?}");
    let asked = served.join().unwrap();
    assert!(asked.iter().all(|asked| asked["wait_ms"] == 600_000), "{asked:?}");
}
