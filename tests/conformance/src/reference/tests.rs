//! The simulated crash and pause behave like real ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{Bug, Reference, Setup};
use crate::answer::Answer;
use crate::manifest::{Equal, Policy};
use crate::op::{Op, Write};
use crate::resource::FencedResource;
use crate::subject::Hook;
use crate::wait;

fn reference(bug: Option<Bug>) -> Reference {
    let setup = bug.map_or(super::SETUPS[0].1, |bug| bug.mutant().setup);
    Reference::set_up(setup, bug, 7)
}

fn stale(high: u64) -> Answer {
    Answer::Stale { high: Some(high) }
}

fn found(value: Option<&str>, high: Option<u64>) -> Answer {
    Answer::Ok { value: Some(value.map(str::to_owned)), high }
}

#[test]
fn it_follows_the_model() {
    let resource = Reference::new(Policy::Gt, Equal::Holder);
    assert_eq!(resource.claim("r", 5, "a"), found(None, Some(5)));
    assert_eq!(resource.write("r", 5, "b", "v"), stale(5), "b does not hold 5");
    assert_eq!(resource.write("r", 5, "a", "v1"), Answer::Ok { value: None, high: Some(5) });
    assert_eq!(resource.write("r", 5, "a", "v2"), stale(5), "5 was used");
    assert_eq!(resource.claim("r", 5, "a"), found(Some("v1"), Some(5)), "a used token may claim");
    assert_eq!(resource.cas("r", 6, "a", Some("x"), "v3"), Answer::Mismatch { current: Some(Some("v1".to_owned())) });
    assert_eq!(resource.checked_read("r", 4), stale(5));
    assert!(resource.cas("r", 6, "a", Some("v1"), "v3").is_ok());
    assert_eq!(resource.delete("r", 5, "a"), stale(6));
    assert!(resource.delete("r", 7, "a").is_ok());
    assert_eq!(resource.read("r"), found(None, Some(7)));
    let batch = |token| [Write::new("s", 9, "a", "v4"), Write::new("r", token, "a", "v5")];
    assert_eq!(resource.batch(&batch(6)), Answer::Stale { high: None });
    assert_eq!(resource.read("s"), found(None, None));
    assert!(resource.batch(&batch(8)).is_ok());
    assert_eq!(resource.read("r"), found(Some("v5"), Some(8)));
}

#[test]
fn after_a_kill_nothing_is_done_and_the_disk_is_what_it_was() {
    let resource = reference(None);
    assert!(resource.write("r", 5, "a", "v1").is_ok());
    resource.hook(Hook::Kill).unwrap();
    assert!(resource.write("r", 6, "a", "v2").is_unknown());
    resource.hook(Hook::Restart).unwrap();
    assert_eq!(resource.read("r"), found(Some("v1"), Some(5)));
    let forgetful = reference(Some(Bug::MemoryOnly));
    assert!(forgetful.write("r", 5, "a", "v1").is_ok());
    assert_eq!(forgetful.write("r", 4, "a", "v2"), stale(5));
    forgetful.hook(Hook::Kill).unwrap();
    forgetful.hook(Hook::Restart).unwrap();
    assert_eq!(forgetful.read("r"), found(Some("v1"), None), "its fence was in memory");
}

#[test]
fn a_paused_process_answers_when_it_goes_on() {
    let resource = reference(None);
    resource.hook(Hook::Pause).unwrap();
    let answered = AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let answer = resource.write("r", 5, "a", "v1");
            answered.store(true, Ordering::SeqCst);
            answer
        });
        // There is no condition to wait for: only the passing of time shows that nothing happens.
        wait::pause(Duration::from_millis(50));
        assert!(!answered.load(Ordering::SeqCst));
        resource.hook(Hook::Resume).unwrap();
        assert!(writing.join().unwrap().is_ok());
    });
}

#[test]
fn what_was_in_flight_at_a_kill_is_unknown_and_never_happens_later() {
    let resource = reference(None);
    for round in 1..=200 {
        let answer = thread::scope(|scope| {
            let writing = scope.spawn(|| resource.write("r", round, "a", &round.to_string()));
            thread::yield_now();
            resource.hook(Hook::Kill).unwrap();
            resource.hook(Hook::Start).unwrap();
            let at_once = resource.read("r");
            let answer = writing.join().unwrap();
            // An accepted write may have begun after the kill.
            if answer.is_unknown() {
                assert_eq!(resource.read("r"), at_once, "round {round}: it happened after the kill");
            }
            answer
        });
        assert!(answer.is_ok() || answer.is_unknown(), "{answer:?}");
        resource.hook(Hook::Restart).unwrap();
    }
}

fn set_up(wanted: &str) -> Reference {
    let (_, setup) = super::SETUPS.into_iter().find(|(name, _)| *name == wanted).unwrap();
    Reference::set_up(setup, None, 7)
}

#[test]
fn it_makes_use_of_a_loose_promise() {
    let (behind, lower) = (set_up("stale-ok"), set_up("at_least"));
    let (mut stale, mut low) = (Vec::new(), Vec::new());
    for token in 2..=50_u64 {
        let value = token.to_string();
        assert_eq!(behind.write("r", token, "a", &value), Answer::Ok { value: None, high: Some(token) });
        let current = found(Some(&value), Some(token));
        assert_eq!(behind.checked_read("r", token), current, "a read that is checked is never behind");
        stale.push(behind.read("r") != current);
        let reported = lower.write("r", token, "a", &value).high().unwrap();
        assert!(reported <= token);
        low.push(reported < token);
    }
    for loose in [stale, low] {
        assert!(loose.contains(&true) && loose.contains(&false), "now and then: {loose:?}");
    }
}

#[test]
fn two_processes_see_one_store() {
    let setup = Setup { instances: 2, ..super::SETUPS[0].1 };
    let resource = Reference::set_up(setup, None, 7);
    assert!(resource.serve(0, &Op::write("r", 9, "a", "v1")).is_ok());
    assert_eq!(resource.serve(1, &Op::write("r", 5, "a", "v2")), stale(9));
    let cached = reference(Some(Bug::ProcessCache));
    assert!(cached.serve(1, &Op::write("r", 3, "a", "v1")).is_ok());
    assert!(cached.serve(0, &Op::write("r", 9, "a", "v2")).is_ok());
    assert!(cached.serve(1, &Op::write("r", 5, "a", "v3")).is_ok(), "it has not seen 9");
}
