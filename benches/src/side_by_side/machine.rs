//! A description of the machine, for the reports.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::figures::Rounds;

/// Processor, memory, kernel, and the file system of a directory with the cost of its fsync.
pub(crate) fn describe(home: &Path) -> String {
    let field = |path: &str, word: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find(|line| line.starts_with(word)).and_then(|line| line.split(':').nth(1));
        found.unwrap_or("unknown").trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field("/proc/meminfo", "MemTotal");
    let memory: u64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    format!(
        "{cores} cores of {}, {} GiB of memory, Linux {}. The data directories were on {}, where one `fdatasync` after a write of 4 KiB \
         took {:.0} µs (median of 200).",
        field("/proc/cpuinfo", "model name"),
        memory >> 20,
        fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        file_system(&mounts, &home).unwrap_or("an unknown file system"),
        fsync(&home).unwrap_or(f64::NAN),
    )
}

/// The type of the file system that a directory is on: that of the longest mount point above it.
fn file_system<'a>(mounts: &'a str, directory: &Path) -> Option<&'a str> {
    let mounted = mounts.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        Some((before.split(' ').nth(4)?, after.split(' ').next()?))
    });
    let above = mounted.filter(|(point, _)| directory.starts_with(point));
    // Of two mounts on one point, the later one covers the other.
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind)
}

/// Microseconds of a small durable append.
fn fsync(home: &Path) -> std::io::Result<f64> {
    let path = home.join("fsync");
    let mut file = fs::File::create(&path)?;
    let mut times = Rounds::default();
    for _ in 0..200 {
        let started = Instant::now();
        file.write_all(&[b'x'; 4096])?;
        file.sync_data()?;
        times.add(started.elapsed().as_secs_f64() * 1e6);
    }
    fs::remove_file(path)?;
    Ok(times.median())
}

/// The first number with a dot in a program's version output.
pub(crate) fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let words = said.split(|sign: char| !(sign.is_ascii_digit() || sign == '.'));
    let mut versions = words.map(|word| word.trim_matches('.')).filter(|word| word.contains('.'));
    versions.next().unwrap_or("of unknown version").to_owned()
}

/// Raises the limit of open files as far as the system allows, for this process and the servers it starts.
pub(crate) fn raise_open_files() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that is forbidden, the old limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount_point() {
        let mounts = "21 1 8:1 / / rw - ext4 /dev/vda rw\n\
                      22 21 0:5 / /tmp rw,nosuid shared:3 - tmpfs tmpfs rw\n\
                      23 21 0:6 / /tmpfiles rw - xfs /dev/vdb rw\n";
        assert_eq!(file_system(mounts, Path::new("/tmp/bench")), Some("tmpfs"));
        assert_eq!(file_system(mounts, Path::new("/home/bench")), Some("ext4"));
        assert_eq!(file_system("", Path::new("/")), None);
    }
}
