//! `fencepost engine check`: whether a server keeps the rules that the guarantees rest on. For servers that are not run in the
//! project's own tests.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::time::Duration;

use clap::{Args, Subcommand};
use fencepost_remote::ServerUrl;
use fencepost_store::engine_check::{self, Case, Ended, Failure, Report, Verdict};
use fencepost_store::engines::{EngineKind, EngineOptions, Place, SCRATCH_PREFIX, Scratch};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::{self, Failed};
use crate::config::EngineText;
use crate::quantity::Span;

#[derive(Subcommand)]
pub(super) enum Engine {
    /// Test whether a server can be an engine: its rules and stress, in a place of its own that is removed afterwards
    Check(Check),
}

const HELP: &str = "\
Nothing that is on the server already is read or changed. The place for the check has a random name that begins with
`fencepost_check_`; if the command is killed, remove it by hand.

Exit codes of this command:
  0  safe: no rule was broken
  1  a rule was broken, or the check could not be finished
  2  the command line is wrong";

#[derive(Args)]
#[command(after_help = HELP)]
pub(super) struct Check {
    /// URL of the server, as for `serve --engine`; one with a password belongs in FENCEPOST_ENGINE
    #[arg(value_name = "URL", env = "FENCEPOST_ENGINE", hide_env_values = true)]
    url: EngineText,
    /// How long the cases of stress run, all together
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = some_time)]
    duration: Span,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn some_time(text: &str) -> Result<Span, String> {
    match text.parse()? {
        Span(Duration::ZERO) => Err("nothing can be seen in no time: give a time such as `10s` or `5min`".to_owned()),
        span => Ok(span),
    }
}

impl Engine {
    pub(super) fn run(self) -> Result<(), Failed> {
        let Engine::Check(check) = self;
        check.run()
    }
}

impl Check {
    fn run(self) -> Result<(), Failed> {
        let setting = self.url.read().map_err(Failed::usage)?;
        let kind = setting.kind();
        let (Some(scratch), Some(server)) = (kind.scratch, setting.server()) else {
            return Err(Failed::usage(format!(
                "the engine {} uses no server, and is tested with each version; give the URL of a server, such as \
                 postgres://user@host:port/database",
                kind.name
            )));
        };
        let name = format!("{SCRATCH_PREFIX}{:016x}", getrandom::u64().map_err(Failed::other)?);
        let url = (scratch.at)(server, &name);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failed::other)?;
        let report = runtime.block_on(self.check(kind, scratch, &url, &name))?;
        exit::write_text(&if self.json { as_json(kind, &report, self.duration) } else { as_table(&report) })?;
        match report.verdict() {
            Verdict::Safe => Ok(()),
            Verdict::Broken(_) | Verdict::Unknown(_) => Err(Failed::silent(1)),
        }
    }

    /// Runs the check, and removes its place however that ended.
    async fn check(&self, kind: &EngineKind, scratch: Scratch, url: &ServerUrl, name: &str) -> Result<Report, Failed> {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failed::other)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Failed::other)?;
        let place = Place::Server(url.clone());
        let checked = tokio::select! {
            checked = self.check_in(kind, &place) => checked,
            signal = either(&mut interrupt, &mut terminate) => {
                Err(Failed::with(1, format!("ended by {signal}; nothing is said about the server")))
            }
        };
        match (checked, (scratch.remove)(url).await) {
            (checked, Ok(())) => checked,
            (Err(failed), Err(why)) => {
                exit::note(&format!("if {name} is there, remove it by hand: {why}"));
                Err(failed)
            }
            (Ok(_), Err(why)) => {
                Err(Failed::with(1, format!("{name} could not be removed, so remove it by hand: {why}")))
            }
        }
    }

    async fn check_in(&self, kind: &EngineKind, place: &Place) -> Result<Report, Failed> {
        let options = EngineOptions::default();
        let open = || (kind.open)(place, &options);
        let (first, second, third) = (open().await, open().await, open().await);
        let gateways = [first.map_err(Failed::other)?, second.map_err(Failed::other)?, third.map_err(Failed::other)?];
        let check = engine_check::Check::new(gateways, self.duration.0);
        let mut progress = Progress::new(check.cases().len());
        let report = check.run(|case| progress.starts(case)).await;
        progress.end();
        Ok(report)
    }
}

/// The name of the signal that came first.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}

/// A line on the terminal that says which case runs.
struct Progress {
    shown: bool,
    started: usize,
    all: usize,
}

impl Progress {
    fn new(all: usize) -> Progress {
        Progress { shown: io::stderr().is_terminal(), started: 0, all }
    }

    fn starts(&mut self, case: &Case) {
        self.started += 1;
        self.show(&format!("{}/{}  {}", self.started, self.all, words(case.name)));
    }

    fn end(&self) {
        self.show("");
    }

    /// Replaces the line. The reader may be gone.
    fn show(&self, line: &str) {
        if self.shown {
            let mut terminal = io::stderr().lock();
            let _ = write!(terminal, "\r\x1b[K{line}").and_then(|()| terminal.flush());
        }
    }
}

/// The name of a case in words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// How a case ended, in a word, and what it said.
fn said(case: &Ended) -> (&'static str, String) {
    match &case.result {
        Ok(said) => ("passed", said.clone()),
        Err(Failure::Broken(why)) => ("failed", why.clone()),
        Err(Failure::Unusable(why)) => ("unknown", why.clone()),
    }
}

fn as_table(report: &Report) -> String {
    let width = report.ended.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let mut table = String::new();
    for case in &report.ended {
        let (result, said) = said(case);
        let line = format!("{result:<7}  {:<width$}  {:>6.1} s  {said}", words(case.name), case.took.as_secs_f64());
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{}", line.trim_end());
    }
    let _ = writeln!(table, "\n{report}");
    table
}

fn as_json(kind: &EngineKind, report: &Report, duration: Span) -> String {
    let cases: Vec<_> = report
        .ended
        .iter()
        .map(|case| {
            let (result, said) = said(case);
            json!({"name": case.name, "result": result, "seconds": case.took.as_secs_f64(), "said": said})
        })
        .collect();
    let verdict = match report.verdict() {
        Verdict::Safe => "safe",
        Verdict::Broken(_) => "not-safe",
        Verdict::Unknown(_) => "unknown",
    };
    let report = json!({
        "verdict": verdict,
        "engine": kind.name,
        "server": report.server,
        "version": env!("CARGO_PKG_VERSION"),
        "duration": duration.to_string(),
        "cases": cases,
    });
    format!("{report}\n")
}
