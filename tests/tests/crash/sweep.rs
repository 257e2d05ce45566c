//! The process dies at the n-th system call of one kind in one thread, for every n; what was answered before still
//! holds afterwards. strace kills before the call is made. One store goes through all kills of a test.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fencepost_conformance::random::Random;
use fencepost_conformance::wait;
use fencepost_harness::budget;
use fencepost_harness::load::{self, Until};
use fencepost_harness::process::GatewayProcess;
use fencepost_harness::record::Record;
use fencepost_harness::strace::{self, COMMITTER, COMPACTOR, FLUSHER, Strace};

const CLIENTS: usize = 2;
const KEYS: usize = 6;

/// The place at which the process dies.
struct Sweep {
    thread: &'static str,
    call: &'static str,
    /// Only calls on this file count.
    path: Option<fn(&Path) -> PathBuf>,
    settings: &'static [&'static str],
    record: Record,
    /// Enough requests to cause one more such call.
    requests_per_call: u64,
}

impl Sweep {
    fn commits(call: &'static str, path: Option<fn(&Path) -> PathBuf>) -> Sweep {
        let record = Record::new(KEYS);
        Sweep { thread: COMMITTER, call, path, settings: &[], record, requests_per_call: 8 }
    }

    /// A buffer that is full after eight values, and files of the journal that are full after two, so that they are
    /// switched and tables are written and merged.
    fn full_buffers(thread: &'static str, call: &'static str) -> Sweep {
        let settings = &["--write-buffer", "1MiB"];
        Sweep { thread, call, path: None, settings, record: Record::bulky(KEYS), requests_per_call: 100 }
    }

    /// Dies at the calls number 1 to `limit`. `afterwards` changes the directory before the restart; it receives the
    /// calls that strace saw.
    fn run(self, limit: u64, mut afterwards: impl FnMut(&Path, &str, &mut Random)) {
        let Sweep { thread, call, settings, record, .. } = &self;
        let (mut random, started) = (Random::from_environment(), Instant::now());
        let data = tempfile::tempdir().unwrap();
        let mut requests = 0;
        for n in 1..=limit {
            let mut gateway = strace::start_traceable(data.path(), settings);
            record.check(&mut gateway.client());
            let path = self.path.map(|path| path(data.path()));
            let rule = format!("{call}:signal=KILL:when={n}");
            let tracer = Strace::attach(strace::thread(&gateway, thread), path.as_deref(), &[&rule]);
            // An idle thread makes some calls too.
            let enough = Until::Killed(100 + self.requests_per_call * n);
            requests += load::run(gateway.address(), record, CLIENTS, &random.fork(n), enough, || {});
            wait::until("the process to be killed", Duration::from_secs(30), || gateway.has_ended());
            let calls = tracer.wait();
            assert!(calls.contains("killed by SIGKILL"), "{call} {n} was not reached:\n{calls}");
            let seen = calls.lines().filter(|line| line.contains(&format!(" {call}("))).count();
            assert_eq!(seen as u64, n, "died at another call than {call} {n}:\n{calls}");
            afterwards(data.path(), &calls, &mut random);
        }
        let gateway = GatewayProcess::start(data.path(), settings);
        record.check(&mut gateway.client());
        println!(
            "{thread}: killed at {call} 1 to {limit} in {:.1} s, {requests} requests: {}",
            started.elapsed().as_secs_f64(),
            record.summary()
        );
    }

    fn kill(self, limit: u64) {
        self.run(limit, |_, _, _| {});
    }
}

/// The first writes are those of the head of the file.
#[test]
fn killed_before_the_nth_write_of_the_journal() {
    Sweep::commits("pwrite64", Some(strace::current_journal)).kill(budget::pick(20, 200));
}

#[test]
fn killed_between_write_and_fdatasync_of_the_journal() {
    Sweep::commits("fdatasync", Some(strace::current_journal)).kill(budget::pick(20, 200));
}

#[test]
fn killed_between_fdatasync_and_the_committed_mark() {
    Sweep::commits("pwrite64", Some(strace::committed_mark)).kill(budget::pick(20, 200));
}

/// The committer waits by `futex`. It wakes callers by `futex` too, or by a write to the poll of the only thread that serves.
#[test]
fn killed_while_the_answers_of_a_commit_go_out() {
    let sweep = Sweep { requests_per_call: 40, ..Sweep::commits("futex", None) };
    sweep.kill(budget::pick(20, 200));
}

/// After a power cut each sector that was not synced is as it was before or as it was written, and the mark, which is
/// never synced, is an old one.
#[test]
fn power_cut_between_write_and_fdatasync_of_the_journal() {
    for record in [Record::new(KEYS), Record::bulky(KEYS)] {
        let (mut old_mark, mut lost, mut before) = (None, 0, Vec::new());
        let sweep = Sweep { record, ..Sweep::commits("fdatasync", Some(strace::current_journal)) };
        sweep.run(budget::pick(20, 200), |data, calls, random| {
            let journal = strace::current_journal(data);
            let mut bytes = fs::read(&journal).unwrap();
            let unsynced = unsynced(calls);
            assert!(!unsynced.is_empty(), "a write comes before fdatasync:\n{calls}");
            for sector in unsynced.into_iter().flat_map(|range| range.step_by(SECTOR)).filter(|_| random.below(3) == 0)
            {
                let from = sector / SECTOR * SECTOR;
                for (at, byte) in bytes.iter_mut().enumerate().skip(from).take(SECTOR) {
                    *byte = before.get(at).copied().unwrap_or(0);
                }
                lost += 1;
            }
            fs::write(&journal, &bytes).unwrap();
            before = bytes;
            let mark = fs::read(strace::committed_mark(data)).unwrap();
            if let Some(old) = old_mark.replace(mark) {
                fs::write(strace::committed_mark(data), old).unwrap();
            }
        });
        println!("{lost} sectors of the journal were lost");
    }
}

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Where the journal was written since its last completed sync: `pwrite64(7<…>, "…"..., 812, 8192) = 812`.
fn unsynced(calls: &str) -> Vec<std::ops::Range<usize>> {
    let lines: Vec<&str> = calls.lines().collect();
    let synced = lines.iter().rposition(|line| line.contains(" fdatasync(") && line.ends_with("= 0"));
    let write = |line: &&str| {
        let (call, result) = line.split_once(" pwrite64(")?.1.rsplit_once(") = ")?;
        let offset: usize = call.rsplit_once(", ")?.1.parse().ok()?;
        Some(offset..offset + result.trim().parse::<usize>().ok()?)
    };
    lines[synced.map_or(0, |at| at + 1)..].iter().filter_map(write).collect()
}

#[test]
fn killed_at_the_nth_write_while_files_of_the_journal_are_switched() {
    Sweep::full_buffers(COMMITTER, "pwrite64").kill(budget::pick(20, 100));
}

/// `fadvise64` is the first call for each file that is begun.
#[test]
fn killed_while_a_file_of_the_journal_is_begun() {
    Sweep::full_buffers(COMMITTER, "fadvise64").kill(budget::pick(6, 24));
    // A new file is made, and then its directory is synced.
    for (call, limit) in [("openat", 2), ("fsync", 1)] {
        Sweep::full_buffers(COMMITTER, call).kill(limit);
    }
}

#[test]
fn killed_while_a_table_is_written() {
    for call in ["openat", "write", "fdatasync", "fsync"] {
        Sweep::full_buffers(FLUSHER, call).kill(budget::pick(3, 12));
    }
}

#[test]
fn killed_while_tables_are_merged() {
    for call in ["write", "fdatasync", "unlink"] {
        Sweep::full_buffers(COMPACTOR, call).kill(budget::pick(3, 12));
    }
}
