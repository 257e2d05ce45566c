//! Running the `fencepost` command line against a gateway.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use fencepost_harness::process::{GatewayProcess, binary};
use serde_json::Value;

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        assert!(self.out.ends_with(b"}\n"), "one line: {self:?}");
        serde_json::from_slice(&self.out).unwrap()
    }

    /// Failed with this code, said this, and printed nothing to standard output.
    pub(crate) fn assert_failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.out.is_empty(), "{self:?}");
        assert!(words.iter().all(|word| self.err.contains(word)), "{words:?} in {self:?}");
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        Said { code: output.status.code().unwrap(), out: output.stdout, err }
    }
}

/// The binary with these arguments, as a client of this gateway.
pub(crate) fn command(gateway: &GatewayProcess, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env("FENCEPOST_URL", gateway.url()).stdin(Stdio::null());
    command
}

/// Runs a command line, split at spaces.
pub(crate) fn run(gateway: &GatewayProcess, line: &str) -> Said {
    let arguments: Vec<_> = line.split_whitespace().collect();
    command(gateway, &arguments).output().unwrap().into()
}

/// The same, with something on standard input.
#[allow(dead_code, reason = "not every suite with this module has something to say")]
pub(crate) fn run_with_input(gateway: &GatewayProcess, line: &str, input: &[u8]) -> Said {
    let arguments: Vec<_> = line.split_whitespace().collect();
    let mut command = command(gateway, &arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap().into()
}
