//! Programs in the Python environment that `scripts/setup` creates.

use std::path::PathBuf;

/// The directory of the programs.
pub fn programs() -> PathBuf {
    let cache = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").expect("there is a home directory")).join(".cache"),
    };
    cache.join("fencepost/venv/bin")
}

/// The path of one program.
pub fn program(name: &str) -> PathBuf {
    let program = programs().join(name);
    assert!(program.exists(), "{} is missing: run `make test`, or `scripts/setup test` first", program.display());
    program
}
