//! Adapters whose processes can be identified, and the shipped ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use fencepost_conformance::adapters::exec::{self, ExecSubject, Options};
use fencepost_conformance::run;
use fencepost_conformance::subject::Broken;
use fencepost_conformance::verdict::{Level, Results, Status};
use fencepost_conformance::wait;

/// A command whose processes can be identified, including those that it starts itself.
pub(crate) struct Marked {
    mark: String,
    command: Vec<String>,
}

impl Marked {
    pub(crate) fn new(command: &[&str]) -> Marked {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("CONFORM_EXEC_MARK={}-{number}-", std::process::id());
        let command = ["env", &mark].into_iter().chain(command.iter().copied());
        Marked { command: command.map(str::to_owned).collect(), mark }
    }

    pub(crate) fn shell(script: &str) -> Marked {
        Marked::new(&["sh", "-c", script])
    }

    pub(crate) fn python(script: &str) -> Marked {
        Marked::new(&["python3", "-u", "-c", script])
    }

    pub(crate) fn open(&self, options: Options) -> Result<ExecSubject, Broken> {
        exec::open(&self.command, options)
    }

    /// Its running processes.
    pub(crate) fn processes(&self) -> Vec<String> {
        let numbers = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
        let ours = numbers.filter(|path| {
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
        });
        ours.map(|path| fs::read_to_string(path.join("stat")).unwrap_or_default()).collect()
    }

    #[track_caller]
    pub(crate) fn left_nothing(&self) {
        assert_eq!(self.processes(), Vec::<String>::new(), "processes were left behind");
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn example(name: &str) -> String {
    let path = root().join("examples/conformance").join(name).join("adapter.py");
    path.to_str().expect("the path is text").to_owned()
}

/// The Python with psycopg. It also starts faster than a launcher that first selects a version.
pub(crate) fn python() -> String {
    let cache = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME").expect("there is a home directory")).join(".cache"),
    };
    let python = cache.join("fencepost/venv/bin/python");
    assert!(python.exists(), "{} is missing: run `scripts/setup test` first", python.display());
    python.to_str().expect("the path is text").to_owned()
}

/// Runs the suite, prints the results, and asserts that no process is left.
pub(crate) fn judge(adapter: &Marked, options: Options, asked: &run::Options) -> Results {
    let subject = adapter.open(options).unwrap_or_else(|broken| panic!("{broken}"));
    let results = run::run(&subject, asked, &mut ());
    for result in &results.cases {
        println!("{} {} {:?} {}", result.case.id, result.status.word(), result.took, result.reason);
    }
    drop(subject);
    adapter.left_nothing();
    results
}

#[track_caller]
pub(crate) fn passes(results: &Results, level: Level) {
    let bad = [Status::Fail, Status::Error, Status::Unknown, Status::Skip];
    let bad: Vec<_> = bad.into_iter().flat_map(|status| results.ids(status)).collect();
    assert!(bad.is_empty() && results.broken.is_none(), "{bad:?} {:?}", results.broken);
    assert_eq!(results.shown(), Some(level));
    assert_eq!(results.exit_code(), 0);
}

pub(crate) fn asked(level: Level) -> run::Options {
    run::Options { level, ..run::Options::default() }
}

/// A long timeout, for a subject that must answer every one of very many requests.
pub(crate) fn patient() -> Options {
    Options { timeout: wait::PATIENCE, ..Options::default() }
}

pub(crate) fn two() -> Options {
    Options { instances: 2, ..patient() }
}
