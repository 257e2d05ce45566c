//! How commands end: one exit code for each thing a script would do differently.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use fencepost_client::locks::LockError;
use fencepost_client::{Error, ErrorKind};

use super::terminal;

/// The table, as `--help` shows it.
pub(super) const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line or configuration is wrong
  3  refused by the fence, or the lease is lost: stop, do not retry with this token
  4  a condition failed, or a number cannot be added: read again, decide anew
  5  the key has no value, or the lock is free
  6  not applied by this request: overloaded, unreachable or out of space; try again later
  7  the outcome is unknown: the write may or may not have been applied
  8  another holder has the lock: try again later";

/// A command that did not succeed.
pub(super) struct Failed {
    code: u8,
    message: String,
}

impl Failed {
    pub(super) fn other(error: impl Display) -> Failed {
        Failed { code: 1, message: error.to_string() }
    }

    pub(super) fn usage(error: impl Display) -> Failed {
        Failed { code: 2, message: error.to_string() }
    }

    pub(super) fn with(code: u8, message: String) -> Failed {
        Failed { code, message }
    }

    /// Without a message: the reason was reported already.
    pub(super) fn silent(code: u8) -> Failed {
        Failed { code, message: String::new() }
    }

    /// The key has no value, or the lock is free.
    pub(super) fn absent(message: String) -> Failed {
        Failed { code: 5, message }
    }

    /// Part of the work was done before it failed, so the exit code must not claim that nothing was.
    pub(super) fn after(self, done: &str) -> Failed {
        Failed { code: 1, message: format!("{done}: {}; run the command again", self.message) }
    }

    pub(super) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            note(&self.message);
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let code = match (error.lock_error(), error.kind()) {
            (Some(service), _) => service_code(service),
            (None, ErrorKind::Fenced | ErrorKind::Lost) => 3,
            (None, ErrorKind::Conflict) => 4,
            // A read that failed after it was sent ends with 1.
            (None, ErrorKind::Unavailable) if was_rejected(&error) => 6,
            (None, ErrorKind::UnknownOutcome) => 7,
            (None, ErrorKind::Busy) => 8,
            (None, _) => 1,
        };
        Failed { code, message: error.to_string() }
    }
}

impl From<LockError> for Failed {
    fn from(error: LockError) -> Failed {
        Failed { code: service_code(&error), message: error.to_string() }
    }
}

/// Whether this request was certainly not applied, because nothing was sent or because the gateway rejected it.
fn was_rejected(error: &Error) -> bool {
    error.is_unreachable() || error.problem().is_some_and(|problem| matches!(problem.status, 408 | 429 | 503 | 507))
}

fn service_code(error: &LockError) -> u8 {
    match error {
        LockError::Unreachable { .. } => 6,
        LockError::Refused { .. } => 3,
        LockError::Invalid(_) => 2,
        _ => 1,
    }
}

/// Writes text to standard output, with characters that a terminal would not show escaped.
pub(super) fn write_text(text: &str) -> Result<(), Failed> {
    write(terminal::escaped(text).as_bytes())
}

/// Writes a line to standard error. The reader may be gone.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "fencepost: {}", terminal::escaped(text));
}

/// Writes to standard output. A closed pipe (`| head`) ends the command without a message.
pub(super) fn write(bytes: &[u8]) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failed { code: 1, message: String::new() }),
        Err(error) => Err(Failed::other(format!("cannot write to standard output: {error}"))),
    }
}
