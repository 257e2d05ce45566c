//! How commands end: one exit code for each thing a script would do differently.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use fencepost_client::CallError;

use super::terminal;

/// The table, as `--help` shows it.
pub(super) const HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  the command line or configuration is wrong
  3  refused by the fence, or the lease is lost: stop, do not retry with this token
  4  a condition failed, or a number cannot be added: read again, decide anew
  5  the key has no value, or nobody holds the lock
  6  not applied by this request: overloaded, unreachable or out of space; try again later
  7  the outcome is unknown: the write may or may not have been applied
  8  somebody else holds the lock: try again later";

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

    /// Nothing is said, because somebody else has said it.
    pub(super) fn silent(code: u8) -> Failed {
        Failed { code, message: String::new() }
    }

    /// Something was done before it failed, so it is no longer true that nothing was.
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

impl From<CallError> for Failed {
    fn from(error: CallError) -> Failed {
        let code = match &error {
            CallError::Fenced(_) | CallError::Lost(_) => 3,
            CallError::Conflict(_) => 4,
            CallError::Absent(_) => 5,
            CallError::NotApplied(_) | CallError::Unreachable { .. } => 6,
            CallError::Unknown(_) => 7,
            CallError::Held(_) => 8,
            CallError::Invalid(_) | CallError::Failed(_) => 1,
        };
        Failed { code, message: error.to_string() }
    }
}

/// Writes text to standard output, with what a terminal would not show written out.
pub(super) fn write_text(text: &str) -> Result<(), Failed> {
    write(terminal::escaped(text).as_bytes())
}

/// Says something on standard error. A reader that went away changes nothing.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "fencepost: {}", terminal::escaped(text));
}

/// Writes to standard output. A reader that went away (`| head`) ends the command quietly.
pub(super) fn write(bytes: &[u8]) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failed { code: 1, message: String::new() }),
        Err(error) => Err(Failed::other(format!("cannot write to standard output: {error}"))),
    }
}
