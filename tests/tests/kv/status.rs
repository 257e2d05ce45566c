//! Every kind of problem that this gateway can answer is provoked here over HTTP, or names the test that does.

use std::time::Duration;

use fencepost_conformance::wait;
use fencepost_core::ProblemKind;
use fencepost_harness::fresh::{Fresh, write_config};
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::GatewayProcess;
use serde_json::json;

/// The evidence that a kind of problem occurs.
enum Evidence {
    /// This function provokes it.
    Here(fn() -> Answer),
    /// It needs a broken disk or another process; this names the test that shows it.
    Elsewhere(&'static str),
}

use Evidence::{Elsewhere, Here};

/// Exhaustive: a new kind does not compile until its evidence is added.
fn evidence(kind: ProblemKind) -> Evidence {
    match kind {
        ProblemKind::MalformedToken => Here(|| plain(|client| client.put("k", "x", "v"))),
        ProblemKind::MalformedName => Here(|| plain(|client| client.put("a//b", "1", "v"))),
        ProblemKind::MalformedHeader => {
            Here(|| plain(|client| client.request("PUT", "/v1/kv/k", &[TOKEN, ("fencing-holder", "")], b"v")))
        }
        ProblemKind::UnsupportedHeader => {
            Here(|| plain(|client| client.request("POST", "/v1/claim/k", &[TOKEN, ("idempotency-key", "7")], b"")))
        }
        ProblemKind::MalformedQuery => Here(|| plain(|client| client.request("GET", "/v1/kv?limit=0", &[], b""))),
        ProblemKind::MalformedBody => Here(|| plain(|client| client.request("POST", "/v1/claim/k", &[TOKEN], b"{"))),
        ProblemKind::NotAResource => Here(|| guarded("", |client| client.claim("r/1", "1"))),
        ProblemKind::SeveralEngines => Here(several_engines),
        ProblemKind::AdminOnly => Here(|| plain(|client| client.post("/v1/admin/reload", &json!({})))),
        ProblemKind::CrossOrigin => {
            Here(|| plain(|client| client.request("GET", "/v1/kv/k", &[("origin", "http://evil.example")], b"")))
        }
        ProblemKind::WrongHost => Here(wrong_host),
        ProblemKind::NoSuchRoute => Here(|| plain(|client| client.request("GET", "/v2/kv/k", &[], b""))),
        ProblemKind::Absent => Here(|| plain(|client| client.get("k"))),
        ProblemKind::NotHeld => Here(|| plain(|client| client.request("GET", "/v1/locks/k", &[], b""))),
        ProblemKind::NoS3Face => Here(|| plain(|client| client.post("/v1/s3/credentials", &json!({"resource": "k"})))),
        ProblemKind::MethodNotAllowed => Here(|| plain(|client| client.request("PATCH", "/v1/kv/k", &[], b""))),
        ProblemKind::Timeout => Here(slow_body),
        ProblemKind::Stale => Here(|| plain(|client| after_34(client, "33"))),
        ProblemKind::Spent => Here(|| guarded("equal = 'reject'", |client| after_34(client, "34"))),
        ProblemKind::Collision => Here(|| {
            plain(|client| {
                let put = |client: &mut Client, holder| {
                    client.request("PUT", "/v1/kv/k", &[TOKEN, ("fencing-holder", holder)], b"v")
                };
                put(client, "a#1");
                put(client, "b#2")
            })
        }),
        ProblemKind::ForeignIssuer => Here(|| {
            plain(|client| {
                let put = |client: &mut Client, issuer| {
                    client.request("PUT", "/v1/kv/k", &[TOKEN, ("fencing-issuer", issuer)], b"v")
                };
                put(client, "etcd:1");
                put(client, "redis:2")
            })
        }),
        ProblemKind::RetiredGeneration => Here(|| {
            let gateway = Fresh::memory(&[]);
            admin(&gateway).post("/v1/admin/fences/k/rotate", &json!({"from": 0, "reason": "a test"}));
            gateway.client().put("k", "34", "v")
        }),
        ProblemKind::UnknownGeneration => Here(|| plain(|client| client.put("k", "1:1", "v"))),
        ProblemKind::Implausible => Here(|| guarded("max_jump = 5", |client| after_34(client, "40"))),
        ProblemKind::Exhausted => Here(|| {
            plain(|client| {
                client.put("k", "18446744073709551615", "v");
                client.acquire("k", "a#1", 30_000)
            })
        }),
        ProblemKind::LeaseLost => Here(|| plain(|client| client.release("k", &"0".repeat(32)))),
        ProblemKind::ConditionFailed => {
            Here(|| plain(|client| client.request("PUT", "/v1/kv/k", &[TOKEN, ("if-match", "*")], b"v")))
        }
        ProblemKind::TooLarge => {
            Here(|| with(&["--max-body", "1KiB"], |client| client.put("k", "1", &"x".repeat(1025))))
        }
        ProblemKind::KeyReused => Here(|| {
            plain(|client| {
                client.request("PUT", "/v1/kv/k", &[TOKEN, ("idempotency-key", "7")], b"v");
                client.request("PUT", "/v1/kv/k", &[TOKEN, ("idempotency-key", "7")], b"another value")
            })
        }),
        ProblemKind::Abandoned => Here(|| {
            plain(|client| {
                client.post("/v1/outcomes/7/abandon", &json!({}));
                client.request("PUT", "/v1/kv/k", &[TOKEN, ("idempotency-key", "7")], b"v")
            })
        }),
        ProblemKind::AddImpossible => Here(|| {
            let body = json!({"tokens": {"k": "34"}, "then": [{"add": "k", "by": -1, "min": 0}]});
            plain(|client| client.post("/v1/txn", &body))
        }),
        ProblemKind::ReloadRefused => Here(|| {
            let gateway = Fresh::configured("", &[]);
            write_config(gateway.data().parent().unwrap_or_else(|| panic!("a directory")), "listn = 'x'");
            admin(&gateway).post("/v1/admin/reload", &json!({}))
        }),
        ProblemKind::LockHeld => Here(|| {
            plain(|client| {
                client.acquire("k", "a#1", 30_000);
                client.acquire("k", "b#2", 30_000)
            })
        }),
        ProblemKind::MissingToken => Here(|| plain(|client| client.request("PUT", "/v1/kv/k", &[], b"v"))),
        ProblemKind::MissingIssuer => Here(|| guarded("issuer = 'required'", |client| client.put("r/1", "1", "v"))),
        ProblemKind::Unclaimed => Here(|| guarded("claim = 'required'", |client| client.put("r/1", "1", "v"))),
        ProblemKind::HeadersTooLarge => Here(|| {
            let long = "x".repeat(17 << 10);
            plain(|client| client.request("GET", "/v1/kv/k", &[("x-long", &long)], b""))
        }),
        ProblemKind::Overloaded => Here(full_queue),
        ProblemKind::Draining => Elsewhere("operations/drain.rs: it needs a signal"),
        ProblemKind::NoSpace => Here(no_space),
        ProblemKind::OutcomeUnknown | ProblemKind::Poisoned => {
            Elsewhere("faults/disk.rs: it needs an fsync that fails")
        }
        ProblemKind::Unavailable => Elsewhere("faults/disk.rs: it needs free space that cannot be read"),
        ProblemKind::ReadFailed => Elsewhere("store tests with an engine whose reads fail"),
        ProblemKind::MappingChanged => Elsewhere("store tests: it needs an engine that two processes share"),
    }
}

fn admin(gateway: &Fresh) -> Client {
    Client::connect_unix(&gateway.data().join("admin.sock"))
}

const TOKEN: (&str, &str) = ("fencing-token", "34");

fn with(arguments: &[&str], call: impl FnOnce(&mut Client) -> Answer) -> Answer {
    call(&mut Fresh::memory(arguments).client())
}

fn plain(call: impl FnOnce(&mut Client) -> Answer) -> Answer {
    with(&[], call)
}

fn several_engines() -> Answer {
    let gateway = Fresh::configured("[engines]\nb = 'memory'\n[[guard]]\nkeys = 'b/*'\nengine = 'b'\n", &[]);
    gateway.client().post("/v1/txn", &json!({"then": [{"get": "a"}, {"get": "b/1"}]}))
}

fn guarded(policy: &str, call: impl FnOnce(&mut Client) -> Answer) -> Answer {
    let toml = format!("[[guard]]\nkeys = 'r/**'\nresource = 'r'\n{policy}\n");
    call(&mut Fresh::configured(&toml, &[]).client())
}

fn after_34(client: &mut Client, token: &str) -> Answer {
    client.put("r/1", "34", "v");
    client.put("r/1", token, "w")
}

fn slow_body() -> Answer {
    with(&["--body-timeout", "200ms"], |client| {
        let head = b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\ncontent-length: 5\r\n\r\nab";
        client.send(head).unwrap_or_else(|error| panic!("{error}"));
        client.receive().unwrap_or_else(|error| panic!("{error}"))
    })
}

fn wrong_host() -> Answer {
    plain(|client| {
        let request = b"GET /v1/kv/k HTTP/1.1\r\nhost: evil.example\r\n\r\n";
        client.send(request).unwrap_or_else(|error| panic!("{error}"));
        client.receive().unwrap_or_else(|error| panic!("{error}"))
    })
}

fn no_space() -> Answer {
    let (process, dir) = Fresh::rocksdb(&[]).into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &["--free-space-floor", "8388608GiB"]);
    gateway.client().put("k", "1", "v")
}

/// The queue holds one write, and many are sent: some are rejected, and those were certainly not applied.
fn full_queue() -> Answer {
    let gateway = Fresh::rocksdb(&["--queue", "1"]);
    let mut round = 0;
    wait::until("a full queue", Duration::from_secs(30), || {
        round += 1;
        let mut clients: Vec<_> = (0..32).map(|_| gateway.client()).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            let request = format!(
                "PUT /v1/kv/{round}/{at} HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\ncontent-length: 1\r\n\r\nv"
            );
            client.send(request.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut rejected = None;
        for (at, client) in clients.iter_mut().enumerate() {
            let answer = client.receive().unwrap_or_else(|error| panic!("{error}"));
            let found = gateway.client().get(&format!("{round}/{at}")).status;
            match answer.status {
                204 => assert_eq!(found, 200),
                503 => {
                    assert_eq!((found, gateway.client().fence(&format!("{round}/{at}"))), (404, None));
                    rejected = Some(answer);
                }
                other => panic!("{other}: {}", answer.text()),
            }
        }
        rejected
    })
}

#[test]
fn every_kind_of_problem_is_provoked_or_shown_elsewhere() {
    for kind in ProblemKind::ALL.iter().copied() {
        let answer = match evidence(kind) {
            Here(provoke) => provoke(),
            Elsewhere(place) => {
                assert!(place.contains(".rs") || place.contains("store tests"), "{kind:?}: {place}");
                continue;
            }
        };
        assert_eq!((answer.problem().as_str(), answer.status), (kind.slug(), kind.status()), "{}", answer.text());
        let json = answer.json();
        assert_eq!((json["title"].as_str(), json["type"].as_str()), (Some(kind.title()), Some(kind.type_uri())));
        assert!(json["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{json}");
        assert_eq!(answer.header("request-id"), json["request_id"].as_str(), "{json}");
        let seconds = answer.header("retry-after").map(|seconds| seconds.parse::<u32>().expect("seconds"));
        assert_eq!(seconds.is_some_and(|seconds| seconds > 0), matches!(kind.status(), 423 | 503 | 507), "{answer:?}");
        match kind.status() {
            409 | 410 | 412 | 423 | 428 | 503 | 507 => assert_eq!(json["outcome"], "not-applied", "{json}"),
            _ => {}
        }
    }
}

#[test]
fn s405_names_the_methods_that_are_allowed() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for (method, path, allow) in [
        ("POST", "/v1/kv/k", "PUT, GET, HEAD, DELETE"),
        ("PUT", "/v1/claim/k", "POST"),
        ("DELETE", "/v1/fences/k", "GET, HEAD"),
        ("PUT", "/v1/kv", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/v1/txn", "POST"),
        ("PUT", "/v1/locks/k", "POST, DELETE, GET, HEAD"),
        ("DELETE", "/v1/locks/k/renew", "POST"),
        ("POST", "/v1/locks", "GET, HEAD"),
        ("GET", "/v1/outcomes/k/abandon", "POST"),
        ("DELETE", "/v1/outcomes/k", "GET, HEAD"),
        ("GET", "/v1/admin/reload", "POST"),
    ] {
        let answer = client.request(method, path, &[], b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        assert!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains(allow)));
    }
}

#[test]
fn s404_for_paths_that_only_look_like_ours() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for path in
        ["/", "/v1", "/v1/", "/v1/kvx", "/V1/kv/k", "/v1//kv/k", "//v1/kv/k", "/v1/claim", "/healthz/", "/v1%2Fkv/k"]
    {
        let answer = client.request("GET", path, &[], b"");
        assert_eq!((answer.status, answer.problem().as_str()), (404, "no-such-route"), "{path}");
    }
}

#[test]
fn s507_below_the_floor_reads_go_on_and_nothing_is_written() {
    let gateway = Fresh::rocksdb(&["--free-space-floor", "1MiB"]);
    assert_eq!(gateway.client().put("k", "34", "v").status, 204, "a normal floor is no obstacle");
    let (process, dir) = gateway.into_parts();
    process.kill();
    let data = dir.path().join("data");
    let gateway = GatewayProcess::start(&data, &["--free-space-floor", "8388608GiB"]);
    let mut client = gateway.client();
    for answer in [client.put("k", "35", "w"), client.delete("k", "35"), client.claim("k", "35")] {
        assert_eq!((answer.status, answer.problem().as_str()), (507, "no-space"));
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!((client.get("k").text().as_str(), client.fence("k").as_deref()), ("v", Some("34")));
    assert_eq!(client.put("k", "33", "w").status, 409, "what is durable may still refuse");
    assert_eq!(client.request("GET", "/readyz", &[], b"").status, 200);
    gateway.kill();
    let gateway = GatewayProcess::start(&data, &["--free-space-floor", "1MiB"]);
    assert_eq!(gateway.client().put("k", "34", "the token refused with 507 raised nothing").status, 204);
}

#[test]
fn health_readiness_and_metrics() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let healthz = client.request("GET", "/healthz", &[], b"");
    assert_eq!((healthz.status, healthz.text().as_str()), (200, "ok\n"));
    let readyz = client.request("GET", "/readyz", &[], b"");
    assert_eq!((readyz.status, readyz.text().as_str()), (200, "ready\n"));
    client.put("k", "34", "v");
    client.put("k", "33", "w");
    client.delete("k", "34");
    client.request("PUT", "/v1/kv/k", &[TOKEN, ("if-match", "*")], b"v");
    client.claim("k", "34");
    client.claim("k", "33");
    client.get("absent");
    client.request("PUT", "/v1/kv/k", &[TOKEN, ("idempotency-key", "7")], b"v");
    client.request("PUT", "/v1/kv/k", &[TOKEN, ("idempotency-key", "7")], b"v");
    client.post("/v1/txn", &json!({"tokens": {"n": "1"}, "then": [{"add": "n", "by": 1}]}));
    client.post("/v1/txn", &json!({"tokens": {"n": "1"}, "then": [{"add": "n", "by": -9, "min": 0}]}));
    client.acquire("lock", "a#1", 60_000);
    client.acquire("lock", "b#2", 60_000);
    client.release("lock", &"0".repeat(32));
    let metrics = client.request("GET", "/metrics", &[], b"");
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    let text = metrics.text();
    for line in [
        "fencepost_writes_total{outcome=\"applied\"} 3",
        "fencepost_writes_total{outcome=\"replayed\"} 1",
        "fencepost_writes_total{outcome=\"refused\"} 1",
        "fencepost_writes_total{outcome=\"condition-failed\"} 1",
        "fencepost_transactions_total{outcome=\"applied\"} 1",
        "fencepost_transactions_total{outcome=\"impossible\"} 1",
        "fencepost_lock_calls_total{outcome=\"granted\"} 1",
        "fencepost_lock_calls_total{outcome=\"held\"} 1",
        "fencepost_lock_calls_total{outcome=\"lost\"} 1",
        "fencepost_lock_waiters 0",
        "fencepost_claims_total{outcome=\"applied\"} 1",
        "fencepost_claims_total{outcome=\"refused\"} 1",
        "fencepost_refusals_total{reason=\"stale\",mode=\"enforce\"} 2",
        "fencepost_refusals_total{reason=\"collision\",mode=\"enforce\"} 0",
        "fencepost_problems_total{problem=\"absent\"} 1",
        "fencepost_problems_total{problem=\"stale\"} 2",
        "fencepost_queue_depth 0",
        "fencepost_ready 1",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    for name in ["fencepost_batch_size_count", "fencepost_commit_seconds_count", "fencepost_fsync_seconds_count"] {
        let count = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        assert!(count.is_some_and(|count| count >= 2), "{name} in\n{text}");
    }
}
