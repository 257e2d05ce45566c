//! Claims: raise the fence and read, in one durable step.

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};

const ORDERS: &str = "[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\n";

fn claim(client: &mut Client, resource: &str, token: &str, body: &str) -> Answer {
    client.request("POST", &format!("/v1/claim/{resource}"), &[("fencing-token", token)], body.as_bytes())
}

#[test]
fn t01_a_claim_before_reading_keeps_the_update_that_would_be_lost() {
    let gateway = Fresh::memory(&[]);
    let (mut a, mut b) = (gateway.client(), gateway.client());
    assert_eq!(a.put("stock", "33", "10").status, 204);
    // B has the lock now. After its claim, the value it reads cannot be changed by an older holder.
    let claimed = b.claim("stock", "34");
    assert_eq!(claimed.status, 200);
    assert_eq!(claimed.json()["values"][0]["text"], "10");
    let late = a.put("stock", "33", "7");
    assert_eq!((late.status, late.problem().as_str()), (409, "stale"));
    assert_eq!(b.put("stock", "34", "9").status, 204);
    assert_eq!(b.get("stock").text(), "9");
}

#[test]
fn t01_without_a_claim_the_read_says_that_nothing_protects_it() {
    let gateway = Fresh::memory(&[]);
    let (mut a, mut b) = (gateway.client(), gateway.client());
    assert_eq!(a.put("stock", "33", "10").status, 204);
    let read = b.request("GET", "/v1/kv/stock", &[("fencing-token", "34")], b"");
    assert_eq!((read.status, read.header("fencing-unclaimed")), (200, Some("true")));
    assert_eq!(a.put("stock", "33", "7").status, 204, "the classic lost update is possible, and was announced");
}

#[test]
fn t22_a_claim_is_one_step_under_concurrent_writes() {
    // A(33) writes 1, 2, 3, … while B claims with 34: B must read the last write that was acknowledged to A.
    for _ in 0..10 {
        let gateway = Fresh::rocksdb(&[]);
        assert_eq!(gateway.client().put("n", "33", "0").status, 204);
        let address = gateway.address().to_owned();
        let writer = std::thread::spawn(move || {
            let mut client = Client::connect(&address);
            let mut last = 0;
            loop {
                let answer = client.put("n", "33", &(last + 1).to_string());
                match answer.status {
                    204 => last += 1,
                    409 => return last,
                    other => panic!("{other}: {}", answer.text()),
                }
            }
        });
        let mut client = gateway.client();
        fencepost_conformance::wait::until("some writes", std::time::Duration::from_secs(20), || {
            (client.get("n").text().parse::<u64>().unwrap() >= 5).then_some(())
        });
        let claimed = client.claim("n", "34");
        assert_eq!(claimed.status, 200);
        let read: u64 = claimed.json()["values"][0]["text"].as_str().unwrap().parse().unwrap();
        assert_eq!(read, writer.join().unwrap(), "a write was acknowledged after the claim had read");
    }
}

#[test]
fn the_answer_tells_the_fence_and_the_values() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let typed = [("fencing-token", "33"), ("content-type", "text/plain")];
    let etag = client.request("PUT", "/v1/kv/k", &typed, "schön".as_bytes()).header("etag").unwrap().to_owned();
    let headers = [("fencing-token", "34"), ("fencing-holder", "b#1"), ("fencing-issuer", "etcd:7")];
    let answer = client.request("POST", "/v1/claim/k", &headers, b"");
    assert_eq!((answer.status, answer.header("fence")), (200, Some("34")));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let json = answer.json();
    assert_eq!(json["resource"], "k");
    assert_eq!((&json["fence"]["token"], &json["fence"]["holder"]), (&"34".into(), &"b#1".into()));
    assert_eq!(json["fence"]["issuer"], "etcd:7");
    assert!(json["fence"]["raised_at"].is_string());
    let value = &json["values"][0];
    assert_eq!((&value["key"], &value["text"]), (&"k".into(), &"schön".into()));
    assert_eq!((&value["etag"], &value["token"]), (&etag.as_str().into(), &"33".into()));
    assert_eq!(value["content_type"], "text/plain");
    // Repeated by the same holder: nothing changes, and the answer is the same.
    let again = client.request("POST", "/v1/claim/k", &headers, b"").json();
    assert_eq!(again, json);
}

#[test]
fn keys_are_answered_in_the_order_asked_absent_and_binary_ones_too() {
    let gateway = Fresh::configured(ORDERS, &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("orders/7/total", "1", "12").status, 204);
    assert_eq!(client.request("PUT", "/v1/kv/orders/7/raw", &[("fencing-token", "1")], &[0xff, 0]).status, 204);
    let body = r#"{"keys": ["orders/7/raw", "orders/7/none", "orders/7/total", "orders/7"]}"#;
    let json = claim(&mut client, "orders/7", "2", body).json();
    let values = json["values"].as_array().unwrap();
    assert_eq!((&values[0]["base64"], values[0].get("text")), (&"/wA=".into(), None));
    assert_eq!(values[1], serde_json::json!({"key": "orders/7/none", "absent": true}));
    assert_eq!((&values[2]["text"], values[2].get("base64")), (&"12".into(), None));
    assert_eq!(values[3], serde_json::json!({"key": "orders/7", "absent": true}));
    let none = claim(&mut client, "orders/7", "2", r#"{"keys": []}"#);
    assert_eq!((none.status, none.json()["values"].as_array().unwrap().len()), (200, 0));
    let default = claim(&mut client, "orders/7", "2", "{}").json();
    assert_eq!(default["values"][0]["key"], "orders/7", "the key of that name");
}

#[test]
fn one_guard_covers_many_keys_with_one_fence() {
    let gateway = Fresh::configured(ORDERS, &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("orders/7/lines/1", "33", "a").status, 204);
    assert_eq!(claim(&mut client, "orders/7", "34", "").status, 200);
    for key in ["orders/7/lines/1", "orders/7/lines/2", "orders/7", "orders/7/x/y/z"] {
        let late = client.put(key, "33", "late");
        assert_eq!((late.status, late.problem().as_str()), (409, "stale"), "{key}");
        assert_eq!(late.json()["resource"], "orders/7");
    }
    assert_eq!(client.put("orders/8/lines/1", "1", "another order has another fence").status, 204);
    assert_eq!(client.put("orders", "1", "no guard matches this one").status, 204);
    assert_eq!(client.get("orders/7/lines/1").header("fence"), Some("34"));
}

#[test]
fn a_key_is_no_resource_and_the_right_one_is_named() {
    let gateway = Fresh::configured(ORDERS, &[]);
    let mut client = gateway.client();
    let answers = [
        claim(&mut client, "orders/7/lines", "34", ""),
        claim(&mut client, "orders/8", "34", r#"{"keys": ["orders/8", "orders/7/lines"]}"#),
        client.request("GET", "/v1/fences/orders/7/lines", &[], b""),
    ];
    for answer in answers {
        assert_eq!((answer.status, answer.problem().as_str()), (400, "not-a-resource"));
        assert_eq!(answer.json()["resource"], "orders/7");
        assert!(answer.json()["detail"].as_str().unwrap().contains("`orders/7`"), "{}", answer.text());
    }
    assert_eq!(client.fence("orders/7"), None);
    assert_eq!(client.fence("orders/8"), None, "a claim that cannot be answered raises nothing");
}

#[test]
fn bodies_that_cannot_be_read_raise_nothing() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for body in [
        r#"{"key": "k"}"#,
        r#"{"keys": ["k"], "token": "99"}"#,
        r#"{"keys": "k"}"#,
        r#"{"keys": [7]}"#,
        r#"{"keys": ["a//b"]}"#,
        r#"{"keys": ["../k"]}"#,
        r#"{"keys": ["k"]} trailing"#,
        r#"{"keys": ["k"], "keys": ["k"]}"#,
        "[",
        "null",
        "not json",
        "\u{0}",
    ] {
        let answer = claim(&mut client, "k", "34", body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-body"), "{body}: {}", answer.text());
    }
    assert_eq!(client.fence("k"), None);
}

#[test]
fn too_many_keys_or_bytes_are_413_and_raise_nothing() {
    let gateway = Fresh::configured(ORDERS, &["--max-body", "4KiB"]);
    let mut client = gateway.client();
    let keys = |count: usize| {
        let keys: Vec<_> = (0..count).map(|n| format!("\"orders/7/{n}\"")).collect();
        format!("{{\"keys\": [{}]}}", keys.join(", "))
    };
    let many = claim(&mut client, "orders/7", "34", &keys(65));
    assert_eq!((many.status, many.problem().as_str()), (413, "too-large"));
    assert!(many.json()["detail"].as_str().unwrap().contains("64"), "{}", many.text());
    assert_eq!(client.fence("orders/7"), None);
    assert_eq!(claim(&mut client, "orders/7", "34", &keys(64)).status, 200);
    for key in ["orders/7/0", "orders/7/1"] {
        assert_eq!(client.put(key, "34", &"x".repeat(3000)).status, 204);
    }
    let large = claim(&mut client, "orders/7", "35", &keys(2));
    assert_eq!((large.status, large.problem().as_str()), (413, "too-large"));
    assert_eq!(client.fence("orders/7").as_deref(), Some("34"));
    assert_eq!(claim(&mut client, "orders/7", "35", &keys(1)).status, 200);
}

#[test]
fn a_claim_is_judged_like_a_write() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.claim("k", "34").status, 200);
    let stale = client.claim("k", "33");
    assert_eq!((stale.status, stale.problem().as_str()), (409, "stale"));
    let missing = client.request("POST", "/v1/claim/k", &[], b"");
    assert_eq!((missing.status, missing.problem().as_str()), (428, "missing-token"));
    let unknown = client.claim("k", "1:1");
    assert_eq!((unknown.status, unknown.problem().as_str()), (409, "unknown-generation"));
    assert_eq!(client.fence("k").as_deref(), Some("34"));
}

#[test]
fn text_with_control_characters_comes_in_base64() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("nul", "1", "a\0b").status, 204);
    assert_eq!(client.claim("nul", "1").json()["values"][0]["base64"], "YQBi");
    assert_eq!(client.put("lines", "1", "a\tb\r\n").status, 204);
    assert_eq!(client.claim("lines", "1").json()["values"][0]["text"], "a\tb\r\n");
}
