//! The files that a run writes.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::setting::Setting;
use super::{html, json, junit};
use crate::verdict::{CaseResult, Results, Status};

/// A file that could not be written.
#[derive(Debug)]
pub struct Unwritten {
    /// The path of the file.
    pub path: PathBuf,
    /// The cause of the failure.
    pub error: io::Error,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unwritten { path, error } = self;
        write!(f, "{} cannot be written: {error}; name another directory with --out", path.display())
    }
}

impl std::error::Error for Unwritten {}

/// The files that were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Their paths, in the order of writing.
    pub files: Vec<PathBuf>,
}

/// The name of the file with the history of a case that did not pass.
pub(super) fn history_file(result: &CaseResult) -> Option<String> {
    let worth = matches!(result.status, Status::Fail | Status::Unknown | Status::Error);
    let history = result.history.as_ref().filter(|history| worth && !history.operations.is_empty());
    history.map(|_| format!("history-{}.jsonl", result.case.id))
}

/// Creates the directory if needed, and checks that a file can be written into it. Called before a run, which may take
/// long.
pub fn make_room(dir: &Path) -> Result<(), Unwritten> {
    let unwritten = |error| Unwritten { path: dir.to_owned(), error };
    fs::create_dir_all(dir).map_err(unwritten)?;
    tempfile::tempfile_in(dir).map(drop).map_err(unwritten)
}

/// Writes `report.html`, `junit.xml`, the histories and last `results.json` into `dir`, which is created if needed.
/// Each file appears as a whole or not at all.
pub fn write_all(dir: &Path, results: &Results, setting: &Setting) -> Result<Written, Unwritten> {
    fs::create_dir_all(dir).map_err(|error| Unwritten { path: dir.to_owned(), error })?;
    let mut written = Written::default();
    for result in &results.cases {
        if let (Some(name), Some(history)) = (history_file(result), &result.history) {
            written.files.push(whole(dir, &name, |out| history.write_to(out))?);
        }
    }
    written.files.push(whole(dir, "report.html", |out| out.write_all(html(results, setting).as_bytes()))?);
    written.files.push(whole(dir, "junit.xml", |out| out.write_all(junit(results, setting).as_bytes()))?);
    // Written last: a program that sees it finds the others complete.
    written.files.push(whole(dir, "results.json", |out| out.write_all(json(results, setting).as_bytes()))?);
    Ok(written)
}

/// Writes a file under another name first, and renames it when it is complete.
fn whole(dir: &Path, name: &str, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<PathBuf, Unwritten> {
    let path = dir.join(name);
    let attempt = || {
        // Use the user's umask; temporary files are private otherwise.
        let permissions = Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().prefix(".fencepost-").permissions(permissions).tempfile_in(dir)?;
        let mut out = BufWriter::new(file);
        fill(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.persist(&path).map_err(|refused| refused.error)?;
        Ok(())
    };
    match attempt() {
        Ok(()) => Ok(path),
        Err(error) => Err(Unwritten { path, error }),
    }
}
