//! One command of a hook, run to its end.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{LOOK, tail};
use crate::adapters::process::Program;
use crate::subject::Broken;
use crate::wait;

/// Runs a command for at most `limit`. Processes that it leaves behind in its process group are killed with it.
/// Messages call the command `what`; its output goes into the file `path`.
pub(super) fn run(what: &str, mut command: Command, limit: Duration, path: &Path) -> Result<(), Broken> {
    // A file, not a pipe: a process that inherits the output must not keep the suite waiting.
    let (out, err) = File::create(path)
        .and_then(|file| Ok((file.try_clone()?, file)))
        .map_err(|error| Broken(format!("{} cannot be written: {error}", path.display())))?;
    command.stdout(out).stderr(err);
    let mut program = started(command)?;
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = program.ended() {
            break Some(status);
        }
        if Instant::now() >= deadline {
            break None;
        }
        wait::pause(LOOK);
    };
    program.kill()?;
    let said = match tail(path) {
        said if said.is_empty() => "it printed nothing".to_owned(),
        said => format!("it printed:\n{said}"),
    };
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Broken(format!("{what} failed ({status}); {said}"))),
        None => Err(Broken(format!(
            "{what} was ended after {limit:?} (`limit` in [hooks]); give it more time, or let it return \
             sooner; {said}"
        ))),
    }
}

/// Starts a command; an error names the directory.
pub(super) fn started(command: Command) -> Result<Program, Broken> {
    let here = command.get_current_dir().map(Path::to_owned).unwrap_or_default();
    Program::start(command).map_err(|Broken(why)| Broken(format!("{why} (in {})", here.display())))
}
