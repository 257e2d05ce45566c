//! One run of one case: it makes requests, writes down what happens, and hurts the resource.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Instant;

use super::{Case, Ended};
use crate::answer::Answer;
use crate::harness::seed::Random;
use crate::history::{Event, History, Mark, Operation, Time};
use crate::manifest::{Kill, Manifest};
use crate::op::{Op, Verb};
use crate::subject::{Begun, Hook, Part, Request, Route, Subject};
use crate::verdict::Failure;

/// What a case works with. Shared by its threads.
pub struct Trial<'a> {
    subject: &'a dyn Subject,
    case: &'static Case,
    seed: u64,
    rounds: Option<u64>,
    /// Names of this run, so that a resource that keeps its data never sees one twice.
    run: String,
    started: Instant,
    names: AtomicU64,
    recorded: Mutex<Recorded>,
    /// Held by every call; taken by whoever ends and starts the process, so that no call is half in both.
    gate: RwLock<()>,
}

#[derive(Default)]
struct Recorded {
    operations: Vec<Operation>,
    marks: Vec<Mark>,
}

/// An operation that is on its way in part.
pub struct Held<'t, 'a> {
    trial: &'t Trial<'a>,
    id: u64,
    begun: Box<dyn Begun>,
}

impl<'a> Trial<'a> {
    /// For one run of a case. `run` makes names unique.
    pub fn new(subject: &'a dyn Subject, case: &'static Case, seed: u64, rounds: Option<u64>, run: &str) -> Trial<'a> {
        Trial {
            subject,
            case,
            seed,
            rounds,
            run: run.to_owned(),
            started: Instant::now(),
            names: AtomicU64::new(0),
            recorded: Mutex::default(),
            gate: RwLock::new(()),
        }
    }

    /// The resource.
    pub fn subject(&self) -> &'a dyn Subject {
        self.subject
    }

    /// What it says about itself.
    pub fn manifest(&self) -> &'a Manifest {
        self.subject.manifest()
    }

    /// Has it this verb?
    pub fn has(&self, verb: Verb) -> bool {
        self.manifest().has(verb)
    }

    /// A stream of random numbers of its own for every number.
    pub fn random(&self, number: u64) -> Random {
        Random::from_seed(self.seed).fork(number)
    }

    /// How often: what `--rounds` says, or this.
    pub fn rounds(&self, default: u64) -> u64 {
        self.rounds.unwrap_or(default).max(1)
    }

    /// A name that was never used.
    pub fn resource(&self) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{}-{}-{number}", self.run, self.case.id.to_lowercase())
    }

    /// A value that was never written.
    pub fn value(&self) -> String {
        format!("v-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Who a client says it is.
    pub fn holder(&self, client: u32) -> String {
        format!("h{client}")
    }

    /// A write of a value never written, by this client.
    pub fn write_op(&self, client: u32, res: &str, token: u64) -> Op {
        Op::write(res, token, &self.holder(client), &self.value())
    }

    /// Nanoseconds since the case began.
    pub fn now(&self) -> Time {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(Time::MAX)
    }

    /// Makes a request and writes it down.
    pub fn call(&self, client: u32, op: Op) -> Result<Answer, Ended> {
        self.call_by(client, op, Route::Direct, None)
    }

    /// The same through the proxy.
    pub fn call_proxied(&self, client: u32, op: Op) -> Result<Answer, Ended> {
        self.call_by(client, op, Route::Proxied, None)
    }

    /// The same as a copy of an operation that was sent before.
    pub fn call_copy(&self, client: u32, op: Op, copy_of: u64) -> Result<Answer, Ended> {
        self.call_by(client, op, Route::Direct, Some(copy_of))
    }

    fn call_by(&self, client: u32, op: Op, route: Route, copy_of: Option<u64>) -> Result<Answer, Ended> {
        let _open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let id = self.called(client, &op, copy_of);
        let answer = self.subject.call(&self.request(id, client, route, &op));
        self.returned(id, answer?)
    }

    /// Makes a request by another way, and does not write it down: it may be for another resource.
    pub fn bypass(&self, way: usize, client: u32, op: &Op) -> Result<Answer, Ended> {
        let _open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let id = self.recorded().operations.len() as u64;
        Ok(self.subject.bypass(way, &self.request(id, client, Route::Direct, op))?)
    }

    /// Sends a part of a request. The case needs a wire.
    pub fn begin<'t>(&'t self, client: u32, op: &Op, part: Part) -> Result<Held<'t, 'a>, Ended> {
        let _open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let id = self.called(client, op, None);
        let begun = self.subject.begin(&self.request(id, client, Route::Direct, op), part);
        let begun = begun.ok_or_else(|| Ended::NotApplicable("a request cannot be sent in parts".to_owned()))??;
        Ok(Held { trial: self, id, begun })
    }

    fn request<'r>(&'r self, id: u64, client: u32, route: Route, op: &'r Op) -> Request<'r> {
        Request { case: self.case.id, seed: self.seed, id, client, route, op }
    }

    fn called(&self, client: u32, op: &Op, copy_of: Option<u64>) -> u64 {
        let mut recorded = self.recorded();
        let id = recorded.operations.len() as u64 + 1;
        let called = self.now();
        let answer = Answer::unknown("no answer yet");
        let operation =
            Operation { id, client, op: op.clone(), called, returned: Time::MAX, answer, dead_by: None, copy_of };
        recorded.operations.push(operation);
        id
    }

    fn returned(&self, id: u64, answer: Answer) -> Result<Answer, Ended> {
        let mut recorded = self.recorded();
        let returned = self.now();
        if let Some(operation) = recorded.operations.iter_mut().rev().find(|operation| operation.id == id) {
            if answer == Answer::Unsupported && self.has(operation.op.verb()) {
                let verb = operation.op.verb().name();
                return Err(self.fail(
                    &[id],
                    format!("operation #{id} was answered as unsupported, but the resource says it has {verb}"),
                ));
            }
            operation.returned = returned;
            operation.answer = answer.clone();
        }
        Ok(answer)
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the latest operation of a client.
    pub fn last(&self, client: u32) -> u64 {
        let recorded = self.recorded();
        recorded.operations.iter().rev().find(|operation| operation.client == client).map_or(0, |found| found.id)
    }

    /// A failure, with the operations that show it.
    pub fn fail(&self, operations: &[u64], sentence: String) -> Ended {
        Ended::Failed(Failure { sentence, operations: operations.to_vec() })
    }

    /// Makes a request that must be accepted.
    pub fn accepted(&self, client: u32, op: Op) -> Result<Answer, Ended> {
        self.demand(client, op, "must be accepted", Answer::is_ok)
    }

    /// Makes a request that must be refused as stale.
    pub fn refused(&self, client: u32, op: Op) -> Result<Answer, Ended> {
        self.demand(client, op, "must be refused as stale", Answer::is_stale)
    }

    /// Makes a request that must not be done, whatever the words.
    pub fn not_done(&self, client: u32, op: Op) -> Result<Answer, Ended> {
        self.demand(client, op, "must not be accepted", Answer::is_not_done)
    }

    fn demand(&self, client: u32, op: Op, must: &str, holds: fn(&Answer) -> bool) -> Result<Answer, Ended> {
        let shown = crate::words::operation(&op);
        let answer = self.call(client, op)?;
        let id = self.last(client);
        match &answer {
            answer if holds(answer) => {}
            answer if answer.is_unknown() => {
                return Err(Ended::Unknown(format!(
                    "{shown} (#{id}) was not answered: {}",
                    crate::words::answer(answer)
                )));
            }
            answer => {
                let said = crate::words::answer(answer);
                return Err(self.fail(&[id], format!("{shown} (#{id}) {must}, and was {said}.")));
            }
        }
        Ok(answer)
    }

    /// What is there now, if the resource can be read: value and, if it says it, fence.
    pub fn peek(&self, client: u32, res: &str) -> Result<Option<Answer>, Ended> {
        if !self.has(Verb::Read) {
            return Ok(None);
        }
        self.accepted(client, Op::read(res)).map(Some)
    }

    /// Runs clients 0 to `clients` − 1 at once. The first that ends ends the case; the others finish what they do.
    pub fn parallel(&self, clients: u32, client: impl Fn(u32) -> Result<(), Ended> + Sync) -> Result<(), Ended> {
        let client = &client;
        thread::scope(|scope| {
            let running: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
            let mut ended = Ok(());
            for thread in running {
                let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                ended = ended.and(result);
            }
            ended
        })
    }

    /// Stops the process in order and starts it again.
    pub fn restart(&self) -> Result<(), Ended> {
        let _closed = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.mark(self.now(), Event::Stopped);
        self.subject.hook(Hook::Restart)?;
        self.mark(self.now(), Event::Restarted);
        Ok(())
    }

    /// Kills the process with whatever is in flight, and starts it again; `interrupted` starts are killed as well.
    pub fn crash(&self, interrupted: u64) -> Result<(), Ended> {
        let killed = self.now();
        self.subject.hook(Hook::Kill)?;
        let dead = self.now();
        if let Some(proxy) = self.subject.proxy() {
            // What it held would arrive after the crash.
            proxy.cut();
        }
        // Whoever was in flight gets an error by now; new calls wait.
        let _closed = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.mark(killed, Event::Killed);
        if self.manifest().kill == Kill::Everything {
            let mut recorded = self.recorded();
            for operation in &mut recorded.operations {
                if operation.answer.is_unknown() && operation.dead_by.is_none() {
                    operation.dead_by = Some(dead);
                }
            }
        }
        for _ in 0..interrupted {
            self.subject.hook(Hook::Start)?;
            self.subject.hook(Hook::Kill)?;
        }
        self.subject.hook(Hook::Restart)?;
        self.mark(self.now(), Event::Restarted);
        Ok(())
    }

    /// Stops the process, as a long pause does.
    pub fn pause(&self) -> Result<(), Ended> {
        self.mark(self.now(), Event::Paused);
        Ok(self.subject.hook(Hook::Pause)?)
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<(), Ended> {
        self.subject.hook(Hook::Resume)?;
        self.mark(self.now(), Event::Resumed);
        Ok(())
    }

    fn mark(&self, at: Time, event: Event) {
        self.recorded().marks.push(Mark { at, event });
    }

    /// What happened so far.
    pub fn history(&self) -> History {
        let recorded = self.recorded();
        History {
            case: self.case.id.to_owned(),
            seed: self.seed,
            manifest: self.manifest().clone(),
            operations: recorded.operations.clone(),
            marks: recorded.marks.clone(),
        }
    }
}

impl Held<'_, '_> {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sends the rest and waits for the answer.
    pub fn finish(self) -> Result<Answer, Ended> {
        let answer = self.begun.finish()?;
        self.trial.returned(self.id, answer)
    }

    /// Breaks the connection.
    pub fn abandon(self) -> Result<(), Ended> {
        self.begun.abandon();
        self.trial.returned(self.id, Answer::unknown("the client broke the connection")).map(drop)
    }
}
