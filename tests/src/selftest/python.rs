//! The mutants in Python, over exec.

use std::process::{Command, Stdio};

use super::Budget;
use super::jobs::Job;
use crate::subject::{Broken, Subject};

/// The row of the reference itself.
pub(super) const REFERENCE: &str = "reference";

/// A mutant as a program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    #[allow(dead_code, reason = "until exec is here")]
    bug: Option<&'static str>,
}

impl Program {
    pub(super) fn open(&self) -> Result<Box<dyn Subject>, Broken> {
        Err(Broken("not yet".to_owned()))
    }
}

/// The interpreter, or why there is none.
pub(super) fn interpreter() -> Result<String, String> {
    let python = "python3";
    let version = Command::new(python).arg("--version").stdin(Stdio::null()).output();
    match version {
        Ok(output) if output.status.success() => Ok(python.to_owned()),
        Ok(output) => Err(format!("`{python} --version` ended with {}", output.status)),
        Err(error) => Err(format!("`{python}` cannot be started: {error}; install Python 3.8 or later")),
    }
}

pub(super) fn jobs(_: &Budget, _: &str) -> Vec<Job> {
    Vec::new()
}
