//! One adapter process from its start to its end.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::process::Signal;

use super::listener::{BOOK, LAST_WORDS, Listener, Pending, Pipe, Silence, State};
use super::protocol::{self, Asked, Reply};
use crate::adapters::hooks::Hooks;
use crate::adapters::patience::Patience;
use crate::adapters::process::Program;
use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::subject::{Broken, Request};

/// How many requests may wait for an adapter that does not read.
const QUEUE: usize = 1024;

/// The number of consecutive requests, each begun after the previous one was given up, that may go without any answer.
const SILENT: u32 = 4;

/// How long an adapter has to end after its input ended, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// A running adapter, or the remains of one that ended. Dropping it kills the process.
pub(super) struct Life {
    program: Mutex<Program>,
    /// The queue of requests to the adapter; `None` once its input was closed.
    requests: Mutex<Option<SyncSender<Vec<u8>>>>,
    /// The answer to `init`, until `ready` takes it.
    init: Mutex<Option<Receiver<Reply>>>,
    /// Whether any adapter of this resource has ever answered a request. If so, silence is the resource's fault.
    answered: Arc<AtomicBool>,
    listener: Arc<Listener>,
}

impl Life {
    /// Starts the adapter and sends `init`; does not wait for the answer.
    pub(super) fn start(
        command: &[String],
        hooks: &Hooks,
        instance: usize,
        echo: bool,
        answered: &Arc<AtomicBool>,
    ) -> Result<Life, Broken> {
        let [name, arguments @ ..] = command else {
            return Err(Broken("there is no adapter: write its command after `--`".to_owned()));
        };
        let mut adapter = Command::new(name);
        // The adapter finds the server of a `start` hook in the same environment variables as the hook itself.
        adapter
            .args(arguments)
            .envs(hooks.environment(instance))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut program = Program::start(adapter).map_err(|Broken(why)| {
            Broken(format!(
                "{why}\nWrite the command after `--` as you would type it in this directory; a script must be executable \
                 and name its interpreter in its first line, or be called by it: `-- python3 adapter.py`."
            ))
        })?;
        let listener = Arc::new(Listener::new(instance));
        let child = program.child();
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(Broken(format!("`{name}` was started without pipes; this is a defect of the suite")));
        };
        let (requests, queued) = sync_channel(QUEUE);
        let (hears, listens) = (listener.clone(), listener.clone());
        spawn("writer", move || write(stdin, &queued))?;
        spawn("reader", move || hears.read(stdout))?;
        spawn("stderr", move || listens.read_stderr(stderr, echo))?;
        let life = Life {
            program: Mutex::new(program),
            requests: Mutex::new(Some(requests)),
            init: Mutex::new(None),
            answered: answered.clone(),
            listener,
        };
        let init = life.ask(Asked::Init, |id| protocol::init(id, hooks.dir(), instance))?;
        *life.init.lock() = init.ok();
        Ok(life)
    }

    /// Waits for the answer to `init`. `None`: the answer was taken before.
    pub(super) fn ready(&self, patience: Duration) -> Result<Option<Manifest>, Broken> {
        let Some(init) = self.init.lock().take() else { return Ok(None) };
        match self.receive(&init, patience) {
            Ok(Reply::Manifest(manifest)) => Ok(Some(manifest)),
            Ok(Reply::CannotStart(code)) => Err(self.cannot_start(&code)),
            Ok(Reply::Answer(_)) | Err(RecvTimeoutError::Disconnected) => Err(self.surprise("before it answered init")),
            Err(RecvTimeoutError::Timeout) => Err(Broken(format!(
                "{} did not answer init within {patience:?}. Expected a line like {} on its standard output; does it flush \
                 after each line? {BOOK}{}",
                self.name(),
                Asked::Init.example(1),
                self.state().tail.words(),
            ))),
        }
    }

    fn cannot_start(&self, code: &str) -> Broken {
        let why = if code.is_empty() { "it gave no `code` that would say why" } else { code };
        // Another thread reads standard error. It is complete only once the adapter has ended.
        let _ = self.stop();
        let state = self.listener.wait_for(|state| !matches!(state.stderr, Pipe::Open));
        Broken(format!(
            "{} cannot start: {why}. It said so itself, by an error in its answer to init.{}",
            self.name(),
            state.tail.words()
        ))
    }

    /// Sends a request and waits at most `patience` for its answer.
    pub(super) fn call(&self, request: &Request<'_>, patience: Duration) -> Result<Answer, Broken> {
        let called = Instant::now();
        let asked = Asked::Op(request.op.verb());
        let reply = match self.ask(asked, |id| protocol::ask(id, request))? {
            Ok(reply) => self.receive(&reply, patience),
            Err(NotSent) => Err(RecvTimeoutError::Timeout),
        };
        match reply {
            Ok(Reply::Answer(answer)) => {
                self.answered.store(true, Ordering::Relaxed);
                Ok(answer)
            }
            Err(RecvTimeoutError::Timeout) => self.give_up(called, patience),
            Ok(Reply::Manifest(_) | Reply::CannotStart(_)) | Err(RecvTimeoutError::Disconnected) => {
                if self.is_doomed() {
                    return Ok(Answer::unknown("the adapter was killed"));
                }
                Err(self.surprise("while requests waited for their answers"))
            }
        }
    }

    /// Queues a request for the adapter.
    fn ask(
        &self,
        asked: Asked,
        line: impl FnOnce(u64) -> Result<Vec<u8>, String>,
    ) -> Result<Result<Receiver<Reply>, NotSent>, Broken> {
        let (waiting, reply) = sync_channel(1);
        let mut state = self.state();
        state.latest += 1;
        let id = state.latest;
        let line = line(id).map_err(Broken)?;
        // Once the output has ended, no answer can come. The sender is dropped here, so the receiver fails at once.
        if matches!(state.stdout, Pipe::Open) {
            state.pending.insert(id, Pending { asked, waiting });
        }
        // Sent in the order of the request numbers.
        let sent = self.requests.lock().as_ref().map(|requests| requests.try_send(line));
        match sent {
            Some(Err(TrySendError::Full(_))) => {
                state.pending.remove(&id);
                Ok(Err(NotSent))
            }
            // The adapter no longer reads. Its output shows whether it ended.
            Some(Ok(()) | Err(TrySendError::Disconnected(_))) | None => Ok(Ok(reply)),
        }
    }

    /// Waits for a reply. An adapter that has ended gives none, even if a process it started still holds its pipes.
    fn receive(&self, reply: &Receiver<Reply>, patience: Duration) -> Result<Reply, RecvTimeoutError> {
        let mut patience = Patience::of(patience);
        let mut in_vain = RecvTimeoutError::Timeout;
        loop {
            match patience.wait(|slice| reply.recv_timeout(slice)) {
                Err(RecvTimeoutError::Timeout) => {}
                heard => return heard,
            }
            if in_vain == RecvTimeoutError::Timeout && self.program.lock().ended().is_some() {
                in_vain = RecvTimeoutError::Disconnected;
                patience.shorten(LAST_WORDS);
            }
            if patience.is_over() {
                return Err(in_vain);
            }
        }
    }

    /// Handles a request that was not answered in time.
    fn give_up(&self, called: Instant, patience: Duration) -> Result<Answer, Broken> {
        let mut state = self.state();
        let again = state.silence.last.is_none_or(|last| called >= last);
        if again && !state.paused && !state.doomed {
            state.silence.count += 1;
            state.silence.last = Some(Instant::now());
        }
        if state.silence.count < SILENT {
            return Ok(Answer::unknown(format!("no answer within {patience:?}")));
        }
        let silent = format!(
            "{} answers nobody: {SILENT} requests in a row waited {patience:?} each, and nothing came.{}",
            self.name(),
            state.oldest()
        );
        // The adapter can answer, so the resource behind it is silent.
        if self.answered.load(Ordering::Relaxed) {
            return Ok(Answer::unknown(silent));
        }
        Err(mute(&silent, &state))
    }

    /// Fails if requests were given up and no adapter of this resource has ever answered one.
    pub(super) fn never_answered(&self) -> Result<(), Broken> {
        let state = self.state();
        if self.answered.load(Ordering::Relaxed) || state.answers || state.silence.count == 0 {
            return Ok(());
        }
        let silent =
            format!("{} answers nobody: it has answered init, and no request since.{}", self.name(), state.oldest());
        Err(mute(&silent, &state))
    }

    /// Whether the suite ended the adapter before it printed anything wrong.
    fn is_doomed(&self) -> bool {
        let state = self.state();
        state.doomed && !matches!(state.stdout, Pipe::Broken(_))
    }

    /// Fails if the adapter broke while no request was waiting. One that has not yet answered `init` is left to
    /// `ready`.
    pub(super) fn check(&self) -> Result<(), Broken> {
        let starting = self.init.lock().is_some();
        if starting || !self.is_over() || self.is_doomed() { Ok(()) } else { Err(self.surprise("between requests")) }
    }

    /// Whether it has ended or printed something that cannot be parsed.
    pub(super) fn is_over(&self) -> bool {
        !matches!(self.state().stdout, Pipe::Open)
    }

    /// The reason why its output ended, although the suite did not end it.
    fn surprise(&self, when: &str) -> Broken {
        if let Pipe::Broken(broken) = &self.state().stdout {
            return broken.clone();
        }
        let status = self.program.lock().wait(LAST_WORDS);
        let state = self.listener.wait_for(|state| !matches!(state.stderr, Pipe::Open));
        let how = match status {
            Some(status) => format!("ended ({status})"),
            None => "closed its standard output, but runs on,".to_owned(),
        };
        let half = match &state.stdout {
            Pipe::Ended(Some(line)) => format!("\nThe last line it printed has no end: {line}"),
            _ => String::new(),
        };
        Broken(format!(
            "{} {how} {when}. An adapter runs until its standard input ends.{half}{}",
            self.name(),
            state.tail.words()
        ))
    }

    /// The process ids of the adapter's group.
    pub(super) fn processes(&self) -> Vec<i32> {
        self.program.lock().processes()
    }

    /// Marks the adapter as ended on purpose: its end is no longer an error.
    pub(super) fn doom(&self) {
        self.state().doomed = true;
    }

    /// Kills the adapter and every process it has started. Requests in flight are soon answered by its last output, or
    /// fail.
    pub(super) fn kill(&self) -> Result<(), Broken> {
        self.doom();
        self.program.lock().kill()?;
        drop(self.listener.wait_for(|state| !matches!(state.stdout, Pipe::Open)));
        // A process outside the group may still hold the pipe. Do not wait for it.
        self.listener.end(Pipe::Ended(None));
        Ok(())
    }

    /// Shuts the adapter down: closes its input, then sends SIGTERM, then SIGKILL.
    pub(super) fn stop(&self) -> Result<(), Broken> {
        self.doom();
        self.program.lock().signal(Signal::CONT)?;
        drop(self.requests.lock().take());
        let mut program = self.program.lock();
        if program.wait(GRACE).is_none() {
            program.stop(GRACE)?;
        }
        drop(program);
        self.kill()
    }

    /// Pauses its process.
    pub(super) fn pause(&self) -> Result<(), Broken> {
        self.mark_paused();
        self.program.lock().pause()
    }

    /// Resumes its process.
    pub(super) fn resume(&self) -> Result<(), Broken> {
        self.program.lock().signal(Signal::CONT)?;
        self.mark_resumed();
        Ok(())
    }

    /// From now on no answers are expected.
    pub(super) fn mark_paused(&self) {
        self.state().paused = true;
    }

    /// Answers are expected again, except to requests sent during the pause.
    pub(super) fn mark_resumed(&self) {
        let mut state = self.state();
        state.paused = false;
        state.silence = Silence { count: 0, last: Some(Instant::now()) };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.listener.state.lock()
    }

    fn name(&self) -> String {
        self.listener.name()
    }
}

/// The error for an adapter that has never answered a request, with advice.
fn mute(silent: &str, state: &State) -> Broken {
    Broken(format!(
        "{silent} It has never answered any. Answer each request in a thread of its own, flush after each line, or raise the \
         limit with --timeout. {BOOK}{}",
        state.tail.words()
    ))
}

/// The queue of requests is full.
struct NotSent;

/// Writes queued requests to the adapter until the queue is closed or the adapter stops reading.
fn write(mut stdin: ChildStdin, queued: &Receiver<Vec<u8>>) {
    while let Ok(line) = queued.recv() {
        if stdin.write_all(&line).is_err() {
            return;
        }
    }
}

fn spawn(what: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Broken> {
    let thread = thread::Builder::new().name(format!("adapter {what}")).spawn(run);
    thread.map(drop).map_err(|error| Broken(format!("a thread for the adapter cannot be started: {error}")))
}
