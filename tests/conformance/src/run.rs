//! Runs cases, one after the other, and judges each.

mod stop;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::cases::{self, Case, Ended, Progress, Trial};
use crate::checker::{self, Verdict};
use crate::evidence::Evidence;
use crate::history::{Judge, Judged};
use crate::subject::{Broken, Hook, Subject};
use crate::verdict::{CaseResult, Failure, Level, Results, Status};

pub use stop::Stop;

/// How often the observer gets the progress of a case.
const TICK: Duration = Duration::from_millis(200);

/// The checker's time limit for a case that was cut short by the end of the run.
const LAST_THOUGHT: Duration = Duration::from_secs(2);

/// After this many consecutive cases that waited and got no answer, the others are not tried.
const SILENT: usize = 3;

/// A case without answers that took less than this has not waited.
const WAITED: Duration = Duration::from_secs(2);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The highest level to run.
    pub level: Level,
    /// Only these cases; empty means all.
    pub only: Vec<String>,
    /// The excluded cases, and the reason for each.
    pub exclude: BTreeMap<String, String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The number of rounds, for cases that have rounds.
    pub rounds: Option<u64>,
    /// The checker's time limit for one case.
    pub limit: Duration,
    /// The time limit of one case, without the checker.
    pub case_limit: Duration,
    /// Ends the run from outside.
    pub stop: Stop,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            level: Level::L3,
            only: Vec::new(),
            exclude: BTreeMap::new(),
            seed: 1,
            rounds: None,
            limit: Duration::from_secs(20),
            case_limit: Duration::from_secs(600),
            stop: Stop::default(),
        }
    }
}

impl Options {
    /// Whether this case is run.
    pub fn selects(&self, case: &Case) -> bool {
        let named = |name: &String| is_named(name, case);
        case.level <= self.level && (self.only.is_empty() || self.only.iter().any(named))
    }

    /// Rejects invalid options.
    pub fn check(&self) -> Result<(), String> {
        for name in self.only.iter().chain(self.exclude.keys()) {
            if !cases::all().any(|case| is_named(name, case)) {
                return Err(format!("there is no case or group `{name}`; `fencepost conform --list` shows all"));
            }
        }
        match cases::all().any(|case| self.selects(case)) {
            true => Ok(()),
            false => Err(format!("no case is left to run: {} is above {}", self.only.join(", "), self.level)),
        }
    }
}

/// Whether `name` is the id of the case, or the letter of its group.
fn is_named(name: &str, case: &Case) -> bool {
    name.eq_ignore_ascii_case(case.id) || name.eq_ignore_ascii_case(&case.id[..1])
}

/// An observer of a run.
pub trait Watch {
    /// A case begins; `place` is its position among those that are run.
    fn begins(&mut self, case: &'static Case, place: usize, of: usize);

    /// Progress of the case: rounds begun, and the total.
    fn goes_on(&mut self, round: u64, of: u64);

    /// The case ended.
    fn ended(&mut self, result: &CaseResult);
}

/// No observer.
impl Watch for () {
    fn begins(&mut self, _: &'static Case, _: usize, _: usize) {}

    fn goes_on(&mut self, _: u64, _: u64) {}

    fn ended(&mut self, _: &CaseResult) {}
}

/// Runs the cases that the options select.
pub fn run(subject: &dyn Subject, options: &Options, watch: &mut dyn Watch) -> Results {
    let wanted = cases::all().filter(|case| case.level <= options.level).count();
    let selected: Vec<&'static Case> = cases::all().filter(|case| options.selects(case)).collect();
    let mut results = Results {
        subject: subject.describe(),
        manifest: subject.manifest().clone(),
        instances: subject.instances(),
        seed: options.seed,
        level: options.level,
        cases: Vec::with_capacity(selected.len()),
        excluded: options.exclude.clone(),
        left_out: wanted - selected.len(),
        broken: None,
        warnings: Vec::new(),
    };
    // A prefix that is new to a resource which keeps its data. All other random choices come from the seed.
    let run = format!("fp{:x}", RandomState::new().hash_one(std::process::id()) >> 24);
    for (index, case) in selected.iter().enumerate() {
        if let Some(why) = options.stop.asked() {
            results.broken = Some(format!("{why} before case {} of {}", index + 1, selected.len()));
            break;
        }
        let silent = told_nothing(&results.cases);
        if silent.is_some()
            && let Err(broken) = subject.never_answered()
        {
            results.broken = Some(broken.to_string());
            break;
        }
        watch.begins(case, index, selected.len());
        let result = match silent {
            None => watched(subject, case, options, &run, watch),
            Some(why) => CaseResult::not_tried(case, why),
        };
        // Read before the observer is notified: if the observer ends the run, this case was still complete.
        let cut = options.stop.asked();
        watch.ended(&result);
        if result.status == Status::Error {
            results.broken = Some(result.reason.clone());
        }
        results.cases.push(result);
        if let Some(why) = cut {
            results.broken = Some(format!("{why} in case {} of {}", index + 1, selected.len()));
        }
        if results.broken.is_some() {
            break;
        }
    }
    // A run may end before the adapter's silence is certain: one case makes few requests.
    if results.broken.is_none()
        && let Err(broken) = subject.never_answered()
    {
        results.broken = Some(broken.to_string());
    }
    results.warnings = subject.warnings();
    results
}

/// A reason to try no more cases: if there are no answers any more, each would only wait.
fn told_nothing(so_far: &[CaseResult]) -> Option<String> {
    let waited_in_vain = |result: &&CaseResult| {
        let Evidence { operations, unknown, .. } = result.evidence;
        result.status == Status::Unknown && operations == unknown && (result.took > WAITED || operations == 0)
    };
    // A skipped case has made no request.
    let asked = so_far.iter().rev().filter(|result| !matches!(result.status, Status::Skip | Status::NotApplicable));
    let silent = asked.take_while(waited_in_vain).count();
    (silent >= SILENT).then(|| "not tried: nothing was answered in the cases before it".to_owned())
}

/// Runs one case, and reports its progress.
fn watched(
    subject: &dyn Subject,
    case: &'static Case,
    options: &Options,
    run: &str,
    watch: &mut dyn Watch,
) -> CaseResult {
    let progress = Progress::default();
    let (ends, ended) = sync_channel::<()>(0);
    thread::scope(|scope| {
        let told = progress.clone();
        let running = scope.spawn(move || {
            // Dropped however the case ends.
            let _ends = ends;
            run_case(subject, case, options, run, &told)
        });
        while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            if let Some((round, of)) = progress.rounds() {
                watch.goes_on(round, of);
            }
        }
        running.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Runs one case, and judges it.
pub fn run_case(
    subject: &dyn Subject,
    case: &'static Case,
    options: &Options,
    run: &str,
    progress: &Progress,
) -> CaseResult {
    let began = Instant::now();
    let trial = Trial::new(subject, case, options, run, progress);
    let excluded = options.exclude.iter().find(|(name, _)| is_named(name, case));
    let ended = match excluded {
        Some((_, reason)) => Err(Ended::Skipped(format!("excluded: {reason}"))),
        None => attempt(&trial, subject, case),
    };
    let mut history = trial.history();
    let evidence = Evidence::of(&history);
    let limit = if options.stop.asked().is_some() { LAST_THOUGHT.min(options.limit) } else { options.limit };
    let verdict = match &ended {
        Err(Ended::Skipped(_) | Ended::Failed(_)) => Verdict::Explained,
        // The history can still prove a violation if a case ended early.
        _ => checker::check(&history, limit),
    };
    let lacking = || trial.survived().or_else(|| evidence.lacks(case.minima));
    let (by, status, reason, failure) = judged(verdict, ended, lacking);
    let keep = !matches!(status, Status::Pass | Status::NotApplicable | Status::Skip);
    history.judged = Some(Judged { status, reason: reason.clone(), by });
    let remark = trial.remarked().filter(|_| status == Status::Pass);
    let history = keep.then_some(history);
    CaseResult { case, status, reason, failure, evidence, took: began.elapsed(), history, remark }
}

/// Combines the verdict of the checker, the end of the case, and missing evidence: which of them decides, and the
/// status.
fn judged(
    verdict: Verdict,
    ended: Result<(), Ended>,
    lacking: impl FnOnce() -> Option<String>,
) -> (Judge, Status, String, Option<Failure>) {
    let by_case = |status, reason| (Judge::Case, status, reason, None);
    match (verdict, ended) {
        (Verdict::Violated(found), _) => {
            let failure = Failure { sentence: found.sentence.clone(), operations: found.operations };
            (Judge::Checker, Status::Fail, found.sentence, Some(failure))
        }
        (_, Err(Ended::Failed(failure))) => (Judge::Case, Status::Fail, failure.sentence.clone(), Some(failure)),
        (_, Err(Ended::NotApplicable(why))) => by_case(Status::NotApplicable, why),
        (_, Err(Ended::Skipped(why))) => by_case(Status::Skip, why),
        (_, Err(Ended::Broken(why))) => by_case(Status::Error, why.to_string()),
        (_, Err(Ended::Unknown(why))) => by_case(Status::Unknown, why),
        (Verdict::Explained, Err(Ended::Info(what))) => by_case(Status::Info, what),
        (Verdict::Undecided(why), Err(Ended::Info(_))) => (Judge::Checker, Status::Unknown, why, None),
        (verdict, Ok(())) => match (lacking(), verdict) {
            // Even if the checker gave up: a later check with more time must not count as enough evidence.
            (Some(lacking), _) => by_case(Status::Unknown, lacking),
            (None, Verdict::Undecided(why)) => (Judge::Checker, Status::Unknown, why, None),
            (None, _) => by_case(Status::Pass, String::new()),
        },
    }
}

fn attempt(trial: &Trial<'_>, subject: &dyn Subject, case: &'static Case) -> Result<(), Ended> {
    case.needs.iter().try_for_each(|need| need.check(subject))?;
    if subject.has(Hook::Reset) {
        subject.hook(Hook::Reset)?;
    }
    catch_unwind(AssertUnwindSafe(|| (case.run)(trial))).unwrap_or_else(|_| {
        Err(Ended::Broken(Broken(format!(
            "case {} panicked; this is a defect of the suite or of a Rust resource",
            case.id
        ))))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Options, Watch, judged, run, told_nothing};
    use crate::cases::{self, Case, Ended};
    use crate::checker::Verdict;
    use crate::evidence::Evidence;
    use crate::history::Judge;
    use crate::manifest::{Equal, Policy};
    use crate::reference::Reference;
    use crate::resource::InProcess;
    use crate::verdict::{CaseResult, Outcome, Status};

    /// Ends the run when this many cases have begun, or have ended.
    struct Impatient {
        options: Options,
        begun: usize,
        ended: usize,
    }

    impl Impatient {
        fn look(counter: &mut usize, options: &Options) {
            *counter = counter.wrapping_sub(1);
            if *counter == 0 {
                options.stop.now("ended by SIGINT");
            }
        }
    }

    impl Watch for Impatient {
        fn begins(&mut self, _: &'static Case, _: usize, _: usize) {
            Impatient::look(&mut self.begun, &self.options);
        }

        fn goes_on(&mut self, _: u64, _: u64) {}

        fn ended(&mut self, _: &CaseResult) {
            Impatient::look(&mut self.ended, &self.options);
        }
    }

    #[test]
    fn a_run_that_is_ended_says_where_and_one_that_was_through_is_complete() {
        let never = usize::MAX;
        for (begun, ended, cases, broken) in [
            (2, never, 2, Some("ended by SIGINT in case 2 of 2")),
            (never, 1, 1, Some("ended by SIGINT before case 2 of 2")),
            (never, 2, 2, None),
        ] {
            let options = Options { only: vec!["A01".to_owned(), "A02".to_owned()], ..Options::default() };
            let subject = InProcess::new(Reference::new(Policy::Ge, Equal::Any));
            let mut watch = Impatient { options: options.clone(), begun, ended };
            let results = run(&subject, &options, &mut watch);
            assert_eq!((results.cases.len(), results.broken.as_deref()), (cases, broken));
            let outcome = if broken.is_some() { Outcome::Broken } else { Outcome::Passed };
            assert_eq!((results.cases[0].status, results.outcome()), (Status::Pass, outcome));
        }
    }

    fn result(status: Status, operations: u64, unknown: u64, seconds: u64) -> CaseResult {
        let case = cases::all().next().unwrap();
        let evidence = Evidence { operations, unknown, ..Evidence::default() };
        let took = Duration::from_secs(seconds);
        CaseResult { status, evidence, took, ..CaseResult::not_tried(case, String::new()) }
    }

    /// The checker alone may judge a history again, perhaps with more time. The missing evidence must remain the case's
    /// verdict.
    #[test]
    fn a_checker_that_gives_up_hides_nothing() {
        let given_up = || Verdict::Undecided("no time".to_owned());
        let few = || Some("too little was seen".to_owned());
        let word = |judged: (Judge, Status, String, _)| (judged.0, judged.1, judged.2);
        let unknown = |by, why: &str| (by, Status::Unknown, why.to_owned());
        assert_eq!(word(judged(given_up(), Ok(()), few)), unknown(Judge::Case, "too little was seen"));
        assert_eq!(word(judged(given_up(), Ok(()), || None)), unknown(Judge::Checker, "no time"));
        assert_eq!(word(judged(Verdict::Explained, Ok(()), few)), unknown(Judge::Case, "too little was seen"));
        assert_eq!(word(judged(Verdict::Explained, Ok(()), || None)), (Judge::Case, Status::Pass, String::new()));
        let info = || Err(Ended::Info("so it is".to_owned()));
        assert_eq!(word(judged(given_up(), info(), few)), unknown(Judge::Checker, "no time"));
        let ended = Err(Ended::Unknown("not finished".to_owned()));
        assert_eq!(word(judged(given_up(), ended, few)), unknown(Judge::Case, "not finished"));
    }

    #[test]
    fn who_answers_nothing_for_long_is_not_asked_for_ever() {
        let silent = || result(Status::Unknown, 5, 5, 25);
        assert_eq!(told_nothing(&[silent(), silent()]), None);
        assert!(told_nothing(&[silent(), silent(), silent()]).is_some());
        let skipped = || result(Status::Skip, 0, 0, 0);
        assert!(told_nothing(&[silent(), skipped(), silent(), silent(), skipped()]).is_some(), "nobody was asked");
        let left_out = || CaseResult::not_tried(cases::all().next().unwrap(), String::new());
        assert!(told_nothing(&[silent(), silent(), silent(), left_out()]).is_some(), "and so on");
        assert_eq!(
            told_nothing(&[silent(), result(Status::Unknown, 9, 8, 25), silent(), silent()]),
            None,
            "one answer"
        );
        let quick = || result(Status::Unknown, 5, 5, 0);
        assert_eq!(told_nothing(&[quick(), quick(), quick()]), None, "a map that says nothing costs no time");
    }
}
