//! A gateway that was stopped, or whose commit was held up in the network, while another one went on (trap 16).

use fencepost_harness::http::Client;
use serde_json::json;

use crate::held::{Held, told};
use crate::team::{Gateway, On, Pair, on_each, put_request, txn, txn_request};

on_each! {
    t16_a_gateway_that_was_stopped_with_requests_in_hand_changes_nothing_when_it_goes_on,
    t16_a_commit_that_arrives_late_is_judged_by_what_holds_then,
    t17_a_late_commit_does_not_slip_past_a_fence_that_it_only_compares,
    t32_a_late_commit_from_before_a_rotation_of_everything_is_refused,
    t16_gateways_stopped_in_turn_leave_one_history,
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
    a.pause();
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
    a.resume();
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

fn t16_a_commit_that_arrives_late_is_judged_by_what_holds_then(on: On) {
    let held = Held::start(on, "late_commits");
    for round in 0..5 {
        let key = format!("orders/{round}");
        assert_eq!(held.through.client().put(&key, "33", "old").status, 204);
        let late = held.while_held(&put_request(&key, "33", "late"), |b| {
            assert_eq!(b.claim(&key, "34").status, 200);
            assert_eq!(b.put(&key, "34", "new").status, 204);
        });
        assert_eq!(told(&late), (409, "stale".to_owned()), "round {round}");
        assert_eq!(held.direct.client().get(&key).text(), "new");
    }
}

fn t17_a_late_commit_does_not_slip_past_a_fence_that_it_only_compares(on: On) {
    let held = Held::start(on, "write_skew");
    // The late transaction writes under two resources. Only one of them is claimed meanwhile, and no value changes.
    let both = |text: &str| {
        let puts = ["x", "y"].map(|key| json!({"put": key, "text": text}));
        json!({"tokens": {"x": "1", "y": "1"}, "then": puts})
    };
    assert_eq!(txn(&mut held.through.client(), &both("old")).status, 200);
    let late = held.while_held(&txn_request(&both("late")), |b| {
        assert_eq!(b.claim("y", "2").status, 200);
    });
    assert_eq!(told(&late), (409, "stale".to_owned()));
    let mut b = held.direct.client();
    assert_eq!((b.get("x").text(), b.get("y").text()), ("old".to_owned(), "old".to_owned()));
}

fn t32_a_late_commit_from_before_a_rotation_of_everything_is_refused(on: On) {
    let held = Held::start(on, "late_rotation");
    assert_eq!(held.through.client().put("k", "33", "old").status, 204);
    let late = held.while_held(&put_request("k", "34", "late"), |_| {
        let rotated = held.direct.admin("fence rotate --all --from 0 --reason test");
        assert!(rotated.status.success(), "{rotated:?}");
    });
    assert_eq!(told(&late), (409, "retired-generation".to_owned()));
    assert_eq!(held.direct.client().get("k").text(), "old");
}

fn t16_gateways_stopped_in_turn_leave_one_history(on: On) {
    let pair = Pair::start(on, "turns");
    for round in 0..6 {
        let (zombie, next) = if round % 2 == 0 { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
        let (old, new) = ((2 * round + 1).to_string(), (2 * round + 2).to_string());
        assert_eq!(zombie.client().put("k", &old, "old").status, 204);
        zombie.pause();
        let mut late = zombie.client();
        late.send(&put_request("k", &old, "late")).unwrap();
        let taken = next.client().put("k", &new, &new);
        zombie.resume();
        assert_eq!(taken.status, 204, "a stopped gateway holds nothing up: {}", taken.text());
        assert_eq!(late.receive().unwrap().problem(), "stale");
        assert_eq!(zombie.client().get("k").text(), new);
    }
}
