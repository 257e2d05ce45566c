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
use crate::manifest::{Equal, Policy};
use crate::reference::{Bug, Front, SETUPS, Setup};
use crate::subject::{Broken, Subject};

const SOURCE: &str = include_str!("../../reference/reference.py");

const INTERPRETER: &str = "python3";

/// Cases that start the interpreter many times, or write very much.
const LONG: [&str; 3] = ["R05", "R07", "R08"];

/// The program looks there how far its clock is from the right one.
const CLOCK: &str = "echo $CONFORM_CLOCK > $CONFORM_DIR/clock.new && mv $CONFORM_DIR/clock.new $CONFORM_DIR/clock";

/// A backup script that takes the values, and not the fences.
const WITHOUT_FENCES: &str = r#"sed 's/"high": [0-9]*/"high": null/g' $CONFORM_DIR/log > $CONFORM_DIR/backup"#;

/// The bugs that the Python reference knows.
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
        let policy = match self.setup.policy {
            Policy::Ge => "ge",
            Policy::Gt => "gt",
        };
        let equal = match self.setup.equal {
            Equal::Any => "any",
            Equal::Holder => "holder",
        };
        let source = self.source.to_string_lossy().into_owned();
        let mut command = [INTERPRETER, &source, "--policy", policy, "--equal", equal].map(str::to_owned).to_vec();
        if let Some(bug) = self.bug {
            command.extend(["--bug".to_owned(), bug.mutant().name.to_owned()]);
        }
        let options =
            exec::Options { instances: self.setup.instances, hooks: self.hooks(), ..exec::Options::default() };
        Ok(Box::new(exec::open(&command, options)?))
    }

    /// A clock of its own, and the backups of who forgets the fences.
    fn hooks(&self) -> Commands {
        let mut hooks = Commands { clock: Some(CLOCK.to_owned()), ..Commands::default() };
        if self.bug == Some(Bug::BackupWithoutFences) {
            hooks.backup = Some(WITHOUT_FENCES.to_owned());
            hooks.restore = Some("cp $CONFORM_DIR/backup $CONFORM_DIR/log".to_owned());
        }
        hooks
    }
}

/// The runs, or why there are none.
pub(super) fn jobs(budget: &Budget) -> Result<Vec<Job>, String> {
    check_interpreter()?;
    let source = Arc::new(write_source().map_err(|error| format!("its program cannot be written: {error}"))?);
    let program = |bug, setup| Program { source: source.clone(), bug, setup };
    let mut jobs = Vec::new();
    // One setup and one seed are enough for every change: each run starts an interpreter.
    let setups = SETUPS.iter().filter(|(_, setup)| setup.front == Front::Calls);
    let most = if budget.whole { usize::MAX } else { 1 };
    for (_, setup) in setups.take(most).filter(|_| budget.wants(REFERENCE)) {
        let short = |case: &&Case| budget.whole || !LONG.contains(&case.id);
        jobs.extend(
            tried().filter(short).map(|case| Job::python(program(None, *setup), REFERENCE, case.id, budget.seed)),
        );
    }
    for mutant in selected(budget).filter(|mutant| BUGS.contains(&mutant.bug)) {
        let seeds = if budget.whole { budget.seeds(mutant.case()) } else { 1 };
        for seed in budget.seed..budget.seed + seeds {
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

    use super::{BUGS, INTERPRETER, write_source};

    #[test]
    fn the_program_knows_the_bugs_of_the_list() {
        let source = write_source().unwrap();
        let output = Command::new(INTERPRETER).arg(&*source).arg("--list").output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let listed: BTreeSet<&str> = BUGS.iter().map(|bug| bug.mutant().name).collect();
        assert_eq!(printed.lines().collect::<BTreeSet<_>>(), listed);
    }
}
