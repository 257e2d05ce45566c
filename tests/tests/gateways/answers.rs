//! When an answer is sent (G4, trap 10): not before the server has the commit that justifies it.

use std::io::ErrorKind;
use std::time::Duration;

use fencepost_conformance::proxy::Direction;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::http::Client;

use crate::held::{Held, told};
use crate::team::{Gateway, On, on_each, put_request};

on_each! {
    t10_a_success_and_the_refusals_that_it_justifies_wait_for_its_commit,
    t10_a_gateway_that_died_before_its_commit_has_answered_nothing,
}

/// How many requests depend on a commit that is held.
const REFUSED: usize = 20;

/// A put with 34 whose commit is on its way, and puts with 33 that would be refused because of it.
struct Waiting {
    newer: Client,
    stale: Vec<Client>,
}

impl Waiting {
    /// The fence is 33 so far.
    fn start(held: &Held) -> Waiting {
        for key in ["k", "other"] {
            assert_eq!(held.through.client().put(key, "33", "old").status, 204);
        }
        let newer = held.send(Direction::Up, &put_request("k", "34", "new"));
        let send = |_| {
            let mut client = held.through.client();
            client.send(&put_request("k", "33", "late")).unwrap();
            client
        };
        let stale = (0..REFUSED).map(send).collect();
        wait::until("the requests to be read", PATIENCE, || held.through.has_read_everything().then_some(()));
        // What a durable fence refuses does not wait, so the gateway could have answered the others by now.
        for _ in 0..5 {
            let refused = held.through.client().put("other", "32", "zombie");
            assert_eq!((told(&refused), refused.fence_shown().as_deref()), ((409, "stale".to_owned()), Some("33")));
        }
        Waiting { newer, stale }
    }
}

/// Whether an answer has come by now.
fn is_answered(client: &mut Client) -> bool {
    client.set_timeout(Duration::from_millis(1));
    let looked = client.wait_for_answer();
    client.set_timeout(PATIENCE);
    match looked {
        Ok(()) => true,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => false,
        Err(error) => panic!("the connection broke: {error}"),
    }
}

/// The fence and the value at the other gateway.
fn shown(gateway: &Gateway) -> (Option<String>, String) {
    let mut client = gateway.client();
    (client.fence("k"), client.get("k").text())
}

fn t10_a_success_and_the_refusals_that_it_justifies_wait_for_its_commit(on: On) {
    let held = Held::start(on, "answers");
    let mut waiting = Waiting::start(&held);
    assert_eq!(shown(&held.direct), (Some("33".to_owned()), "old".to_owned()), "nothing uncommitted is visible");
    for client in waiting.stale.iter_mut().chain([&mut waiting.newer]) {
        assert!(!is_answered(client), "answered before the commit was on the server");
    }
    held.proxy.pass();
    let answer = waiting.newer.receive().unwrap();
    assert_eq!(answer.status, 204, "{}", answer.text());
    for client in &mut waiting.stale {
        let refused = client.receive().unwrap();
        assert_eq!((told(&refused), refused.fence_shown().as_deref()), ((409, "stale".to_owned()), Some("34")));
    }
    assert_eq!(shown(&held.direct), (Some("34".to_owned()), "new".to_owned()));
}

fn t10_a_gateway_that_died_before_its_commit_has_answered_nothing(on: On) {
    let mut held = Held::start(on, "unanswered_deaths");
    let mut waiting = Waiting::start(&held);
    held.through.kill();
    // What was held is lost, too.
    held.proxy.cut();
    for client in waiting.stale.iter_mut().chain([&mut waiting.newer]) {
        let kind = client.receive().map(|answer| told(&answer)).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{kind}");
    }
    // 34 never happened, so whoever has 33 may go on.
    assert_eq!(shown(&held.direct), (Some("33".to_owned()), "old".to_owned()));
    assert_eq!(held.direct.client().put("k", "33", "next").status, 204);
}
