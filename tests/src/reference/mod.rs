//! A resource that is right, and its many ways to be wrong.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::answer::Answer;
use crate::manifest::{Equal, Kill, Manifest, Policy};
use crate::op::{Verb, Write};
use crate::resource::FencedResource;
use crate::subject::Hook;

/// A resource in memory that follows the model. Its memory survives a kill.
pub struct Reference {
    manifest: Manifest,
    records: Mutex<BTreeMap<String, Record>>,
}

#[derive(Clone, Debug, Default)]
struct Record {
    high: Option<u64>,
    used: bool,
    holder: Option<String>,
    value: Option<String>,
}

impl Reference {
    /// With all verbs, under this policy.
    pub fn new(policy: Policy, equal: Equal) -> Reference {
        let manifest = Manifest {
            caps: Verb::ALL.into_iter().collect(),
            policy,
            equal,
            kill: Kill::Everything,
            ..Manifest::default()
        };
        Reference { manifest, records: Mutex::default() }
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn same(&self, record: &Record, holder: &str) -> bool {
        self.manifest.equal == Equal::Any || record.holder.as_deref().is_none_or(|found| found == holder)
    }

    fn admits(&self, record: &Record, token: u64, holder: &str) -> bool {
        match record.high.map(|high| token.cmp(&high)) {
            None | Some(std::cmp::Ordering::Greater) => true,
            Some(std::cmp::Ordering::Less) => false,
            Some(std::cmp::Ordering::Equal) => {
                self.same(record, holder) && (self.manifest.policy == Policy::Ge || !record.used)
            }
        }
    }
}

fn stale(record: &Record) -> Answer {
    Answer::Stale { high: record.high }
}

fn done(record: &Record) -> Answer {
    Answer::Ok { value: Some(record.value.clone()), high: record.high }
}

impl Record {
    fn raise(&mut self, token: u64, holder: &str) {
        if self.high.is_none_or(|high| token > high) {
            *self =
                Record { high: Some(token), used: false, holder: Some(holder.to_owned()), value: self.value.take() };
        } else if self.holder.is_none() {
            self.holder = Some(holder.to_owned());
        }
    }

    fn set(&mut self, token: u64, holder: &str, value: Option<&str>) {
        self.raise(token, holder);
        self.used = true;
        self.value = value.map(str::to_owned);
    }
}

impl FencedResource for Reference {
    fn manifest(&self) -> Manifest {
        self.manifest.clone()
    }

    fn write(&self, res: &str, token: u64, holder: &str, value: &str) -> Answer {
        let mut records = self.records();
        let record = records.entry(res.to_owned()).or_default();
        if !self.admits(record, token, holder) {
            return stale(record);
        }
        record.set(token, holder, Some(value));
        Answer::Ok { value: None, high: record.high }
    }

    fn read(&self, res: &str) -> Answer {
        done(&self.records().get(res).cloned().unwrap_or_default())
    }

    fn checked_read(&self, res: &str, token: u64) -> Answer {
        let record = self.records().get(res).cloned().unwrap_or_default();
        if record.high.is_some_and(|high| token < high) { stale(&record) } else { done(&record) }
    }

    fn claim(&self, res: &str, token: u64, holder: &str) -> Answer {
        let mut records = self.records();
        let record = records.entry(res.to_owned()).or_default();
        let behind = record.high.is_some_and(|high| token < high);
        if behind || (record.high == Some(token) && !self.same(record, holder)) {
            return stale(record);
        }
        record.raise(token, holder);
        done(record)
    }

    fn cas(&self, res: &str, token: u64, holder: &str, expect: Option<&str>, value: &str) -> Answer {
        let mut records = self.records();
        let record = records.entry(res.to_owned()).or_default();
        if !self.admits(record, token, holder) {
            return stale(record);
        }
        if record.value.as_deref() != expect {
            return Answer::Mismatch { current: Some(record.value.clone()) };
        }
        record.set(token, holder, Some(value));
        Answer::Ok { value: None, high: record.high }
    }

    fn delete(&self, res: &str, token: u64, holder: &str) -> Answer {
        let mut records = self.records();
        let record = records.entry(res.to_owned()).or_default();
        if !self.admits(record, token, holder) {
            return stale(record);
        }
        record.set(token, holder, None);
        Answer::Ok { value: None, high: record.high }
    }

    fn batch(&self, writes: &[Write]) -> Answer {
        let mut records = self.records();
        let mut changed = records.clone();
        for write in writes {
            let Some(token) = write.token.number() else { return Answer::error("bad-token") };
            let record = changed.entry(write.res.clone()).or_default();
            if !self.admits(record, token, &write.holder) {
                return Answer::Stale { high: None };
            }
            record.set(token, &write.holder, Some(&write.value));
        }
        *records = changed;
        Answer::ok()
    }

    fn has_hook(&self, hook: Hook) -> bool {
        matches!(hook, Hook::Start | Hook::Ready | Hook::Kill | Hook::Restart | Hook::Pause | Hook::Resume)
    }

    fn hook(&self, _: Hook) -> Result<(), String> {
        Ok(())
    }
}
