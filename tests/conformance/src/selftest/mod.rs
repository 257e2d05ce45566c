//! Tests the suite itself: the reference must pass, each mutant must be failed by its case, and a resource that does
//! nothing must never pass.

mod jobs;
mod judge;
mod python;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cases;
use crate::reference::{LAZY, Lazy, MUTANTS, Mutant, SETUPS, Setup};
use crate::run::{self, Options};
use crate::subject::Subject;
use crate::verdict::{Level, Status};
use jobs::Job;

/// The name of the resource without a bug.
const REFERENCE: &str = "reference";

/// `--rounds` for the case with very many other resources: 2,000 of them are enough for a mutant that keeps fewer.
const MANY: u64 = 10;

/// A mutant that escaped, or a reference with too little evidence, is run with up to this many seeds before it counts
/// as a problem.
const AGAIN: u64 = 16;

/// How many of `AGAIN` runs a mutant may escape; of 100 runs, one. A mutant that is failed in 99 of 100 runs is wrongly
/// reported less than once in 1,000 self-tests (0.06 %). One that is failed in every second run gets through once in
/// 150: with no escape in the first eight seeds, or with at most two in sixteen.
const ESCAPES: u64 = 2;

/// The number of seeds of the reference in Python at the full budget: each run starts interpreters, and a thousand
/// would take days.
const PYTHON: u64 = 20;

/// The same for the reference on one busy CPU: a thousand would take a day.
const BUSY: u64 = 100;

/// How much a self-test runs.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The number of seeds of each mutant against its cases of L1, which make one request after the other.
    pub seeds: u64,
    /// The same for cases with threads or kills, where chance plays a part.
    pub racy_seeds: u64,
    /// The number of seeds of the reference against all cases; unless `whole`, other setups than the plain one get one
    /// seed.
    pub reference_seeds: u64,
    /// Whether every mutant is also run once against every other case: the whole matrix.
    pub matrix: bool,
    /// Whether the mutants in Python are run too.
    pub python: bool,
    /// The number of rounds, for cases that have rounds.
    pub rounds: Option<u64>,
    /// Whether to leave nothing out or cut it short because it takes long.
    pub whole: bool,
    /// How many cases run at the same time.
    pub workers: usize,
    /// Only these mutants, `reference` or `lazy`; empty means everything.
    pub only: Vec<String>,
    /// The first seed.
    pub seed: u64,
}

impl Default for Budget {
    /// The budget for every change: some minutes on two cores.
    fn default() -> Budget {
        Budget {
            seeds: 3,
            racy_seeds: 8,
            reference_seeds: 3,
            matrix: false,
            python: true,
            rounds: None,
            whole: false,
            workers: 4,
            only: Vec::new(),
            seed: 1,
        }
    }
}

impl Budget {
    /// Everything that the specification requires, with fewer seeds for the reference in Python and on a busy CPU:
    /// hours.
    pub fn full() -> Budget {
        Budget { seeds: 100, racy_seeds: 100, reference_seeds: 1_000, matrix: true, whole: true, ..Budget::default() }
    }

    /// The part that runs on one busy CPU: the reference, with seeds of its own.
    pub fn on_a_busy_cpu(&self) -> Budget {
        Budget {
            reference_seeds: if self.whole { BUSY } else { 1 },
            python: false,
            // With few workers, each would mostly wait for the process that keeps the CPU busy.
            workers: 16,
            only: vec![REFERENCE.to_owned()],
            seed: self.seed + 10_000,
            ..self.clone()
        }
    }

    /// The number of seeds of a mutant against this case.
    fn seeds(&self, case: &str) -> u64 {
        if is_racy(case) { self.racy_seeds.max(self.seeds) } else { self.seeds }
    }

    /// The same for a mutant in Python: for every change, one is enough where interpreters are started repeatedly.
    fn python_seeds(&self, case: &str) -> u64 {
        if is_racy(case) && !self.whole { 1 } else { self.seeds(case) }
    }

    /// The number of seeds of the reference in Python.
    fn python_reference_seeds(&self) -> u64 {
        if self.whole { PYTHON } else { 1 }
    }

    /// The number of seeds of the reference in a setup: for every change, the plain one gets most.
    fn reference_seeds(&self, setup: Setup) -> u64 {
        if self.whole || setup == SETUPS[0].1 { self.reference_seeds } else { self.reference_seeds.min(1) }
    }

    /// Whether this name is selected.
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }

    /// The number of rounds of a case in a self-test.
    fn rounds(&self, case: &str) -> Option<u64> {
        match case {
            // Otherwise it takes ten seconds each time.
            "R08" if !self.whole => Some(MANY),
            _ => self.rounds,
        }
    }
}

/// Whether a case has threads or kills, where chance plays a part.
fn is_racy(case: &str) -> bool {
    cases::find(case).is_some_and(|case| case.level > Level::L1)
}

/// How often a case ended with each status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    statuses: BTreeMap<&'static str, u64>,
    /// The reason of the last wrong result.
    pub reason: String,
    /// How long all runs took together.
    pub took: Duration,
}

impl Tally {
    /// How often it ended with this status.
    pub fn count(&self, status: Status) -> u64 {
        self.statuses.get(status.word()).copied().unwrap_or(0)
    }

    /// How often it was run.
    pub fn runs(&self) -> u64 {
        self.statuses.values().sum()
    }

    fn add(&mut self, status: Status, reason: &str, took: Duration) {
        *self.statuses.entry(status.word()).or_default() += 1;
        self.took += took;
        if !reason.is_empty() {
            reason.clone_into(&mut self.reason);
        }
    }
}

/// The results of one subject, case by case.
pub type Row = BTreeMap<&'static str, Tally>;

/// The findings of a self-test.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The reference, by setup.
    pub reference: BTreeMap<&'static str, Row>,
    /// The mutants in Rust, by name.
    pub mutants: BTreeMap<&'static str, Row>,
    /// The mutants in Python, over exec, by name.
    pub python: BTreeMap<&'static str, Row>,
    /// The resources that do nothing, by name.
    pub lazy: BTreeMap<&'static str, Row>,
    /// The problems found; empty if the suite detects every mutant.
    pub problems: Vec<String>,
    /// What was not run because it was not requested.
    pub left_out: Vec<String>,
    /// What could not be run, and why: nothing is shown about it.
    pub missing: Vec<String>,
}

/// The cases that are tried here: all but those that need a disk that can fail.
pub fn tried() -> impl Iterator<Item = &'static cases::Case> {
    cases::all().filter(|case| case.level <= Level::L3)
}

/// Runs the whole budget and returns the findings. `watch` gets the number of finished runs, and the total.
pub fn selftest(budget: &Budget, watch: &(dyn Fn(usize, usize) + Sync)) -> Report {
    let mut report = Report::default();
    let mut jobs = Vec::new();
    for (name, setup) in SETUPS.into_iter().filter(|_| budget.wants(REFERENCE)) {
        for seed in budget.seed..budget.seed + budget.reference_seeds(setup) {
            jobs.extend(tried().map(|case| Job::reference(name, setup, case.id, seed)));
        }
    }
    for name in LAZY.into_iter().filter(|_| budget.wants("lazy")) {
        // A resource that does not pass the first level passes none; the other levels may take long to show that.
        let shown = tried().filter(|case| budget.whole || case.level == Level::L1);
        jobs.extend(shown.map(|case| Job::lazy(name, case.id, budget.seed)));
    }
    for mutant in selected(budget) {
        for case in mutant.cases() {
            let seeds = budget.seed..budget.seed + budget.seeds(case);
            jobs.extend(seeds.map(|seed| Job::mutant(mutant, case, seed)));
        }
        if budget.matrix {
            let others = tried().filter(|case| mutant.cases().all(|named| named != case.id));
            jobs.extend(others.map(|case| Job::mutant(mutant, case.id, budget.seed)));
        }
    }
    if budget.python {
        match python::jobs(budget) {
            Ok(more) => jobs.extend(more),
            Err(why) => report.missing.push(format!("the mutants in Python: {why}")),
        }
    } else {
        report.left_out.push("the mutants in Python, as asked".to_owned());
    }
    jobs::run_all(&jobs, budget, watch, &mut report);
    let again = jobs::again(&jobs, &report);
    jobs::run_all(&again, budget, watch, &mut report);
    judge::judge(budget, &mut report);
    report
}

fn selected(budget: &Budget) -> impl Iterator<Item = &'static Mutant> {
    MUTANTS.iter().filter(|mutant| budget.wants(mutant.name))
}

/// Runs one case and returns the status and the reason.
fn run_one(subject: &dyn Subject, case: &str, seed: u64, rounds: Option<u64>) -> (Status, String) {
    let options =
        Options { only: vec![case.to_owned()], seed, rounds, limit: Duration::from_secs(20), ..Options::default() };
    let results = run::run(subject, &options, &mut ());
    match results.cases.into_iter().next() {
        Some(result) => (result.status, result.reason),
        None => (Status::Error, format!("there is no case {case}")),
    }
}

impl Report {
    /// Whether the suite detects all mutants and raises no false alarm, as far as it was run.
    pub fn passed(&self) -> bool {
        self.problems.is_empty()
    }

    /// 0: passed. 1: problems were found. 2: a part could not be run.
    pub fn exit_code(&self) -> u8 {
        match (self.passed(), self.missing.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 0,
        }
    }
}

fn lazy(name: &'static str) -> Box<dyn Subject> {
    Box::new(Lazy::new(name))
}

#[cfg(test)]
mod tests;
