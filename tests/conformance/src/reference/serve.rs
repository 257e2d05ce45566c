//! How the reference performs operations. The correct code is next to every named bug.

use std::collections::BTreeSet;

use super::record::Record;
use super::store::{Gone, Rows, Visit};
use super::{Bug, Reference};
use crate::answer::Answer;
use crate::op::{Op, Verb, Write};
use crate::token::Token;

/// The number of fences that [`Bug::Eviction`] keeps.
const KEPT: usize = 1_500;

/// The number of different hashes of [`Bug::HashedFences`].
const HASHES: usize = 512;

/// Values above this are large.
const LARGE: usize = 1 << 20;

/// The size above which [`Bug::LargeLater`] stores a value separately.
const SIZEABLE: usize = 16 << 10;

fn is_large(value: Option<&str>, than: usize) -> bool {
    value.is_some_and(|value| value.len() > than)
}

/// A write, cas, delete or claim.
pub(super) struct Change<'a> {
    pub(super) verb: Verb,
    pub(super) res: String,
    pub(super) token: &'a Token,
    pub(super) holder: &'a str,
    /// For a cas: the expected value.
    expect: Option<Option<&'a str>>,
    /// The value to write; `None` for a claim, which writes nothing, and for a delete, which removes the value.
    pub(super) value: Option<&'a str>,
}

impl Reference {
    pub(super) fn perform(&self, visit: &mut Visit<'_>, op: &Op) -> Result<Answer, Gone> {
        visit.breathe();
        if self.has(Bug::ShedsAsStale) && visit.one_of(32) {
            return Ok(Answer::Stale { high: None });
        }
        let change = match op {
            Op::Read { res } => return self.perform_read(visit, &self.name(res)),
            Op::CheckedRead { res, token } => return self.perform_checked_read(visit, &self.name(res), token),
            Op::Batch { writes } => return self.perform_batch(visit, writes),
            Op::Write(write) => self.change_of(Verb::Write, write, None),
            Op::Claim { res, token, holder } => {
                Change { verb: Verb::Claim, res: self.name(res), token, holder, expect: None, value: None }
            }
            Op::Cas { res, token, holder, expect, value } => Change {
                verb: Verb::Cas,
                res: self.name(res),
                token,
                holder,
                expect: Some(expect.as_deref()),
                value: Some(value),
            },
            Op::Delete { res, token, holder } => {
                Change { verb: Verb::Delete, res: self.name(res), token, holder, expect: None, value: None }
            }
        };
        self.change(visit, &change)
    }

    pub(super) fn change_of<'a>(&self, verb: Verb, write: &'a Write, expect: Option<Option<&'a str>>) -> Change<'a> {
        let Write { res, token, holder, value } = write;
        Change { verb, res: self.name(res), token, holder, expect, value: Some(value) }
    }

    pub(super) fn name(&self, res: &str) -> String {
        match self.bug {
            Some(Bug::FoldsNames) => res.to_lowercase().replace("%2f", "/"),
            _ => res.to_owned(),
        }
    }

    /// The presented number; `Ok(None)` if there is none and a bug allows that.
    pub(super) fn number(
        &self,
        visit: &Visit<'_>,
        res: &str,
        token: &Token,
    ) -> Result<Result<Option<u64>, Answer>, Gone> {
        Ok(match (token, self.bug) {
            (Token::Number(number), _) if *number <= self.manifest.token_max => Ok(Some(*number)),
            (Token::Absent, Some(Bug::AbsentUnfenced)) => Ok(None),
            (Token::Absent, Some(Bug::AbsentAdopts)) => Ok(Some(self.known(visit, res)?.high.unwrap_or(0))),
            (Token::Text(text), Some(Bug::LenientTokens)) => Ok(Some(digits(text))),
            (Token::Both(first, second), Some(Bug::HighestOfTwo)) => Ok(Some(digits(first).max(digits(second)))),
            (Token::Absent, _) => Err(Answer::error("token-missing")),
            (Token::Number(_) | Token::Text(_) | Token::Both(..), _) => Err(Answer::error("token-invalid")),
        })
    }

    /// The record that decisions are based on.
    pub(super) fn known(&self, visit: &Visit<'_>, res: &str) -> Result<Record, Gone> {
        let found = visit.with(|disk, memory| {
            let stored = disk.get(res).cloned().unwrap_or_default();
            match self.bug {
                Some(Bug::MemoryOnly) => stored.with_fence_of(&memory.get(res).cloned().unwrap_or_default()),
                Some(Bug::AnsweredFirst | Bug::ForgetsUnused) => memory.get(res).cloned().unwrap_or(stored),
                Some(Bug::ProcessCache) => {
                    let cached = memory.entry(res.to_owned()).or_insert_with(|| stored.clone()).clone();
                    stored.with_fence_of(&cached)
                }
                Some(Bug::GlobalFence | Bug::HashedFences) => {
                    stored.with_fence_of(&disk.get(&self.shared_fence(res)).cloned().unwrap_or_default())
                }
                _ => stored,
            }
        })?;
        self.as_the_clock_says(visit, found)
    }

    /// The name of the record for a fence that several resources share.
    fn shared_fence(&self, res: &str) -> String {
        let hash = res.bytes().fold(7, |hash: usize, byte| (hash * 31 + usize::from(byte)) % HASHES);
        if self.has(Bug::HashedFences) { format!(" fence {hash}") } else { " fence".to_owned() }
    }

    /// Whether this write would be admitted now: a check that some bugs make too early.
    pub(super) fn looks_admitted(&self, write: &Write) -> bool {
        let change = self.change_of(Verb::Write, write, None);
        let mut admitted = false;
        self.visit(0, None, |visit| {
            if let Ok(Some(token)) = self.number(visit, &change.res, change.token)? {
                admitted = self.admits(&self.known(visit, &change.res)?, &change, token);
            }
            Ok(Answer::ok())
        });
        admitted
    }

    /// Performs a write that was checked elsewhere.
    pub(super) fn write_unchecked(&self, life: u64, write: &Write) -> Answer {
        let Some(token) = write.token.number() else { return Answer::error("token-invalid") };
        self.visit(0, Some(life), |visit| {
            let res = self.name(&write.res);
            let _rows = visit.lock(&BTreeSet::from([res.clone()]))?;
            let before = self.known(visit, &res)?;
            let mut after = before.clone();
            after.force(token, &write.holder);
            self.apply(&mut after, Verb::Write, token, &write.holder, Some(&write.value));
            self.store(visit, &res, &before, &after)?;
            Ok(Answer::Ok { value: None, high: after.high })
        })
    }

    /// Stores a record.
    pub(super) fn store(&self, visit: &mut Visit<'_>, res: &str, before: &Record, after: &Record) -> Result<(), Gone> {
        let after = &self.stamped(visit, before, after)?;
        let one = |record: &Record| [(res.to_owned(), record.clone())];
        match self.bug {
            Some(Bug::AnsweredFirst) => {
                return visit.with(|disk, memory| {
                    disk.append(memory);
                    memory.extend(one(after));
                });
            }
            Some(Bug::ForgetsUnused) if !after.used => return visit.with(|_, memory| memory.extend(one(after))),
            Some(Bug::ForgetsUnused) => visit.with(|_, memory| drop(memory.remove(res)))?,
            Some(Bug::MemoryFirst | Bug::ProcessCache | Bug::MemoryOnly) => {
                visit.with(|_, memory| memory.extend(one(after)))?;
            }
            Some(Bug::DirtyReads) => visit.with(|_, memory| memory.extend(one(after)))?,
            Some(Bug::TwoCommits) => {
                visit.sync();
                visit.put(one(&before.clone().with_value_of(after)))?;
            }
            Some(Bug::Eviction) => visit.evict(res, KEPT, |_| true)?,
            Some(Bug::TombstonesCollected) => visit.evict(res, KEPT, |record| record.value.is_none())?,
            _ => {}
        }
        visit.sync();
        match self.bug {
            Some(Bug::MemoryOnly) => visit.put(one(&Record::default().with_value_of(after))),
            Some(Bug::GlobalFence | Bug::HashedFences) => {
                let fence = Record::default().with_fence_of(after);
                visit.put([(res.to_owned(), after.clone()), (self.shared_fence(res), fence)])
            }
            Some(Bug::DeleteDropsFence) if after.value.is_none() && before.value.is_some() => {
                visit.put(one(&Record::default()))
            }
            Some(Bug::RemovedFirst) => {
                visit.with(|disk, _| disk.remove(res))?;
                visit.put(one(after))
            }
            _ => visit.put(one(after)),
        }
    }

    pub(super) fn change(&self, visit: &mut Visit<'_>, change: &Change<'_>) -> Result<Answer, Gone> {
        let token = match self.number(visit, &change.res, change.token)? {
            Ok(Some(token)) => token,
            Ok(None) => return self.unfenced(visit, change),
            Err(answer) => return Ok(answer),
        };
        if let Some(answer) = self.before_the_lock(visit, change, token)? {
            return Ok(answer);
        }
        // The record as seen before the lock was taken; correct code reads it only afterwards.
        let early = self.known(visit, &change.res)?;
        let Some(rows) = self.lock(visit, change)? else { return Ok(Answer::Stale { high: early.high }) };
        let before = if rows.is_some() { self.known(visit, &change.res)? } else { early.clone() };
        visit.breathe();
        let mut after = before.clone();
        let seen = match self.bug {
            Some(Bug::UsedTwice) => Record { used: before.high == early.high && early.used, ..before.clone() },
            _ => before.clone(),
        };
        let admitted = self.admits(&seen, change, token);
        if self.has(Bug::RefusedVisible) {
            visit.with(|_, memory| memory.remove(&change.res))?;
        }
        if !admitted {
            return self.refuse(visit, change, token, before);
        }
        let compared = if self.has(Bug::CasRaces) { &early } else { &before };
        if change.expect.is_some_and(|expect| compared.value.as_deref() != expect) {
            return Ok(Answer::Mismatch { current: Some(compared.value.clone()) });
        }
        self.apply(&mut after, change.verb, token, change.holder, change.value);
        let later = self.has(Bug::LargeLater) && is_large(change.value, SIZEABLE);
        let nothing = match change.verb {
            Verb::Claim => after == before || self.has(Bug::ClaimForgets),
            Verb::Delete => before.value.is_none() && self.has(Bug::DeleteOfNothing),
            _ => false,
        };
        if later {
            self.store(visit, &change.res, &before, &after.clone().with_value_of(&before))?;
        } else if !nothing {
            self.store(visit, &change.res, &before, &after)?;
        }
        drop(rows);
        if later {
            visit.sync();
            visit.with(|disk, _| disk.entry(change.res.clone()).or_default().value.clone_from(&after.value))?;
        }
        let value = (change.verb == Verb::Claim).then(|| after.value.clone());
        Ok(Answer::Ok { value, high: after.high })
    }

    pub(super) fn admits(&self, record: &Record, change: &Change<'_>, token: u64) -> bool {
        let unfenced = matches!(
            (self.bug, change.verb),
            (Some(Bug::UnfencedClaim), Verb::Claim)
                | (Some(Bug::UnfencedCas), Verb::Cas)
                | (Some(Bug::UnfencedDelete), Verb::Delete)
                | (Some(Bug::UnfencedBatch), Verb::Batch)
        );
        unfenced || self.rules().admit(record, change.verb, token, change.holder)
    }

    /// What some bugs do before taking the lock.
    fn before_the_lock(&self, visit: &Visit<'_>, change: &Change<'_>, token: u64) -> Result<Option<Answer>, Gone> {
        match self.bug {
            Some(Bug::MemoryFirst) => {
                let fence = visit.with(|_, memory| memory.get(&change.res).and_then(|record| record.high))?;
                Ok(fence.filter(|fence| token < *fence).map(|fence| Answer::Stale { high: Some(fence) }))
            }
            Some(Bug::RefusedVisible) if change.verb != Verb::Claim => {
                let value = change.value.map(str::to_owned);
                visit.with(|_, memory| memory.entry(change.res.clone()).or_default().value = value)?;
                Ok(None)
            }
            Some(Bug::LargeUnfenced) if is_large(change.value, LARGE) => {
                let record = Record { value: change.value.map(str::to_owned), ..self.known(visit, &change.res)? };
                visit.put([(change.res.clone(), record.clone())])?;
                Ok(Some(Answer::Ok { value: None, high: record.high }))
            }
            _ => Ok(None),
        }
    }

    /// Outer `None`: another operation holds the lock, and the caller does not wait. Inner `None`: it continues without
    /// the lock.
    #[allow(clippy::option_option, reason = "two different absences, told apart in one place")]
    fn lock<'s>(&self, visit: &Visit<'s>, change: &Change<'_>) -> Result<Option<Option<Rows<'s>>>, Gone> {
        let races = match self.bug {
            Some(Bug::CheckThenAct) => true,
            Some(Bug::ClaimRaces) => change.verb == Verb::Claim,
            _ => false,
        };
        if races {
            Ok(Some(None))
        } else if self.has(Bug::BusyIsStale) {
            Ok(visit.try_lock(&change.res)?.map(Some))
        } else {
            visit.lock(&BTreeSet::from([change.res.clone()])).map(|rows| Some(Some(rows)))
        }
    }

    pub(super) fn apply(&self, record: &mut Record, verb: Verb, token: u64, holder: &str, value: Option<&str>) {
        match self.bug {
            Some(Bug::AcceptAll | Bug::TextualOrder | Bug::FloatingPoint | Bug::SignedCast | Bug::ShortInteger)
                if record.high != Some(token) =>
            {
                record.force(token, holder)
            }
            Some(Bug::RatchetsDown) => record.force(token, holder),
            _ => record.raise(token, holder),
        }
        if verb == Verb::Claim {
            record.used |= self.has(Bug::ClaimUses);
        } else {
            record.used = true;
            record.value = value.map(str::to_owned);
        }
        if let (Some(Bug::LargeCut), Some(value)) = (self.bug, &mut record.value) {
            value.truncate(LARGE);
        }
    }

    fn refuse(
        &self,
        visit: &mut Visit<'_>,
        change: &Change<'_>,
        token: u64,
        mut record: Record,
    ) -> Result<Answer, Gone> {
        let high = record.high;
        match self.bug {
            Some(Bug::LargeFirst)
                if [change.value, record.value.as_deref()].iter().all(|value| is_large(*value, LARGE)) =>
            {
                record.value = change.value.map(str::to_owned);
                visit.put([(change.res.clone(), record)])?;
            }
            Some(Bug::RefusedButWritten) if change.verb != Verb::Claim => {
                record.value = change.value.map(str::to_owned);
                visit.put([(change.res.clone(), record)])?;
            }
            Some(Bug::RatchetsDown) => {
                record.force(token, change.holder);
                visit.put([(change.res.clone(), record)])?;
            }
            Some(Bug::ReportsPresented) => return Ok(Answer::Stale { high: Some(token) }),
            _ => {}
        }
        Ok(Answer::Stale { high })
    }
}

/// Parses a number as careless code does: the leading digits, zero if there are none, the maximum if there are too
/// many.
fn digits(text: &str) -> u64 {
    let text = text.trim().trim_start_matches('+');
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    match &text[..end] {
        "" => 0,
        digits => digits.parse().unwrap_or(u64::MAX),
    }
}
