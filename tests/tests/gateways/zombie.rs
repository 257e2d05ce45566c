//! A gateway that was stopped, or whose commit was held up in the network, while another one went on (trap 16).

use fencepost_conformance::proxy::{Direction, Proxy, Rule};
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::http::Client;
use rustix::process::Signal;
use serde_json::json;

use crate::team::{Gateway, On, Pair, Place, on_each, put_request, txn};

on_each! {
    t16_a_gateway_that_was_stopped_with_requests_in_hand_changes_nothing_when_it_goes_on,
    t16_a_commit_that_arrives_late_is_judged_by_what_holds_then,
    t17_a_late_commit_does_not_slip_past_a_fence_that_it_only_compares,
    t32_a_late_commit_from_before_a_rotation_of_everything_is_refused,
    t16_gateways_stopped_in_turn_leave_one_history,
}

/// Stops a gateway's process, and waits until it stands still.
fn stop(gateway: &Gateway) {
    gateway.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", gateway.pid());
    wait::until("the gateway to stand still", PATIENCE, || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        // The field after the name, which may contain spaces.
        stat.rsplit(')').next()?.split_whitespace().next().filter(|state| *state == "T").map(drop)
    });
}

/// A connection whose PUT is in progress, with half of its body.
fn half_sent(gateway: &Gateway, key: &str, token: &str) -> Client {
    let mut client = gateway.client();
    let head = format!("PUT /v1/kv/{key} HTTP/1.1\r\nhost: localhost\r\nfencing-token: {token}\r\n");
    client.send(format!("{head}expect: 100-continue\r\ncontent-length: 4\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(client.receive().unwrap().status, 100, "the gateway waits for the body");
    client.send(b"la").unwrap();
    client
}

fn t16_a_gateway_that_was_stopped_with_requests_in_hand_changes_nothing_when_it_goes_on(on: On) {
    let pair = Pair::start(on, "zombies");
    let (a, mut b) = (&pair.a, pair.b.client());
    assert_eq!(a.client().put("orders/1", "33", "old").status, 204);
    let mut late = vec![half_sent(a, "orders/1", "33")];
    stop(a);
    // They wait in its socket until it goes on.
    for _ in 0..3 {
        let mut client = a.client();
        client.send(&put_request("orders/1", "33", "late")).unwrap();
        late.push(client);
    }
    let mut keyed = a.client();
    let once = "PUT /v1/kv/orders/1 HTTP/1.1\r\nhost: localhost\r\nfencing-token: 33\r\nidempotency-key: late\r\ncontent-length: 4\r\n\r\nlate";
    keyed.send(once.as_bytes()).unwrap();
    late.push(keyed);
    assert_eq!(b.claim("orders/1", "34").status, 200);
    assert_eq!(b.put("orders/1", "34", "new").status, 204);
    a.signal(Signal::CONT);
    late[0].send(b"te").unwrap();
    for client in &mut late {
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, answer.problem().as_str()), (409, "stale"), "{}", answer.text());
        assert_eq!(answer.fence_shown().as_deref(), Some("34"));
    }
    for client in [&mut a.client(), &mut b] {
        assert_eq!((client.get("orders/1").text().as_str(), client.fence("orders/1").as_deref()), ("new", Some("34")));
    }
    let outcome = b.request("GET", "/v1/outcomes/late", &[], b"").json();
    assert_eq!(outcome["outcome"], "not-recorded");
}

/// Two gateways of one store; the first reaches the server through a proxy.
fn with_a_proxy(on: On, name: &str) -> (Pair, Proxy) {
    let place = Place::new(on, name);
    let proxy = Proxy::start(place.address());
    let (a, b) = (Gateway::start(&place.engine_at(proxy.address())), Gateway::start(&place.engine()));
    (Pair { a, b, _place: place }, proxy)
}

/// Does something while the next commit of the first gateway is on its way to the server.
fn while_held(proxy: &Proxy, pair: &Pair, request: Vec<u8>, meanwhile: impl FnOnce(&mut Client)) -> (u16, String) {
    let before = proxy.count(Direction::Up).bytes;
    proxy.set(Direction::Up, Rule::Hold);
    let mut late = pair.a.client();
    late.send(&request).unwrap();
    wait::until("the commit to be on its way", PATIENCE, || (proxy.count(Direction::Up).bytes > before).then_some(()));
    // The gateway stops for good measure: it hears nothing of what happens.
    stop(&pair.a);
    meanwhile(&mut pair.b.client());
    proxy.pass();
    pair.a.signal(Signal::CONT);
    let answer = late.receive().unwrap();
    (answer.status, if answer.status >= 400 { answer.problem() } else { String::new() })
}

fn t16_a_commit_that_arrives_late_is_judged_by_what_holds_then(on: On) {
    let (pair, proxy) = with_a_proxy(on, "late_commits");
    for round in 0..5 {
        let key = format!("orders/{round}");
        assert_eq!(pair.a.client().put(&key, "33", "old").status, 204);
        let late = while_held(&proxy, &pair, put_request(&key, "33", "late"), |b| {
            assert_eq!(b.claim(&key, "34").status, 200);
            assert_eq!(b.put(&key, "34", "new").status, 204);
        });
        assert_eq!(late, (409, "stale".to_owned()), "round {round}");
        assert_eq!(pair.b.client().get(&key).text(), "new");
    }
}

fn t17_a_late_commit_does_not_slip_past_a_fence_that_it_only_compares(on: On) {
    let (pair, proxy) = with_a_proxy(on, "write_skew");
    // The late transaction writes under two resources. Only one of them is claimed meanwhile, and no value changes.
    let both = |text: &str| {
        let puts = ["x", "y"].map(|key| json!({"put": key, "text": text}));
        json!({"tokens": {"x": "1", "y": "1"}, "then": puts})
    };
    assert_eq!(txn(&mut pair.a.client(), &both("old")).status, 200);
    let body = both("late").to_string();
    let head = format!("POST /v1/txn HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    let late = while_held(&proxy, &pair, (head + &body).into_bytes(), |b| {
        assert_eq!(b.claim("y", "2").status, 200);
    });
    assert_eq!(late, (409, "stale".to_owned()));
    let mut b = pair.b.client();
    assert_eq!((b.get("x").text(), b.get("y").text()), ("old".to_owned(), "old".to_owned()));
}

fn t32_a_late_commit_from_before_a_rotation_of_everything_is_refused(on: On) {
    let (pair, proxy) = with_a_proxy(on, "late_rotation");
    assert_eq!(pair.a.client().put("k", "33", "old").status, 204);
    let late = while_held(&proxy, &pair, put_request("k", "34", "late"), |_| {
        let rotated = pair.b.admin("fence rotate --all --from 0 --reason test");
        assert!(rotated.status.success(), "{rotated:?}");
    });
    assert_eq!(late, (409, "retired-generation".to_owned()));
    assert_eq!(pair.b.client().get("k").text(), "old");
}

fn t16_gateways_stopped_in_turn_leave_one_history(on: On) {
    let pair = Pair::start(on, "turns");
    for round in 0..6 {
        let (zombie, next) = if round % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        let (old, new) = ((2 * round + 1).to_string(), (2 * round + 2).to_string());
        assert_eq!(zombie.client().put("k", &old, "old").status, 204);
        stop(zombie);
        let mut late = zombie.client();
        late.send(&put_request("k", &old, "late")).unwrap();
        let taken = next.client().put("k", &new, &new);
        zombie.signal(Signal::CONT);
        assert_eq!(taken.status, 204, "a stopped gateway holds nothing up: {}", taken.text());
        assert_eq!(late.receive().unwrap().problem(), "stale");
        assert_eq!(zombie.client().get("k").text(), new);
    }
}
