//! Clients that disconnect in the middle: nothing half-written is visible, and nothing is left behind.

use std::time::Duration;

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::budget;

use crate::signing::Signer;
use crate::world::{agreed, until_nothing_is_staged, until_some_is_staged};

const BODY: usize = 1 << 20;

#[test]
fn a_client_that_goes_in_the_middle_of_a_body_leaves_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/old", b"old").status, 200);
    let upload = signer.begin_upload("reports/parts");
    let before = gateway.files();
    let part = format!("/reports/parts?partNumber=1&uploadId={upload}");
    for target in ["/reports/old", "/reports/new", &part] {
        let mut leaving = signer.begin("PUT", target, &[], BODY);
        leaving.send(&vec![b'x'; BODY - 1]).unwrap();
        until_some_is_staged(&gateway.objects());
        drop(leaving);
        until_nothing_is_staged(&gateway.objects());
        assert_eq!(gateway.files(), before, "{target}");
        assert_eq!(agreed(&signer, "reports").len(), 1, "{target}");
    }
}

/// The client closes its sending side, and waits for the answer.
#[test]
fn a_body_that_ends_early_is_refused() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let mut short = signer.begin("PUT", "/reports/x", &[], BODY);
    short.send(&vec![b'x'; BODY - 1]).unwrap();
    short.finish_sending();
    if let Ok(answer) = short.receive() {
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    until_nothing_is_staged(&gateway.objects());
    assert_eq!(signer.get("reports/x").status, 404);
    assert!(gateway.files().is_empty());
}

/// A client that does not wait for the answer cannot know the outcome, but the write is atomic.
#[test]
fn a_client_that_goes_right_after_its_body_leaves_all_or_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let body = vec![b'x'; BODY];
    let (rounds, mut random) = (budget::pick(40, 500), Random::from_environment());
    for round in 0..rounds {
        let mut leaving = signer.begin("PUT", &format!("/reports/{round}"), &[], BODY);
        leaving.send(&body).unwrap();
        // At any moment: while the body is staged, committed, renamed or answered.
        wait::pause(Duration::from_micros(random.below(30_000)));
        drop(leaving);
    }
    until_nothing_is_staged(&gateway.objects());
    let objects = agreed(&signer, "reports");
    assert!(objects.values().all(|bytes| *bytes == body));
    let files = gateway.files();
    assert_eq!(files.len(), objects.len());
    assert!(files.values().all(|bytes| *bytes == body));
    println!("{} of {rounds} came to be", objects.len());
}
