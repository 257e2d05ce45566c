//! How the reference applies a batch: all of it or nothing, and how each bug breaks that.

use std::collections::BTreeMap;

use super::record::Record;
use super::serve::Change;
use super::store::{Gone, Visit};
use super::{Bug, Reference};
use crate::answer::Answer;
use crate::op::{Verb, Write};

impl Reference {
    pub(super) fn perform_batch(&self, visit: &mut Visit<'_>, writes: &[Write]) -> Result<Answer, Gone> {
        let changes: Vec<Change<'_>> = writes.iter().map(|write| self.change_of(Verb::Batch, write, None)).collect();
        let mut tokens = Vec::with_capacity(changes.len());
        for change in &changes {
            match self.number(visit, &change.res, change.token)? {
                Ok(token) => tokens.push(token),
                Err(answer) => return Ok(answer),
            }
        }
        let names: Vec<String> = changes.iter().map(|change| change.res.clone()).collect();
        let rows = match self.bug {
            Some(Bug::CheckThenAct) => Vec::new(),
            Some(Bug::LockOrder) => visit.lock_in_order(&names)?,
            _ => vec![visit.lock(&names.iter().cloned().collect())?],
        };
        let mut before = BTreeMap::new();
        for name in &names {
            before.insert(name.clone(), self.known(visit, name)?);
        }
        visit.breathe();
        let mut after = before.clone();
        for (change, token) in changes.iter().zip(tokens) {
            let checked = if self.has(Bug::BatchChecksOnce) { &before } else { &after };
            let seen = checked.get(&change.res).cloned().unwrap_or_default();
            let Some(record) = after.get_mut(&change.res) else { continue };
            let Some(token) = token else {
                record.value = change.value.map(str::to_owned);
                continue;
            };
            if !self.admits(&seen, change, token) {
                return self.refuse_batch(visit, writes, &before, after);
            }
            self.apply(record, change.verb, token, change.holder, change.value);
        }
        if let (Some(Bug::BatchLosesLast), Some(last)) = (self.bug, names.last()) {
            after.remove(last);
        }
        if self.has(Bug::TornBatch) {
            drop(rows);
            for (name, record) in after {
                visit.put([(name, record)])?;
                visit.sync();
            }
            return Ok(Answer::ok());
        }
        self.store_batch(visit, &before, after)?;
        drop(rows);
        Ok(Answer::ok())
    }

    fn store_batch(
        &self,
        visit: &mut Visit<'_>,
        before: &BTreeMap<String, Record>,
        after: BTreeMap<String, Record>,
    ) -> Result<(), Gone> {
        let at_once = match self.bug {
            None => true,
            Some(Bug::BatchInParts) => false,
            // Bugs that keep fences elsewhere do so here as well.
            Some(
                Bug::MemoryOnly
                | Bug::AnsweredFirst
                | Bug::MemoryFirst
                | Bug::ForgetsUnused
                | Bug::ProcessCache
                | Bug::GlobalFence
                | Bug::HashedFences
                | Bug::DirtyReads
                | Bug::Eviction
                | Bug::TombstonesCollected
                | Bug::ClockExpiry
                | Bug::ClockOrder,
            ) => false,
            Some(_) => true,
        };
        if at_once {
            visit.sync();
            return visit.put(after);
        }
        for (name, record) in &after {
            let stored = before.get(name).cloned().unwrap_or_default();
            self.store(visit, name, &stored, record)?;
        }
        Ok(())
    }

    /// Refuses a batch: nothing changes, and no fence rises.
    fn refuse_batch(
        &self,
        visit: &mut Visit<'_>,
        writes: &[Write],
        before: &BTreeMap<String, Record>,
        after: BTreeMap<String, Record>,
    ) -> Result<Answer, Gone> {
        match self.bug {
            Some(Bug::PartialBatch) => visit.put(after)?,
            Some(Bug::RefusedButWritten) => {
                let written = writes.iter().map(|write| {
                    let name = self.name(&write.res);
                    let record = before.get(&name).cloned().unwrap_or_default();
                    (name, Record { value: Some(write.value.clone()), ..record })
                });
                visit.put(written)?;
            }
            Some(Bug::RefusedBatchRaises) => {
                let mut raised = before.clone();
                for write in writes {
                    if let (Some(record), Some(token)) = (raised.get_mut(&self.name(&write.res)), write.token.number())
                    {
                        record.raise(token, &write.holder);
                    }
                }
                visit.put(raised)?;
            }
            _ => {}
        }
        Ok(Answer::Stale { high: None })
    }
}
