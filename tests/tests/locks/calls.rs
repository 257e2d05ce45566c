//! `/v1/locks`: acquire, renew, release, show and list; the token is fenced from the moment of the grant.

use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::GatewayProcess;
use serde_json::{Value, json};

const LONG: u64 = 60_000;

/// The lease of a grant.
fn lease(answer: &Answer) -> String {
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    answer.json()["lease"].as_str().unwrap().to_owned()
}

fn show(client: &mut Client, lock: &str) -> Answer {
    client.request("GET", &format!("/v1/locks/{lock}"), &[], b"")
}

fn remaining(client: &mut Client, lock: &str) -> u64 {
    show(client, lock).json()["remaining_ms"].as_u64().unwrap()
}

/// Waits until another holder may take over.
fn run_out(client: &mut Client, lock: &str) {
    wait::until("the lease to run out", PATIENCE, || (remaining(client, lock) == 0).then_some(()));
}

fn assert_lost(answer: &Answer) {
    assert_eq!((answer.status, answer.problem().as_str()), (410, "lease-lost"), "{}", answer.text());
    assert_eq!(answer.json()["outcome"], "not-applied");
}

#[test]
fn a_grant_says_everything_that_its_holder_needs() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let granted = client.acquire("orders/123", "worker-a#9f2c", 30_000);
    assert_eq!((granted.status, granted.header("cache-control")), (201, Some("no-store")), "{}", granted.text());
    let json = granted.json();
    assert_eq!((&json["name"], &json["token"]), (&"orders/123".into(), &"1".into()));
    assert_eq!((&json["holder"], &json["ttl_ms"]), (&"worker-a#9f2c".into(), &30_000.into()));
    assert_eq!(lease(&granted).len(), 32);
    let issuer = json["issuer"].as_str().unwrap();
    assert!(issuer.starts_with("fencepost:") && issuer.len() > 15, "{issuer}");
    let shown = show(&mut client, "orders/123");
    assert_eq!(shown.status, 200);
    let shown = shown.json();
    assert_eq!((&shown["holder"], &shown["token"], &shown["waiting"]), (&json["holder"], &"1".into(), &0.into()));
    assert!((1..=30_000).contains(&shown["remaining_ms"].as_u64().unwrap()), "{shown}");
    assert_eq!(shown.get("lease"), None, "the lease is known to its holder only");
    assert_eq!(client.acquire("stock/7", "w#1", LONG).json()["issuer"], json["issuer"], "one issuer per store");
}

#[test]
fn a_held_lock_is_423_with_who_and_how_long() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.acquire("k", "a#1", 20_000).status, 201);
    let held = client.acquire("k", "b#2", 20_000);
    assert_eq!((held.status, held.problem().as_str()), (423, "lock-held"));
    let json = held.json();
    assert_eq!((&json["resource"], &json["holder"], &json["waiting"]), (&"k".into(), &"a#1".into(), &0.into()));
    let left = json["remaining_ms"].as_u64().unwrap();
    assert!((15_000..=20_000).contains(&left), "{json}");
    let seconds: u64 = held.header("retry-after").unwrap().parse().unwrap();
    assert!((15..=20).contains(&seconds), "{seconds}");
    assert!(json["detail"].as_str().unwrap().contains("`a#1` with token 1"), "{json}");
    // Locks are not re-entrant: a holder that asks again is refused, with itself named as the holder.
    assert_eq!(client.acquire("k", "a#1", 20_000).status, 423);
    assert_eq!(client.fence("k").as_deref(), Some("1"), "asking raises nothing");
    let long = client.acquire("long", "a#1", 86_400_000);
    assert_eq!(long.status, 201);
    assert_eq!(client.acquire("long", "b#2", LONG).header("retry-after"), Some("30"), "not a day");
}

#[test]
fn the_fence_is_raised_with_the_grant_and_the_old_holder_is_stale_after_a_takeover() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let a = client.acquire("k", "a#1", 100).json();
    let fence = client.request("GET", "/v1/fences/k", &[], b"").json()["fence"].clone();
    assert_eq!((&fence["token"], &fence["holder"], &fence["issuer"]), (&"1".into(), &"a#1".into(), &a["issuer"]));
    let write = |client: &mut Client, lease: &Value, body: &str| {
        let [token, holder, issuer] = ["token", "holder", "issuer"].map(|name| lease[name].as_str().unwrap());
        let headers = [("fencing-token", token), ("fencing-holder", holder), ("fencing-issuer", issuer)];
        client.request("PUT", "/v1/kv/k", &headers, body.as_bytes())
    };
    assert_eq!(write(&mut client, &a, "a").status, 204);
    let b = wait::until("the takeover", PATIENCE, || {
        let answer = client.acquire("k", "b#2", LONG);
        (answer.status == 201).then(|| answer.json())
    });
    assert_eq!(b["token"], "2", "{b}");
    // B has not written yet, and A is refused nevertheless: the grant itself raised the fence.
    let stale = write(&mut client, &a, "zombie");
    assert_eq!((stale.status, stale.problem().as_str(), &stale.json()["holder"]), (409, "stale", &"b#2".into()));
    assert_eq!(write(&mut client, &b, "b").status, 204);
    assert_eq!(client.get("k").text(), "b");
    let lost = client.renew("k", a["lease"].as_str().unwrap(), LONG);
    assert_lost(&lost);
    assert_eq!((&lost.json()["holder"], &lost.json()["fence"]), (&"b#2".into(), &"2".into()));
    assert_lost(&client.release("k", a["lease"].as_str().unwrap()));
    assert_eq!(show(&mut client, "k").json()["holder"], "b#2", "nothing changed");
}

/// A gateway whose lock `k` is kept by renewals, and its lease. `None`: a renewal was late, and another holder has the
/// lock.
fn kept_for_two_seconds(ttl: Duration) -> Option<(Fresh, String)> {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap();
    let started = Instant::now();
    let id = lease(&client.acquire("k", "a#1", ttl_ms));
    while started.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        let renewed = client.renew("k", &id, ttl_ms);
        assert_eq!(renewed.status, 200, "{}", renewed.text());
        assert_eq!((&renewed.json()["token"], lease(&renewed)), (&"1".into(), id.clone()));
        let other = client.acquire("k", "b#2", LONG);
        if other.status == 201 && asked.elapsed() >= ttl {
            return None;
        }
        assert_eq!(other.status, 423, "{}", other.text());
        wait::pause(Duration::from_millis(30));
    }
    Some((gateway, id))
}

#[test]
fn renewing_keeps_the_token_and_lasts_from_now_on() {
    // With repeated renewals, a lease outlives its ttl by far, and no other client gets the lock.
    let kept = (0..5).find_map(|_| kept_for_two_seconds(Duration::from_millis(800)));
    let (gateway, id) = kept.expect("each time this machine stood still for longer than the ttl");
    let mut client = gateway.client();
    assert_eq!(client.renew("k", &id, 50_000).json()["ttl_ms"], 50_000);
    assert!(remaining(&mut client, "k") > 40_000);
    assert_eq!(client.renew("k", &id, 100).json()["ttl_ms"], 100, "it may be shortened, too");
    run_out(&mut client, "k");
    // Late, but no other holder took the lock.
    let late = client.renew("k", &id, LONG);
    assert_eq!((late.status, &late.json()["token"]), (200, &"1".into()));
    assert_eq!(client.acquire("k", "b#2", LONG).status, 423);
}

#[test]
fn nothing_remaining_means_that_it_may_be_taken_over() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for round in 0..10 {
        assert_eq!(client.acquire("k", "a#1", 100).status, 201, "round {round}");
        run_out(&mut client, "k");
        let taken = client.acquire("k", "b#2", LONG);
        assert_eq!(client.release("k", &lease(&taken)).status, 204, "round {round}");
    }
}

#[test]
fn a_released_lock_is_free_at_once_and_its_lease_is_gone() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for number in 1..=3 {
        let granted = client.acquire("k", "a#1", LONG);
        assert_eq!(granted.json()["token"], number.to_string(), "each grant has a number of its own");
        let id = lease(&granted);
        assert_eq!(client.release("k", &id).status, 204);
        let free = show(&mut client, "k");
        assert_eq!((free.status, free.problem().as_str()), (404, "not-held"));
        assert_lost(&client.release("k", &id));
        assert_lost(&client.renew("k", &id, LONG));
    }
    assert_eq!(client.fence("k").as_deref(), Some("3"), "the fence stays");
    assert_lost(&client.renew("never", &"a".repeat(32), LONG));
}

#[test]
fn a_token_presented_from_elsewhere_counts_and_a_fenced_lease_cannot_be_renewed() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let id = lease(&client.acquire("k", "a#1", LONG));
    assert_eq!(client.claim("k", "50").status, 200, "somebody goes around the lock");
    let renewed = client.renew("k", &id, LONG);
    assert_lost(&renewed);
    assert_eq!(renewed.json()["fence"], "50", "its token is worth nothing any more");
    assert_eq!(client.release("k", &id).status, 204);
    assert_eq!(client.acquire("k", "b#2", LONG).json()["token"], "51", "above whatever was seen");
}

#[test]
fn names_are_raw_paths_and_must_be_resources() {
    let gateway = Fresh::configured("[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\n", &[]);
    let mut client = gateway.client();
    for (raw, name) in
        [("a%2Frenew", "a/renew"), ("renew", "renew"), ("a/b", "a/b"), ("b%20c", "b c"), ("a%2Fc", "a/c")]
    {
        let granted = client.acquire(raw, "w#1", LONG);
        assert_eq!((granted.status, &granted.json()["name"]), (201, &name.into()), "{raw}: {}", granted.text());
        assert_eq!(client.renew(raw, &lease(&granted), LONG).status, 200, "{raw}");
        assert_eq!(show(&mut client, raw).json()["name"], name);
        assert_eq!(client.release(raw, &lease(&granted)).status, 204, "{raw}");
    }
    let wrong = client.acquire("a/renew", "w#1", LONG);
    assert_eq!((wrong.status, wrong.problem().as_str()), (400, "malformed-body"), "this renews `a`");
    let (id, member) = ("0".repeat(32), "orders/7/lines");
    for answer in [
        client.acquire(member, "w#1", LONG),
        client.renew(member, &id, LONG),
        client.release(member, &id),
        show(&mut client, member),
    ] {
        assert_eq!((answer.status, answer.problem().as_str()), (400, "not-a-resource"));
        assert_eq!(answer.json()["resource"], "orders/7", "the right one is named");
    }
    assert_eq!(client.acquire("orders/7", "w#1", LONG).status, 201);
    for bad in ["", "a//b", "%FF", "%00"] {
        assert_eq!(client.acquire(bad, "w#1", LONG).problem(), "malformed-name", "{bad}");
    }
}

#[test]
fn bad_requests_say_what_is_wrong_and_grant_nothing() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for (body, words) in [
        (json!({"holder": "a#1", "ttl_ms": 99}), "from 100 to 86400000 ms"),
        (json!({"holder": "a#1", "ttl_ms": 86_400_001}), "from 100 to 86400000 ms"),
        (json!({"holder": "a#1", "ttl_ms": 1000, "wait_ms": 600_001}), "the limit is 600000"),
        (json!({"holder": "a#1", "ttl_ms": -1}), "this call takes"),
        (json!({"holder": "a#1", "ttl_ms": 1.5}), "this call takes"),
        (json!({"holder": "a#1"}), "missing field `ttl_ms`"),
        (json!({"ttl_ms": 1000}), "missing field `holder`"),
        (json!({"holder": "", "ttl_ms": 1000}), "this call takes"),
        (json!({"holder": "x".repeat(257), "ttl_ms": 1000}), "this call takes"),
        (json!({"holder": "a#1", "ttl_ms": 1000, "wait": 5}), "unknown field `wait`"),
        (json!(["a#1", 1000]), "expected an object"),
    ] {
        let answer = client.post("/v1/locks/k", &body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-body"), "{body}: {}", answer.text());
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(words), "{words} in {detail}");
    }
    assert_eq!((show(&mut client, "k").status, client.fence("k")), (404, None));
    let id = lease(&client.acquire("k", "a#1", LONG));
    for (lease, ttl) in [(id.as_str(), 99), (&id, 86_400_001), ("", 1000), ("xyz", 1000), (&id[1..], 1000)] {
        let answer = client.renew("k", lease, ttl);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-body"), "{lease} {ttl}");
    }
    for query in
        ["", "?lease=", "?lease=xyz", "?id=1", &format!("?lease={id}&force=1"), &format!("?lease={id}&lease={id}")]
    {
        let answer = client.request("DELETE", &format!("/v1/locks/k{query}"), &[], b"");
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-query"), "{query}");
    }
    assert!(remaining(&mut client, "k") > 30_000, "nothing was renewed or released");
}

#[test]
fn locks_are_listed_in_pages() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for name in ["b/1", "a/1", "a/2", "c"] {
        assert_eq!(client.acquire(name, "w#1", LONG).status, 201);
    }
    let id = lease(&client.acquire("a/3", "w#1", LONG));
    assert_eq!(client.release("a/3", &id).status, 204);
    let mut names = |query: &str| {
        let page = client.request("GET", &format!("/v1/locks{query}"), &[], b"").json();
        let names: Vec<_> =
            page["locks"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap().to_owned()).collect();
        (names.join(" "), page["next"].as_str().map(str::to_owned))
    };
    assert_eq!(names(""), ("a/1 a/2 b/1 c".into(), None), "only those that are held");
    assert_eq!(names("?prefix=a/"), ("a/1 a/2".into(), None));
    let first = names("?limit=3");
    assert_eq!(first.0, "a/1 a/2 b/1");
    assert_eq!(names(&format!("?limit=3&after={}", first.1.unwrap())), ("c".into(), None));
}

#[test]
fn after_a_restart_a_lease_lasts_its_full_ttl_and_numbers_go_on() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let granted = client.acquire("k", "a#1", 2_000);
    let id = lease(&granted);
    wait::until("half of it to pass", PATIENCE, || (remaining(&mut client, "k") < 1_000).then_some(()));
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    let left = remaining(&mut client, "k");
    assert!((1_500..=2_000).contains(&left), "counted from the first sight after the restart: {left}");
    assert_eq!(client.acquire("k", "b#2", LONG).status, 423);
    assert_eq!(client.renew("k", &id, LONG).status, 200, "the old lease is still good");
    assert_eq!(client.release("k", &id).status, 204);
    let next = client.acquire("k", "b#2", LONG).json();
    assert_eq!((&next["token"], &next["issuer"]), (&"2".into(), &granted.json()["issuer"]));
    assert_eq!(client.put("k", "1", "zombie").problem(), "stale");
}

#[test]
fn a_lock_delay_is_added_to_every_ttl() {
    let gateway = Fresh::memory(&["--lock-delay", "800ms"]);
    let mut client = gateway.client();
    let started = Instant::now();
    assert_eq!(client.acquire("k", "a#1", 100).status, 201);
    wait::until("the lock", PATIENCE, || (client.acquire("k", "b#2", LONG).status == 201).then_some(()));
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
}

#[test]
fn a_replayed_acquire_gives_the_same_lease_until_it_is_gone() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let acquire = |client: &mut Client, holder: &str, ttl_ms: u64, wait_ms: u64| {
        let body = json!({"holder": holder, "ttl_ms": ttl_ms, "wait_ms": wait_ms}).to_string();
        client.request("POST", "/v1/locks/k", &[("idempotency-key", "acquire-1")], body.as_bytes())
    };
    let first = acquire(&mut client, "a#1", LONG, 0);
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    let again = acquire(&mut client, "a#1", LONG, 500);
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")), "with less patience or more");
    assert_eq!(again.json(), first.json());
    assert_eq!(acquire(&mut client, "b#2", LONG, 0).problem(), "key-reused");
    assert_eq!(acquire(&mut client, "a#1", 5_000, 0).problem(), "key-reused");
    assert_eq!(client.renew("k", &lease(&first), LONG).status, 200);
    assert_eq!(lease(&acquire(&mut client, "a#1", LONG, 0)), lease(&first), "renewed, it is still the same lease");
    assert_eq!(client.release("k", &lease(&first)).status, 204);
    let gone = acquire(&mut client, "a#1", LONG, 0);
    assert_lost(&gone);
    assert_eq!(gone.header("idempotent-replayed"), Some("true"));
    assert_eq!(show(&mut client, "k").status, 404, "it does not acquire a second time");
    assert_eq!(client.acquire("k", "b#2", LONG).status, 201);
    assert_eq!(acquire(&mut client, "a#1", LONG, 0).json()["holder"], "b#2");
    // "Held by another" is not recorded as an outcome: the same key may be used again.
    let body = json!({"holder": "c#3", "ttl_ms": LONG}).to_string();
    let held = client.request("POST", "/v1/locks/k", &[("idempotency-key", "acquire-2")], body.as_bytes());
    assert_eq!(held.status, 423);
    let outcome = client.request("GET", "/v1/outcomes/acquire-2", &[], b"").json();
    assert_eq!(outcome["outcome"], "not-recorded");
}
