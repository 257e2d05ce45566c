use std::sync::atomic::{AtomicU64, Ordering};

use super::GROUPS;
use crate::answer::Answer;
use crate::manifest::{Equal, Manifest, Policy};
use crate::op::Write;
use crate::reference::{Bug, Reference, SETUPS};
use crate::resource::{FencedResource, InProcess};
use crate::run::{Options, run};
use crate::subject::{Broken, Hook, Request, Subject};
use crate::verdict::{CaseResult, Level, Status};

#[test]
fn a_resource_that_is_right_fails_no_case() {
    for (policy, equal) in [(Policy::Ge, Equal::Any), (Policy::Ge, Equal::Holder), (Policy::Gt, Equal::Any)] {
        let results = run(&InProcess::new(Reference::new(policy, equal)), &Options::default(), &mut ());
        for result in results.cases {
            let good = matches!(result.status, Status::Pass | Status::NotApplicable | Status::Info);
            assert!(good, "{} {:?}: {:?}: {}", result.case.id, policy, result.status, result.reason);
        }
    }
}

#[test]
fn ids_are_group_and_number_in_listing_order() {
    for group in GROUPS {
        for (index, case) in group.cases.iter().enumerate() {
            assert_eq!(case.id, format!("{}{:02}", group.letter, index + 1));
            for text in [case.title, case.rule, case.why] {
                assert!(!text.is_empty(), "{} says too little", case.id);
            }
        }
    }
}

/// The reference with a peculiarity.
struct Peculiar {
    reference: Reference,
    how: How,
    calls: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Names are lower case letters, digits and `-`; tokens have 16 bits; now and then a batch is not answered.
    Narrow,
    /// One call of fifty is answered with an error.
    Busy,
    /// The hook that should stop it does nothing.
    NeverPauses,
    /// So is the one that should kill it.
    NeverDies,
}

impl Peculiar {
    fn new(how: How) -> Peculiar {
        Peculiar { reference: Reference::new(Policy::Ge, Equal::Any), how, calls: AtomicU64::new(0) }
    }

    fn answer(&self, res: &str, token: u64, right: impl FnOnce(&Reference) -> Answer) -> Answer {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.how {
            How::Narrow if token > 65_535 || !res.bytes().all(plain) => Answer::error("not-allowed"),
            How::Busy if call % 50 == 49 => Answer::error("busy"),
            _ => right(&self.reference),
        }
    }
}

impl FencedResource for Peculiar {
    fn manifest(&self) -> Manifest {
        let token_max = if self.how == How::Narrow { 65_535 } else { u64::MAX };
        Manifest { token_max, ..self.reference.manifest() }
    }

    fn write(&self, res: &str, token: u64, holder: &str, value: &str) -> Answer {
        self.answer(res, token, |right| FencedResource::write(right, res, token, holder, value))
    }

    fn read(&self, res: &str) -> Answer {
        self.answer(res, 0, |right| FencedResource::read(right, res))
    }

    fn checked_read(&self, res: &str, token: u64) -> Answer {
        self.answer(res, token, |right| FencedResource::checked_read(right, res, token))
    }

    fn claim(&self, res: &str, token: u64, holder: &str) -> Answer {
        self.answer(res, token, |right| right.claim(res, token, holder))
    }

    fn cas(&self, res: &str, token: u64, holder: &str, expect: Option<&str>, value: &str) -> Answer {
        self.answer(res, token, |right| right.cas(res, token, holder, expect, value))
    }

    fn delete(&self, res: &str, token: u64, holder: &str) -> Answer {
        self.answer(res, token, |right| right.delete(res, token, holder))
    }

    fn batch(&self, writes: &[Write]) -> Answer {
        let lost = self.how == How::Narrow && self.calls.fetch_add(1, Ordering::Relaxed) % 101 == 100;
        let answer = self.reference.batch(writes);
        if lost { Answer::unknown("reset") } else { answer }
    }

    fn has_hook(&self, hook: Hook) -> bool {
        self.reference.has_hook(hook)
    }

    fn hook(&self, hook: Hook) -> Result<(), String> {
        match (self.how, hook) {
            (How::NeverPauses, Hook::Pause | Hook::Resume) => Ok(()),
            (How::NeverDies, Hook::Start | Hook::Kill | Hook::Restart) => Ok(()),
            _ => self.reference.hook(hook),
        }
    }
}

fn run_on(subject: &dyn Subject, only: &[&str], level: Level) -> Vec<CaseResult> {
    let only = only.iter().map(|id| (*id).to_owned()).collect();
    run(subject, &Options { only, level, ..Options::default() }, &mut ()).cases
}

#[test]
fn limits_that_are_declared_and_errors_that_are_definite_are_no_offence() {
    for how in [How::Narrow, How::Busy] {
        let level = if how == How::Busy { Level::L2 } else { Level::L1 };
        for result in run_on(&InProcess::new(Peculiar::new(how)), &[], level) {
            // On L1 nobody else is at work, so an error needs a reason.
            let may_fail = how == How::Busy && result.case.level == Level::L1;
            assert!(result.status != Status::Fail || may_fail, "{}: {}", result.case.id, result.reason);
        }
    }
    for result in run_on(&InProcess::new(Peculiar::new(How::Narrow)), &["C08", "M07"], Level::L2) {
        assert_eq!(result.status, Status::Pass, "{}: {}", result.case.id, result.reason);
    }
}

#[test]
fn what_was_not_done_to_a_resource_is_not_shown() {
    for (how, cases) in [(How::NeverPauses, &["Z08"][..]), (How::NeverDies, &["M05", "R05", "R07"][..])] {
        for result in run_on(&InProcess::new(Peculiar::new(how)), cases, Level::L3) {
            assert_eq!(result.status, Status::Unknown, "{}: {}", result.case.id, result.reason);
        }
    }
}

/// Accepts everything, and then its adapter dies.
struct Dies {
    resource: InProcess<Reference>,
    calls: AtomicU64,
}

impl Subject for Dies {
    fn describe(&self) -> String {
        self.resource.describe()
    }

    fn manifest(&self) -> &Manifest {
        self.resource.manifest()
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        match self.calls.fetch_add(1, Ordering::Relaxed) {
            0..200 => self.resource.call(request),
            _ => Err(Broken("the adapter is gone".to_owned())),
        }
    }

    fn has(&self, _: Hook) -> bool {
        false
    }

    fn hook(&self, _: Hook) -> Result<(), Broken> {
        Ok(())
    }
}

#[test]
fn a_conviction_survives_the_adapter() {
    let accepts_all = Reference::set_up(SETUPS[0].1, Some(Bug::AcceptAll), 1);
    let subject = Dies { resource: InProcess::new(accepts_all), calls: AtomicU64::new(0) };
    let results = run_on(&subject, &["C01"], Level::L2);
    assert_eq!(results[0].status, Status::Fail, "{}", results[0].reason);
}
