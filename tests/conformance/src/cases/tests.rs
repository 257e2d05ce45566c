mod around;
mod clock_and_backups;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::GROUPS;
use crate::answer::Answer;
use crate::manifest::{Equal, Manifest, Policy};
use crate::op::{Op, Verb, Write};
use crate::proxy::Proxy;
use crate::reference::{Bug, OverHttp, Reference, SETUPS, Service};
use crate::resource::{FencedResource, InProcess};
use crate::run::{Options, run};
use crate::subject::{Begun, Broken, Hook, Part, Request, Subject};
use crate::token::Token;
use crate::verdict::{CaseResult, Level, Status};
use parking_lot::Mutex;

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
    /// One call in fifty is answered with an error.
    Busy,
    /// The pause hook does nothing.
    NeverPauses,
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
            // At L1 no other client is active, so an error needs a reason.
            let may_fail = how == How::Busy && result.case.level == Level::L1;
            assert!(result.status != Status::Fail || may_fail, "{}: {}", result.case.id, result.reason);
        }
    }
    for result in run_on(&InProcess::new(Peculiar::new(How::Narrow)), &["C08", "M07"], Level::L2) {
        assert_eq!(result.status, Status::Pass, "{}: {}", result.case.id, result.reason);
    }
}

/// A resource behind a filter.
struct Behind<S> {
    resource: S,
    manifest: Manifest,
    /// Answers instead of the resource, if it returns something.
    instead: fn(&Request<'_>, u64) -> Option<Result<Answer, Broken>>,
    /// This hook has no effect.
    spared: Option<Hook>,
    calls: AtomicU64,
}

impl<S: Subject> Behind<S> {
    fn new(resource: S) -> Behind<S> {
        let manifest = resource.manifest().clone();
        Behind { resource, manifest, instead: |_, _| None, spared: None, calls: AtomicU64::new(0) }
    }

    /// A resource that cannot be read.
    fn blind(resource: S) -> Behind<S> {
        let mut blind = Behind::new(resource);
        blind.manifest.caps.clear();
        blind
    }
}

impl<S: Subject> Subject for Behind<S> {
    fn describe(&self) -> String {
        self.resource.describe()
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        let instead = (self.instead)(request, self.calls.fetch_add(1, Ordering::Relaxed));
        instead.unwrap_or_else(|| self.resource.call(request))
    }

    fn has(&self, hook: Hook) -> bool {
        self.resource.has(hook)
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        if self.spared == Some(hook) { Ok(()) } else { self.resource.hook(hook) }
    }

    fn begin(&self, request: &Request<'_>, part: Part) -> Option<Result<Box<dyn Begun>, Broken>> {
        self.resource.begin(request, part)
    }

    fn proxy(&self) -> Option<&Proxy> {
        self.resource.proxy()
    }
}

fn reference() -> Service {
    Service::new(SETUPS[0].1, None, 1)
}

fn over_http(bug: Bug) -> OverHttp {
    OverHttp::new(Bug::CheckAtHead.mutant().setup, Some(bug), 1).unwrap()
}

#[test]
fn what_was_not_done_to_a_resource_is_not_shown() {
    for result in run_on(&InProcess::new(Peculiar::new(How::NeverPauses)), &["Z08"], Level::L3) {
        assert_eq!(result.status, Status::Unknown, "{}: {}", result.case.id, result.reason);
    }
    let immortal = Behind { spared: Some(Hook::Kill), ..Behind::new(reference()) };
    for result in run_on(&immortal, &["M05", "R02", "R03", "R04", "R05", "R06", "R07"], Level::L3) {
        assert_eq!(result.status, Status::Unknown, "{}: {}", result.case.id, result.reason);
        assert!(
            result.reason.contains("still answered after the `kill` hook"),
            "{}: {}",
            result.case.id,
            result.reason
        );
    }
}

#[test]
fn a_conviction_survives_the_adapter() {
    let dies = |_: &Request<'_>, call| (call >= 200).then(|| Err(Broken("the adapter is gone".to_owned())));
    let accepts_all = Service::new(SETUPS[0].1, Some(Bug::AcceptAll), 1);
    let results = run_on(&Behind { instead: dies, ..Behind::new(accepts_all) }, &["C01"], Level::L2);
    assert_eq!(results[0].status, Status::Fail, "{}", results[0].reason);
}

#[test]
fn two_tokens_that_cannot_be_sent_are_not_asked_about() {
    let one_place = |request: &Request<'_>, _| {
        let both = request.op.tokens().iter().any(|token| matches!(token, Token::Both(..)));
        both.then_some(Ok(Answer::Unsupported))
    };
    let results = run_on(&Behind { instead: one_place, ..Behind::new(reference()) }, &["B03"], Level::L1);
    assert_eq!(results[0].status, Status::NotApplicable, "{}", results[0].reason);
    let results = run_on(&Behind::new(reference()), &["B03"], Level::L1);
    assert_eq!(results[0].status, Status::Pass, "{}", results[0].reason);
}

#[test]
fn lost_answers_of_the_highest_are_not_held_against_the_resource() {
    // In C10 the highest of eight tokens is 17.
    let lost = |request: &Request<'_>, _| {
        (request.op.tokens() == [&Token::Number(17)]).then(|| Ok(Answer::unknown("lost on its way")))
    };
    let results = run_on(&Behind { instead: lost, ..Behind::new(reference()) }, &["C10"], Level::L2);
    assert_eq!(results[0].status, Status::Unknown, "{}", results[0].reason);
    assert!(results[0].reason.contains("20 of its answers were lost"), "{}", results[0].reason);
    let refused =
        |request: &Request<'_>, _| (request.op.tokens() == [&Token::Number(17)]).then(|| Ok(Answer::error("busy")));
    let results = run_on(&Behind { instead: refused, ..Behind::new(reference()) }, &["C10"], Level::L2);
    assert_eq!(results[0].status, Status::Fail, "{}", results[0].reason);
}

/// The result of M07 for a resource that loses the answers of its first `races` races.
fn standing_still(races: u64) -> CaseResult {
    struct Still {
        resource: Service,
        races: u64,
        batches: AtomicU64,
    }

    impl Subject for Still {
        fn describe(&self) -> String {
            "it stands still now and then".to_owned()
        }

        fn manifest(&self) -> &Manifest {
            self.resource.manifest()
        }

        fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
            let answer = self.resource.call(request)?;
            // The first batch is alone, and so is the fifth after each lost race of four.
            let number = self.batches.fetch_add(u64::from(request.op.verb() == Verb::Batch), Ordering::Relaxed);
            let lost = number > 0 && (number - 1) / 5 < self.races && (number - 1) % 5 < 4;
            Ok(if lost && request.op.verb() == Verb::Batch { Answer::unknown("no answer in time") } else { answer })
        }

        fn has(&self, _: Hook) -> bool {
            false
        }

        fn hook(&self, _: Hook) -> Result<(), Broken> {
            Ok(())
        }
    }

    let still = Still { resource: reference(), races, batches: AtomicU64::new(0) };
    run_on(&still, &["M07"], Level::L2).remove(0)
}

#[test]
fn a_resource_that_stood_still_for_a_while_is_not_taken_for_one_that_deadlocks() {
    for (races, expected) in [(0, Status::Pass), (1, Status::Unknown), (2, Status::Unknown), (3, Status::Fail)] {
        let result = standing_still(races);
        assert_eq!(result.status, expected, "{races} races were lost: {}", result.reason);
    }
}

/// Accepts a stale write if its client decided on it before the write at the fence, by the client's time.
#[derive(Default)]
struct ByAge {
    manifest: Manifest,
    fences: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl Subject for ByAge {
    fn describe(&self) -> String {
        "by age".to_owned()
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        let Op::Write(Write { res, token: Token::Number(token), .. }) = request.op else {
            return Ok(Answer::Unsupported);
        };
        let mut fences = self.fences.lock();
        let fence = fences.entry(res.clone()).or_insert((*token, request.id));
        Ok(match fence.0 <= *token {
            true => {
                *fence = (*token, request.id);
                Answer::ok()
            }
            false if request.id < fence.1 => Answer::ok(),
            false => Answer::Stale { high: None },
        })
    }

    fn has(&self, _: Hook) -> bool {
        false
    }

    fn hook(&self, _: Hook) -> Result<(), Broken> {
        Ok(())
    }
}

/// Nothing can be read, and every later write is refused: only the time at which a write was sent shows the violation.
#[test]
fn a_write_that_was_sent_too_late_is_convicted_without_a_read() {
    for result in run_on(&ByAge::default(), &["Z01", "Z03", "Z06"], Level::L2) {
        assert_eq!(result.status, Status::Fail, "{}: {}", result.case.id, result.reason);
        assert!(result.reason.contains("was complete only after"), "{}: {}", result.case.id, result.reason);
    }
    for (bug, case) in [(Bug::CheckAtHead, "Z02"), (Bug::AcceptAll, "Z03"), (Bug::AcceptAll, "Z06")] {
        let results = run_on(&Behind::blind(over_http(bug)), &[case], Level::L2);
        assert_eq!(results[0].status, Status::Fail, "{case}: {}", results[0].reason);
        assert!(results[0].reason.contains("was complete only after"), "{case}: {}", results[0].reason);
    }
}
