//! The model: applies commands one by one, using the judge from core and no code of the store.

use std::collections::{BTreeMap, HashMap};

use fencepost_core::{
    Access, FenceState, Guards, Issuer, Key, Presented, Reason, Resource, Step as Move, Verdict, decide,
};
use fencepost_store::engine::Version;
use fencepost_store::{Impossible, Store};

use super::command::{
    Command, MAX_READ_BYTES, Retry, Shape, Step, When, Write, body_of, key, keys_of, resource, resource_of,
};
use super::expected::{Expected, Left, Refused, Stored, timeless};
use super::known::Known;
use super::locks::Lock;

pub(crate) struct Model {
    guards: Guards,
    pub(super) issuer: Issuer,
    base: u32,
    highest: u32,
    fences: BTreeMap<Resource, FenceState>,
    values: BTreeMap<Key, Stored>,
    pub(super) locks: BTreeMap<Resource, Lock>,
    recorded: HashMap<u8, (u8, Expected)>,
}

/// A resource, the token presented to it, and the kind of access.
pub(super) type Asked<'c> = (Resource, Option<&'c Presented>, Access);

/// What the judge admitted: the new fences, and the refusals that observe mode suppressed.
pub(super) struct Admitted {
    pub(super) states: Vec<(Resource, FenceState, Option<Reason>)>,
    raised: bool,
}

impl Admitted {
    fn observed(&self) -> Vec<(Resource, Reason)> {
        self.states.iter().filter_map(|(resource, _, observed)| Some((resource.clone(), (*observed)?))).collect()
    }
}

impl Model {
    pub(crate) fn new(guards: Guards, issuer: Issuer) -> Model {
        Model {
            guards,
            issuer,
            base: 0,
            highest: 0,
            fences: BTreeMap::new(),
            values: BTreeMap::new(),
            locks: BTreeMap::new(),
            recorded: HashMap::new(),
        }
    }

    pub(super) fn fence(&self, resource: &Resource) -> FenceState {
        let stored = self.fences.get(resource).filter(|state| state.generation >= self.base);
        stored.cloned().unwrap_or_else(|| FenceState::unseen(self.base))
    }

    /// The command with the current generations and leases filled in.
    pub(crate) fn placed(&self, command: &Command) -> Command {
        let generation = |name: &str| self.fence(&resource(name)).generation;
        command.placed(generation, self.base, |name| self.lease_id(&resource(name)))
    }

    pub(crate) fn apply(&mut self, command: &Command, known: &Known) -> Expected {
        match command {
            Command::Write(write) => {
                let expected = self.once(write.retry, write.kind(), None, |model| model.write(write, known));
                if write.shape == Shape::Single { expected.of_one() } else { expected }
            }
            Command::Claim { resource: name, presented } => self.claim(name, presented.as_ref()),
            Command::Lock { resource: name, verb } => self.lock(&resource(name), verb),
            Command::Rotate { resource: name, from, issuer } => self.rotate(&resource(name), *from, issuer.clone()),
            Command::RotateAll { from } if *from != self.base => Expected::OtherGeneration { found: self.base },
            Command::RotateAll { .. } => {
                self.highest += 1;
                self.base = self.highest;
                Expected::Rotated { generation: self.base }
            }
            Command::Abandon { key } => match self.recorded.get(key) {
                Some((_, Expected::Transacted { results, fence, observed, .. })) => Expected::Transacted {
                    results: results.clone(),
                    fence: *fence,
                    observed: observed.clone(),
                    fresh: false,
                },
                Some((_, expected)) => expected.clone(),
                None => {
                    self.recorded.insert(*key, (0, Expected::Abandoned));
                    Expected::Abandoned
                }
            },
        }
    }

    /// Applies the request, unless it was applied before under the same key. What commits is recorded.
    pub(super) fn once(
        &mut self,
        retry: Option<Retry>,
        kind: u8,
        lock: Option<&Resource>,
        work: impl FnOnce(&mut Model) -> (Expected, bool),
    ) -> Expected {
        let Some(retry) = retry else { return work(self).0 };
        let fingerprint = retry.fingerprint(kind);
        match self.recorded.get(&retry.key) {
            None => {
                let (expected, commits) = work(self);
                if commits {
                    self.recorded.insert(retry.key, (fingerprint, expected.clone()));
                }
                expected
            }
            Some((_, Expected::Abandoned)) => Expected::Abandoned,
            Some((recorded, _)) if *recorded != fingerprint => Expected::KeyReused,
            Some((_, Expected::Granted { id, .. })) if !lock.is_some_and(|lock| self.holds_lease(lock, *id)) => {
                Expected::Replayed(Box::new(self.lease_lost(lock.unwrap())))
            }
            Some((_, expected)) => Expected::Replayed(Box::new(expected.clone())),
        }
    }

    /// Judges each resource; if one refuses, the whole command is refused.
    pub(super) fn judge(&self, asked: &[Asked<'_>]) -> Result<Admitted, Expected> {
        let (mut states, mut refused, mut raised) = (Vec::new(), Vec::new(), false);
        for (resource, presented, access) in asked {
            let policy = self.guards.of_resource(resource).unwrap().unwrap().policy;
            let found = self.fence(resource);
            match (decide(&found, *presented, *access, &policy), presented) {
                (Verdict::Refuse(reason), _) => {
                    let presented = presented.cloned();
                    refused.push(Refused { resource: resource.clone(), reason, found, presented });
                }
                (Verdict::Observe(reason), _) => states.push((resource.clone(), found, Some(reason))),
                (Verdict::Admit(step), presented) => {
                    raised |= step != Move::Keep;
                    states.push((resource.clone(), moved(&found, step, presented.unwrap()), None));
                }
            }
        }
        if refused.is_empty() { Ok(Admitted { states, raised }) } else { Err(Expected::Refused(refused)) }
    }

    pub(super) fn raise(&mut self, admitted: &Admitted) {
        for (resource, state, observed) in &admitted.states {
            if observed.is_none() {
                self.fences.insert(resource.clone(), state.clone());
            }
        }
    }

    /// The expected outcome, and whether it is recorded.
    fn write(&mut self, write: &Write, known: &Known) -> (Expected, bool) {
        let written = |resource: &Resource| {
            write.steps.iter().any(|(name, step)| step.writes() && resource_of(name) == *resource)
        };
        let mut asked: Vec<Asked<'_>> = Vec::new();
        for (name, presented) in &write.tokens {
            let resource = resource(name);
            let access = if written(&resource) { Access::Write } else { Access::Claim };
            asked.push((resource, Some(presented), access));
        }
        for (name, _) in write.steps.iter().filter(|(_, step)| step.writes()) {
            let resource = resource_of(name);
            if asked.iter().all(|(asked, _, _)| *asked != resource) {
                asked.push((resource, None, Access::Write));
            }
        }
        let admitted = match self.judge(&asked) {
            Ok(admitted) => admitted,
            Err(refused) => return (refused, false),
        };
        let gets = write.steps.iter().filter(|(_, step)| !step.writes());
        let bytes = gets.filter_map(|(name, _)| self.values.get(&key(name))).map(|stored| stored.body.len()).sum();
        if bytes > MAX_READ_BYTES {
            return (Expected::TooLarge { bytes }, false);
        }
        self.raise(&admitted);
        let only = match &asked[..] {
            [(resource, _, _)] => self.fence(resource).token(),
            _ => None,
        };
        for (at, (name, when)) in write.conditions.iter().filter(|(_, when)| kept(write, *when)).enumerate() {
            if !self.holds(name, *when, known) {
                let current = self.values.get(&key(name)).map(|stored| stored.id);
                return (Expected::ConditionFailed { at, key: key(name), current, fence: only }, admitted.raised);
            }
        }
        let mut sums = HashMap::new();
        for (at, (name, step)) in write.steps.iter().enumerate() {
            if let Step::Add { by, min, max, .. } = *step {
                let why = match self.number(name) {
                    None => Impossible::NotANumber,
                    Some(value) => match i128::from(value) + i128::from(by) {
                        sum if i128::from(min) <= sum && sum <= i128::from(max) => {
                            sums.insert(*name, i64::try_from(sum).unwrap());
                            continue;
                        }
                        _ => Impossible::OutOfBounds { value, by, min, max },
                    },
                };
                return (Expected::Impossible { at, key: key(name), why }, admitted.raised);
            }
        }
        let mut results = Vec::new();
        for (name, step) in &write.steps {
            let given = write.tokens.iter().find(|(resource, _)| *resource == resource_of(name).as_str());
            let token = given.map(|(_, presented)| presented.token);
            let left = match *step {
                Step::Put { id, bytes } => {
                    self.values.insert(key(name), Stored { id, token, body: body_of(id, bytes) });
                    Left::Put(id)
                }
                Step::Add { id, .. } => {
                    self.values.insert(key(name), Stored { id, token, body: sums[name].to_string().into() });
                    Left::Sum(id, sums[name])
                }
                Step::Delete => {
                    self.values.remove(&key(name));
                    Left::Absent
                }
                Step::Get => self.values.get(&key(name)).cloned().map_or(Left::Absent, Left::Read),
            };
            results.push((key(name), left));
        }
        for ((resource, _, observed), (_, _, access)) in admitted.states.iter().zip(&asked) {
            if observed.is_none() && *access == Access::Write {
                self.fences.insert(resource.clone(), FenceState { spent: true, ..self.fence(resource) });
            }
        }
        let fence = asked.first().and_then(|(resource, _, _)| self.fence(resource).token());
        (Expected::Transacted { results, fence, observed: admitted.observed(), fresh: true }, true)
    }

    fn claim(&mut self, name: &str, presented: Option<&Presented>) -> Expected {
        let admitted = match self.judge(&[(resource(name), presented, Access::Claim)]) {
            Ok(admitted) => admitted,
            Err(refused) => return refused,
        };
        let keys = keys_of(name);
        let bytes = keys.iter().filter_map(|key| self.values.get(key)).map(|stored| stored.body.len()).sum();
        if bytes > MAX_READ_BYTES {
            return Expected::TooLarge { bytes };
        }
        self.raise(&admitted);
        Expected::Claimed {
            state: self.fence(&resource(name)),
            values: keys.into_iter().map(|key| (key.clone(), self.values.get(&key).cloned())).collect(),
            observed: admitted.observed().first().map(|(_, reason)| *reason),
        }
    }

    fn rotate(&mut self, resource: &Resource, from: u32, issuer: Option<Issuer>) -> Expected {
        let found = self.fence(resource).generation;
        if found != from {
            return Expected::OtherGeneration { found };
        }
        self.fences.insert(resource.clone(), FenceState { issuer, ..FenceState::unseen(from + 1) });
        self.highest = self.highest.max(from + 1);
        Expected::Rotated { generation: from + 1 }
    }

    fn number(&self, name: &str) -> Option<i64> {
        match self.values.get(&key(name)) {
            None => Some(0),
            Some(stored) => std::str::from_utf8(&stored.body).ok()?.parse().ok(),
        }
    }

    fn holds(&self, name: &str, when: When, known: &Known) -> bool {
        let current = self.values.get(&key(name));
        let is = |version: Option<Version>| {
            version == current.and_then(|stored| known.version(stored.id)) && version.is_some()
        };
        match when {
            When::Always => true,
            When::Absent => current.is_none(),
            When::Exists => current.is_some(),
            When::Unchanged => is(known.before(name)),
            When::Once(id) => is(known.version(id)),
            When::Is(number) => current.is_some_and(|stored| stored.body == number.to_string()),
            When::AtLeast(least) => self.number(name).is_some_and(|number| number >= least),
            When::AtMost(most) => self.number(name).is_some_and(|number| number <= most),
        }
    }

    /// Compares the entire state of the store, and records the current versions.
    pub(crate) async fn matches(&self, store: &Store, known: &mut Known) -> Result<(), String> {
        // A fence record in the unseen state is equivalent to an absent one.
        let telling = |state: &FenceState| *state != FenceState::unseen(self.base);
        let listed = store.fences("", None, usize::MAX).await.map_err(|error| error.to_string())?.entries;
        let found = listed.into_iter().map(|(resource, state)| (resource, timeless(&state)));
        let found: BTreeMap<_, _> = found.filter(|(_, state)| telling(state)).collect();
        let expected = self.fences.keys().map(|resource| (resource.clone(), self.fence(resource)));
        let expected: BTreeMap<_, _> = expected.filter(|(_, state)| telling(state)).collect();
        if found != expected {
            return Err(format!("fences are {found:?}, the model has {expected:?}"));
        }
        let listed = store.keys("", None, usize::MAX).await.map_err(|error| error.to_string())?.entries;
        let mut found = Vec::new();
        for entry in &listed {
            let read = store.read(&entry.key, None).await.map_err(|error| error.to_string())?;
            let value = read.ok().and_then(|read| read.value);
            found.push((&entry.key, Some(entry.version), entry.token, value.map(|(_, value)| value.body)));
        }
        let stored = |stored: &Stored| (known.version(stored.id), stored.token, Some(stored.body.clone()));
        let expected = self.values.iter().map(|(key, value)| (key, stored(value)));
        let expected: Vec<_> = expected.map(|(key, (version, token, body))| (key, version, token, body)).collect();
        if found != expected {
            return Err(format!("values are {found:?}, the model has {expected:?}"));
        }
        self.matches_locks(store).await?;
        known.current = listed.iter().map(|entry| (entry.key.to_string(), entry.version)).collect();
        Ok(())
    }
}

/// A single write without a condition sends none, so it does not count when conditions are numbered.
fn kept(write: &Write, when: When) -> bool {
    write.shape == Shape::Transaction || !matches!(when, When::Always)
}

fn moved(before: &FenceState, step: Move, presented: &Presented) -> FenceState {
    let issuer = before.issuer.clone().or_else(|| presented.issuer.clone());
    match step {
        Move::Keep => before.clone(),
        Move::Fill => {
            let holder = before.holder.clone().or_else(|| presented.holder.clone());
            FenceState { holder, issuer, ..before.clone() }
        }
        Move::Raise => FenceState {
            generation: before.generation,
            high: Some(presented.token.number()),
            spent: false,
            holder: presented.holder.clone(),
            issuer,
            raised_at: None,
        },
    }
}
