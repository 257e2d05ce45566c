//! The `fencepost` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    fencepost_gateway::cli::run()
}
