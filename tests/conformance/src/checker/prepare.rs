//! Prepares a component for the search: names become numbers, and irrelevant details are dropped.
//!
//! There are three kinds of operations afterwards. *Steps* must be placed. *Raises* may be placed, and then only raise
//! a fence. *Open* ones may also be done. Most operations of unknown outcome become steps or raises: if the value was
//! seen and no other operation can have written it, the operation was done; if the value was never seen, only its fence
//! can matter.

use std::collections::{HashMap, HashSet};

use super::components::usable;
use super::model::{Call, Name, Outcome, Part, Rules, Value};
use crate::answer::Answer;
use crate::history::{Operation, Time};
use crate::manifest::Manifest;
use crate::op::{Op, Write};

/// An operation that must be placed.
#[derive(Debug)]
pub(super) struct Step {
    /// The index of the operation in the component.
    pub(super) operation: usize,
    pub(super) call: Call,
    pub(super) outcome: Outcome,
    pub(super) called: Time,
    pub(super) latest: Time,
}

impl Step {
    /// Whether it writes a value. A claim and a mismatch do not.
    pub(super) fn writes(&self) -> bool {
        matches!(self.outcome, Outcome::Done { .. }) && !self.call.parts().is_empty()
    }
}

/// An operation that may be placed.
#[derive(Debug)]
pub(super) struct Optional {
    pub(super) operation: usize,
    pub(super) call: Call,
    pub(super) called: Time,
    pub(super) latest: Time,
    /// Whether it can matter that it was done. If not, only its fence matters.
    pub(super) open: bool,
}

/// The input of the search.
#[derive(Debug)]
pub(super) struct Prepared<'h> {
    pub(super) rules: Rules,
    pub(super) resources: Vec<&'h str>,
    /// The values, by their numbers.
    pub(super) values: Vec<Option<&'h str>>,
    /// The steps, in the order of their calls.
    pub(super) steps: Vec<Step>,
    pub(super) optional: Vec<Optional>,
}

impl Prepared<'_> {
    /// The index at which a value is counted. The absence of a value is counted separately for each resource.
    pub(super) fn slot(&self, resource: usize, value: Value) -> usize {
        match value {
            Value::NOTHING => self.values.len() + resource,
            value => value.0 as usize,
        }
    }

    /// The number of such indexes.
    pub(super) fn slots(&self) -> usize {
        self.values.len() + self.resources.len()
    }
}

struct Draft {
    operation: usize,
    call: Call,
    fate: Fate,
    called: Time,
    latest: Time,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Known(Outcome),
    /// It may have been done, may have raised the fence, or neither.
    Unknown,
    /// It may have raised the fence.
    Failed,
}

/// Prepares the operations of a component; all of them take part in the order.
pub(super) fn prepare<'h>(manifest: &Manifest, operations: &[&'h Operation]) -> Prepared<'h> {
    let mut names = Names::default();
    let mut drafts: Vec<Draft> = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        if let Some(draft) = names.draft(manifest, index, operation) {
            drafts.push(draft);
        }
    }
    let rules = Rules::new(manifest);
    settle(&mut drafts, names.values.len());
    let wanted = Wanted::new(rules, &drafts, &names);
    let mut steps = Vec::new();
    let mut optional = Vec::new();
    for draft in drafts {
        let Draft { operation, mut call, fate, called, latest } = draft;
        wanted.forget_unseen(&mut call);
        match fate {
            Fate::Known(outcome) => steps.push(Step { operation, call, outcome, called, latest }),
            Fate::Unknown | Fate::Failed => {
                let open = wanted.open.contains(&operation);
                if open || wanted.raises(rules, &call) {
                    optional.push(Optional { operation, call, called, latest, open });
                }
            }
        }
    }
    steps.sort_by_key(|step| (step.called, step.latest));
    let mut values = names.values;
    values.resize(values.len().max(2), None);
    Prepared { rules, resources: names.resources, values, steps, optional }
}

/// Assigns numbers to names.
#[derive(Default)]
struct Names<'h> {
    resources: Vec<&'h str>,
    by_resource: HashMap<&'h str, usize>,
    holders: HashMap<&'h str, Name>,
    values: Vec<Option<&'h str>>,
    /// Values are numbered separately for each resource.
    by_value: HashMap<(usize, &'h str), Value>,
}

impl<'h> Names<'h> {
    fn resource(&mut self, name: &'h str) -> usize {
        *self.by_resource.entry(name).or_insert_with(|| {
            self.resources.push(name);
            self.resources.len() - 1
        })
    }

    fn holder(&mut self, name: &'h str) -> Option<Name> {
        let next = self.holders.len() as Name;
        (!name.is_empty()).then(|| *self.holders.entry(name).or_insert(next))
    }

    fn value(&mut self, resource: usize, value: Option<&'h str>) -> Value {
        if self.values.is_empty() {
            self.values = vec![None, None];
        }
        let Some(value) = value else { return Value::NOTHING };
        *self.by_value.entry((resource, value)).or_insert_with(|| {
            self.values.push(Some(value));
            Value(self.values.len() as u32 - 1)
        })
    }

    fn part(&mut self, manifest: &Manifest, write: &'h Write) -> Option<Part> {
        let resource = self.resource(&write.res);
        let token = usable(manifest, &write.token)?;
        let holder = self.holder(&write.holder);
        Some(Part { resource, token, holder, value: self.value(resource, Some(&write.value)) })
    }

    fn call(&mut self, manifest: &Manifest, op: &'h Op) -> Option<Call> {
        Some(match op {
            Op::Read { res } => Call::Read { resource: self.resource(res) },
            Op::CheckedRead { res, token } => {
                Call::CheckedRead { resource: self.resource(res), token: usable(manifest, token)? }
            }
            Op::Claim { res, token, holder } => Call::Claim {
                resource: self.resource(res),
                token: usable(manifest, token)?,
                holder: self.holder(holder),
            },
            Op::Write(write) => Call::Write(self.part(manifest, write)?),
            Op::Delete { res, token, holder } => Call::Write(Part {
                resource: self.resource(res),
                token: usable(manifest, token)?,
                holder: self.holder(holder),
                value: Value::NOTHING,
            }),
            Op::Cas { res, token, holder, expect, value } => {
                let resource = self.resource(res);
                let part = Part {
                    resource,
                    token: usable(manifest, token)?,
                    holder: self.holder(holder),
                    value: self.value(resource, Some(value)),
                };
                Call::Cas { part, expect: self.value(resource, expect.as_deref()) }
            }
            Op::Batch { writes } => {
                Call::Batch(writes.iter().map(|write| self.part(manifest, write)).collect::<Option<_>>()?)
            }
        })
    }

    fn draft(&mut self, manifest: &Manifest, index: usize, operation: &'h Operation) -> Option<Draft> {
        let call = self.call(manifest, &operation.op)?;
        let resource = match &call {
            Call::Read { resource } | Call::CheckedRead { resource, .. } | Call::Claim { resource, .. } => *resource,
            Call::Write(part) | Call::Cas { part, .. } => part.resource,
            Call::Batch(parts) => parts.first()?.resource,
        };
        let mut reported =
            |value: &'h Option<Option<String>>| value.as_ref().map(|value| self.value(resource, value.as_deref()));
        let fate = match &operation.answer {
            Answer::Ok { value, high } => Fate::Known(Outcome::Done { value: reported(value), high: *high }),
            Answer::Stale { high } => Fate::Known(Outcome::Refused { high: *high }),
            Answer::Mismatch { current } => Fate::Known(Outcome::Mismatched { current: reported(current) }),
            Answer::Error { definite: true, .. } => Fate::Failed,
            Answer::Error { definite: false, .. } | Answer::Unknown { .. } => Fate::Unknown,
            Answer::Unsupported => return None,
        };
        Some(Draft { operation: index, call, fate, called: operation.called, latest: operation.latest() })
    }
}

impl Draft {
    /// The value that an answer shows, if it shows one.
    fn saw(&self) -> Option<Value> {
        match (self.fate, &self.call) {
            (Fate::Known(Outcome::Done { .. }), Call::Cas { expect, .. }) => Some(*expect),
            (Fate::Known(Outcome::Done { .. }), Call::Write(_) | Call::Batch(_)) => None,
            (Fate::Known(Outcome::Done { value: seen, .. } | Outcome::Mismatched { current: seen }), _) => seen,
            (Fate::Known(Outcome::Refused { .. } | Outcome::Raised) | Fate::Unknown | Fate::Failed, _) => None,
        }
    }

    fn may_write(&self) -> bool {
        matches!(self.fate, Fate::Known(Outcome::Done { .. }) | Fate::Unknown)
    }
}

/// Settles unknown outcomes: a value that was seen was written before. If only one operation can have written it, that
/// one was done, at the latest by the end of the operation that saw it.
fn settle(drafts: &mut [Draft], values: usize) {
    let mut writers: Vec<Vec<usize>> = vec![Vec::new(); values];
    for (index, draft) in drafts.iter().enumerate().filter(|(_, draft)| draft.may_write()) {
        for part in draft.call.parts().iter().filter(|part| part.value != Value::NOTHING) {
            writers[part.value.0 as usize].push(index);
        }
    }
    let mut sights: Vec<(Time, Value)> =
        drafts.iter().filter_map(|draft| draft.saw().map(|value| (draft.latest, value))).collect();
    sights.sort_unstable_by(|a, b| b.cmp(a));
    while let Some((latest, value)) = sights.pop() {
        let Some(writers) = writers.get(value.0 as usize) else { continue };
        let mut able = writers.iter().filter(|&&writer| drafts[writer].called <= latest);
        if let (Some(&writer), None) = (able.next(), able.next()) {
            let draft = &mut drafts[writer];
            let news = draft.fate == Fate::Unknown || latest < draft.latest;
            if draft.fate == Fate::Unknown {
                draft.fate = Fate::Known(Outcome::SILENT);
            }
            draft.latest = draft.latest.min(latest);
            if news {
                sights.extend(draft.saw().map(|value| (draft.latest, value)));
            }
        }
    }
}

/// What the answers mention, and so what can matter.
struct Wanted {
    spoken: Vec<bool>,
    /// By resource: the latest end of an operation that saw no value.
    nothing: HashMap<usize, Time>,
    /// By resource: the latest end of a mismatch that does not report the value.
    blurred: HashMap<usize, Time>,
    /// Refused operations: resource and token.
    refused: HashSet<(usize, u64)>,
    lowest_refused: HashMap<usize, u64>,
    reported: HashSet<(usize, u64)>,
    lowest_reported: HashMap<usize, u64>,
    /// Operations of unknown outcome for which it may matter that they were done.
    open: HashSet<usize>,
}

impl Wanted {
    fn new(rules: Rules, drafts: &[Draft], names: &Names<'_>) -> Wanted {
        let mut wanted = Wanted {
            spoken: vec![false; names.values.len().max(2)],
            nothing: HashMap::new(),
            blurred: HashMap::new(),
            refused: HashSet::new(),
            lowest_refused: HashMap::new(),
            reported: HashSet::new(),
            lowest_reported: HashMap::new(),
            open: HashSet::new(),
        };
        drafts.iter().for_each(|draft| wanted.listen(draft));
        loop {
            let before = wanted.open.len();
            for draft in drafts.iter().filter(|draft| draft.fate == Fate::Unknown) {
                if !wanted.open.contains(&draft.operation) && wanted.opens(rules, draft) {
                    wanted.open.insert(draft.operation);
                    if let Call::Cas { part, expect } = &draft.call {
                        wanted.sees(part.resource, *expect, Time::MAX);
                    }
                }
            }
            if wanted.open.len() == before {
                return wanted;
            }
        }
    }

    fn sees(&mut self, resource: usize, value: Value, latest: Time) {
        self.spoken[value.0 as usize] = true;
        if value == Value::NOTHING {
            let last = self.nothing.entry(resource).or_default();
            *last = latest.max(*last);
        }
    }

    fn listen(&mut self, draft: &Draft) {
        let resources = draft.call.resources();
        if let (Some(value), Some(resource)) = (draft.saw(), resources.first()) {
            self.sees(*resource, value, draft.latest);
        }
        let Fate::Known(outcome) = draft.fate else { return };
        if let (Outcome::Mismatched { current }, Call::Cas { part, expect }) = (outcome, &draft.call) {
            self.spoken[expect.0 as usize] = true;
            if current.is_none() {
                let last = self.blurred.entry(part.resource).or_default();
                *last = draft.latest.max(*last);
            }
        }
        if let Outcome::Refused { .. } = outcome {
            for (resource, token) in draft.call.tokens() {
                self.refused.insert((resource, token));
                let lowest = self.lowest_refused.entry(resource).or_insert(token);
                *lowest = token.min(*lowest);
            }
        }
        if let Outcome::Refused { high: Some(high) } | Outcome::Done { high: Some(high), .. } = outcome {
            for resource in resources {
                self.reported.insert((resource, high));
                let lowest = self.lowest_reported.entry(resource).or_insert(high);
                *lowest = high.min(*lowest);
            }
        }
    }

    fn opens(&self, rules: Rules, draft: &Draft) -> bool {
        draft.call.parts().iter().any(|part| {
            let until = |last: Option<&Time>| last.is_some_and(|last| *last >= draft.called);
            let seen = match part.value {
                Value::NOTHING => until(self.nothing.get(&part.resource)),
                value => self.spoken[value.0 as usize],
            };
            let used = rules.once() && self.refused.contains(&(part.resource, part.token));
            seen || used || until(self.blurred.get(&part.resource))
        })
    }

    /// Whether it can matter that this call raises a fence: the fence may justify a refusal, or be reported.
    fn raises(&self, rules: Rules, call: &Call) -> bool {
        call.tokens().into_iter().any(|(resource, token)| {
            let reported = match rules.exact() {
                true => self.reported.contains(&(resource, token)),
                false => self.lowest_reported.get(&resource).is_some_and(|lowest| *lowest <= token),
            };
            reported || self.lowest_refused.get(&resource).is_some_and(|lowest| *lowest <= token)
        })
    }

    fn forget_unseen(&self, call: &mut Call) {
        let known =
            |value: Value| if self.spoken[value.0 as usize] || value == Value::NOTHING { value } else { Value::UNSEEN };
        for part in call.parts_mut() {
            part.value = known(part.value);
        }
    }
}
