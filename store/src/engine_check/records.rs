//! The records of one case, as one gateway uses them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::failure::{Checked, Failure};
use crate::engine::{
    AsOf, Batch, Change, Commit, Engine, Loaded, Ownership, Purpose, Record, Scan, Scanned, Version, Want, Wanted,
};
use crate::record::{RecordKey, value_prefix};

/// Conflicts in a row after which an engine does not work: a shared one may report a few without need.
const MOST_CONFLICTS: u64 = 100;

/// A change of the record with this name.
pub type Named = (String, Change);

/// A change that writes this text.
pub fn write(name: &str, text: impl AsRef<[u8]>) -> Named {
    (name.to_owned(), Change::Put(Bytes::copy_from_slice(text.as_ref())))
}

/// A change that removes the record.
pub fn remove(name: &str) -> Named {
    (name.to_owned(), Change::Delete)
}

/// The number in a record; 0 if it is absent.
pub fn number(record: Option<&Record>) -> Checked<u64> {
    let Some(record) = record else { return Ok(0) };
    let number = std::str::from_utf8(&record.bytes).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Failure::Broken(format!("a record has {:?}, which was never written", record.bytes)))
}

/// Whether it was done. Anything but a conflict is a failure.
pub fn is_done(commit: &Commit) -> Checked<bool> {
    match commit {
        Commit::Done { .. } => Ok(true),
        Commit::Conflict => Ok(false),
        Commit::NoSpace { free, floor } => {
            Err(Failure::Unusable(format!("{free} bytes are free, and {floor} must stay free")))
        }
        Commit::TooLarge(why) | Commit::Unavailable(why) => Err(Failure::Unusable(why.clone())),
    }
}

/// Records whose names start with a prefix that no other case uses.
#[derive(Clone)]
pub struct Records {
    engine: Arc<dyn Engine>,
    prefix: Arc<str>,
}

impl Records {
    /// The records of an engine under a prefix.
    pub fn new(engine: Arc<dyn Engine>, prefix: &str) -> Records {
        Records { engine, prefix: prefix.into() }
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The key of the record with this name.
    pub fn at(&self, name: &str) -> RecordKey {
        RecordKey::scanned(self.scan_bytes(name))
    }

    /// The start of the keys of records whose names start with this.
    pub fn scan_bytes(&self, start: &str) -> Vec<u8> {
        value_prefix(&format!("{}{start}", self.prefix))
    }

    /// Loads whole records.
    pub async fn load(&self, names: &[&str]) -> Checked<Loaded> {
        let keys: Vec<RecordKey> = names.iter().map(|name| self.at(name)).collect();
        let loaded = self.engine.load(&keys).await?;
        match loaded.records.len() == names.len() {
            true => Ok(loaded),
            false => Err(Failure::Broken(format!("E1: {} records for {} keys", loaded.records.len(), names.len()))),
        }
    }

    /// Loads records as far as they are wanted.
    pub async fn load_wanted(&self, wanted: &[(&str, Want)], spare: usize) -> Checked<Loaded> {
        let wanted: Vec<Wanted> =
            wanted.iter().map(|(name, want)| Wanted { key: self.at(name), want: *want }).collect();
        let loaded = self.engine.load_wanted(&wanted, spare).await?;
        let to_change = self.engine.load_to_change(&wanted, spare).await?;
        match loaded.records == to_change.records {
            true => Ok(loaded),
            false => Err(Failure::Broken("E6: the two ways to load give different records".to_owned())),
        }
    }

    /// Loads one record.
    pub async fn one(&self, name: &str) -> Checked<Option<Record>> {
        Ok(self.load(&[name]).await?.records.into_iter().next().flatten())
    }

    /// The text in a record.
    pub async fn text(&self, name: &str) -> Checked<Option<String>> {
        Ok(self.one(name).await?.map(|record| String::from_utf8_lossy(&record.bytes).into_owned()))
    }

    /// The number in a record; 0 if it is absent.
    pub async fn number(&self, name: &str) -> Checked<u64> {
        number(self.one(name).await?.as_ref())
    }

    /// A batch that compares the versions of these records with those that were loaded.
    pub fn batch(&self, loaded: &Loaded, names: &[&str], changes: Vec<Named>) -> Batch {
        let versions = loaded.records.iter().map(|record| record.as_ref().map(|record| record.version));
        Batch {
            as_of: loaded.as_of,
            shared: Vec::new(),
            compare: names.iter().map(|name| self.at(name)).zip(versions).collect(),
            changes: changes.into_iter().map(|(name, change)| (self.at(&name), change)).collect(),
            purpose: Purpose::Store,
        }
    }

    /// Commits, comparing the versions of these records with those that were loaded.
    pub async fn commit_after(&self, loaded: &Loaded, names: &[&str], changes: Vec<Named>) -> Checked<Commit> {
        Ok(self.engine.commit(self.batch(loaded, names, changes)).await?)
    }

    /// The same, and it must be done, because nothing differs.
    pub async fn must_commit(&self, loaded: &Loaded, names: &[&str], changes: Vec<Named>) -> Checked<Version> {
        for _ in 0..MOST_CONFLICTS {
            match self.commit_after(loaded, names, changes.clone()).await? {
                Commit::Done { first } => return Ok(first),
                // It had to wait too long for another gateway.
                Commit::Conflict if self.engine.ownership() == Ownership::Shared => {}
                Commit::Conflict => break,
                other => return is_done(&other).map(|_| Version(0)),
            }
        }
        Err(Failure::Broken(format!("a commit was a conflict, although nothing of {names:?} had changed")))
    }

    /// The same, and it must be a conflict.
    pub async fn must_conflict(&self, loaded: &Loaded, names: &[&str], changes: Vec<Named>, rule: &str) -> Checked {
        match is_done(&self.commit_after(loaded, names, changes).await?)? {
            false => Ok(()),
            true => {
                Err(Failure::Broken(format!("{rule}: a commit was done, although a record of {names:?} had changed")))
            }
        }
    }

    /// Commits, comparing as shared the record that was loaded first.
    pub async fn commit_sharing(&self, loaded: &Loaded, shared: &str, changes: Vec<Named>) -> Checked<bool> {
        let version = loaded.records.first().and_then(Option::as_ref).map(|record| record.version);
        let version = version.ok_or_else(|| Failure::Broken(format!("the record `{shared}` has vanished")))?;
        let mut batch = self.batch(loaded, &[], changes);
        batch.shared.push((self.at(shared), version));
        is_done(&self.engine.commit(batch).await?)
    }

    /// Commits without comparing anything.
    pub async fn commit(&self, changes: Vec<Named>) -> Checked<Version> {
        let nothing = Loaded { records: Vec::new(), as_of: AsOf(0) };
        for attempt in 0..MOST_CONFLICTS {
            let commit = self.commit_after(&nothing, &[], changes.clone()).await?;
            if let Commit::Done { first } = commit {
                return Ok(first);
            }
            is_done(&commit)?;
            tokio::time::sleep(Duration::from_millis(attempt)).await;
        }
        Err(Failure::Broken(format!("{MOST_CONFLICTS} conflicts in a row, and nothing was compared")))
    }

    /// A scan of everything under the prefix, without limits.
    pub fn under(&self, prefix: &str) -> Scan {
        let prefix = self.scan_bytes(prefix);
        Scan { from: prefix.clone(), inclusive: true, prefix, limit: usize::MAX, max_bytes: usize::MAX }
    }

    /// The names that a scan returns, and whether there are more.
    pub async fn names(&self, scan: Scan) -> Checked<(Vec<String>, bool)> {
        let Scanned { records, more } = self.engine.scan(scan).await?;
        let start = self.scan_bytes("").len();
        let name = |key: &[u8]| String::from_utf8_lossy(key.get(start..).unwrap_or_default()).into_owned();
        Ok((records.iter().map(|(key, _)| name(key)).collect(), more))
    }

    /// The names of all records that start with this.
    pub async fn all_names(&self, prefix: &str) -> Checked<Vec<String>> {
        Ok(self.names(self.under(prefix)).await?.0)
    }
}
