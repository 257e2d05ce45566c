//! Adapters over JSON lines: the protocol, everything an adapter can do wrong, and the shipped examples.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod book;
mod broken;
mod examples;
mod hooks;
mod protocol;

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencepost_conformance::adapters::exec::{self, ExecSubject, Options};
use fencepost_conformance::subject::{Broken, Request, Route, Subject};
use fencepost_conformance::{Answer, Op};

/// A command whose processes can be found again, also those that it starts itself.
struct Marked {
    mark: String,
    command: Vec<String>,
}

impl Marked {
    fn new(command: &[&str]) -> Marked {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("CONFORM_EXEC_MARK={}-{number}-", std::process::id());
        let command = ["env", &mark].into_iter().chain(command.iter().copied());
        Marked { command: command.map(str::to_owned).collect(), mark }
    }

    fn shell(script: &str) -> Marked {
        Marked::new(&["sh", "-c", script])
    }

    fn python(script: &str) -> Marked {
        Marked::new(&["python3", "-u", "-c", script])
    }

    fn open(&self, options: Options) -> Result<ExecSubject, Broken> {
        exec::open(&self.command, options)
    }

    /// Its processes that run now.
    fn processes(&self) -> Vec<String> {
        let numbers = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
        let ours = numbers.filter(|path| {
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
        });
        ours.map(|path| fs::read_to_string(path.join("stat")).unwrap_or_default()).collect()
    }

    #[track_caller]
    fn left_nothing(&self) {
        assert_eq!(self.processes(), Vec::<String>::new(), "processes were left behind");
    }
}

/// Small limits, for adapters that are not busy.
fn quick() -> Options {
    Options { timeout: Duration::from_millis(200), ..Options::default() }
}

fn call(subject: &dyn Subject, client: u32, op: &Op) -> Result<Answer, Broken> {
    subject.call(&Request { case: "X01", seed: 7, id: 41, client, route: Route::Direct, op })
}

fn read(subject: &dyn Subject, client: u32, res: &str) -> Result<Answer, Broken> {
    call(subject, client, &Op::read(res))
}

fn value(answer: Result<Answer, Broken>) -> String {
    let answer = answer.unwrap();
    answer.value().flatten().unwrap_or_else(|| panic!("no value: {answer:?}")).to_owned()
}
