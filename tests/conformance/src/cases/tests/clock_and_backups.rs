//! R10 and R11, on resources that handle their clock and their backups in different ways.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Behind, reference, run_on};
use crate::answer::Answer;
use crate::manifest::{Manifest, Reads};
use crate::op::{Op, Verb, Write};
use crate::reference::{Bug, SETUPS, Service};
use crate::run::{Options, Stop, run};
use crate::subject::{Broken, Hook, Request, Restored, Shift, Subject};
use crate::token::Token;
use crate::verdict::{CaseResult, Level, Status};
use parking_lot::{Mutex, MutexGuard};

fn with_bug(bug: Bug) -> Service {
    Service::new(SETUPS[0].1, Some(bug), 1)
}

fn judge(subject: &dyn Subject, case: &str) -> CaseResult {
    run_on(subject, &[case], Level::L3).remove(0)
}

#[test]
fn who_looks_at_the_clock_is_convicted_and_told_when_it_was_set() {
    assert_eq!(judge(&reference(), "R10").status, Status::Pass);
    for (bug, said) in [
        (Bug::ClockExpiry, " Its clock was set to +86400 s at "),
        // A write was accepted, and is not there.
        (Bug::ClockOrder, " had replaced it: "),
    ] {
        let result = judge(&with_bug(bug), "R10");
        assert_eq!(result.status, Status::Fail, "{bug:?}: {}", result.reason);
        assert!(result.reason.contains(said), "{bug:?}: {}", result.reason);
    }
    let blind = judge(&Behind::blind(with_bug(Bug::ClockExpiry)), "R10");
    assert_eq!(blind.status, Status::Fail, "nothing can be read: {}", blind.reason);
}

#[test]
fn the_clock_is_right_again_however_the_case_ends() {
    let breaks = |request: &Request<'_>, call| {
        (request.case == "R10" && call == 60).then(|| Err(Broken("the adapter is gone".to_owned())))
    };
    let broken = Behind { instead: breaks, ..Behind::new(reference()) };
    for (subject, status) in [
        (&reference() as &dyn Subject, Status::Pass),
        (&with_bug(Bug::ClockExpiry), Status::Fail),
        (&broken, Status::Error),
    ] {
        let told = Told { subject, hooks: Mutex::default(), without: &[], stop: None };
        assert_eq!(judge(&told, "R10").status, status);
        was_set_right(told, status);
    }
    let stop = Stop::default();
    let told = Told { subject: &reference(), hooks: Mutex::default(), without: &[], stop: Some(stop.clone()) };
    let results = run(&told, &Options { only: vec!["R10".to_owned()], stop, ..Options::default() }, &mut ());
    assert_eq!(results.cases[0].reason, "not finished: ended by a signal");
    was_set_right(told, Status::Unknown);
}

#[track_caller]
fn was_set_right(told: Told<'_>, status: Status) {
    let hooks = told.hooks.into_inner();
    assert_eq!(hooks[..2], [Hook::Reset, Hook::Clock(Shift::AHEAD)]);
    assert_eq!(hooks[hooks.len() - 2..], [Hook::Clock(Shift::NONE), Hook::Restart], "{status:?}");
}

/// Records the hooks that are run, and hides some of them.
struct Told<'s> {
    subject: &'s dyn Subject,
    hooks: Mutex<Vec<Hook>>,
    without: &'s [Hook],
    /// Ends the run as soon as the clock is wrong.
    stop: Option<Stop>,
}

impl Subject for Told<'_> {
    fn describe(&self) -> String {
        self.subject.describe()
    }

    fn manifest(&self) -> &Manifest {
        self.subject.manifest()
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        self.subject.call(request)
    }

    fn has(&self, hook: Hook) -> bool {
        !self.without.contains(&hook) && self.subject.has(hook)
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        self.hooks.lock().push(hook);
        if let (Hook::Clock(Shift::AHEAD), Some(stop)) = (hook, &self.stop) {
            stop.now("ended by a signal");
        }
        self.subject.hook(hook)
    }
}

#[test]
fn what_few_can_try_does_not_cap_the_level_and_is_named_in_the_last_line() {
    let only = |ids: &[&str]| Options { only: ids.iter().map(|id| (*id).to_owned()).collect(), ..Options::default() };
    let subject = &reference();
    for (without, line) in [
        (&[][..], "SAFE at L3 · not tested: power loss and disk faults"),
        (&[Hook::Clock(Shift::NONE)], "SAFE at L3 · not tested: a wrong clock, power loss and disk faults"),
        (&[Hook::Backup], "SAFE at L3 · not tested: a restored backup, power loss and disk faults"),
        (
            &[Hook::Clock(Shift::NONE), Hook::Backup],
            "SAFE at L3 · not tested: a wrong clock, a restored backup, power loss and disk faults",
        ),
    ] {
        let told = Told { subject, hooks: Mutex::default(), without, stop: None };
        let mut results = run(&told, &only(&["A01", "C10", "R01", "R10", "R11"]), &mut ());
        // As if the others had passed as well.
        results.left_out = 0;
        assert_eq!(results.last_line(), line);
        for result in results.cases.iter().filter(|result| result.status == Status::NotApplicable) {
            assert!(result.reason.contains(if result.case.id == "R10" { "`clock` hook" } else { "`backup`" }));
        }
    }
    let told = Told { subject, hooks: Mutex::default(), without: &[Hook::Restart], stop: None };
    assert_eq!(judge(&told, "R10").status, Status::Skip, "a missing restart is a missing hook as always");
}

#[test]
fn backups_of_the_reference_are_right_and_those_of_its_mutants_are_not() {
    let result = judge(&reference(), "R11");
    assert_eq!(result.status, Status::Pass, "{}", result.reason);
    for (bug, said) in [
        (Bug::BackupWithoutFences, "token 4 to "),
        (Bug::RestoresFencesOnly, "the newer value without its fence"),
        (Bug::AcceptAll, "must be refused as stale"),
    ] {
        let result = judge(&with_bug(bug), "R11");
        assert_eq!(result.status, Status::Fail, "{bug:?}: {}", result.reason);
        assert!(result.reason.contains(said), "{bug:?}: {}", result.reason);
        assert!(result.failure.is_some_and(|failure| !failure.operations.is_empty()));
    }
}

/// How the resource behaves when a backup is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Values and fences are those of the backup.
    GoesBack,
    /// The same, and its reads may be stale.
    GoesBackBehindACache,
    /// Nothing is restored.
    Nothing,
    /// It does not serve with the backup.
    Refuses,
    /// It answers with errors.
    Errors,
    /// It does not answer.
    Silent,
    /// It has a value that was never written.
    Invents,
    /// It has the value from before the backup.
    TooOld,
    /// It no longer compares tokens.
    Unfenced,
    /// Refused values are written.
    RefusedButWritten,
    /// Nothing can be backed up.
    NoBackup,
}

/// Fence and values by name.
type Data = BTreeMap<String, (u64, Vec<String>)>;

struct Restorable {
    how: How,
    manifest: Manifest,
    data: Mutex<[Data; 2]>,
    restored: AtomicBool,
}

impl Restorable {
    fn new(how: How) -> Restorable {
        let reads = if how == How::GoesBackBehindACache { Reads::StaleOk } else { Reads::Linearizable };
        let manifest = Manifest { caps: [Verb::Read].into(), reads, ..Manifest::default() };
        Restorable { how, manifest, data: Mutex::default(), restored: AtomicBool::new(false) }
    }

    fn data(&self) -> MutexGuard<'_, [Data; 2]> {
        self.data.lock()
    }

    fn write(&self, res: &str, token: u64, value: &str, how: Option<How>) -> Answer {
        let [data, _] = &mut *self.data();
        let (fence, values) = data.entry(res.to_owned()).or_default();
        if token < *fence && how != Some(How::Unfenced) {
            if how == Some(How::RefusedButWritten) {
                values.push(value.to_owned());
            }
            return Answer::Stale { high: None };
        }
        *fence = token;
        values.push(value.to_owned());
        Answer::ok()
    }

    fn read(&self, res: &str, how: Option<How>) -> Answer {
        let [data, _] = &*self.data();
        let values = data.get(res).map(|(_, values)| values.clone()).unwrap_or_default();
        let value = match how {
            Some(How::Invents) => Some("made up".to_owned()),
            Some(How::TooOld | How::GoesBackBehindACache) => values.first().cloned(),
            _ => values.last().cloned(),
        };
        Answer::Ok { value: Some(value), high: None }
    }
}

impl Subject for Restorable {
    fn describe(&self) -> String {
        format!("{:?}", self.how)
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        let how = self.restored.load(Ordering::Acquire).then_some(self.how);
        Ok(match (how, request.op) {
            (Some(How::Errors), _) => Answer::error("an operator must look at this"),
            (Some(How::Silent), _) => Answer::unknown("no answer in time"),
            (how, Op::Write(Write { res, token: Token::Number(token), value, .. })) => {
                self.write(res, *token, value, how)
            }
            (how, Op::Read { res }) => self.read(res, how),
            _ => Answer::Unsupported,
        })
    }

    fn has(&self, hook: Hook) -> bool {
        matches!(hook, Hook::Backup | Hook::Restore) && self.how != How::NoBackup
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        let [data, backup] = &mut *self.data();
        match hook {
            Hook::Backup => backup.clone_from(data),
            Hook::Restore if self.how != How::Nothing => data.clone_from(backup),
            _ => {}
        }
        Ok(())
    }

    fn restore(&self) -> Result<Restored, Broken> {
        self.restored.store(true, Ordering::Release);
        match self.how {
            How::Refuses => Ok(Restored::Refuses("it printed: this store is older than its fences".to_owned())),
            _ => self.hook(Hook::Restore).map(|()| Restored::Serves),
        }
    }
}

#[test]
fn what_a_restore_may_do_and_what_not() {
    for (how, status, said) in [
        (How::GoesBack, Status::Info, "has forgotten the fences raised since: token 8, refused before (#"),
        (How::GoesBackBehindACache, Status::Info, "has forgotten the fences raised since"),
        (How::Nothing, Status::NotApplicable, "everything was as before it"),
        (How::NoBackup, Status::NotApplicable, "nothing could be backed up"),
        (How::Refuses, Status::Info, "older than its fences"),
        (How::Errors, Status::Info, "answers everything with an error"),
        (How::Silent, Status::Unknown, "after the restore the read of "),
        (How::Invents, Status::Fail, "neither what the backup holds"),
        (How::TooOld, Status::Fail, "neither what the backup holds"),
        (How::Unfenced, Status::Fail, "the write with token 4 to "),
        (How::RefusedButWritten, Status::Fail, "whose write was refused"),
    ] {
        let result = judge(&Restorable::new(how), "R11");
        assert_eq!(result.status, status, "{how:?}: {}", result.reason);
        assert!(result.reason.contains(said), "{how:?}: {}", result.reason);
    }
}
