//! `fencepost conform selftest`.

use std::io::{self, IsTerminal, Write as _};

use clap::Args;
use fencepost_conformance::reference::MUTANTS;
use fencepost_conformance::selftest::{Budget, selftest};

use super::signals::Signals;
use super::{Failed, broken};
use crate::cli::exit;

#[derive(Args)]
pub(super) struct Selftest {
    /// With how many seeds the reference is run, and each mutant against the cases that must fail it [3: eight where luck
    /// has a part]. One that escapes is tried with up to sixteen
    #[arg(long, value_name = "N", default_value_t = Budget::default().seeds, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Everything: 100 seeds for each mutant, 1,000 for the reference (20 in Python), and every mutant against every case. Takes
    /// hours
    #[arg(long, conflicts_with = "seeds")]
    full: bool,
    /// Also run every mutant once against every case: the whole matrix
    #[arg(long)]
    matrix: bool,
    /// Only these mutants; `reference` and `lazy` are the runs that must pass, and must not
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave the mutants in Python out
    #[arg(long)]
    without_python: bool,
    /// The first seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print the kill matrix as Markdown, as docs/conformance/mutants.md has it
    #[arg(long)]
    markdown: bool,
}

impl Selftest {
    pub(super) fn run(self) -> Result<(), Failed> {
        let known: Vec<&str> =
            ["reference", "lazy"].into_iter().chain(MUTANTS.iter().map(|mutant| mutant.name)).collect();
        if let Some(unknown) = self.only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(broken(format!("there is no mutant `{unknown}`: {}", known.join(", "))));
        }
        Signals::listen()?;
        let mut budget = if self.full {
            Budget::full()
        } else {
            let usual = Budget::default();
            let racy_seeds = if self.seeds == usual.seeds { usual.racy_seeds } else { self.seeds };
            Budget { seeds: self.seeds, racy_seeds, reference_seeds: self.seeds, ..usual }
        };
        budget.matrix |= self.matrix;
        budget.python = !self.without_python;
        budget.only = self.only;
        budget.seed = self.seed;
        let shows = io::stderr().is_terminal();
        let report = selftest(&budget, &|done, all| {
            if shows {
                // Progress only: a failed write does not matter.
                let _ = write!(io::stderr(), "\r{done} of {all} runs");
            }
        });
        if shows {
            let _ = writeln!(io::stderr());
        }
        exit::write(if self.markdown { report.markdown() } else { report.text() }.as_bytes())?;
        for missing in report.missing.iter().filter(|_| self.markdown) {
            // For information only: a failed write does not matter.
            let _ = writeln!(io::stderr(), "fencepost: not run: {missing}");
        }
        match report.exit_code() {
            0 => Ok(()),
            code => Err(Failed::silent(code)),
        }
    }
}
