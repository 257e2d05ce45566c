//! The same mutants in Python, over exec: another language, real processes, real kills.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempPath;

use super::jobs::Job;
use super::{Budget, REFERENCE, selected, tried};
use crate::adapters::exec;
use crate::adapters::hooks::Commands;
use crate::cases::Case;
use crate::reference::{Bug, Front, SETUPS, Setup};
use crate::subject::{Broken, Subject};

const SOURCE: &str = include_str!("../../reference/reference.py");

const INTERPRETER: &str = "python3";

/// Cases that start the interpreter many times, or write very much.
pub(super) const LONG: [&str; 3] = ["R05", "R07", "R08"];

/// The clock hook: writes the shift to a file that the program reads.
const CLOCK: &str = r#"cd "$CONFORM_DIR" && echo $CONFORM_CLOCK > clock.new && mv clock.new clock"#;

/// A backup script that saves the values, but not the fences.
const WITHOUT_FENCES: &str = r#"sed 's/"high": [0-9]*/"high": null/g' "$CONFORM_DIR/log" > "$CONFORM_DIR/backup""#;

/// The bugs that the Python reference implements.
const BUGS: [Bug; 35] = [
    Bug::AcceptAll,
    Bug::RejectAll,
    Bug::Equality,
    Bug::OffByOne,
    Bug::RefusedButWritten,
    Bug::TextualOrder,
    Bug::FloatingPoint,
    Bug::SignedCast,
    Bug::RatchetsDown,
    Bug::GtForGe,
    Bug::GeForGt,
    Bug::HolderIgnored,
    Bug::AbsentAdopts,
    Bug::LenientTokens,
    Bug::UnfencedClaim,
    Bug::UnfencedCas,
    Bug::UnfencedDelete,
    Bug::UnfencedBatch,
    Bug::GlobalFence,
    Bug::DeleteDropsFence,
    Bug::ClaimForgets,
    Bug::StaleReads,
    Bug::PartialBatch,
    Bug::RefusedBatchRaises,
    Bug::CheckThenAct,
    Bug::ProcessCache,
    Bug::MemoryOnly,
    Bug::AnsweredFirst,
    Bug::MemoryFirst,
    Bug::TwoCommits,
    Bug::Eviction,
    Bug::RemovedFirst,
    Bug::ClockExpiry,
    Bug::ClockOrder,
    Bug::BackupWithoutFences,
];

/// The program with a bug, or without.
#[derive(Clone, Debug)]
pub(super) struct Program {
    source: Arc<TempPath>,
    bug: Option<Bug>,
    setup: Setup,
}

impl Program {
    pub(super) fn has_a_bug(&self) -> bool {
        self.bug.is_some()
    }

    pub(super) fn open(&self) -> Result<Box<dyn Subject>, Broken> {
        let mut command = vec![INTERPRETER.to_owned(), self.source.to_string_lossy().into_owned()];
        command
            .extend(self.setup.promises().into_iter().flat_map(|(name, word)| [format!("--{name}"), word.to_owned()]));
        if let Some(bug) = self.bug {
            command.extend(["--bug".to_owned(), bug.mutant().name.to_owned()]);
        }
        let options =
            exec::Options { instances: self.setup.instances, hooks: self.hooks(), ..exec::Options::default() };
        Ok(Box::new(exec::open(&command, options)?))
    }

    /// The hook for its clock, and a backup command for the bug that loses the fences.
    fn hooks(&self) -> Commands {
        let mut hooks = Commands { clock: Some(CLOCK.to_owned()), ..Commands::default() };
        if self.bug == Some(Bug::BackupWithoutFences) {
            hooks.backup = Some(WITHOUT_FENCES.to_owned());
            hooks.restore = Some(r#"cp "$CONFORM_DIR/backup" "$CONFORM_DIR/log""#.to_owned());
        }
        hooks
    }
}

/// The runs, or the reason why there are none.
pub(super) fn jobs(budget: &Budget) -> Result<Vec<Job>, String> {
    check_interpreter()?;
    let source = Arc::new(write_source().map_err(|error| format!("its program cannot be written: {error}"))?);
    let program = |bug, setup| Program { source: source.clone(), bug, setup };
    let mut jobs = Vec::new();
    // One setup is enough for every change: each run starts an interpreter.
    let setups = SETUPS.into_iter().filter(|(_, setup)| setup.front == Front::Calls);
    let most = if budget.whole { usize::MAX } else { 1 };
    for (name, setup) in setups.take(most).filter(|_| budget.wants(REFERENCE)) {
        let short = |case: &&Case| budget.whole || !LONG.contains(&case.id);
        for seed in budget.seed..budget.seed + budget.python_reference_seeds() {
            let cases = tried().filter(short);
            jobs.extend(cases.map(|case| Job::python(program(None, setup), name, case.id, seed)));
        }
    }
    for mutant in selected(budget).filter(|mutant| BUGS.contains(&mutant.bug)) {
        for seed in budget.seed..budget.seed + budget.python_seeds(mutant.case()) {
            let program = program(Some(mutant.bug), mutant.setup);
            jobs.push(Job::python(program, mutant.name, mutant.case(), seed));
        }
    }
    Ok(jobs)
}

fn write_source() -> std::io::Result<TempPath> {
    let mut file = tempfile::Builder::new().prefix("fencepost-reference-").suffix(".py").tempfile()?;
    file.write_all(SOURCE.as_bytes())?;
    Ok(file.into_temp_path())
}

fn check_interpreter() -> Result<(), String> {
    match Command::new(INTERPRETER).arg("--version").stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("`{INTERPRETER} --version` ended with {}", output.status)),
        Err(error) => Err(format!("`{INTERPRETER}` cannot be started ({error}); install Python 3.8 or later")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::{BUGS, Budget, Bug, INTERPRETER, LONG, SETUPS, jobs, tried, write_source};

    #[test]
    fn the_program_knows_the_bugs_of_the_list() {
        let source = write_source().unwrap();
        let output = Command::new(INTERPRETER).arg(&*source).arg("--list").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let listed: BTreeSet<&str> = BUGS.iter().map(|bug| bug.mutant().name).collect();
        assert_eq!(printed.lines().collect::<BTreeSet<_>>(), listed);
    }

    /// The number of runs of a mutant, or of the reference in a setup.
    fn runs(budget: &Budget, name: &str) -> usize {
        let made = jobs(budget).unwrap();
        made.iter().filter(|job| job.to_string().starts_with(&format!("{name} "))).count()
    }

    #[test]
    fn what_is_cheap_gets_all_seeds_for_every_change_and_everything_at_the_full_budget() {
        let (usual, full) = (Budget::default(), Budget::full());
        assert_eq!((runs(&usual, "accept-all"), runs(&full, "accept-all")), (3, 100), "A03 is of L1");
        assert_eq!((runs(&usual, "check-then-act"), runs(&full, "check-then-act")), (1, 100), "C01 is of L2");
        let cases = tried().count();
        assert_eq!((runs(&usual, SETUPS[0].0), runs(&full, SETUPS[0].0)), (cases - LONG.len(), 20 * cases));
        assert_eq!((runs(&usual, "stale-ok"), runs(&full, "stale-ok")), (0, 20 * cases));
        assert_eq!(runs(&full, "http"), 0, "a program that speaks JSON lines has no HTTP");
    }

    #[test]
    fn a_row_of_the_reference_is_not_that_of_a_mutant() {
        assert!(SETUPS.iter().all(|(name, _)| Bug::named(name).is_none()));
    }
}
