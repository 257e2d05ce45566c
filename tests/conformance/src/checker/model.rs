//! The sequential model: which answer a resource may give in which state, and how the state changes.
//!
//! Where the specification leaves room, the model reads it like this:
//!
//! - The holder matters only for a token at the fence: a higher token takes over from any holder. So a claim at the
//!   fence by another holder is refused as stale, like a write. A checked read names no holder and is never refused for
//!   it.
//! - A reported fence is the one after the operation. A resource that no token has reached may report fence 0: no
//!   operation could tell the difference.
//! - A definite error of a batch raises all its fences or none.
//! - A batch that names one resource twice is applied in the order of its list. Under `gt` the second use of one token in
//!   the batch may be taken for the same use or refused, so both answers are explained. A token that is below an earlier
//!   one of the same batch is refused. A definite error is always an answer.
//! - A batch that reports a fence may report that of any resource it names.

use std::cmp::Ordering;

use crate::manifest::{Equal, High, Manifest, Policy};

/// The part of a manifest that the model needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    policy: Policy,
    equal: Equal,
    high: High,
    pub(super) mismatch_raises: bool,
}

/// A holder, by number.
pub(super) type Name = u32;

/// A value, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Value(pub(super) u32);

impl Value {
    /// No value.
    pub(super) const NOTHING: Value = Value(0);
    /// Any of the values that no answer mentions.
    pub(super) const UNSEEN: Value = Value(1);
}

/// The state of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    pub(super) high: Option<u64>,
    /// Whether the token at the fence has written. Only kept under `gt`, where it matters.
    pub(super) used: bool,
    /// The holder that raised the fence. Only kept where it matters.
    pub(super) holder: Option<Name>,
    pub(super) value: Value,
}

/// A change of one resource; a delete writes `NOTHING`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) resource: usize,
    pub(super) token: u64,
    pub(super) holder: Option<Name>,
    pub(super) value: Value,
}

/// A request to the model.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Read { resource: usize },
    CheckedRead { resource: usize, token: u64 },
    Claim { resource: usize, token: u64, holder: Option<Name> },
    Write(Part),
    Cas { part: Part, expect: Value },
    Batch(Vec<Part>),
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Accepted, with the reported value and fence.
    Done { value: Option<Value>, high: Option<u64> },
    /// Refused as stale.
    Refused { high: Option<u64> },
    /// The condition did not hold.
    Mismatched { current: Option<Value> },
    /// Not done, but the fence was raised: one possible result of a definite error or of an unknown outcome.
    Raised,
}

impl Outcome {
    /// Accepted, with an unknown answer.
    pub(super) const SILENT: Outcome = Outcome::Done { value: None, high: None };
}

/// The resources that change, with their new state.
pub(super) type Change = Vec<(usize, Cell)>;

impl Rules {
    pub(super) fn new(manifest: &Manifest) -> Rules {
        Rules {
            policy: manifest.policy,
            equal: manifest.equal,
            high: manifest.high,
            mismatch_raises: manifest.mismatch_raises,
        }
    }

    /// Whether every token may write only once.
    pub(super) fn once(self) -> bool {
        self.policy == Policy::Gt
    }

    /// Whether holders are distinguished.
    pub(super) fn holders(self) -> bool {
        self.equal == Equal::Holder
    }

    /// Whether a reported fence must equal the fence.
    pub(super) fn exact(self) -> bool {
        self.high == High::Exact
    }

    fn same(self, cell: &Cell, holder: Option<Name>) -> bool {
        match (self.equal, cell.holder, holder) {
            (Equal::Any, _, _) | (Equal::Holder, None, _) | (Equal::Holder, _, None) => true,
            (Equal::Holder, Some(found), Some(asking)) => found == asking,
        }
    }

    fn admits(self, cell: &Cell, token: u64, holder: Option<Name>) -> bool {
        self.reaches(cell, token, holder) && (cell.high != Some(token) || self.policy == Policy::Ge || !cell.used)
    }

    /// Whether the token is at the fence or above it: the condition for claims and checked reads.
    fn reaches(self, cell: &Cell, token: u64, holder: Option<Name>) -> bool {
        match cell.high.map(|high| token.cmp(&high)) {
            None | Some(Ordering::Greater) => true,
            Some(Ordering::Equal) => self.same(cell, holder),
            Some(Ordering::Less) => false,
        }
    }

    pub(super) fn raised(self, cell: &Cell, token: u64, holder: Option<Name>) -> Cell {
        let holder = if self.holders() { holder } else { None };
        match cell.high.map(|high| token.cmp(&high)) {
            None | Some(Ordering::Greater) => Cell { high: Some(token), used: false, holder, value: cell.value },
            Some(Ordering::Equal) => Cell { holder: cell.holder.or(holder), ..*cell },
            Some(Ordering::Less) => *cell,
        }
    }

    fn written(self, cell: &Cell, part: &Part) -> Cell {
        Cell { used: self.once(), value: part.value, ..self.raised(cell, part.token, part.holder) }
    }

    /// Whether this fence may be reported.
    fn fits(self, cell: &Cell, reported: Option<u64>) -> bool {
        let high = cell.high.unwrap_or(0);
        match (reported, self.high) {
            (None, _) => true,
            (Some(reported), High::Exact) => reported == high,
            (Some(reported), High::AtLeast) => reported <= high,
        }
    }

    /// The change if the call has this outcome in this state; `None` if it cannot.
    pub(super) fn step(self, call: &Call, outcome: Outcome, cells: &[Cell]) -> Option<Change> {
        match call {
            Call::Read { resource } => match outcome {
                Outcome::Done { value, high } => {
                    let cell = &cells[*resource];
                    (seen(cell, value) && self.fits(cell, high)).then(Change::new)
                }
                Outcome::Refused { .. } | Outcome::Mismatched { .. } | Outcome::Raised => None,
            },
            Call::CheckedRead { resource, token } => {
                let cell = &cells[*resource];
                let reaches = self.reaches(cell, *token, None);
                match outcome {
                    Outcome::Done { value, high } => {
                        (reaches && seen(cell, value) && self.fits(cell, high)).then(Change::new)
                    }
                    Outcome::Refused { high } => (!reaches && self.fits(cell, high)).then(Change::new),
                    Outcome::Mismatched { .. } | Outcome::Raised => None,
                }
            }
            Call::Claim { resource, token, holder } => {
                let cell = &cells[*resource];
                let reaches = self.reaches(cell, *token, *holder);
                let after = self.raised(cell, *token, *holder);
                match outcome {
                    Outcome::Done { value, high } => (reaches && seen(cell, value) && self.fits(&after, high))
                        .then(|| becomes(*resource, cell, after)),
                    Outcome::Refused { high } => (!reaches && self.fits(cell, high)).then(Change::new),
                    Outcome::Raised => Some(becomes(*resource, cell, after)),
                    Outcome::Mismatched { .. } => None,
                }
            }
            Call::Write(part) => self.write(part, None, outcome, cells),
            Call::Cas { part, expect } => self.write(part, Some(*expect), outcome, cells),
            Call::Batch(parts) => self.batch(parts, outcome, cells),
        }
    }

    fn write(self, part: &Part, expect: Option<Value>, outcome: Outcome, cells: &[Cell]) -> Option<Change> {
        let cell = &cells[part.resource];
        let admits = self.admits(cell, part.token, part.holder);
        let raised = || becomes(part.resource, cell, self.raised(cell, part.token, part.holder));
        match (outcome, expect) {
            (Outcome::Done { high, .. }, expect) => {
                let after = self.written(cell, part);
                let holds = expect.is_none_or(|expect| expect == cell.value);
                (admits && holds && self.fits(&after, high)).then(|| becomes(part.resource, cell, after))
            }
            (Outcome::Refused { high }, _) => (!admits && self.fits(cell, high)).then(Change::new),
            (Outcome::Mismatched { current }, Some(expect)) => {
                let differs = admits && cell.value != expect && seen(cell, current);
                differs.then(|| if self.mismatch_raises { raised() } else { Change::new() })
            }
            (Outcome::Mismatched { .. }, None) => None,
            (Outcome::Raised, _) => Some(raised()),
        }
    }

    fn batch(self, parts: &[Part], outcome: Outcome, cells: &[Cell]) -> Option<Change> {
        let mut change = Change::new();
        // In order, each write sees those before it; `within` allows a token's second use in one batch.
        let mut apply = |within: bool, done: bool| -> bool {
            change.clear();
            for part in parts {
                let found = change.iter().position(|(resource, _)| *resource == part.resource);
                let cell = found.map_or(cells[part.resource], |found| change[found].1);
                let judged = Cell { used: cell.used && !(within && found.is_some()), ..cell };
                if done && !self.admits(&judged, part.token, part.holder) {
                    return false;
                }
                let after = if done { self.written(&cell, part) } else { self.raised(&cell, part.token, part.holder) };
                match found {
                    Some(found) => change[found].1 = after,
                    None => change.push((part.resource, after)),
                }
            }
            true
        };
        match outcome {
            Outcome::Done { high, .. } => {
                let admitted = apply(true, true) && change.iter().any(|(_, cell)| self.fits(cell, high));
                change.retain(|(resource, after)| cells[*resource] != *after);
                admitted.then_some(change)
            }
            Outcome::Refused { high } => {
                let refused = !apply(false, true);
                let mut named =
                    parts.iter().map(|part| &cells[part.resource]).chain(change.iter().map(|(_, cell)| cell));
                (refused && named.any(|cell| self.fits(cell, high))).then(Change::new)
            }
            Outcome::Raised => {
                apply(false, false);
                change.retain(|(resource, after)| cells[*resource] != *after);
                Some(change)
            }
            Outcome::Mismatched { .. } => None,
        }
    }
}

fn seen(cell: &Cell, value: Option<Value>) -> bool {
    value.is_none_or(|value| value == cell.value)
}

fn becomes(resource: usize, before: &Cell, after: Cell) -> Change {
    if *before == after { Change::new() } else { vec![(resource, after)] }
}

impl Call {
    /// The resources and tokens whose fences it touches. None for a read.
    pub(super) fn tokens(&self) -> Vec<(usize, u64)> {
        match self {
            Call::Read { .. } => Vec::new(),
            Call::CheckedRead { resource, token } | Call::Claim { resource, token, .. } => vec![(*resource, *token)],
            Call::Write(part) | Call::Cas { part, .. } => vec![(part.resource, part.token)],
            Call::Batch(parts) => parts.iter().map(|part| (part.resource, part.token)).collect(),
        }
    }

    /// The resources it names, each once.
    pub(super) fn resources(&self) -> Vec<usize> {
        match self {
            Call::Read { resource } => vec![*resource],
            call => {
                let mut resources: Vec<usize> = call.tokens().into_iter().map(|(resource, _)| resource).collect();
                resources.sort_unstable();
                resources.dedup();
                resources
            }
        }
    }

    /// The values it would write: none for reads and claims.
    pub(super) fn parts(&self) -> &[Part] {
        match self {
            Call::Read { .. } | Call::CheckedRead { .. } | Call::Claim { .. } => &[],
            Call::Write(part) | Call::Cas { part, .. } => std::slice::from_ref(part),
            Call::Batch(parts) => parts,
        }
    }

    /// The same, mutable.
    pub(super) fn parts_mut(&mut self) -> &mut [Part] {
        match self {
            Call::Read { .. } | Call::CheckedRead { .. } | Call::Claim { .. } => &mut [],
            Call::Write(part) | Call::Cas { part, .. } => std::slice::from_mut(part),
            Call::Batch(parts) => parts,
        }
    }
}
