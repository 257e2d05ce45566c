//! Does the suite still bite? The reference must pass, each mutant must be failed by its case, and who does nothing
//! must never pass.

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

/// What the resource without a bug is called.
const REFERENCE: &str = "reference";

/// `--rounds` for the case of very many other resources: 2,000 of them are many, for a mutant that keeps fewer.
const MANY: u64 = 10;

/// A mutant that escaped, and a reference of which too little was seen, are run with up to so many seeds before that is
/// held against the suite.
const AGAIN: u64 = 16;

/// Of so many runs a mutant may escape as often as this; of 100, once. A mutant that is failed in 99 of 100 is held to be
/// missed less than once in 1,000 self-tests (0.06 %); one that is failed in every second run gets through one of 150:
/// with eight seeds at first, and no escape, or with sixteen, and two at most.
const ESCAPES: u64 = 2;

/// At the full budget the reference in Python is run with so many seeds: each run starts interpreters, and a thousand would take
/// days.
const PYTHON: u64 = 20;

/// The same for the reference on one busy CPU: a thousand would take a day.
const BUSY: u64 = 100;

/// How much is run.
#[derive(Clone, Debug)]
pub struct Budget {
    /// With so many seeds each mutant is run against its cases of L1, which make one request after the other.
    pub seeds: u64,
    /// The same for cases with threads or kills, where luck has a part.
    pub racy_seeds: u64,
    /// With so many seeds the reference is run against all cases; unless `whole`, other setups than the plain one get
    /// one.
    pub reference_seeds: u64,
    /// Whether every mutant is also run once against every other case: the whole matrix.
    pub matrix: bool,
    /// Whether the mutants in Python are run too.
    pub python: bool,
    /// How many rounds the cases do that have rounds.
    pub rounds: Option<u64>,
    /// Whether nothing is left out or cut short because it takes long.
    pub whole: bool,
    /// How many cases run at the same time.
    pub workers: usize,
    /// Only these mutants, `reference` or `lazy`; empty means everything.
    pub only: Vec<String>,
    /// The first seed.
    pub seed: u64,
}

impl Default for Budget {
    /// For every change: some minutes on two cores.
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
    /// Everything that the specification asks for, with fewer seeds for the reference in Python and on a busy CPU: hours.
    pub fn full() -> Budget {
        Budget { seeds: 100, racy_seeds: 100, reference_seeds: 1_000, matrix: true, whole: true, ..Budget::default() }
    }

    /// What of it is run on one busy CPU: the reference, with seeds of its own.
    pub fn on_a_busy_cpu(&self) -> Budget {
        Budget {
            reference_seeds: if self.whole { BUSY } else { 1 },
            python: false,
            // Whoever waits there waits for the one that never rests, unless there are many others.
            workers: 16,
            only: vec![REFERENCE.to_owned()],
            seed: self.seed + 10_000,
            ..self.clone()
        }
    }

    /// With how many seeds a mutant is run against this case.
    fn seeds(&self, case: &str) -> u64 {
        if is_racy(case) { self.racy_seeds.max(self.seeds) } else { self.seeds }
    }

    /// The same for a mutant in Python: for every change one is enough where interpreters are started again and again.
    fn python_seeds(&self, case: &str) -> u64 {
        if is_racy(case) && !self.whole { 1 } else { self.seeds(case) }
    }

    /// With how many seeds the reference in Python is run.
    fn python_reference_seeds(&self) -> u64 {
        if self.whole { PYTHON } else { 1 }
    }

    /// With how many seeds the reference is run in a setup: for every change, the plain one gets most.
    fn reference_seeds(&self, setup: Setup) -> u64 {
        if self.whole || setup == SETUPS[0].1 { self.reference_seeds } else { self.reference_seeds.min(1) }
    }

    /// Is this a part of what is run?
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }

    /// How many rounds a case does here.
    fn rounds(&self, case: &str) -> Option<u64> {
        match case {
            // It takes ten seconds otherwise, each time.
            "R08" if !self.whole => Some(MANY),
            _ => self.rounds,
        }
    }
}

/// A case with threads or kills, where luck has a part.
fn is_racy(case: &str) -> bool {
    cases::find(case).is_some_and(|case| case.level > Level::L1)
}

/// How often a case came to each status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    statuses: BTreeMap<&'static str, u64>,
    /// Why it last did what it should not.
    pub reason: String,
    /// How long all runs took together.
    pub took: Duration,
}

impl Tally {
    /// How often it ended like this.
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

/// What became of one subject, case by case.
pub type Row = BTreeMap<&'static str, Tally>;

/// What a self-test found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The reference, by setup.
    pub reference: BTreeMap<&'static str, Row>,
    /// The mutants in Rust, by name.
    pub mutants: BTreeMap<&'static str, Row>,
    /// The same over exec, in Python.
    pub python: BTreeMap<&'static str, Row>,
    /// Those that do nothing, by name.
    pub lazy: BTreeMap<&'static str, Row>,
    /// What is wrong; empty if the suite bites.
    pub problems: Vec<String>,
    /// What was not run because nobody asked for it.
    pub left_out: Vec<String>,
    /// What could not be run, and why: it is not shown.
    pub missing: Vec<String>,
}

/// The cases that are tried here: all but those that wait for a disk that can fail.
pub fn tried() -> impl Iterator<Item = &'static cases::Case> {
    cases::all().filter(|case| case.level <= Level::L3)
}

/// Runs everything, and says what it found. `watch` hears how many of all runs are done.
pub fn selftest(budget: &Budget, watch: &(dyn Fn(usize, usize) + Sync)) -> Report {
    let mut report = Report::default();
    let mut jobs = Vec::new();
    for (name, setup) in SETUPS.into_iter().filter(|_| budget.wants(REFERENCE)) {
        for seed in budget.seed..budget.seed + budget.reference_seeds(setup) {
            jobs.extend(tried().map(|case| Job::reference(name, setup, case.id, seed)));
        }
    }
    for name in LAZY.into_iter().filter(|_| budget.wants("lazy")) {
        // Who does not pass the first level passes none; the others may take long to find that out.
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

/// Runs one case; the status and the reason.
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
    /// Does the suite bite, and keep silent where nothing is wrong, as far as it was run?
    pub fn passed(&self) -> bool {
        self.problems.is_empty()
    }

    /// 0 it bites, 1 it does not, 2 a part of it could not be run.
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
