//! A gateway that is paused in the middle of an upload, and another that tries to take its place.

use fencepost_conformance::wait::PATIENCE;
use fencepost_harness::http::Client;
use rustix::process::Signal;

use crate::parsing::code;
use crate::signing::Signer;
use crate::world::{Running, World, until_nothing_is_staged, until_some_is_staged};

const BODY: usize = 1 << 20;

/// A gateway, the holder of 33, and its upload of which half is staged.
fn half_an_upload() -> (World, Running, Signer, Client) {
    let world = World::new();
    let running = world.start();
    let first = running.holder("33");
    let mut slow = first.begin("PUT", "/reports/x", &[], BODY);
    slow.send(&vec![b'x'; BODY / 2]).unwrap();
    until_some_is_staged(&world.objects());
    (world, running, first, slow)
}

/// Checked, paused, written late: the commit decides, and no other gateway can have committed meanwhile.
#[test]
fn t16_no_second_gateway_beside_one_that_is_stopped_in_an_upload() {
    let (world, running, first, mut slow) = half_an_upload();
    running.signal(Signal::STOP);

    let said = world.try_start("other-data").err().expect("the objects are in use");
    assert!(said.contains("is in use by another gateway"), "{said}");
    assert!(said.contains(&running.pid().to_string()), "it says by which: {said}");
    let said = world.try_start("data").err().expect("the data are in use");
    assert!(said.contains("in use") || said.contains("lock"), "{said}");

    running.signal(Signal::CONT);
    slow.send(&vec![b'x'; BODY / 2]).unwrap();
    assert_eq!(slow.receive().unwrap().status, 200, "no other holder came");
    assert_eq!(world.seen(&first)["x"].len(), BODY);
    until_nothing_is_staged(&world.objects());
}

/// While the gateway is stopped, the rest of the upload and the claim of 34 arrive; it finds both when it resumes.
#[test]
fn t16_an_upload_over_a_pause_ends_as_the_fence_says() {
    for claim_first in [true, false] {
        let (world, running, _, mut slow) = half_an_upload();
        let mut claiming = Client::connect(running.address());
        running.signal(Signal::STOP);
        let claim =
            "POST /v1/claim/reports HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\ncontent-length: 0\r\n\r\n";
        claiming.send(claim.as_bytes()).unwrap();
        if claim_first {
            running.signal(Signal::CONT);
            assert_eq!(claiming.receive().unwrap().status, 200);
        }
        slow.send(&vec![b'x'; BODY / 2]).unwrap();
        running.signal(Signal::CONT);
        let answer = slow.receive().unwrap();
        if !claim_first {
            assert_eq!(claiming.receive().unwrap().status, 200);
        }
        let second = running.holder("34");
        let seen = world.seen(&second);
        match answer.status {
            200 => {
                assert!(!claim_first, "33 wrote after 34 had claimed");
                assert_eq!(seen["x"].len(), BODY);
            }
            _ => {
                assert_eq!((answer.status, code(&answer).as_str()), (403, "StaleFencingToken"), "{}", answer.text());
                assert!(seen.is_empty());
            }
        }
        until_nothing_is_staged(&world.objects());
        assert_eq!(running.client().fence("reports").as_deref(), Some("34"));
    }
}

/// With another store, the same directory would be without its fences.
#[test]
fn objects_are_not_opened_with_the_data_of_another_store() {
    let world = World::new();
    let running = world.start();
    let first = running.holder("33");
    assert_eq!(first.put("reports/x", b"x").status, 200);
    running.signal(Signal::TERM);
    assert!(running.gateway.wait(PATIENCE).success());
    let said = world.try_start("other-data").err().expect("another store has none of the fences");
    assert!(said.contains("belong to the store"), "{said}");
    let running = world.start();
    assert_eq!(world.seen(&running.again(&first))["x"], b"x");
}
