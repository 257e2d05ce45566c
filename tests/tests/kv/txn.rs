//! `POST /v1/txn`: several keys and resources, all or nothing, end to end.

use std::thread;

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use serde_json::{Value, json};

fn txn(client: &mut Client, body: Value) -> Answer {
    client.post("/v1/txn", &body)
}

/// Asserts success; returns the results.
fn done(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()["results"].as_array().unwrap().clone()
}

fn fence(client: &mut Client, resource: &str) -> Value {
    client.request("GET", &format!("/v1/fences/{resource}"), &[], b"").json()["fence"].clone()
}

#[test]
fn the_example_of_the_design() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("stock/sku-7", "11", "3").status, 204);
    let a = client.put("a", "1", "x").header("etag").unwrap().to_owned();
    assert_eq!(client.put("n", "1", "1").status, 204);
    assert_eq!(client.put("k", "1", "read me").status, 204);
    let body = json!({
        "tokens": {"orders/123": "34", "stock/sku-7": {"token": "12", "holder": "w#1", "issuer": "etcd:1"}},
        "if":   [{"key": "orders/123", "absent": true}, {"key": "a", "etag": a}, {"key": "n", "at_least": "1"}],
        "then": [{"put": "orders/123", "text": "paid", "content_type": "text/plain"},
                 {"add": "stock/sku-7", "by": "-1", "min": "0"}, {"get": "k"}],
    });
    let results = done(&txn(&mut client, body.clone()));
    let keys: Vec<_> = results.iter().map(|result| result["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["orders/123", "stock/sku-7", "k"], "one result per operation, in order");
    let order = client.get("orders/123");
    assert_eq!((order.text().as_str(), order.header("content-type")), ("paid", Some("text/plain")));
    assert_eq!((order.header("fencing-token"), order.header("fence")), (Some("34"), Some("34")));
    assert_eq!(order.header("etag"), results[0]["etag"].as_str());
    let stock = client.get("stock/sku-7");
    assert_eq!((stock.text().as_str(), stock.header("fencing-token")), ("2", Some("12")));
    assert_eq!((&results[1]["value"], results[1]["etag"].as_str()), (&"2".into(), stock.header("etag")));
    assert_eq!((&results[2]["text"], &results[2]["token"]), (&"read me".into(), &"1".into()));
    let fence = fence(&mut client, "stock/sku-7");
    assert_eq!((&fence["token"], &fence["holder"], &fence["issuer"]), (&"12".into(), &"w#1".into(), &"etcd:1".into()));
    // Again: the order exists now, and nothing is sold twice.
    let again = txn(&mut client, body);
    assert_eq!((again.status, again.problem().as_str()), (412, "condition-failed"));
    assert_eq!(client.get("stock/sku-7").text(), "2");
}

#[test]
fn t18_a_token_for_one_resource_does_not_fence_another() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.claim("x", "99").status, 200);
    assert_eq!(client.claim("y", "5").status, 200);
    let both = |x: &str, y: &str| json!({"tokens": {"x": x, "y": y}, "then": [{"put": "x", "text": "v"}, {"put": "y", "text": "v"}]});
    // A token for `x`, however new, does not apply to `y`; then `x` is not written either.
    let stale = txn(&mut client, both("100", "4"));
    assert_eq!((stale.status, stale.problem().as_str()), (409, "stale"));
    assert_eq!(stale.json()["resource"], "y");
    let without = txn(
        &mut client,
        json!({"tokens": {"x": "100"}, "then": [{"put": "x", "text": "v"}, {"put": "y", "text": "v"}]}),
    );
    assert_eq!((without.status, without.problem().as_str()), (428, "missing-token"));
    assert_eq!((client.get("x").status, client.get("y").status), (404, 404), "all or nothing");
    let fences = (client.fence("x"), client.fence("y"));
    assert_eq!((fences.0.as_deref(), fences.1.as_deref()), (Some("99"), Some("5")), "nothing was raised");
    assert_eq!(done(&txn(&mut client, both("100", "6"))).len(), 2);
    let fences = (client.fence("x"), client.fence("y"));
    assert_eq!((fences.0.as_deref(), fences.1.as_deref()), (Some("100"), Some("6")), "all rise");
}

#[test]
fn each_resource_has_its_own_token_holder_and_issuer() {
    let gateway = Fresh::configured("[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\n", &[]);
    let mut client = gateway.client();
    let body = json!({
        "tokens": {"orders/1": {"token": "7", "holder": "a#1"}, "orders/2": {"token": 8, "issuer": "redis:2"}, "c": "9"},
        "then": [{"put": "orders/1/lines", "text": "l"}, {"put": "orders/1/total", "text": "t"},
                 {"put": "orders/2/lines", "text": "m"}, {"put": "c", "text": "n"}],
    });
    assert_eq!(done(&txn(&mut client, body)).len(), 4);
    let facts = |fence: Value| ["token", "holder", "issuer"].map(|name| fence[name].clone());
    assert_eq!(facts(fence(&mut client, "orders/1")), [json!("7"), json!("a#1"), Value::Null]);
    assert_eq!(facts(fence(&mut client, "orders/2")), [json!("8"), Value::Null, json!("redis:2")]);
    assert_eq!(facts(fence(&mut client, "c")), [json!("9"), Value::Null, Value::Null]);
    assert_eq!(client.get("orders/1/total").header("fencing-token"), Some("7"));
    let other =
        json!({"tokens": {"orders/1": {"token": "7", "holder": "b#2"}}, "then": [{"delete": "orders/1/total"}]});
    assert_eq!(txn(&mut client, other).problem(), "collision");
}

#[test]
fn reads_need_no_token_and_a_given_one_is_judged_and_raised() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    let read = done(&txn(&mut client, json!({"then": [{"get": "k"}]})));
    assert_eq!((&read[0]["text"], &read[0]["token"]), (&"v".into(), &"34".into()));
    assert_eq!(done(&txn(&mut client, json!({"if": [{"key": "k", "exists": true}]}))).len(), 0);
    let stale = txn(&mut client, json!({"tokens": {"k": "33"}, "then": [{"get": "k"}]}));
    assert_eq!(stale.problem(), "stale");
    let raised = txn(&mut client, json!({"tokens": {"k": "35"}, "if": [{"key": "k", "exists": true}]}));
    assert_eq!(raised.status, 200, "a condition alone names the resource");
    assert_eq!(client.put("k", "34", "w").problem(), "stale", "the newer holder has shown itself");
}

#[test]
fn conditions_of_every_kind() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let etag = client.put("text", "1", "abc").header("etag").unwrap().to_owned();
    assert_eq!(client.put("number", "1", "42").status, 204);
    assert_eq!(client.request("PUT", "/v1/kv/bytes", &[("fencing-token", "1")], &[0xff, 0]).status, 204);
    let bare = etag.trim_matches('"');
    let holds = [
        json!({"key": "text", "exists": true}),
        json!({"key": "none", "absent": true}),
        json!({"key": "text", "etag": etag}),
        json!({"key": "text", "etag": bare}),
        json!({"key": "text", "equals": "abc"}),
        json!({"key": "text", "equals": {"text": "abc"}}),
        json!({"key": "bytes", "equals": {"base64": "/wA="}}),
        json!({"key": "number", "equals": 42}),
        json!({"key": "number", "at_least": 42}),
        json!({"key": "number", "at_most": "42"}),
        json!({"key": "none", "at_least": 0}),
        json!({"key": "none", "at_most": "0"}),
    ];
    for condition in &holds {
        let answer = txn(&mut client, json!({"if": [condition], "then": [{"get": "text"}]}));
        assert_eq!(answer.status, 200, "{condition}: {}", answer.text());
    }
    assert_eq!(txn(&mut client, json!({"if": holds})).status, 200, "all of them together");
    for condition in [
        json!({"key": "none", "exists": true}),
        json!({"key": "text", "absent": true}),
        json!({"key": "text", "etag": format!("W/{etag}")}),
        json!({"key": "text", "etag": "theirs"}),
        json!({"key": "none", "etag": etag}),
        json!({"key": "text", "equals": "abd"}),
        json!({"key": "none", "equals": ""}),
        json!({"key": "number", "equals": "042"}),
        json!({"key": "number", "at_least": 43}),
        json!({"key": "number", "at_most": 41}),
        json!({"key": "text", "at_least": 0}),
        json!({"key": "text", "at_most": i64::MAX}),
        json!({"key": "none", "at_least": 1}),
    ] {
        let answer = txn(&mut client, json!({"if": [condition], "then": [{"get": "text"}]}));
        assert_eq!((answer.status, answer.problem().as_str()), (412, "condition-failed"), "{condition}");
    }
}

#[test]
fn a_failed_condition_names_itself_and_raises_the_fence_all_the_same() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let etag = client.put("k", "34", "v").header("etag").unwrap().to_owned();
    let body = json!({"tokens": {"k": "35"}, "if": [{"key": "k", "exists": true}, {"key": "k", "etag": "1234567"}],
                      "then": [{"put": "k", "text": "w"}]});
    let failed = txn(&mut client, body);
    assert_eq!((failed.status, failed.problem().as_str()), (412, "condition-failed"));
    let json = failed.json();
    assert_eq!((&json["condition"], &json["key"], &json["etag"]), (&1.into(), &"k".into(), &etag.into()), "{json}");
    assert_eq!(json["outcome"], "not-applied");
    assert!(json["detail"].as_str().unwrap().contains("condition 1 of `if`"), "{json}");
    assert_eq!(client.get("k").text(), "v");
    assert_eq!(client.put("k", "34", "zombie").problem(), "stale", "35 has shown itself");
    let absent = txn(&mut client, json!({"if": [{"key": "never", "exists": true}]})).json();
    assert_eq!((&absent["condition"], absent.get("etag")), (&0.into(), None), "{absent}");
}

#[test]
fn values_are_text_or_base64_and_keep_their_content_type() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let tokens = json!({"t": "1", "b": "1", "e": "1"});
    let then = json!([{"put": "t", "text": "grün", "content_type": "text/plain; charset=utf-8"},
                      {"put": "b", "base64": "/wABgA==", "content_type": "image/x"}, {"put": "e", "text": ""}]);
    assert_eq!(done(&txn(&mut client, json!({"tokens": tokens, "then": then}))).len(), 3);
    let (t, b, e) = (client.get("t"), client.get("b"), client.get("e"));
    assert_eq!((t.text().as_str(), t.header("content-type")), ("grün", Some("text/plain; charset=utf-8")));
    assert_eq!((b.body.as_slice(), b.header("content-type")), (&[0xff, 0, 1, 0x80][..], Some("image/x")));
    assert_eq!((e.body.len(), e.header("content-type")), (0, Some("application/octet-stream")));
    let read = done(&txn(&mut client, json!({"then": [{"get": "t"}, {"get": "b"}, {"get": "e"}, {"get": "none"}]})));
    assert_eq!((&read[0]["text"], &read[0]["content_type"]), (&"grün".into(), &"text/plain; charset=utf-8".into()));
    assert_eq!((&read[1]["base64"], read[1].get("text")), (&"/wABgA==".into(), None));
    assert_eq!((&read[2]["text"], &read[2]["content_type"]), (&"".into(), &Value::Null));
    assert_eq!(read[3], json!({"key": "none", "absent": true}));
}

#[test]
fn deleted_keys_are_absent_and_their_fence_stays() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    let body = json!({"tokens": {"k": "34", "never": "1"}, "then": [{"delete": "k"}, {"delete": "never"}]});
    let results = done(&txn(&mut client, body));
    assert_eq!(results, [json!({"key": "k", "absent": true}), json!({"key": "never", "absent": true})]);
    assert_eq!(client.get("k").status, 404);
    assert_eq!(client.put("k", "33", "zombie").problem(), "stale");
    assert_eq!(client.fence("never").as_deref(), Some("1"), "deleting an absent key is a write");
}

#[test]
fn add_counts_from_nothing_within_bounds_and_refuses_what_is_no_number() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let add = |client: &mut Client, more: Value| {
        let mut operation = json!({"add": "n"});
        operation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        txn(client, json!({"tokens": {"n": "1"}, "then": [operation]}))
    };
    let sum = |answer: &Answer| done(answer)[0]["value"].as_str().unwrap().to_owned();
    assert_eq!(sum(&add(&mut client, json!({"by": 5, "min": 0, "max": 5}))), "5");
    assert_eq!(client.get("n").header("content-type"), Some("text/plain"));
    for (more, words) in [
        (json!({"by": 1, "max": 5}), "at most 5"),
        (json!({"by": -6, "min": 0}), "at least 0"),
        (json!({"by": 1, "min": 0, "max": "5"}), "from 0 to 5"),
        (json!({"by": i64::MAX}), "a 64-bit number"),
    ] {
        let refused = add(&mut client, more);
        assert_eq!((refused.status, refused.problem().as_str()), (422, "add-impossible"));
        let json = refused.json();
        assert!(json["detail"].as_str().unwrap().contains(words), "{words} in {json}");
        assert_eq!(
            (&json["operation"], &json["key"], &json["outcome"]),
            (&0.into(), &"n".into(), &"not-applied".into())
        );
    }
    assert_eq!(sum(&add(&mut client, json!({"by": "-5", "min": "0"}))), "0");
    assert_eq!(sum(&add(&mut client, json!({"by": i64::MIN}))), i64::MIN.to_string());
    let typed = [("fencing-token", "1"), ("content-type", "application/json")];
    assert_eq!(client.request("PUT", "/v1/kv/n", &typed, b"41").status, 204);
    assert_eq!(sum(&add(&mut client, json!({"by": 1}))), "42");
    assert_eq!(client.get("n").header("content-type"), Some("application/json"), "an existing type is kept");
    for value in ["abc", "", "1.5", " 1", "1\n", "99999999999999999999"] {
        assert_eq!(client.put("n", "1", value).status, 204);
        let refused = add(&mut client, json!({"by": 1}));
        assert_eq!((refused.status, refused.problem().as_str()), (422, "add-impossible"), "{value:?}");
        assert_eq!(client.get("n").text(), value);
    }
    assert_eq!(client.fence("n").as_deref(), Some("1"));
    let newer = json!({"tokens": {"n": "2"}, "then": [{"add": "n", "by": 1}]});
    assert_eq!(txn(&mut client, newer).status, 422);
    assert_eq!(client.put("n", "1", "zombie").problem(), "stale", "an impossible add has shown its token, too");
}

#[test]
fn sixteen_connections_never_sell_more_than_there_is() {
    let gateway = Fresh::rocksdb(&[]);
    assert_eq!(gateway.client().put("stock", "1", "100").status, 204);
    let sellers: Vec<_> = (0..16)
        .map(|_| {
            let mut client = gateway.client();
            thread::spawn(move || {
                let body = json!({"tokens": {"stock": "1"}, "then": [{"add": "stock", "by": -1, "min": 0}]});
                let answers: Vec<Answer> = (0..10).map(|_| txn(&mut client, body.clone())).collect();
                assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 422)), "{answers:?}");
                answers.into_iter().filter(|answer| answer.status == 200).collect::<Vec<_>>()
            })
        })
        .collect();
    let sold: Vec<Answer> = sellers.into_iter().flat_map(|seller| seller.join().unwrap()).collect();
    let mut left: Vec<i64> = sold.iter().map(|a| done(a)[0]["value"].as_str().unwrap().parse().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, (0..100).collect::<Vec<_>>(), "exactly 100 were sold, each once");
    assert_eq!(gateway.client().get("stock").text(), "0");
}
