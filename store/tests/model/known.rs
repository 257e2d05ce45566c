//! What a client knows so far: versions and leases.

use std::collections::{HashMap, HashSet};

use crate::testbed::Outcome;
use fencepost_store::engine::Version;
use fencepost_store::record::LeaseId;
use fencepost_store::{Condition, Done};

use super::command::{GrantId, When, WriteId};
use super::expected::{Expected, Left};
use crate::testbed::Ended;

#[derive(Default)]
pub(crate) struct Known {
    versions: HashMap<WriteId, Version>,
    seen: HashSet<Version>,
    leases: HashMap<GrantId, LeaseId>,
    /// The version of each key before the current group.
    pub(crate) current: HashMap<String, Version>,
}

impl Known {
    pub(crate) fn version(&self, id: WriteId) -> Option<Version> {
        self.versions.get(&id).copied()
    }

    pub(crate) fn before(&self, key: &str) -> Option<Version> {
        self.current.get(key).copied()
    }

    /// The lease of a grant; an invalid one if it was never granted.
    pub(crate) fn lease(&self, id: GrantId) -> LeaseId {
        self.leases.get(&id).copied().unwrap_or(LeaseId([0; 16]))
    }

    /// A condition in terms of the store.
    pub(crate) fn condition(&self, key: &str, when: When) -> Condition {
        match when {
            When::Always => Condition::Always,
            When::Absent => Condition::Absent,
            When::Exists => Condition::Exists,
            When::Unchanged => Condition::AnyOf(self.before(key).into_iter().collect()),
            When::Once(id) => Condition::AnyOf(self.version(id).into_iter().collect()),
            When::Is(number) => Condition::Equals(number.to_string().into()),
            When::AtLeast(number) => Condition::AtLeast(number),
            When::AtMost(number) => Condition::AtMost(number),
        }
    }

    /// Records new versions and leases from an answer, and fails if a version was seen before (E3).
    pub(crate) fn learn(&mut self, ended: &Ended, expected: &Expected) -> Result<(), String> {
        match (ended, expected) {
            (Ok(Outcome::Applied(applied)), Expected::Applied { put: Some(id), .. }) => {
                self.learn_version(*id, applied.version.ok_or("a put without a version")?)?;
            }
            (Ok(Outcome::Transacted(all)), Expected::Transacted { results, fresh: true, .. }) => {
                for ((_, done), (_, left)) in all.results.iter().zip(results) {
                    if let (Done::Put(version), Left::Put(id)) | (Done::Sum(version, _), Left::Sum(id, _)) =
                        (done, left)
                    {
                        self.learn_version(*id, *version)?;
                    }
                }
            }
            (Ok(Outcome::Granted(grant)), Expected::Granted { id, .. }) => {
                self.leases.entry(*id).or_insert(grant.lease);
            }
            _ => {}
        }
        Ok(())
    }

    fn learn_version(&mut self, id: WriteId, version: Version) -> Result<(), String> {
        self.versions.insert(id, version);
        if self.seen.insert(version) { Ok(()) } else { Err(format!("{version:?} was used before")) }
    }
}
