//! Many runs of one case each, several at a time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use super::{AGAIN, Budget, Report, Tally, lazy, python, run_one};
use crate::reference::{Front, Mutant, OverHttp, Service, Setup};
use crate::subject::{Broken, Subject};
use crate::verdict::Status;

/// One run of one case.
#[derive(Clone, Debug)]
pub(super) struct Job {
    who: Who,
    /// The row of the report that it belongs to.
    row: &'static str,
    case: &'static str,
    seed: u64,
}

#[derive(Clone, Debug)]
enum Who {
    Reference(Setup),
    Lazy,
    Mutant(&'static Mutant),
    Python(python::Program),
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.row, self.case, self.seed)
    }
}

impl Job {
    pub(super) fn reference(row: &'static str, setup: Setup, case: &'static str, seed: u64) -> Job {
        Job { who: Who::Reference(setup), row, case, seed }
    }

    pub(super) fn lazy(row: &'static str, case: &'static str, seed: u64) -> Job {
        Job { who: Who::Lazy, row, case, seed }
    }

    pub(super) fn mutant(mutant: &'static Mutant, case: &'static str, seed: u64) -> Job {
        Job { who: Who::Mutant(mutant), row: mutant.name, case, seed }
    }

    pub(super) fn python(program: python::Program, row: &'static str, case: &'static str, seed: u64) -> Job {
        Job { who: Who::Python(program), row, case, seed }
    }

    /// Whether it is the same run, with any seed.
    fn is_like(&self, other: &Job) -> bool {
        let kind = |job: &Job| std::mem::discriminant(&job.who);
        kind(self) == kind(other) && self.row == other.row && self.case == other.case
    }

    /// Whether it is a run with a required result that once had another.
    fn is_in_doubt(&self, tally: &Tally) -> bool {
        let must_fail = match &self.who {
            Who::Mutant(mutant) => mutant.cases().any(|case| case == self.case),
            Who::Python(program) => program.has_a_bug(),
            Who::Reference(_) | Who::Lazy => false,
        };
        match must_fail {
            true => tally.count(Status::Fail) < tally.runs(),
            // In the rest of the matrix any result of a mutant is allowed.
            false => !matches!(self.who, Who::Mutant(_)) && tally.count(Status::Unknown) > 0,
        }
    }

    fn subject(&self) -> Result<Box<dyn Subject>, Broken> {
        let service = |setup: Setup, bug| -> Result<Box<dyn Subject>, Broken> {
            match setup.front {
                Front::Calls => Ok(Box::new(Service::new(setup, bug, self.seed))),
                Front::Http => Ok(Box::new(OverHttp::new(setup, bug, self.seed)?)),
            }
        };
        match &self.who {
            Who::Reference(setup) => service(*setup, None),
            Who::Mutant(mutant) => service(mutant.setup, Some(mutant.bug)),
            Who::Lazy => Ok(lazy(self.row)),
            Who::Python(program) => program.open(),
        }
    }

    fn run(&self, budget: &Budget) -> (Status, String) {
        match self.subject() {
            Ok(subject) => run_one(&*subject, self.case, self.seed, budget.rounds(self.case)),
            Err(Broken(why)) => (Status::Error, why),
        }
    }
}

/// More seeds for runs with the wrong result. Many runs show whether it was chance, or the suite.
pub(super) fn again(jobs: &[Job], report: &Report) -> Vec<Job> {
    let mut more = Vec::new();
    let mut seen = BTreeSet::new();
    for job in jobs {
        let (rows, python) = match job.who {
            Who::Reference(_) => (&report.reference, false),
            Who::Mutant(_) => (&report.mutants, false),
            Who::Python(_) => (&report.python, true),
            Who::Lazy => continue,
        };
        let Some(tally) = rows.get(job.row).and_then(|row| row.get(job.case)) else { continue };
        if !job.is_in_doubt(tally) || !seen.insert((python, job.row, job.case)) {
            continue;
        }
        let latest = jobs.iter().filter(|other| other.is_like(job)).map(|other| other.seed).max().unwrap_or(job.seed);
        let missing = AGAIN.saturating_sub(tally.runs());
        more.extend((1..=missing).map(|step| Job { seed: latest + step, ..job.clone() }));
    }
    more
}

/// Runs all jobs and counts the results.
pub(super) fn run_all(jobs: &[Job], budget: &Budget, watch: &(dyn Fn(usize, usize) + Sync), report: &mut Report) {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let counted = Mutex::new(report);
    thread::scope(|scope| {
        for _ in 0..budget.workers.max(1) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    let (status, reason) = job.run(budget);
                    {
                        let mut report = counted.lock();
                        let rows = match job.who {
                            Who::Reference(_) => &mut report.reference,
                            Who::Lazy => &mut report.lazy,
                            Who::Mutant(_) => &mut report.mutants,
                            Who::Python(_) => &mut report.python,
                        };
                        let row = rows.entry(job.row).or_default();
                        row.entry(job.case).or_default().add(status, &reason, began.elapsed());
                    }
                    watch(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
                }
            });
        }
    });
}
