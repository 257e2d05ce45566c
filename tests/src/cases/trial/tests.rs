use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::{Case, Ended};
use super::Trial;
use crate::answer::Answer;
use crate::evidence::Evidence;
use crate::harness::seed::Random;
use crate::harness::wait;
use crate::manifest::{Kill, Manifest};
use crate::subject::{Broken, Hook, Request, Subject};
use crate::verdict::Level;

const CASE: Case = Case {
    id: "T01",
    title: "a trial",
    rule: "none",
    why: "none",
    level: Level::L1,
    needs: &[],
    minima: &[],
    run: |_| Ok(()),
};

static TRIED: Case = CASE;

/// A process that keeps its calls until it is killed, if it is told to.
#[derive(Default)]
struct Stubborn {
    manifest: Manifest,
    keeps: AtomicBool,
    down: AtomicBool,
    silent: AtomicBool,
    calls: AtomicU64,
    calls_while_down: AtomicU64,
}

impl Stubborn {
    fn new(kill: Kill) -> Stubborn {
        Stubborn { manifest: Manifest { kill, ..Manifest::default() }, ..Stubborn::default() }
    }

    fn is(&self, what: &AtomicBool) -> bool {
        what.load(Ordering::Acquire)
    }
}

impl Subject for Stubborn {
    fn describe(&self) -> String {
        "stubborn".to_owned()
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn call(&self, _: &Request<'_>) -> Result<Answer, Broken> {
        self.calls.fetch_add(1, Ordering::AcqRel);
        if self.is(&self.down) {
            self.calls_while_down.fetch_add(1, Ordering::AcqRel);
            return Ok(Answer::unknown("refused"));
        }
        if self.is(&self.keeps) {
            wait::until("the kill", Duration::from_secs(20), || self.is(&self.down).then_some(()));
            return Ok(Answer::unknown("reset"));
        }
        Ok(if self.is(&self.silent) { Answer::unknown("silence") } else { Answer::ok() })
    }

    fn has(&self, _: Hook) -> bool {
        true
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        match hook {
            Hook::Kill => self.down.store(true, Ordering::Release),
            Hook::Restart => {
                self.keeps.store(false, Ordering::Release);
                self.down.store(false, Ordering::Release);
            }
            _ => {}
        }
        Ok(())
    }
}

fn trial(subject: &Stubborn) -> Trial<'_> {
    Trial::new(subject, &TRIED, 7, None, "run")
}

#[test]
fn a_kill_ends_what_was_in_flight() {
    for kill in [Kill::Everything, Kill::Process] {
        let subject = Stubborn::new(kill);
        subject.keeps.store(true, Ordering::Release);
        let t = trial(&subject);
        let never_sent = t.build(9, t.write_op(9, "r", 1));
        let requests = vec![(0, t.write_op(0, "r", 1)), (1, t.write_op(1, "r", 2))];
        t.meanwhile(requests, crate::subject::Route::Direct, || {
            wait::until("two in flight", Duration::from_secs(20), || (t.begun() == 2).then_some(()));
            t.crash()
        })
        .unwrap();
        t.call(0, t.write_op(0, "r", 3)).unwrap();
        never_sent.send().unwrap();
        let history = t.history();
        let restarted = history.marks[1].at;
        for operation in &history.operations[1..3] {
            assert!(operation.answer.is_unknown());
            match kill {
                Kill::Everything => {
                    let dead = operation.dead_by.expect("everything was killed");
                    assert!(operation.returned <= dead && dead <= restarted, "it cannot happen after the restart");
                }
                Kill::Process => assert_eq!(operation.dead_by, None, "a database behind it may go on"),
            }
        }
        assert_eq!(history.operations[0].dead_by, None, "it was sent after the kill");
        let evidence = Evidence::of(&history);
        assert_eq!((evidence.kills_in_flight, evidence.unknown, evidence.restarts), (1, 0, 1));
    }
}

#[test]
fn load_meets_a_process_that_is_down_once_at_most() {
    let subject = Stubborn::new(Kill::Everything);
    let t = trial(&subject);
    let mut random = Random::from_seed(1);
    for _ in 0..20 {
        t.crash_under_load(3, &mut random, |client| t.call(client, t.write_op(client, "r", 1)).map(drop)).unwrap();
        // None that waited at the gate got in afterwards.
        let called = subject.calls.load(Ordering::Acquire);
        t.call(0, t.write_op(0, "r", 2)).unwrap();
        assert_eq!(subject.calls.load(Ordering::Acquire), called + 1);
    }
    let while_down = subject.calls_while_down.load(Ordering::Acquire);
    assert!(while_down <= 60, "{while_down} calls for 20 kills and 3 clients: somebody did not wait");
    let history = t.history();
    assert_eq!(history.operations.len() as u64, subject.calls.load(Ordering::Acquire));
    assert!((1..).zip(&history.operations).all(|(id, operation)| operation.id == id));
}

#[test]
fn silence_ends_a_case_and_a_kill_does_not() {
    let subject = Stubborn::new(Kill::Everything);
    subject.silent.store(true, Ordering::Release);
    let t = trial(&subject);
    let ended = (0..100).find_map(|_| t.call(0, t.write_op(0, "r", 1)).err());
    assert!(matches!(ended, Some(Ended::Unknown(_))), "{ended:?}");
    assert_eq!(subject.calls.load(Ordering::Acquire), 5);

    let t = trial(&subject);
    let began = Instant::now();
    let mut random = Random::from_seed(1);
    let ended = t.crash_under_load(2, &mut random, |client| t.call(client, t.write_op(client, "r", 1)).map(drop));
    assert!(matches!(ended, Err(Ended::Unknown(_))), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "the kill waited for load that will not come");
}

#[test]
fn racers_are_all_in_flight_at_once() {
    let subject = Stubborn::new(Kill::Everything);
    let t = trial(&subject);
    let answers = t.race((0..8).map(|client| (client, t.write_op(client, "r", 1))).collect()).unwrap();
    assert_eq!(answers.len(), 8);
    assert_eq!(Evidence::of(&t.history()).overlapping, 28, "every pair");
}

#[test]
fn the_first_that_ends_badly_ends_it_for_all() {
    let subject = Stubborn::new(Kill::Everything);
    let t = trial(&subject);
    let ended = t.parallel(3, |client| {
        if client == 1 {
            return Err(Ended::Info("enough".to_owned()));
        }
        loop {
            t.call(client, t.write_op(client, "r", 1))?;
        }
    });
    assert_eq!(ended, Err(Ended::Info("enough".to_owned())));
}

#[test]
fn rounds_are_in_proportion() {
    let subject = Stubborn::new(Kill::Everything);
    for (rounds, default, expected) in [(None, 50, 50), (Some(500), 50, 50), (Some(50), 50, 5), (Some(1), 50, 1)] {
        let t = Trial::new(&subject, &TRIED, 7, rounds, "run");
        assert_eq!(t.rounds(default), expected);
    }
}
