//! `fencepost conform recheck`.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use clap::Args;
use fencepost_conformance::cases;
use fencepost_conformance::checker::{self, Verdict};
use fencepost_conformance::evidence::Evidence;
use fencepost_conformance::history::{History, Judge, Judged};
use fencepost_conformance::verdict::Status;

use super::{Failed, THINKING, broken};
use crate::cli::exit;

#[derive(Args)]
pub(super) struct Recheck {
    /// The history, as a run has left it
    #[arg(value_name = "FILE")]
    history: PathBuf,
}

impl Recheck {
    pub(super) fn run(self) -> Result<(), Failed> {
        let shown = self.history.display();
        let file = File::open(&self.history).map_err(|error| broken(format!("{shown}: {error}")))?;
        let history = History::read_from(BufReader::new(file)).map_err(|error| broken(format!("{shown}: {error}")))?;
        match checker::check(&history, THINKING) {
            Verdict::Explained => explained(&history),
            Verdict::Violated(found) => {
                exit::write(format!("VIOLATED: {}\n", found.sentence).as_bytes())?;
                Err(Failed::silent(1))
            }
            Verdict::Undecided(why) => {
                exit::write(format!("UNKNOWN: {why}\n").as_bytes())?;
                Err(Failed::silent(2))
            }
        }
    }
}

/// No rule of the model is broken. What the case itself missed or saw is not in the history, so its verdict still
/// counts.
fn explained(history: &History) -> Result<(), Failed> {
    let (case, operations) = (&history.case, history.operations.len());
    let line = format!("EXPLAINED: an order of the {operations} operations of {case} explains every answer");
    let Some(Judged { status, reason, by }) = &history.judged else {
        return exit::write(format!("{line}\n").as_bytes());
    };
    let (word, reason) = (status.word(), reason.lines().next().unwrap_or_default());
    match (status, by) {
        (Status::Pass | Status::Info, _) => exit::write(format!("{line}\n").as_bytes()),
        (_, Judge::Checker) => match lacking(history) {
            None => exit::write(format!("{line}; the run had said {word}: {reason}\n").as_bytes()),
            // In the run, the checker's verdict came before this check of the evidence.
            Some(lacking) => {
                exit::write(format!("UNKNOWN: {lacking}\n{line}; the run had said {word}: {reason}\n").as_bytes())?;
                Err(Failed::silent(2))
            }
        },
        (_, Judge::Case) => {
            let more = "and that stays: a history alone does not show it";
            exit::write(
                format!("{word}: {reason}\n{line}, but the case itself ended with {word}, {more}\n").as_bytes(),
            )?;
            Err(Failed::silent(if *status == Status::Fail { 1 } else { 2 }))
        }
    }
}

/// The evidence that the case needs and the history lacks.
fn lacking(history: &History) -> Option<String> {
    Evidence::of(history).lacks(cases::find(&history.case)?.minima)
}
