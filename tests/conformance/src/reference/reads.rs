//! How the reference is read. The correct code is next to every named bug.

use std::collections::BTreeSet;

use super::record::Record;
use super::store::{Gone, Visit};
use super::{Bug, Reference};
use crate::answer::Answer;
use crate::manifest::Reads;
use crate::token::Token;

impl Reference {
    pub(super) fn perform_read(&self, visit: &mut Visit<'_>, res: &str) -> Result<Answer, Gone> {
        match self.bug {
            Some(Bug::DirtyReads) => {
                let mut record = self.known(visit, res)?;
                let shown = visit.with(|_, memory| memory.get(res).cloned())?;
                record = record.clone().with_value_of(&shown.unwrap_or(record));
                return Ok(done(&record));
            }
            Some(Bug::RefusedVisible) => {
                let record = self.known(visit, res)?;
                let shown = visit.with(|_, memory| memory.get(res).cloned())?;
                return Ok(done(&shown.map_or(record.clone(), |shown| record.with_value_of(&shown))));
            }
            Some(Bug::StaleReads) => return cached(visit, res, 16),
            // The same is correct where the manifest declares it.
            None if self.manifest.reads == Reads::StaleOk => return cached(visit, res, 2),
            _ => {}
        }
        let _rows = visit.lock(&BTreeSet::from([res.to_owned()]))?;
        Ok(done(&self.known(visit, res)?))
    }

    pub(super) fn perform_checked_read(&self, visit: &mut Visit<'_>, res: &str, token: &Token) -> Result<Answer, Gone> {
        let token = match self.number(visit, res, token)? {
            Ok(token) => token.unwrap_or(u64::MAX),
            Err(answer) => return Ok(answer),
        };
        let _rows = visit.lock(&BTreeSet::from([res.to_owned()]))?;
        let before = self.known(visit, res)?;
        visit.breathe();
        if self.rules().behind(&before, token) && !self.has(Bug::CheckedReadUnchecked) {
            return Ok(Answer::Stale { high: before.high });
        }
        if self.has(Bug::CheckedReadCached) {
            let cached = visit.with(|_, memory| memory.entry(res.to_owned()).or_insert(before.clone()).clone())?;
            return Ok(done(&before.with_value_of(&cached)));
        }
        if self.has(Bug::CheckedReadRaises) {
            let mut after = before.clone();
            after.raise(token, "nobody");
            self.store(visit, res, &before, &after)?;
        }
        Ok(done(&before))
    }
}

/// The record at the last refresh of the cache; about one read in `many` refreshes it.
fn cached(visit: &mut Visit<'_>, res: &str, many: u64) -> Result<Answer, Gone> {
    let fresh = visit.one_of(many);
    let record = visit.with(|disk, memory| {
        if fresh || !memory.contains_key(res) {
            memory.insert(res.to_owned(), disk.get(res).cloned().unwrap_or_default());
        }
        memory.get(res).cloned().unwrap_or_default()
    })?;
    Ok(done(&record))
}

fn done(record: &Record) -> Answer {
    Answer::Ok { value: Some(record.value.clone()), high: record.high }
}
