//! The `fencepost` binary.

use std::process::ExitCode;

/// Requests make many small allocations, which are freed on other threads than they were made on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fencepost_gateway::cli::run()
}
