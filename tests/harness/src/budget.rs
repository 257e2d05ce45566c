//! The amount of work of a suite: `FENCEPOST_BUDGET=ci|full`.

/// The number for this run: small in CI, large for `make test-full`.
pub fn pick<T>(ci: T, full: T) -> T {
    match std::env::var("FENCEPOST_BUDGET").as_deref() {
        Err(_) | Ok("" | "ci") => ci,
        Ok("full") => full,
        Ok(other) => panic!("FENCEPOST_BUDGET is `{other}`; write `ci` or `full`"),
    }
}
