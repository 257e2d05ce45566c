//! `fencepost conform`: test whether a resource is really safe.

mod list;
mod recheck;
mod selftest;
mod signals;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use fencepost_conformance::adapters::hooks::Commands;
use fencepost_conformance::adapters::orphans::Orphans;
use fencepost_conformance::adapters::{exec, http};
use fencepost_conformance::report::{self, Look, Setting, Tree};
use fencepost_conformance::run::{self, Options, Stop};
use fencepost_conformance::subject::{Hook, Subject};
use fencepost_conformance::verdict::Level;

use super::exit::Failed;
use crate::quantity::Span;

/// The harness failed, or the input is wrong: nothing is known about the resource.
pub(super) const HARNESS_FAILED: u8 = 3;

/// Time limit of the checker for one history.
const THINKING: Duration = Duration::from_secs(20);

/// If it takes longer than this to end what was started, a note is printed.
const LEAVING: Duration = Duration::from_secs(2);

#[derive(Args)]
#[command(after_help = HELP, subcommand_required = false, arg_required_else_help = true)]
pub(super) struct Conform {
    /// List all cases with their rules and reasons, and run nothing
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    how: Option<How>,
}

const HELP: &str = "\
Exit codes of this command:
  0  the level that was asked for is shown; with --only, every selected case passed
  1  a rule is broken: the resource is not safe
  2  unknown: too little was seen, or less was shown than was asked for
  3  the suite could not do its work: wrong options, a broken map file, an adapter that fails, a run that was ended by a signal

docs/conformance/ has the guide: how to describe an HTTP API, how to write an adapter, how to read a verdict.";

#[derive(Subcommand)]
enum How {
    /// Test an HTTP API that a map file describes
    Http(Http),
    /// Test anything through an adapter: a program that reads requests and prints answers as JSON lines
    Exec(Exec),
    /// Judge a recorded history again
    Recheck(recheck::Recheck),
    /// Run the suite against resources that are known to be wrong: does it still bite?
    Selftest(selftest::Selftest),
}

#[derive(Args)]
struct Http {
    /// The map file: which request each operation is, and what the answers mean
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    map: Option<PathBuf>,
    /// Another address than the map has; once for each process that serves the store
    #[arg(long, value_name = "URL")]
    base: Vec<String>,
    /// How long a request may take before its outcome is unknown [default: as the map says]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    timeout: Option<Span>,
    /// Run none of the map's hooks, which are shell commands; the service must run, and cases that need a hook are skipped
    #[arg(long)]
    no_hooks: bool,
    #[command(flatten)]
    run: Selection,
}

#[derive(Args)]
struct Exec {
    /// How many adapters to start over one store
    #[arg(long, value_name = "N", default_value_t = 1)]
    instances: usize,
    /// How long a request may take before its outcome is unknown [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    timeout: Option<Span>,
    /// Command for what lies behind the adapter: start, ready, kill, restart, pause, resume, powerloss, reset, backup, restore, clock. May be repeated
    #[arg(long, value_name = "NAME=COMMAND", value_parser = hook)]
    hook: Vec<(Hook, String)>,
    /// How long an adapter may take to answer `init` [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    ready: Option<Span>,
    /// Pass on what the adapter prints on standard error
    #[arg(long)]
    adapter_log: bool,
    #[command(flatten)]
    run: Selection,
    /// The adapter and its arguments
    #[arg(last = true, required_unless_present = "list", value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Args)]
struct Selection {
    /// How hard to try: L1 ordering, L2 concurrency and network, L3 process crash, L4 power loss and disk faults
    #[arg(long, value_name = "LEVEL", default_value = "L3")]
    level: Level,
    /// Only these cases (R03) or groups (R); no level is claimed then
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// Not this case, and why not; caps the level. May be repeated
    #[arg(long, value_name = "ID=REASON", value_parser = exclusion)]
    exclude: Vec<(String, String)>,
    /// Number that everything random is drawn from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// How many rounds the cases do that have rounds
    #[arg(long, value_name = "N", value_parser = some_rounds)]
    rounds: Option<u64>,
    /// How long one case may take before it ends as unknown [default: 10min]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    case_limit: Option<Span>,
    /// List the cases that would be run, with their rules and reasons, and run nothing
    #[arg(long)]
    list: bool,
    /// Directory for report.html, results.json, junit.xml and the histories of what failed
    #[arg(long, value_name = "DIR", default_value = "conform-report")]
    out: PathBuf,
    /// Print TAP on standard output instead of the tree
    #[arg(long)]
    tap: bool,
}

fn hook(text: &str) -> Result<(Hook, String), String> {
    let (name, command) = text.split_once('=').ok_or("write it like kill='docker kill db'")?;
    let hook = Hook::ALL.into_iter().find(|hook| hook.name() == name);
    let hook = hook.ok_or_else(|| format!("there is no hook `{name}`: {}", Hook::ALL.map(Hook::name).join(", ")))?;
    Ok((hook, command.to_owned()))
}

/// A time limit above zero. With zero, no request could be answered, and every case would be unknown.
fn some_time(text: &str) -> Result<Span, String> {
    match text.parse()? {
        Span(Duration::ZERO) => {
            Err("nothing can be answered in no time: give a time such as `500ms`, `5s` or `2min`, or leave it out"
                .to_owned())
        }
        span => Ok(span),
    }
}

fn some_rounds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("without rounds nothing is tried: give a number from 1 on, or leave it out".to_owned()),
        Ok(rounds) => Ok(rounds),
        Err(_) => Err("give a number of rounds, such as 500, or leave it out".to_owned()),
    }
}

fn exclusion(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((id, reason)) if !reason.trim().is_empty() => Ok((id.to_owned(), reason.to_owned())),
        _ => Err("an exclusion needs a reason: write it like Z05='our proxy never repeats'".to_owned()),
    }
}

fn broken(error: impl std::fmt::Display) -> Failed {
    Failed::with(HARNESS_FAILED, error.to_string())
}

impl Conform {
    pub(super) fn run(self) -> Result<(), Failed> {
        if self.list {
            return listed(&Options { level: Level::L4, ..Options::default() });
        }
        match self.how {
            Some(How::Http(asked)) => asked.run(),
            Some(How::Exec(asked)) => asked.run(),
            Some(How::Recheck(asked)) => asked.run(),
            Some(How::Selftest(asked)) => asked.run(),
            None => Err(broken("say how the resource is reached: `http --map FILE` or `exec -- COMMAND`")),
        }
    }
}

impl Http {
    fn run(self) -> Result<(), Failed> {
        // Missing only with `--list`, which opens nothing.
        let map = self.map.unwrap_or_default();
        let mut words = vec!["http".to_owned(), "--map".to_owned(), map.to_string_lossy().into_owned()];
        words.extend(self.base.iter().flat_map(|base| ["--base".to_owned(), base.clone()]));
        words.extend(given("--timeout", self.timeout));
        words.extend(self.no_hooks.then(|| "--no-hooks".to_owned()));
        let setting = setting(&words, &[], &self.run);
        let overrides = http::Overrides {
            base: self.base.clone(),
            timeout: self.timeout.map(|time| time.0),
            hooks: if self.no_hooks { http::HooksOfMap::Ignore } else { http::HooksOfMap::Run },
        };
        self.run.run(setting, || Ok(Box::new(http::open(&map, &overrides)?)))
    }
}

impl Exec {
    fn run(self) -> Result<(), Failed> {
        let mut words = vec!["exec".to_owned()];
        if self.instances != 1 {
            words.extend(["--instances".to_owned(), self.instances.to_string()]);
        }
        let mut hooks = Commands::default();
        for (hook, command) in &self.hook {
            words.extend(["--hook".to_owned(), format!("{}={command}", hook.name())]);
            hooks.set(*hook, command);
        }
        words.extend(given("--timeout", self.timeout));
        words.extend(given("--ready", self.ready));
        let program: Vec<String> = std::iter::once("--".to_owned()).chain(self.command.iter().cloned()).collect();
        let setting = setting(&words, &program, &self.run);
        let usual = exec::Options::default();
        let options = exec::Options {
            instances: self.instances,
            timeout: self.timeout.map_or(usual.timeout, |time| time.0),
            hooks,
            echo: self.adapter_log,
            ready: self.ready.map_or(usual.ready, |time| time.0),
        };
        self.run.run(setting, || Ok(Box::new(exec::open(&self.command, options)?)))
    }
}

/// An option that was given, for the command that reproduces the run.
fn given(name: &str, time: Option<Span>) -> impl Iterator<Item = String> {
    time.into_iter().flat_map(move |time| [name.to_owned(), time.to_string()])
}

fn setting(adapter: &[impl AsRef<str>], program: &[String], run: &Selection) -> Setting {
    Setting {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        adapter: adapter.iter().map(|word| word.as_ref().to_owned()).collect(),
        program: program.to_vec(),
        rounds: run.rounds,
        case_limit: run.case_limit.map(|limit| limit.to_string()),
    }
}

/// Prints the cases that the options select, in lines as wide as those of a run.
fn listed(options: &Options) -> Result<(), Failed> {
    super::exit::write(list::list(options, Look::of(&io::stdout()).width).as_bytes())
}

/// Ends what was started and removes its files. Prints a note if that takes long.
fn leave(subject: Box<dyn Subject>) {
    let (gone, waits) = mpsc::sync_channel::<()>(0);
    let note = thread::spawn(move || {
        if waits.recv_timeout(LEAVING) == Err(RecvTimeoutError::Timeout) {
            eprintln!(
                "That is the verdict. What was started is being ended, and its directory removed: this may take a while."
            );
        }
    });
    drop(subject);
    drop(gone);
    // The thread only prints; a panic in it changes no verdict.
    let _ = note.join();
}

type Opened = Result<Box<dyn Subject>, fencepost_conformance::subject::Broken>;

impl Selection {
    fn options(&self) -> Result<Options, Failed> {
        let mut exclude = BTreeMap::new();
        for (id, reason) in &self.exclude {
            exclude.insert(id.clone(), reason.clone());
        }
        let options = Options {
            level: self.level,
            only: self.only.clone(),
            exclude,
            seed: self.seed,
            rounds: self.rounds,
            limit: THINKING,
            case_limit: self.case_limit.map_or(Options::default().case_limit, |limit| limit.0),
            stop: Stop::default(),
        };
        options.check().map_err(broken)?;
        Ok(options)
    }

    fn run(&self, setting: Setting, open: impl FnOnce() -> Opened) -> Result<(), Failed> {
        let options = self.options()?;
        if self.list {
            return listed(&options);
        }
        // A run may take many minutes: report a directory that cannot be written to before it.
        report::make_room(&self.out).map_err(broken)?;
        let signals = signals::Signals::listen()?;
        // Adopted before anything is started, and until everything has ended.
        let _orphans = Orphans::adopt().map_err(broken)?;
        let subject = open().map_err(broken)?;
        signals.end_gently(&options.stop);
        let (results, look) = if self.tap {
            let look = Look::of(&io::stderr());
            let mut tree = Tree::new(io::stderr(), look);
            (run::run(subject.as_ref(), &options, &mut tree), look)
        } else {
            let look = Look::of(&io::stdout());
            let mut tree = Tree::new(io::stdout(), look);
            (run::run(subject.as_ref(), &options, &mut tree), look)
        };
        // Report the result first: ending the processes and removing their directories may take long.
        let written = report::write_all(&self.out, &results, &setting);
        let mut said = Vec::new();
        let saying = match self.tap {
            true => report::tap(&mut said, &results, &setting),
            false => {
                let files = written.as_ref().map_or(&[][..], |written| &written.files);
                let page = files.iter().find(|file| file.extension().is_some_and(|end| end == "html"));
                page.map_or(Ok(()), |page| writeln!(said, "\nReport: {}", page.display()))
                    .and_then(|()| report::summary(&mut said, &results, look))
            }
        };
        saying.map_err(broken)?;
        let told = super::exit::write(&said);
        leave(subject);
        match (results.exit_code(), written) {
            // A report that could not be printed (`| head`) must not end with 1, which means that a rule is broken.
            (0, Ok(_)) => told.map_err(|_| Failed::silent(HARNESS_FAILED)),
            // A rule that was seen broken counts, even if the report could not be written.
            (1, Err(unwritten)) => Err(Failed::with(1, unwritten.to_string())),
            (_, Err(unwritten)) => Err(broken(unwritten)),
            (code, Ok(_)) => Err(Failed::silent(code)),
        }
    }
}
