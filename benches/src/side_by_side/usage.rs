//! The resources used by servers and all their children, from /proc.

use std::fs;

/// The usage so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// CPU seconds.
    pub(crate) cpu: f64,
    /// Bytes written to the disk.
    pub(crate) written: f64,
    /// Resident MiB now.
    pub(crate) memory: f64,
}

impl Usage {
    pub(crate) fn of(processes: &[u32]) -> Usage {
        let mut usage = Usage::default();
        for pid in family(processes) {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The name in parentheses may contain spaces.
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0);
            // User and system time, and that of children that have exited; 100 ticks a second.
            usage.cpu += (11..=14).map(ticks).sum::<f64>() / 100.0;
            usage.written += number(&format!("/proc/{pid}/io"), "write_bytes:");
            usage.memory += number(&format!("/proc/{pid}/status"), "RssAnon:") / 1024.0;
        }
        usage
    }
}

/// The number after a word in a file of /proc.
fn number(path: &str, word: &str) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Processes and their children, at any depth.
fn family(processes: &[u32]) -> Vec<u32> {
    let mut family = processes.to_vec();
    let mut at = 0;
    while let Some(parent) = family.get(at).copied() {
        at += 1;
        let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().filter_map(Result::ok);
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_family_is_every_process_with_its_children() {
        let mut children: Vec<_> = (0..2).map(|_| Command::new("sleep").arg("60").spawn().unwrap()).collect();
        let pids: Vec<u32> = children.iter().map(std::process::Child::id).collect();
        let of_both = family(&pids);
        let of_us = family(&[std::process::id()]);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(of_both, pids);
        assert!(pids.iter().all(|pid| of_us.contains(pid)), "{of_us:?} lacks one of {pids:?}");
    }
}
