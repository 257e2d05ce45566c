//! One batch: commands are judged in order, against the loaded records and the effects of earlier commands.

mod lock;
mod object;
mod once;
mod plan;
mod rotate;
mod write;

use bytes::Bytes;
use fencepost_core::{Access, FenceState, Key, Reason, Refusal, Resource, Timestamp, Token, Verdict, decide};
use foldhash::{HashMap, HashMapExt, HashSet};

use crate::command::{Action, Claim, Command, Judged};
use crate::engine::{Change, Engine, Loaded, Record, Want};
use crate::outcome::{ClaimOutcome, Claimed, TooLarge};
use crate::record::{self, LockRecord, Meta, OutcomeKey, Pending, RecordKey, Recorded, Undecodable, Value};

use crate::reply::Draft;

pub(crate) use plan::Plan;

/// What the records of a batch prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// They are what is committed now.
    Present,
    /// They were committed together at some time. Another gateway may have changed them since.
    Past,
    /// Each was committed at some time, and recorded outcomes were not looked for.
    Assumed,
}

impl Proof {
    /// What a load of this engine proves.
    pub(crate) fn of_load(engine: &dyn Engine) -> Proof {
        if engine.load_is_proof() { Proof::Present } else { Proof::Past }
    }
}

struct FenceSlot {
    state: FenceState,
    /// Differs from what is stored: outcomes that depend on it must wait for the commit.
    dirty: bool,
}

type ValueSlot = Option<(Pending, Content)>;
type LockSlot = Option<(Pending, LockRecord)>;
type ObjectSlot = Option<(Pending, Bytes)>;

/// What was loaded of a value.
enum Content {
    Whole(Value),
    /// The size of its record. The bytes were not loaded: no command wanted them, or they did not fit.
    Size(usize),
}

/// The records of a batch, including the effects of the commands so far.
pub(crate) struct Overlay {
    meta: Meta,
    /// The store's own record differs from what is stored.
    meta_changed: bool,
    fences: HashMap<Resource, FenceSlot>,
    values: HashMap<Key, ValueSlot>,
    locks: HashMap<Resource, LockSlot>,
    outcomes: HashMap<OutcomeKey, Option<Recorded>>,
    objects: HashMap<RecordKey, ObjectSlot>,
    /// Outcomes recorded by this batch.
    recorded: Vec<OutcomeKey>,
    /// Outcome indexes that are still stored.
    indexes: HashSet<RecordKey>,
    changes: Vec<(RecordKey, Change)>,
    /// Whether the current command has changed a fence.
    raised: bool,
    /// Whether wanted bytes of a value did not fit into the load.
    short: bool,
    proof: Proof,
    /// Whether the current command may be a retry of one whose outcome was not looked for.
    may_be_retry: bool,
    now: Timestamp,
}

/// What the judge refused.
struct Refused<R> {
    refusals: R,
    /// By stored fences alone. A refusal justified by this batch stands or falls with it (G4).
    durable: bool,
}

impl<R> Refused<R> {
    fn draft<P>(self, outcome: impl FnOnce(R) -> P) -> Draft<P> {
        match self.durable {
            true => Draft::Settled(outcome(self.refusals)),
            false => Draft::Pending(outcome(self.refusals)),
        }
    }
}

impl Overlay {
    pub(crate) fn new(
        plan: &Plan,
        loaded: &Loaded,
        meta: Meta,
        now: Timestamp,
        proof: Proof,
    ) -> Result<Overlay, Undecodable> {
        let record = |at: &usize| -> Option<&Record> { loaded.records.get(*at).and_then(Option::as_ref) };
        let mut fences = HashMap::with_capacity(plan.fences.len());
        for (resource, at) in &plan.fences {
            let stored = record(at).map(|record| record::decode_fence(&record.bytes)).transpose()?;
            let state = FenceState::under(stored.as_ref(), meta.base_generation).into_owned();
            fences.insert(resource.clone(), FenceSlot { state, dirty: false });
        }
        let (mut values, mut short) = (HashMap::with_capacity(plan.values.len()), false);
        for (key, at) in &plan.values {
            let value = record(at).map(|found| Content::of(found).map(|content| (stored(found), content)));
            short |= record(at).is_some_and(|found| !found.is_whole() && plan.wanted[*at].want.covers(found.size));
            values.insert(key.clone(), value.transpose()?);
        }
        let mut locks = HashMap::with_capacity(plan.locks.len());
        for (resource, at) in &plan.locks {
            let lock = record(at).map(|found| LockRecord::decode(&found.bytes).map(|lock| (stored(found), lock)));
            locks.insert(resource.clone(), lock.transpose()?);
        }
        let mut outcomes = HashMap::with_capacity(plan.outcomes.len());
        for (key, at) in &plan.outcomes {
            let recorded = record(at).map(|found| Recorded::decode(&found.bytes, found.version));
            outcomes.insert(key.clone(), recorded.transpose()?);
        }
        let of_objects = |(key, at): (&RecordKey, &usize)| {
            (key.clone(), record(at).map(|found| (stored(found), found.bytes.clone())))
        };
        let objects = plan.objects.iter().map(of_objects).collect();
        let indexes = plan.indexes.iter().filter(|(_, at)| record(at).is_some()).map(|(key, _)| key.clone()).collect();
        let changes = Vec::with_capacity(2 * plan.fences.len());
        let (meta_changed, raised, recorded) = (false, false, Vec::new());
        Ok(Overlay {
            meta,
            meta_changed,
            fences,
            values,
            locks,
            outcomes,
            objects,
            recorded,
            indexes,
            changes,
            raised,
            short,
            proof,
            may_be_retry: false,
            now,
        })
    }

    /// The first command that lacks values because their bytes did not fit into one load.
    pub(crate) fn first_short(&self, commands: &[Command]) -> Option<usize> {
        let lacks = |(key, want): (&Key, Want)| match self.values.get(key) {
            Some(Some((_, Content::Size(size)))) => want.covers(*size),
            _ => false,
        };
        self.short.then(|| commands.iter().position(|command| command.reads().any(lacks)))?
    }

    /// Judges one command and applies it; its reply gets the outcome. A recorded outcome is found before the judge is
    /// asked.
    pub(crate) fn judge(&mut self, command: &mut Command) {
        let Command { judged, once, action, .. } = command;
        let once = once.as_ref();
        self.raised = false;
        self.may_be_retry = once.is_some() && self.proof == Proof::Assumed;
        match action {
            Action::WriteOne(write, reply) => reply.judged(self.write_one(one(judged), once, write)),
            Action::Write(write, reply) => reply.judged(self.write(judged, once, write)),
            Action::Claim(claim, reply) => reply.judged(self.claim(one(judged), claim)),
            Action::Acquire(acquire, reply) => reply.judged(self.acquire(one(judged), once, acquire)),
            Action::Renew { lease, ttl_ms, reply } => reply.judged(self.renew(one(judged), *lease, *ttl_ms)),
            Action::Release { lease, reply } => reply.judged(self.release(one(judged), *lease)),
            Action::ForceRelease { reply } => reply.judged(self.force_release(one(judged))),
            Action::Rotate { from, issuer, reply } => reply.judged(self.rotate(one(judged), *from, issuer.as_ref())),
            Action::RotateAll { from, at_least, reply } => reply.judged(self.rotate_all(*from, *at_least)),
            Action::Objects(change, reply) => reply.judged(self.change_objects(judged, change)),
            Action::Abandon(key, reply) => reply.judged(self.abandon(key)),
            Action::Forget { index, outcomes, reply } => reply.judged(self.forget(index, outcomes)),
        }
    }

    /// Asks the judge about one resource.
    fn pass_one(&self, judged: &Judged) -> Result<Verdict, Refused<Box<Refusal>>> {
        let Judged { guarded, presented, access } = judged;
        let slot = self.fence(&guarded.resource);
        match decide(&slot.state, presented.as_ref(), *access, &guarded.policy) {
            Verdict::Refuse(reason) => {
                let (resource, presented, found) = (guarded.resource.clone(), presented.clone(), slot.state.clone());
                // Fences only rise, so what is below an old one is below the present one, too. But a retry of an applied
                // write must be answered with its outcome (trap 29), and a holder whose claim is refused lifts its lock
                // service above the fence that it is told.
                let is_final = reason.is_final() && !self.may_be_retry && *access != Access::Claim;
                let is_proved = self.proof == Proof::Present;
                let durable = !slot.dirty && (is_proved || is_final);
                let refusal = Refusal { reason, resource, presented, found, at_least: durable && !is_proved };
                Err(Refused { refusals: Box::new(refusal), durable })
            }
            verdict => Ok(verdict),
        }
    }

    /// Judges every resource. If one refuses, the whole command is refused and no fence is raised.
    fn pass(&self, judged: &[Judged]) -> Result<Vec<Verdict>, Refused<Vec<Refusal>>> {
        let (mut verdicts, mut refusals, mut durable) = (Vec::with_capacity(judged.len()), Vec::new(), true);
        for judged in judged {
            match self.pass_one(judged) {
                Ok(verdict) => verdicts.push(verdict),
                Err(refused) => {
                    // What is told of several resources holds for one instant, so it is proved.
                    durable &= refused.durable && !refused.refusals.at_least;
                    refusals.push(Refusal { at_least: false, ..*refused.refusals });
                }
            }
        }
        if refusals.is_empty() { Ok(verdicts) } else { Err(Refused { refusals, durable }) }
    }

    /// Raises the fence, if it was admitted. Why it would have been refused, if it was merely observed.
    fn admit_one(&mut self, judged: &Judged, verdict: Verdict) -> Option<Reason> {
        match (verdict, &judged.presented) {
            (Verdict::Admit(step), Some(presented)) => {
                let now = self.now;
                let slot = self.fence_mut(&judged.guarded.resource);
                if let Some(next) = slot.state.after(step, presented, now) {
                    (slot.state, slot.dirty) = (next, true);
                    self.raised = true;
                }
                None
            }
            (Verdict::Observe(reason) | Verdict::Refuse(reason), _) => Some(reason),
            (Verdict::Admit(_), None) => unreachable!("nothing is admitted without a token"),
        }
    }

    /// Raises the fences of the admitted resources. Returns the refusals that observe mode suppressed.
    fn admit(&mut self, judged: &[Judged], verdicts: &[Verdict]) -> Vec<(Resource, Reason)> {
        let mut observed = Vec::new();
        for (judged, verdict) in judged.iter().zip(verdicts) {
            if let Some(reason) = self.admit_one(judged, *verdict) {
                observed.push((judged.guarded.resource.clone(), reason));
            }
        }
        observed
    }

    fn claim(&mut self, judged: &Judged, claim: &Claim) -> Draft<ClaimOutcome<Pending>> {
        let verdict = match self.pass_one(judged) {
            Ok(verdict) => verdict,
            Err(refused) => return refused.draft(ClaimOutcome::Refused),
        };
        if let Some(too_large) = self.too_large(claim.keys.iter(), claim.max_bytes) {
            return Draft::Pending(ClaimOutcome::TooLarge(too_large));
        }
        let observed = self.admit_one(judged, verdict);
        let state = self.fence(&judged.guarded.resource).state.clone();
        let values = claim.keys.iter().map(|key| (key.clone(), self.whole(key))).collect();
        Draft::Pending(ClaimOutcome::Claimed(Box::new(Claimed { state, values, observed })))
    }

    /// Ends a command whose answer would be too large, before anything changes. If a value was not loaded, the answer
    /// is too large: the value is, by itself or together with the command's other values.
    fn too_large<'k>(&self, keys: impl Iterator<Item = &'k Key>, limit: usize) -> Option<TooLarge> {
        let (mut bytes, mut whole) = (0, true);
        for (_, content) in keys.filter_map(|key| self.values.get(key)?.as_ref()) {
            bytes += match content {
                Content::Whole(value) => value.body.len(),
                Content::Size(size) => {
                    whole = false;
                    *size
                }
            };
        }
        (bytes > limit || !whole).then_some(TooLarge { bytes, limit })
    }

    /// A value for an answer.
    fn whole(&self, key: &Key) -> Option<(Pending, Value)> {
        match self.values.get(key)?.as_ref()? {
            (version, Content::Whole(value)) => Some((*version, value.clone())),
            (_, Content::Size(_)) => unreachable!("an answer with a value that was not loaded is too large"),
        }
    }

    fn fence(&self, resource: &Resource) -> &FenceSlot {
        self.fences.get(resource).unwrap_or_else(|| unreachable!("the plan names every fence"))
    }

    fn fence_mut(&mut self, resource: &Resource) -> &mut FenceSlot {
        self.fences.get_mut(resource).unwrap_or_else(|| unreachable!("the plan names every fence"))
    }

    fn token(&self, judged: &Judged) -> Option<Token> {
        self.fence(&judged.guarded.resource).state.token()
    }

    /// The fence of the first resource.
    fn first_token(&self, judged: &[Judged]) -> Option<Token> {
        judged.first().and_then(|judged| self.token(judged))
    }

    /// The fence of the only resource; `None` if there are several.
    fn only_token(&self, judged: &[Judged]) -> Option<Token> {
        match judged {
            [judged] => self.token(judged),
            _ => None,
        }
    }

    fn change(&mut self, key: RecordKey, change: Change) -> usize {
        self.changes.push((key, change));
        self.changes.len() - 1
    }

    /// The changes to commit: the data, then each changed fence once. A delete keeps the fence (G1).
    pub(crate) fn changes(&mut self, index_id: u64) -> Vec<(RecordKey, Change)> {
        let mut changes = std::mem::take(&mut self.changes);
        for (resource, slot) in self.fences.iter().filter(|(_, slot)| slot.dirty) {
            changes.push((RecordKey::fence(resource), Change::Put(record::encode_fence(&slot.state))));
        }
        if self.meta_changed {
            changes.push((RecordKey::meta(), Change::Put(self.meta.encode())));
        }
        if !self.recorded.is_empty() {
            let index = record::encode_index(&self.recorded);
            changes.push((RecordKey::index(self.now, index_id), Change::Put(index)));
        }
        changes
    }

    /// Every fence, with the effects of this batch.
    pub(crate) fn fences(&self) -> impl Iterator<Item = (&Resource, &FenceState)> {
        self.fences.iter().map(|(resource, slot)| (resource, &slot.state))
    }

    /// Every fence that this batch changes, with its new state.
    pub(crate) fn changed_fences(&self) -> impl Iterator<Item = (&Resource, &FenceState)> {
        self.fences.iter().filter(|(_, slot)| slot.dirty).map(|(resource, slot)| (resource, &slot.state))
    }

    /// The base generation, if this batch may have changed it. Then cached fences may be outdated.
    pub(crate) fn new_base(&self) -> Option<u32> {
        self.meta_changed.then_some(self.meta.base_generation)
    }
}

impl Content {
    fn of(record: &Record) -> Result<Content, Undecodable> {
        match record.is_whole() {
            true => Value::decode(&record.bytes).map(Content::Whole),
            false => Ok(Content::Size(record.size)),
        }
    }

    /// The value, if it was loaded. One that was not is longer than any condition on it needs.
    fn value(&self) -> Option<&Value> {
        match self {
            Content::Whole(value) => Some(value),
            Content::Size(_) => None,
        }
    }
}

/// The resource of a command that is about one.
fn one(judged: &[Judged]) -> &Judged {
    judged.first().unwrap_or_else(|| unreachable!("the command is about a resource"))
}

fn stored(record: &Record) -> Pending {
    Pending::Stored(record.version)
}
