//! The rows of the judge's table that need a policy, end to end, with what the refusal says.

use fencepost_conformance::harness::fresh::Fresh;
use fencepost_conformance::harness::http::{Answer, Client};

fn guarded(policy: &str) -> Fresh {
    Fresh::configured(&format!("[[guard]]\nkeys = 'r/**'\nresource = 'r'\n{policy}\n"), &[])
}

fn put(client: &mut Client, key: &str, headers: &[(&str, &str)]) -> Answer {
    client.request("PUT", &format!("/v1/kv/{key}"), headers, b"v")
}

/// Refused with this kind, telling both sides, and nothing was written.
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
