//! Counting with callgrind, and comparing with the recorded counts.

use std::process::Command;

use crate::parts::Part;

/// The result of a comparison.
#[derive(Debug, PartialEq)]
pub(crate) enum Finding {
    Within,
    Above {
        recorded: u64,
        percent: f64,
    },
    /// So far below the record that it no longer detects regressions.
    Below {
        recorded: u64,
        percent: f64,
    },
    Unknown,
}

/// Counts of a few dozen vary by some instructions for no relevant reason.
const SLACK: u64 = 8;

pub(crate) fn compare(recorded: Option<u64>, counted: u64, tolerance: u64) -> Finding {
    let Some(recorded) = recorded else { return Finding::Unknown };
    let difference = counted.abs_diff(recorded);
    let percent = difference as f64 * 100.0 / recorded.max(1) as f64;
    if difference <= SLACK || difference * 100 <= recorded * tolerance {
        Finding::Within
    } else if counted > recorded {
        Finding::Above { recorded, percent }
    } else {
        Finding::Below { recorded, percent }
    }
}

/// Instructions of one repetition.
pub(crate) fn instructions(part: &Part) -> Result<u64, String> {
    let (few, many) = (part.repetitions / 10, part.repetitions);
    let (less, more) = (fewest(part, few)?, fewest(part, many)?);
    let difference =
        more.checked_sub(less).ok_or_else(|| format!("{}: more work took fewer instructions", part.name))?;
    Ok((difference + (many - few) / 2) / (many - few))
}

/// The fewest instructions of some runs.
fn fewest(part: &Part, count: u64) -> Result<u64, String> {
    (1..part.runs).try_fold(collected(part.name, count)?, |fewest, _| Ok(fewest.min(collected(part.name, count)?)))
}

/// All instructions of a run, on all its threads.
fn collected(name: &str, count: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(program).args(["run", name, &count.to_string()]);
    let output = command.output().map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match (output.status.success(), total(&said)) {
        (true, Some(total)) => Ok(total),
        // An instruction that valgrind does not know ends the program with SIGILL; valgrind's output names it.
        _ => Err(format!("{name} did not run under valgrind ({}):\n{said}", output.status)),
    }
}

/// The number in callgrind's line `==123== Collected : 4567`.
fn total(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.trim().parse().ok()
}

/// The compiler of this program.
pub(crate) fn compiler() -> String {
    env!("BENCH_COMPILER").to_owned()
}

/// The version of valgrind.
pub(crate) fn valgrind() -> Result<String, String> {
    let output = Command::new("valgrind").arg("--version").output();
    let output = output.map_err(|error| format!("valgrind cannot be started: {error}; `make bench` installs it"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The processor, by which the C library may choose its implementations; valgrind passes its features on.
pub(crate) fn processor() -> String {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = flags.lines().find(|line| line.starts_with("flags")).is_some_and(|line| line.contains(" avx2"));
    format!("{} processor {} AVX2", std::env::consts::ARCH, if has { "with" } else { "without" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_growth_beyond_the_tolerance_is_above() {
        assert_eq!(compare(Some(1000), 1030, 3), Finding::Within);
        assert_eq!(compare(Some(1000), 970, 3), Finding::Within);
        assert_eq!(compare(Some(1000), 1100, 3), Finding::Above { recorded: 1000, percent: 10.0 });
        assert_eq!(compare(Some(1000), 900, 3), Finding::Below { recorded: 1000, percent: 10.0 });
        assert!(matches!(compare(Some(1000), 1031, 3), Finding::Above { .. }));
        assert_eq!(compare(None, 900, 3), Finding::Unknown);
    }

    #[test]
    fn a_few_instructions_of_a_small_count_do_not_matter() {
        assert_eq!(compare(Some(40), 48, 3), Finding::Within);
        assert!(matches!(compare(Some(40), 49, 3), Finding::Above { .. }));
    }

    #[test]
    fn the_total_is_found_in_what_callgrind_says() {
        let said = "==7== Callgrind\n==7== Events    : Ir\n==7== Collected : 123456\n==7==\n";
        assert_eq!(total(said), Some(123_456));
        assert_eq!(total("==7== Process terminating with default action of signal 4 (SIGILL)"), None);
    }
}
