//! Running the `fencepost` command line against a gateway.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::process::{GatewayProcess, binary};

/// The output and exit code of a command.
#[derive(Debug)]
pub struct Said {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// The one line of JSON that a successful command printed.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        assert!(self.out.ends_with(b"}\n"), "one line: {self:?}");
        serde_json::from_slice(&self.out).expect("it printed JSON")
    }

    /// Asserts that the command failed with this code, printed these words to standard error, and nothing to standard
    /// output.
    pub fn assert_failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.out.is_empty(), "{self:?}");
        assert!(words.iter().all(|word| self.err.contains(word)), "{words:?} in {self:?}");
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Said { code: output.status.code().expect("it was not killed"), out: output.stdout, err }
    }
}

/// The binary with these arguments, as a client of this gateway.
pub fn command(gateway: &GatewayProcess, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env("FENCEPOST_URL", gateway.url()).stdin(Stdio::null());
    command
}

/// Runs a command line, split at spaces.
pub fn run(gateway: &GatewayProcess, line: &str) -> Said {
    let arguments: Vec<_> = line.split_whitespace().collect();
    command(gateway, &arguments).output().expect("fencepost runs").into()
}

/// Like `run`, with data on standard input.
pub fn run_with_input(gateway: &GatewayProcess, line: &str, input: &[u8]) -> Said {
    let arguments: Vec<_> = line.split_whitespace().collect();
    let mut command = command(gateway, &arguments);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("fencepost runs");
    child.stdin.take().expect("stdin is piped").write_all(input).expect("it reads its input");
    child.wait_with_output().expect("our own child can be waited for").into()
}
