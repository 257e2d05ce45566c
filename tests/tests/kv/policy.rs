//! The rows of the judge's table that need a policy, end to end, with the content of the refusal.

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use serde_json::{Value, json};

fn guarded(policy: &str) -> Fresh {
    Fresh::configured(&format!("[[guard]]\nkeys = 'r/**'\nresource = 'r'\n{policy}\n"), &[])
}

fn put(client: &mut Client, key: &str, headers: &[(&str, &str)]) -> Answer {
    client.request("PUT", &format!("/v1/kv/{key}"), headers, b"v")
}

/// Asserts a refusal of this kind that names both sides, and that nothing was written.
fn assert_refused(answer: &Answer, status: u16, kind: &str, presented: &str, fence: Option<&str>) {
    assert_eq!((answer.status, answer.problem().as_str()), (status, kind), "{}", answer.text());
    let json = answer.json();
    assert_eq!((json["presented"].as_str(), json["fence"].as_str()), (Some(presented), fence), "{json}");
    assert_eq!((answer.header("fence"), json["outcome"].as_str()), (fence, Some("not-applied")));
    assert!(json["advice"].as_str().is_some_and(|advice| advice.len() > 20), "{json}");
    assert!(json["detail"].as_str().is_some_and(|detail| detail.contains(presented)), "{json}");
}

#[test]
fn equal_reject_allows_one_applied_write_per_token() {
    let gateway = guarded("equal = 'reject'");
    let mut client = gateway.client();
    assert_eq!(client.claim("r", "34").status, 200, "a claim does not spend");
    let failed = put(&mut client, "r/1", &[("fencing-token", "34"), ("if-match", "*")]);
    assert_eq!(failed.status, 412, "nor does a write that was not applied");
    assert_eq!(client.put("r/1", "34", "v").status, 204);
    assert_refused(&client.put("r/2", "34", "w"), 409, "spent", "34", Some("34"));
    assert_refused(&client.delete("r/1", "34"), 409, "spent", "34", Some("34"));
    assert_eq!(client.claim("r", "34").status, 200, "its holder may still claim and read");
    assert_eq!(client.request("GET", "/v1/kv/r/1", &[("fencing-token", "34")], b"").status, 200);
    assert_eq!(client.get("r/2").status, 404);
    assert_eq!(client.delete("r/1", "35").status, 204);
    assert_refused(&client.put("r/1", "35", "w"), 409, "spent", "35", Some("35"));
}

#[test]
fn claim_required_refuses_a_newer_writer_until_it_claims() {
    let gateway = guarded("claim = 'required'");
    let mut client = gateway.client();
    assert_refused(&client.put("r/1", "34", "v"), 428, "unclaimed", "34", None);
    assert_eq!(client.fence("r"), None, "it raised nothing");
    assert_eq!(client.claim("r", "34").status, 200);
    assert_eq!(client.put("r/1", "34", "v").status, 204);
    assert_eq!(client.put("r/2", "34", "v").status, 204);
    assert_refused(&client.put("r/1", "35", "w"), 428, "unclaimed", "35", Some("34"));
    assert_refused(&client.delete("r/1", "35"), 428, "unclaimed", "35", Some("34"));
    assert_eq!(client.put("r/1", "34", "still the holder").status, 204);
    assert_eq!(client.claim("r", "35").status, 200);
    assert_refused(&client.put("r/1", "34", "w"), 409, "stale", "34", Some("35"));
}

#[test]
fn max_jump_refuses_a_poisoned_token_and_nothing_below_it() {
    let gateway = guarded("max_jump = 1_000");
    let mut client = gateway.client();
    assert_eq!(client.put("r/1", "5000", "the first may be anything").status, 204);
    assert_refused(&client.put("r/1", "6001", "w"), 409, "implausible", "6001", Some("5000"));
    assert_refused(
        &client.claim("r", "18446744073709551615"),
        409,
        "implausible",
        "18446744073709551615",
        Some("5000"),
    );
    assert_eq!(client.put("r/1", "6000", "exactly the jump").status, 204);
    let read = client.request("GET", "/v1/kv/r/1", &[("fencing-token", "99999")], b"");
    assert_eq!((read.status, read.header("fencing-unclaimed")), (200, Some("true")), "a read raises nothing anyway");
}

#[test]
fn max_jump_saturates_at_the_top() {
    let gateway = guarded("max_jump = 1_000");
    let mut client = gateway.client();
    assert_eq!(client.put("r/1", "18446744073709551000", "v").status, 204);
    assert_eq!(client.put("r/1", "18446744073709551615", "w").status, 204);
    assert_eq!(client.put("r/1", "1", "x").problem(), "stale");
}

#[test]
fn issuer_required_refuses_a_token_without_one() {
    let gateway = guarded("issuer = 'required'");
    let mut client = gateway.client();
    assert_refused(&client.put("r/1", "34", "v"), 428, "missing-issuer", "34", None);
    assert_eq!(put(&mut client, "r/1", &[("fencing-token", "34"), ("fencing-issuer", "etcd:1")]).status, 204);
    assert_refused(&client.put("r/1", "35", "v"), 428, "missing-issuer", "35", Some("34"));
    let read = client.request("GET", "/v1/kv/r/1", &[("fencing-token", "34")], b"");
    assert_eq!((read.status, read.problem().as_str()), (428, "missing-issuer"));
    assert_eq!(client.get("r/1").status, 200);
}

#[test]
fn a_resource_is_bound_to_the_first_issuer_it_learns() {
    let gateway = guarded("");
    let mut client = gateway.client();
    assert_eq!(client.put("r/1", "34", "v").status, 204, "unknown");
    assert_eq!(put(&mut client, "r/1", &[("fencing-token", "34"), ("fencing-issuer", "etcd:1")]).status, 204, "learnt");
    for token in ["33", "34", "99"] {
        let foreign = put(&mut client, "r/1", &[("fencing-token", token), ("fencing-issuer", "redis:2")]);
        assert_refused(&foreign, 409, "foreign-issuer", token, Some("34"));
        assert_eq!(foreign.json()["issuer"], "etcd:1");
    }
    assert_eq!(client.put("r/1", "35", "an absent issuer is admitted").status, 204);
    let foreign = put(&mut client, "r/1", &[("fencing-token", "36"), ("fencing-issuer", "redis:2")]);
    assert_refused(&foreign, 409, "foreign-issuer", "36", Some("35"));
}

#[test]
fn generations_are_judged_before_numbers() {
    let gateway = guarded("");
    let mut client = gateway.client();
    assert_eq!(client.put("r/1", "34", "v").status, 204);
    let unknown = client.put("r/1", "1:1", "w");
    assert_refused(&unknown, 409, "unknown-generation", "1:1", Some("34"));
    assert_eq!(unknown.json()["generation"], 0);
}

#[test]
fn a_refusal_names_the_holder_and_the_time_and_says_what_to_do() {
    let gateway = guarded("");
    let mut client = gateway.client();
    let holder = [("fencing-token", "34"), ("fencing-holder", "worker-b#9f2c"), ("fencing-issuer", "etcd:1")];
    assert_eq!(put(&mut client, "r/1", &holder).status, 204);
    let stale = client.put("r/1", "33", "late");
    assert_refused(&stale, 409, "stale", "33", Some("34"));
    let json = stale.json();
    assert_eq!((&json["holder"], &json["issuer"]), (&"worker-b#9f2c".into(), &"etcd:1".into()));
    assert!(json["raised_at"].is_string(), "{json}");
    let detail = json["detail"].as_str().unwrap();
    assert!(detail.starts_with("token 33 is stale for `r`: the fence is 34, raised by `worker-b#9f2c`"), "{detail}");
    assert!(detail.ends_with("ago."), "{detail}");
}

#[test]
fn a_newer_token_replaces_the_holder_even_by_none() {
    let gateway = guarded("");
    let mut client = gateway.client();
    assert_eq!(put(&mut client, "r/1", &[("fencing-token", "34"), ("fencing-holder", "a#1")]).status, 204);
    assert_eq!(client.put("r/1", "35", "v").status, 204);
    let fence = client.request("GET", "/v1/fences/r", &[], b"").json();
    assert!(fence["fence"]["holder"].is_null(), "{fence}");
    assert_eq!(put(&mut client, "r/1", &[("fencing-token", "35"), ("fencing-holder", "b#2")]).status, 204);
}

/// A transaction that writes `r/1` with this token, and `free`, which has no guard.
fn txn(client: &mut Client, token: Value) -> Answer {
    let then = json!([{"put": "r/1", "text": "t"}, {"put": "free", "text": "t"}]);
    client.post("/v1/txn", &json!({"tokens": {"r": token, "free": "1"}, "then": then}))
}

#[test]
fn a_transaction_is_judged_by_the_policy_of_each_guard() {
    for (policy, before, token, status, kind, fence) in [
        ("equal = 'reject'", "34", "34", 409, "spent", Some("34")),
        ("claim = 'required'", "", "34", 428, "unclaimed", None),
        ("max_jump = 10", "34", "45", 409, "implausible", Some("34")),
        ("issuer = 'required'", "", "34", 428, "missing-issuer", None),
        ("", "34", "33", 409, "stale", Some("34")),
        ("", "34", "1:35", 409, "unknown-generation", Some("34")),
    ] {
        let gateway = guarded(policy);
        let mut client = gateway.client();
        if !before.is_empty() {
            assert_eq!(client.put("r/1", before, "v").status, 204, "{policy}");
        }
        let refused = txn(&mut client, json!(token));
        assert_refused(&refused, status, kind, token, fence);
        assert_eq!(refused.json()["refusals"][0]["resource"], "r", "{policy}");
        assert_eq!((client.get("free").status, client.fence("free")), (404, None), "{policy}: all or nothing");
        assert_eq!(client.fence("r").as_deref(), fence, "{policy}");
    }
}

#[test]
fn a_transaction_spends_claims_and_binds_like_a_single_write() {
    let gateway = guarded("equal = 'reject'");
    let mut client = gateway.client();
    let read = json!({"tokens": {"r": "34"}, "then": [{"get": "r/1"}]});
    assert_eq!(client.post("/v1/txn", &read).status, 200, "a read does not spend");
    let two = json!({"tokens": {"r": "34"}, "then": [{"put": "r/1", "text": "a"}, {"put": "r/2", "text": "b"}]});
    assert_eq!(client.post("/v1/txn", &two).status, 200, "two keys of one resource are one write");
    assert_refused(&client.put("r/3", "34", "w"), 409, "spent", "34", Some("34"));

    let gateway = guarded("claim = 'required'");
    let mut client = gateway.client();
    let read = json!({"tokens": {"r": "34"}, "then": [{"get": "r/1"}]});
    assert_eq!(client.post("/v1/txn", &read).status, 200, "to read with a token is to claim");
    assert_eq!(txn(&mut client, json!("34")).status, 200);

    let gateway = guarded("issuer = 'required'");
    let mut client = gateway.client();
    assert_eq!(txn(&mut client, json!({"token": "34", "issuer": "etcd:1"})).status, 200);
    let foreign = txn(&mut client, json!({"token": "35", "issuer": "redis:2"}));
    assert_refused(&foreign, 409, "foreign-issuer", "35", Some("34"));
    assert_eq!(foreign.json()["issuer"], "etcd:1");

    let gateway = guarded("max_jump = 10");
    let mut client = gateway.client();
    assert_eq!(txn(&mut client, json!("5000")).status, 200, "the first may be anything");
    assert_eq!(txn(&mut client, json!("5010")).status, 200, "exactly the jump");
}

/// Acquires the lock `r`; returns its token and issuer.
fn acquired(client: &mut Client) -> (String, String) {
    let answer = client.acquire("r", "a#1", 30_000);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let json = answer.json();
    (json["token"].as_str().unwrap_or_default().to_owned(), json["issuer"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_built_in_lock_works_under_every_policy() {
    let gateway = guarded("claim = 'required'\nissuer = 'required'\nequal = 'reject'\nmax_jump = 1");
    let mut client = gateway.client();
    let (token, issuer) = acquired(&mut client);
    assert_refused(&client.put("r/1", &token, "v"), 428, "missing-issuer", &token, Some(&token));
    let write = [("fencing-token", token.as_str()), ("fencing-issuer", &issuer), ("fencing-holder", "a#1")];
    assert_eq!(put(&mut client, "r/1", &write).status, 204, "a grant counts as a claim");
    assert_refused(&put(&mut client, "r/1", &write), 409, "spent", &token, Some(&token));
    let admin = &mut Client::connect_unix(&gateway.data().join("admin.sock"));
    assert_eq!(admin.post("/v1/admin/locks/r/force-release", &json!({})).json()["fence"], "2");
    let (token, _) = acquired(&mut client);
    assert_eq!(token, "3", "each grant is one step, so max_jump never stands in its way");
}

#[test]
fn a_resource_bound_to_another_lock_service_refuses_the_built_in_one() {
    let gateway = guarded("");
    let mut client = gateway.client();
    assert_eq!(put(&mut client, "r/1", &[("fencing-token", "34"), ("fencing-issuer", "etcd:1")]).status, 204);
    let refused = client.acquire("r", "a#1", 30_000);
    assert_refused(&refused, 409, "foreign-issuer", "35", Some("34"));
    assert_eq!(refused.json()["issuer"], "etcd:1");
    assert_eq!(client.request("GET", "/v1/locks/r", &[], b"").status, 404);
    assert_eq!(client.fence("r").as_deref(), Some("34"));
}

#[test]
fn observing_grants_the_lock_but_leaves_a_fence_it_would_have_refused() {
    let gateway = guarded("mode = 'observe'");
    let mut client = gateway.client();
    assert_eq!(put(&mut client, "r/1", &[("fencing-token", "34"), ("fencing-issuer", "etcd:1")]).status, 204);
    let mut tokens = Vec::new();
    for holder in ["a#1", "b#2"] {
        let granted = client.acquire("r", holder, 30_000);
        assert_eq!((granted.status, granted.header("fencing-observed")), (201, Some("foreign-issuer")));
        let (token, lease) = (granted.json()["token"].clone(), granted.json()["lease"].clone());
        let renewed = client.renew("r", lease.as_str().unwrap_or_default(), 30_000);
        assert_eq!((renewed.status, renewed.header("fencing-observed")), (200, Some("foreign-issuer")));
        assert_eq!(client.release("r", lease.as_str().unwrap_or_default()).status, 204);
        tokens.push(token);
    }
    assert_eq!(tokens, ["35", "36"], "no number is given twice, whatever the fence says");
    assert_eq!(client.fence("r").as_deref(), Some("34"));
}
