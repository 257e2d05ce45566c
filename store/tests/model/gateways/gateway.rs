//! One gateway: what it remembers, and how it judges a request on it.

use super::engine::{Batch, Changes, Compare, Engine, LaneChange, LaneId, Record, Version};
use super::mistake::Mistake;
use super::names::{Named, Names};
use super::request::{Answer, Fence, Kind, REQUESTS, Reason, Write};
use super::settlement::{Doubt, Meaning};
use super::world::World;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gateway {
    pub(super) known: Known,
    /// The fence cache.
    pub(super) cache: Option<Fence>,
    pub(super) lane: Lane,
    /// The lane that was given up, until a commit of the new one shows that the engine still has it.
    pub(super) former: Option<Lane>,
    pub(super) work: Work,
    /// The engine has lost commits which it had confirmed to this gateway.
    pub(super) has_lost_commits: bool,
}

/// Records as the engine last had them; the outer `None`: not known, the inner: absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Known {
    meta: Option<Record<u8>>,
    fence: Option<Option<Record<Fence>>>,
    /// Values are not kept, except by mistake.
    value: Option<Option<Record<Write>>>,
}

/// A lane, as its last confirmed commit left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) id: LaneId,
    pub(super) number: u8,
    pub(super) version: Option<Version>,
    /// The answer to a commit was lost which compares the lane as absent.
    pub(super) is_in_doubt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Idle,
    /// It stopped writing.
    Poisoned,
    /// It has to load the records.
    Load(Task),
    Commit(Task, Batch, Draft),
    /// The answer to a commit was lost. It has to look at its lane.
    Look(Doubt),
    /// It has to commit its lane, and then knows this.
    Bump(Doubt, Batch, Meaning),
    /// A look said that commits were lost. It has to commit its lane over what it saw.
    Prove(Task, Batch),
}

/// The request under way, and what may be said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Task {
    pub(super) request: u8,
    /// The values that a claim may answer: those that were current while the token was the fence. A bit for each write; the
    /// highest for none.
    pub(super) values: u16,
    /// The generation when it began.
    pub(super) generation: u8,
    /// Whether its outcome had been recorded when it began.
    pub(super) was_recorded: bool,
}

/// An answer that waits for its commit, and the fence to be cached then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Draft {
    pub(super) answer: Answer,
    pub(super) fence: Option<Fence>,
}

/// What the records prove that a request is judged on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Present,
    Past,
    /// Known records; the outcome was not looked for.
    Assumed,
}

/// The records that a request is judged on.
pub(super) struct Seen {
    meta: Record<u8>,
    fence: Option<Record<Fence>>,
    value: Option<Record<Write>>,
    outcome: Option<Record<()>>,
    proof: Proof,
}

pub(super) enum Judged {
    Answer(Draft),
    Commit(Batch, Draft),
    Load,
}

impl Gateway {
    pub(super) fn new(lane: LaneId) -> Gateway {
        let lane = Lane { id: lane, number: 0, version: None, is_in_doubt: false };
        Gateway { known: Known::default(), cache: None, lane, former: None, work: Work::Idle, has_lost_commits: false }
    }

    pub(super) fn known_base(&self) -> Option<u8> {
        self.known.meta.map(|record| record.of)
    }

    pub(super) fn task_mut(&mut self) -> Option<&mut Task> {
        match &mut self.work {
            Work::Idle | Work::Poisoned => None,
            Work::Load(task) | Work::Commit(task, ..) | Work::Prove(task, _) => Some(task),
            Work::Look(doubt) | Work::Bump(doubt, ..) => Some(&mut doubt.task),
        }
    }

    /// The refusal that the fence cache is enough for.
    pub(super) fn refuses_at_once(&self, kind: Kind, world: &World) -> Option<Reason> {
        let token = match kind {
            Kind::Write(_, token) => token,
            Kind::Once(_, token) if world.has(Mistake::CacheRefusesRetries) => token,
            _ => return None,
        };
        self.cache?.admit(token).err().filter(|reason| match reason {
            Reason::Stale | Reason::RetiredGeneration => true,
            Reason::UnknownGeneration => world.has(Mistake::CacheRefusesUnknownGenerations),
        })
    }

    /// The records of a request, if all of them are known.
    pub(super) fn seen_before(&self, kind: Kind) -> Option<Seen> {
        let Known { meta, fence, value } = &self.known;
        let fence = if kind == Kind::RotateAll { &Some(None) } else { fence };
        let value = if let Kind::Claim(_) = kind { value } else { &Some(None) };
        Some(Seen { meta: (*meta)?, fence: (*fence)?, value: (*value)?, outcome: None, proof: Proof::Assumed })
    }

    pub(super) fn load(&mut self, engine: &Engine, kind: Kind, world: &World) -> Seen {
        self.known.meta = Some(engine.meta);
        if kind != Kind::RotateAll {
            self.known.fence = Some(engine.fence);
        }
        if matches!(kind, Kind::Claim(_)) && world.has(Mistake::ClaimAnsweredFromKnownRecords) {
            self.known.value = Some(engine.value);
        }
        let is_proof = world.load_is_proof || world.has(Mistake::LoadTakenForProof);
        let proof = if is_proof { Proof::Present } else { Proof::Past };
        Seen { meta: engine.meta, fence: engine.fence, value: engine.value, outcome: engine.outcome, proof }
    }

    /// Judges a request. What is not answered at once is compared and committed, or judged again.
    pub(super) fn judge(&mut self, request: u8, seen: &Seen, world: &World) -> Judged {
        let kind = REQUESTS[usize::from(request)].kind;
        let before = Fence::under(seen.fence.map(|record| record.of), seen.meta.of);
        let (mut changes, mut fence, mut is_settled) = (Changes::default(), before, false);
        let answer = match kind {
            Kind::Once(..) if seen.outcome.is_some() => Answer::Replayed,
            Kind::Write(write, token) | Kind::Once(write, token) => match before.admit(token) {
                Ok(raised) => {
                    fence = Fence { spent: true, ..raised };
                    (changes.value, changes.outcome) = (Some(write), matches!(kind, Kind::Once(..)));
                    Answer::Applied
                }
                Err(reason) => {
                    let may_be_retry = matches!(kind, Kind::Once(..))
                        && seen.proof == Proof::Assumed
                        && !world.has(Mistake::KnownRecordsRefuseRetries);
                    let is_final = match reason {
                        Reason::Stale | Reason::RetiredGeneration => true,
                        Reason::UnknownGeneration => world.has(Mistake::KnownRecordsRefuseUnknownGenerations),
                    };
                    is_settled = is_final && !may_be_retry;
                    Answer::Refused(reason)
                }
            },
            Kind::Claim(token) => match before.admit(token) {
                Ok(raised) => {
                    fence = raised;
                    is_settled = world.has(Mistake::ClaimAnsweredFromKnownRecords);
                    Answer::Claimed(seen.value.map(|record| record.of))
                }
                Err(reason) => Answer::Refused(reason),
            },
            Kind::RotateAll if seen.meta.of == 0 => {
                changes.base = Some(1);
                Answer::Rotated(1)
            }
            Kind::RotateAll => Answer::OtherGeneration,
        };
        changes.fence = (fence != before).then_some(fence);
        let noted = kind != Kind::RotateAll && (fence.high.is_some() || fence.generation > 0);
        let draft = Draft { answer, fence: noted.then_some(fence) };
        if changes.is_empty() {
            if is_settled || seen.proof == Proof::Present {
                return Judged::Answer(draft);
            }
            if world.load_is_proof {
                return Judged::Load;
            }
        }
        // A refusal in between must not name an older fence than a read has shown.
        if changes.fence.is_some() || changes.base.is_some() {
            self.cache = None;
        }
        if world.has(Mistake::FenceCachedBeforeItsCommit) {
            self.cache = draft.fence;
        }
        Judged::Commit(self.batch(request, seen, changes, world), draft)
    }

    /// Compares every record that was judged on.
    fn batch(&self, request: u8, seen: &Seen, changes: Changes, world: &World) -> Batch {
        let kind = REQUESTS[usize::from(request)].kind;
        let is_trusted = seen.proof == Proof::Assumed && world.has(Mistake::KnownRecordsNotCompared);
        let is_fence_compared = kind != Kind::RotateAll
            && !is_trusted
            && (changes.fence.is_some() || !world.has(Mistake::UnchangedFenceNotCompared));
        let is_meta_compared = !is_trusted && (changes.base.is_some() || !world.has(Mistake::MetaNotCompared));
        let is_outcome_compared = matches!(kind, Kind::Once(..)) && !world.has(Mistake::OutcomeNotCompared);
        let compare = Compare {
            meta: is_meta_compared.then_some(seen.meta.version),
            fence: is_fence_compared.then_some(seen.fence.map(|record| record.version)),
            value: matches!(kind, Kind::Claim(_)).then_some(seen.value.map(|record| record.version)),
            outcome: is_outcome_compared.then_some(seen.outcome.map(|record| record.version)),
            lane: None,
        };
        let batch = self.lane.over(self.lane.version, self.lane.number + 1, world);
        let compare = Compare { lane: batch.compare.lane, ..compare };
        Batch { request: Some(request), compare, changes, ..batch }
    }

    /// Keeps what was committed.
    pub(super) fn note(&mut self, version: Version, changes: &Changes, draft: &Draft, world: &World) {
        if let Some(of) = changes.base {
            self.known.meta = Some(Record { version, of });
        }
        if let Some(of) = changes.fence {
            self.known.fence = Some(Some(Record { version, of }));
        }
        if let (Some(of), true) = (changes.value, world.has(Mistake::ClaimAnsweredFromKnownRecords)) {
            self.known.value = Some(Some(Record { version, of }));
        }
        self.cache = draft.fence.or(self.cache);
    }
}

impl Known {
    /// Forgets what was compared.
    pub(super) fn forget(&mut self, kind: Kind) {
        self.meta = None;
        if kind != Kind::RotateAll {
            (self.fence, self.value) = (None, None);
        }
    }
}

impl Lane {
    /// A commit of the lane alone, over this version.
    pub(super) fn over(&self, version: Option<Version>, number: u8, world: &World) -> Batch {
        let is_compared = !world.has(Mistake::LaneNotCompared);
        Batch {
            request: None,
            compare: Compare { lane: is_compared.then_some(version), ..Compare::default() },
            changes: Changes::default(),
            lane: self.id,
            lane_change: LaneChange::Put(number),
            is_given_up: false,
        }
    }
}

impl Task {
    pub(super) fn new(request: u8, engine: &Engine) -> Task {
        let (generation, was_recorded) = (engine.fence_now().generation, engine.outcome.is_some());
        let mut task = Task { request, values: 0, generation, was_recorded };
        task.widen(engine);
        task
    }

    pub(super) fn kind(&self) -> Kind {
        REQUESTS[usize::from(self.request)].kind
    }

    /// Called whenever records have changed.
    pub(super) fn widen(&mut self, engine: &Engine) {
        if let Kind::Claim(token) = self.kind()
            && engine.fence_now().height() == (token.generation, Some(token.number))
        {
            self.values |= value_bit(engine.value_now());
        }
    }
}

impl Task {
    /// Older records took the place of those of its beginning.
    pub(super) fn go_back(&mut self, engine: &Engine) {
        self.generation = self.generation.min(engine.fence_now().generation);
        self.was_recorded &= engine.outcome.is_some();
        self.widen(engine);
    }
}

pub(super) fn value_bit(value: Option<Write>) -> u16 {
    value.map_or(1 << 15, |write| 1 << write.0)
}

impl Named for Lane {
    fn name(&mut self, names: &mut Names) {
        names.lane(&mut self.id);
        self.version.iter_mut().for_each(|version| names.version(version));
    }
}

impl Named for Gateway {
    fn name(&mut self, names: &mut Names) {
        self.lane.name(names);
        self.former.iter_mut().for_each(|lane| lane.name(names));
        let Known { meta, fence, value } = &mut self.known;
        meta.name(names);
        fence.iter_mut().for_each(|fence| fence.name(names));
        value.iter_mut().for_each(|value| value.name(names));
        match &mut self.work {
            Work::Idle | Work::Poisoned | Work::Load(_) => {}
            Work::Commit(_, batch, _) | Work::Prove(_, batch) => batch.name(names),
            Work::Look(doubt) => doubt.name(names),
            Work::Bump(doubt, batch, meaning) => {
                doubt.name(names);
                batch.name(names);
                meaning.name(names);
            }
        }
    }
}
