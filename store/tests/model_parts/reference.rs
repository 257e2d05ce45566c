//! The model: one command after the other, with the judge of the core and nothing of the store.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use fencepost_core::{Access, FenceState, Guards, Key, Presented, Reason, Resource, Step, Token, Verdict, decide};
use fencepost_store::engine::Version;
use fencepost_store::{Outcome, Store};

use super::command::{Command, MAX_CLAIM_BYTES, Verb, When, body_of};
use crate::testbed::Ended;

/// Names a put; the store names it by a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct WriteId(pub(crate) u64);

/// What the client has learned of versions so far.
#[derive(Default)]
pub(crate) struct Versions {
    of: HashMap<WriteId, Version>,
    seen: HashSet<Version>,
    current: HashMap<String, Version>,
}

impl Versions {
    pub(crate) fn of(&self, id: WriteId) -> Option<Version> {
        self.of.get(&id).copied()
    }

    /// What the key had before the group that is being sent.
    pub(crate) fn before(&self, key: &str) -> Option<Version> {
        self.current.get(key).copied()
    }

    /// Takes the version of an applied put, which nobody may have had before (E3).
    pub(crate) fn learn(&mut self, ended: &Ended, expected: &Expected) -> Result<(), String> {
        if let (Ok(Outcome::Applied(applied)), Expected::Applied { put: Some(id), .. }) = (ended, expected) {
            let version = applied.version.ok_or("a put without a version")?;
            if !self.seen.insert(version) {
                return Err(format!("{version:?} was used before"));
            }
            self.of.insert(*id, version);
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    id: WriteId,
    token: Option<Token>,
    body: Bytes,
}

/// An outcome in the words of the model.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Applied { put: Option<WriteId>, fence: Option<Token>, observed: Option<Reason> },
    Claimed { state: FenceState, values: Vec<(Key, Option<Stored>)>, observed: Option<Reason> },
    Refused { reason: Reason, found: FenceState, presented: Option<Presented> },
    ConditionFailed { current: Option<WriteId>, fence: Option<Token> },
    TooLarge { bytes: usize },
}

/// When a fence was raised is for people, and not compared.
fn timeless(state: &FenceState) -> FenceState {
    FenceState { raised_at: None, ..state.clone() }
}

impl Expected {
    pub(crate) fn matches(&self, ended: &Ended, versions: &Versions) -> Result<(), String> {
        let same = match (self, ended) {
            (Expected::Applied { put, fence, observed }, Ok(Outcome::Applied(found))) => {
                found.fence == *fence
                    && found.observed == *observed
                    && found.version == put.and_then(|id| versions.of(id))
            }
            (Expected::Claimed { state, values, observed }, Ok(Outcome::Claimed(found))) => {
                let expected = values.iter().map(|(key, stored)| {
                    let stored = stored.as_ref();
                    (key, stored.map(|stored| (versions.of(stored.id), stored.token, stored.body.clone())))
                });
                let found_values = found.values.iter().map(|(key, slot)| {
                    (key, slot.as_ref().map(|(version, value)| (Some(*version), value.token, value.body.clone())))
                });
                timeless(&found.state) == *state && found.observed == *observed && expected.eq(found_values)
            }
            (Expected::Refused { reason, found, presented }, Ok(Outcome::Refused(refusal))) => {
                let exact = refusal.reason == *reason && timeless(&refusal.found) == *found;
                // From the cache: decided by an earlier state, but below what was durable then and is so still.
                let cached = matches!(refusal.reason, Reason::Stale | Reason::RetiredGeneration)
                    && presented.as_ref().map(|presented| presented.token) < found.token()
                    && refusal.found.token() <= found.token();
                exact || cached
            }
            (
                Expected::ConditionFailed { current, fence },
                Ok(Outcome::ConditionFailed { current: now, fence: at }),
            ) => *now == current.and_then(|id| versions.of(id)) && fence == at,
            (Expected::TooLarge { bytes }, Ok(Outcome::TooLarge { bytes: found, .. })) => bytes == found,
            _ => false,
        };
        if same { Ok(()) } else { Err(format!("the model says {self:?}, the store {ended:?}")) }
    }
}

pub(crate) struct Model {
    guards: Guards,
    fences: BTreeMap<Resource, FenceState>,
    values: BTreeMap<Key, Stored>,
}

impl Model {
    pub(crate) fn new(guards: Guards) -> Model {
        Model { guards, fences: BTreeMap::new(), values: BTreeMap::new() }
    }

    pub(crate) fn apply(&mut self, command: &Command, versions: &Versions) -> Expected {
        let key = Key::new(command.key).unwrap();
        let guarded = self.guards.of_key(&key).unwrap();
        let before = self.fences.get(&guarded.resource).cloned().unwrap_or_default();
        let access = if matches!(command.verb, Verb::Claim) { Access::Claim } else { Access::Write };
        let presented = command.presented.as_ref();
        let (mut state, observed) = match decide(&before, presented, access, &guarded.policy) {
            Verdict::Refuse(reason) => {
                return Expected::Refused { reason, found: before, presented: presented.cloned() };
            }
            Verdict::Observe(reason) => (before.clone(), Some(reason)),
            Verdict::Admit(step) => (raised(&before, step, presented.unwrap()), None),
        };
        let asked = command.claimed_keys();
        if access == Access::Claim {
            let bytes = asked.iter().filter_map(|key| self.values.get(key)).map(|stored| stored.body.len()).sum();
            if bytes > MAX_CLAIM_BYTES {
                return Expected::TooLarge { bytes };
            }
        }
        let current = self.values.get(&key).map(|stored| stored.id);
        let expected = match &command.verb {
            Verb::Claim => Expected::Claimed {
                state: state.clone(),
                values: asked.into_iter().map(|key| (key.clone(), self.values.get(&key).cloned())).collect(),
                observed,
            },
            Verb::Put { when, .. } | Verb::Delete { when } if !holds(*when, command.key, current, versions) => {
                Expected::ConditionFailed { current, fence: state.token() }
            }
            Verb::Put { id, bytes, .. } => {
                let token = presented.map(|presented| presented.token);
                self.values.insert(key, Stored { id: *id, token, body: body_of(*id, *bytes) });
                state.spent |= observed.is_none();
                Expected::Applied { put: Some(*id), fence: state.token(), observed }
            }
            Verb::Delete { .. } => {
                self.values.remove(&key);
                state.spent |= observed.is_none();
                Expected::Applied { put: None, fence: state.token(), observed }
            }
        };
        if state != FenceState::default() {
            self.fences.insert(guarded.resource, state);
        }
        expected
    }

    /// Compares everything that the store holds, and notes which versions are current.
    pub(crate) async fn matches(&self, store: &Store, versions: &mut Versions) -> Result<(), String> {
        let listed = store.fences("", None, usize::MAX).await.map_err(|error| error.to_string())?.entries;
        let found: BTreeMap<_, _> = listed.into_iter().map(|(resource, state)| (resource, timeless(&state))).collect();
        if found != self.fences {
            return Err(format!("fences are {found:?}, the model has {:?}", self.fences));
        }
        let listed = store.keys("", None, usize::MAX).await.map_err(|error| error.to_string())?.entries;
        let mut bodies = Vec::new();
        for entry in &listed {
            let read = store.read(&entry.key, None).await.map_err(|error| error.to_string())?;
            bodies.push(
                read.ok()
                    .and_then(Result::ok)
                    .and_then(|read| read.value)
                    .map(|(_, value)| value.body)
                    .unwrap_or_default(),
            );
        }
        let found: Vec<_> = listed
            .iter()
            .zip(&bodies)
            .map(|(entry, body)| (&entry.key, Some(entry.version), entry.token, body))
            .collect();
        let expected: Vec<_> =
            self.values.iter().map(|(key, stored)| (key, versions.of(stored.id), stored.token, &stored.body)).collect();
        if found != expected {
            return Err(format!("values are {found:?}, the model has {expected:?}"));
        }
        versions.current = listed.iter().map(|entry| (entry.key.to_string(), entry.version)).collect();
        Ok(())
    }
}

fn raised(before: &FenceState, step: Step, presented: &Presented) -> FenceState {
    let issuer = before.issuer.clone().or_else(|| presented.issuer.clone());
    match step {
        Step::Keep => before.clone(),
        Step::Fill => {
            let holder = before.holder.clone().or_else(|| presented.holder.clone());
            FenceState { holder, issuer, ..before.clone() }
        }
        Step::Raise => FenceState {
            generation: before.generation,
            high: Some(presented.token.number()),
            spent: false,
            holder: presented.holder.clone(),
            issuer,
            raised_at: None,
        },
    }
}

fn holds(when: When, key: &str, current: Option<WriteId>, versions: &Versions) -> bool {
    let is = |version: Option<Version>| version.is_some() && version == current.and_then(|id| versions.of(id));
    match when {
        When::Always => true,
        When::Absent => current.is_none(),
        When::Exists => current.is_some(),
        When::Unchanged => is(versions.before(key)),
        When::Once(id) => is(versions.of(id)),
    }
}
