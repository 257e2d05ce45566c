//! The process dies at the n-th system call of one kind in one thread, for every n; what was answered before still
//! holds afterwards. strace kills before the call is made. One store goes through all kills of a test.
use std::fs::{self, OpenOptions};
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

    /// A buffer that is full after eight values, so that the log is switched and tables are written and merged.
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

#[test]
fn killed_before_the_nth_write_of_the_log() {
    Sweep::commits("write", Some(strace::current_log)).kill(budget::pick(20, 200));
}

#[test]
fn killed_between_write_and_fdatasync_of_the_log() {
    Sweep::commits("fdatasync", Some(strace::current_log)).kill(budget::pick(20, 200));
}

#[test]
fn killed_between_fdatasync_and_the_committed_mark() {
    Sweep::commits("pwrite64", Some(strace::committed_mark)).kill(budget::pick(20, 200));
}

#[test]
fn killed_while_the_answers_of_a_commit_go_out() {
    Sweep::commits("futex", None).kill(budget::pick(20, 200));
}

/// After a power cut the log ends anywhere in its unsynced part, and the mark, which is never synced, is an old one.
#[test]
fn power_cut_between_write_and_fdatasync_of_the_log() {
    for record in [Record::new(KEYS), Record::bulky(KEYS)] {
        let (mut old_mark, mut cut_off) = (None, 0);
        let sweep = Sweep { record, ..Sweep::commits("fdatasync", Some(strace::current_log)) };
        sweep.run(budget::pick(20, 200), |data, calls, random| {
            let write = calls.lines().rfind(|line| line.contains(" write(")).expect("a write comes before fdatasync");
            let unsynced: u64 = write.rsplit(" = ").next().and_then(|bytes| bytes.parse().ok()).expect("it succeeded");
            let log = OpenOptions::new().write(true).open(strace::current_log(data)).unwrap();
            let lost = random.below(unsynced + 1);
            log.set_len(log.metadata().unwrap().len() - lost).unwrap();
            cut_off += lost;
            let mark = fs::read(strace::committed_mark(data)).unwrap();
            if let Some(old) = old_mark.replace(mark) {
                fs::write(strace::committed_mark(data), old).unwrap();
            }
        });
        println!("{cut_off} bytes of the log were lost");
    }
}

#[test]
fn killed_at_the_nth_write_while_logs_are_switched() {
    Sweep::full_buffers(COMMITTER, "write").kill(budget::pick(20, 100));
}

#[test]
fn killed_while_a_new_log_is_made() {
    for call in ["openat", "fallocate", "fsync"] {
        Sweep::full_buffers(COMMITTER, call).kill(budget::pick(3, 12));
    }
}

#[test]
fn killed_while_a_table_is_written() {
    for call in ["openat", "write", "fdatasync", "fsync", "ftruncate", "unlink"] {
        Sweep::full_buffers(FLUSHER, call).kill(budget::pick(3, 12));
    }
}

#[test]
fn killed_while_tables_are_merged() {
    for call in ["write", "fdatasync", "unlink"] {
        Sweep::full_buffers(COMPACTOR, call).kill(budget::pick(3, 12));
    }
}
