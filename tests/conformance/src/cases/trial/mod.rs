//! One run of one case: makes requests, records what happens, and disturbs the resource.

mod bounds;
mod clock_and_backups;
mod crowd;
mod gate;
mod hurt;
mod later;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use super::{Case, Ended};
use crate::answer::Answer;
use crate::history::{History, Mark, Operation, Time};
use crate::manifest::Manifest;
use crate::op::{Op, Verb};
use crate::random::Random;
use crate::run::Options;
use crate::subject::{Request, Route, Subject};
use crate::verdict::{Failure, Level};
use bounds::Bounds;
use gate::{Gate, Inside};

pub use bounds::Progress;

/// The first number of requests that are not recorded.
const NOT_WRITTEN_DOWN: u64 = 1_000_000;

/// This many consecutive operations without an answer end a case: each may have taken seconds.
const SILENT: u64 = 5;

/// The context of a running case. Shared by its threads.
pub struct Trial<'a> {
    subject: &'a dyn Subject,
    case: &'static Case,
    seed: u64,
    bounds: Bounds,
    /// A prefix for the names of this run, so that a resource that keeps its data never sees a name twice.
    run: String,
    started: Instant,
    names: AtomicU64,
    recorded: Mutex<Recorded>,
    gate: Gate,
    /// How many consecutive operations got no answer without a kill to explain it.
    silent: AtomicU64,
    /// One of several concurrent clients has ended the case; the others make no more requests.
    over: AtomicBool,
    /// How often the resource was asked just after a kill, and how often it answered.
    asked_dead: AtomicU64,
    dead_answered: AtomicU64,
    /// A remark of the case about a pass.
    remark: Mutex<Option<String>>,
}

#[derive(Default)]
struct Recorded {
    /// Operation `id` is at index `id` − 1.
    operations: Vec<Operation>,
    marks: Vec<Mark>,
}

impl<'a> Trial<'a> {
    /// A trial for one run of a case. `run` makes names unique; `progress` counts its rounds.
    pub fn new(
        subject: &'a dyn Subject,
        case: &'static Case,
        options: &Options,
        run: &str,
        progress: &Progress,
    ) -> Trial<'a> {
        Trial {
            subject,
            case,
            seed: options.seed,
            bounds: Bounds::of(options, progress),
            run: run.to_owned(),
            started: Instant::now(),
            names: AtomicU64::new(0),
            recorded: Mutex::default(),
            gate: Gate::default(),
            silent: AtomicU64::new(0),
            over: AtomicBool::new(false),
            asked_dead: AtomicU64::new(0),
            dead_answered: AtomicU64::new(0),
            remark: Mutex::default(),
        }
    }

    /// The resource under test.
    pub fn subject(&self) -> &'a dyn Subject {
        self.subject
    }

    /// The resource's description of itself.
    pub fn manifest(&self) -> &'a Manifest {
        self.subject.manifest()
    }

    /// Whether the resource has this verb.
    pub fn has(&self, verb: Verb) -> bool {
        self.manifest().has(verb)
    }

    /// An independent stream of random numbers for each `number`.
    pub fn random(&self, number: u64) -> Random {
        Random::from_seed(self.seed).fork(number)
    }

    /// A resource name that was never used.
    pub fn resource(&self) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{}-{}-{number}", self.run, self.case.id.to_lowercase())
    }

    /// A value that was never written.
    pub fn value(&self) -> String {
        format!("v-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// The holder name of a client.
    pub fn holder(&self, client: u32) -> String {
        format!("h{client}")
    }

    /// A write of a new value, by this client.
    pub fn write_op(&self, client: u32, res: &str, token: u64) -> Op {
        Op::write(res, token, &self.holder(client), &self.value())
    }

    /// The same with a value of 20 KiB, which is more than many stores keep in their rows.
    pub fn large_op(&self, client: u32, res: &str, token: u64) -> Op {
        const SIZE: usize = 20 << 10;
        Op::write(res, token, &self.holder(client), &format!("{}-{}", self.value(), "x".repeat(SIZE)))
    }

    /// Nanoseconds since the case began.
    pub fn now(&self) -> Time {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(Time::MAX)
    }

    /// Makes a request and records it.
    pub fn call(&self, client: u32, op: Op) -> Result<Answer, Ended> {
        Ok(self.call_by(client, op, Route::Direct, None)?.1)
    }

    /// The same as a copy of an operation that was sent before. The copy has a number of its own. A service may
    /// deduplicate requests by a key that a map derives from the number: it would repeat its earlier answer and do
    /// nothing, which would look like an accepted stale write.
    pub fn call_copy(&self, client: u32, op: Op, copy_of: u64) -> Result<Answer, Ended> {
        Ok(self.call_by(client, op, Route::Direct, Some(copy_of))?.1)
    }

    /// The same, but the answer never reaches the client.
    pub fn call_deaf(&self, client: u32, op: Op) -> Result<(), Ended> {
        let _inside = self.enter()?;
        let id = self.called(client, &op, None);
        self.subject.call(&self.request(id, client, Route::Direct, &op))?;
        self.returned(id, Answer::unknown("the answer was lost on its way")).map(drop)
    }

    /// Makes a request that is not recorded: one of very many, or one that no order of operations explains.
    pub fn ask(&self, client: u32, op: &Op) -> Result<Answer, Ended> {
        let _inside = self.enter()?;
        let answer = self.subject.call(&self.request(self.unwritten(), client, Route::Direct, op))?;
        self.heard(&answer)?;
        Ok(answer)
    }

    /// The number of a request that is not recorded. Each gets its own: a service that deduplicates by a key derived
    /// from the number would take the second for a repetition of the first.
    fn unwritten(&self) -> u64 {
        NOT_WRITTEN_DOWN + self.names.fetch_add(1, Ordering::Relaxed)
    }

    fn call_by(&self, client: u32, op: Op, route: Route, copy_of: Option<u64>) -> Result<(u64, Answer), Ended> {
        let inside = self.enter()?;
        if self.over.load(Ordering::Acquire) {
            return Err(Ended::Unknown("no more requests: another client has ended this".to_owned()));
        }
        let id = self.called(client, &op, copy_of);
        Ok((id, self.send(inside, id, client, route, &op)?))
    }

    fn send(&self, inside: Inside<'_>, id: u64, client: u32, route: Route, op: &Op) -> Result<Answer, Ended> {
        let answer = self.subject.call(&self.request(id, client, route, op))?;
        let answer = self.returned(id, answer)?;
        let hit = inside.was_hit();
        drop(inside);
        if !(hit && answer.is_unknown()) {
            self.heard(&answer)?;
        } else {
            // Further requests would fail until the process is back.
            self.gate.settle()?;
        }
        Ok(answer)
    }

    /// Ends the case if requests are no longer answered.
    fn heard(&self, answer: &Answer) -> Result<(), Ended> {
        if !answer.is_unknown() {
            self.silent.store(0, Ordering::Relaxed);
            return Ok(());
        }
        let silent = self.silent.fetch_add(1, Ordering::Relaxed) + 1;
        if silent < SILENT {
            return Ok(());
        }
        let said = crate::words::answer(answer);
        Err(Ended::Unknown(format!("{silent} operations in a row were not answered, the last one: {said}")))
    }

    /// Makes a request by another way, and does not record it: it may be for another resource.
    pub fn bypass(&self, way: usize, client: u32, op: &Op) -> Result<Answer, Ended> {
        let _inside = self.enter()?;
        Ok(self.subject.bypass(way, &self.request(self.unwritten(), client, Route::Direct, op))?)
    }

    /// Admits one call, once the process is up.
    fn enter(&self) -> Result<Inside<'_>, Ended> {
        self.go_on()?;
        self.gate.enter()
    }

    fn request<'r>(&'r self, id: u64, client: u32, route: Route, op: &'r Op) -> Request<'r> {
        Request { case: self.case.id, seed: self.seed, id, client, route, op }
    }

    fn called(&self, client: u32, op: &Op, copy_of: Option<u64>) -> u64 {
        let (op, answer) = (op.clone(), Answer::unknown("no answer yet"));
        let mut recorded = self.recorded();
        let id = recorded.operations.len() as u64 + 1;
        // Under the lock, so that numbers and times rise together.
        let called = self.now();
        recorded.operations.push(Operation {
            id,
            client,
            op,
            called,
            returned: Time::MAX,
            answer,
            dead_by: None,
            copy_of,
        });
        id
    }

    fn returned(&self, id: u64, answer: Answer) -> Result<Answer, Ended> {
        let mut recorded = self.recorded();
        let returned = self.now();
        let Some(operation) = recorded.operation(id) else { return Ok(answer) };
        operation.returned = returned;
        operation.answer = answer.clone();
        let sendable = operation.op.tokens().iter().all(|token| token.number().is_some());
        if answer == Answer::Unsupported && self.has(operation.op.verb()) && sendable {
            let verb = operation.op.verb().name();
            let sentence = format!("operation #{id} was answered as unsupported, but the resource says it has {verb}.");
            return Err(self.fail(&[id], sentence));
        }
        Ok(answer)
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock()
    }

    /// The number of the latest operation of a client.
    pub fn last(&self, client: u32) -> u64 {
        let recorded = self.recorded();
        recorded.operations.iter().rev().find(|operation| operation.client == client).map_or(0, |found| found.id)
    }

    /// Whether the latest operation of a client is still without an answer.
    pub fn is_waiting(&self, client: u32) -> bool {
        let recorded = self.recorded();
        let latest = recorded.operations.iter().rev().find(|operation| operation.client == client);
        latest.is_some_and(|operation| operation.returned == Time::MAX)
    }

    /// A failure, with the operations that prove it.
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

    /// Makes a request that must not be done, whatever the answer.
    pub fn not_done(&self, client: u32, op: Op) -> Result<Answer, Ended> {
        self.demand(client, op, "must not be accepted", Answer::is_not_done)
    }

    fn demand(&self, client: u32, op: Op, must: &str, holds: fn(&Answer) -> bool) -> Result<Answer, Ended> {
        let shown = crate::words::operation(&op);
        let busy = self.case.level > Level::L1;
        let (id, answer) = self.call_by(client, op, Route::Direct, None)?;
        match &answer {
            answer if holds(answer) => {}
            // From L2 on other clients are active, and a resource may answer that it is busy.
            answer if answer.is_unknown() || (busy && matches!(answer, Answer::Error { .. })) => {
                return Err(Ended::Unknown(format!("{shown} (#{id}) was {}", crate::words::answer(answer))));
            }
            answer => {
                let said = crate::words::answer(answer);
                return Err(self.fail(&[id], format!("{shown} (#{id}) {must}, and was {said}.")));
            }
        }
        Ok(answer)
    }

    /// Reads the current value and, if reported, the fence, if the resource can be read.
    pub fn peek(&self, client: u32, res: &str) -> Result<Option<Answer>, Ended> {
        if !self.has(Verb::Read) {
            return Ok(None);
        }
        self.accepted(client, Op::read(res)).map(Some)
    }

    /// Adds a remark for the reader of a pass.
    pub fn remark(&self, text: String) {
        *self.remark.lock() = Some(text);
    }

    /// The remark of the case.
    pub fn remarked(&self) -> Option<String> {
        self.remark.lock().clone()
    }

    /// The history so far.
    pub fn history(&self) -> History {
        let recorded = self.recorded();
        History {
            case: self.case.id.to_owned(),
            seed: self.seed,
            manifest: self.manifest().clone(),
            operations: recorded.operations.clone(),
            marks: recorded.marks.clone(),
            judged: None,
        }
    }
}

impl Recorded {
    fn operation(&mut self, id: u64) -> Option<&mut Operation> {
        self.operations.get_mut(usize::try_from(id.checked_sub(1)?).ok()?)
    }
}

#[cfg(test)]
mod tests;
