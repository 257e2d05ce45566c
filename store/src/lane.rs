//! The record of one gateway's stream of commits on a shared engine.
//!
//! Every batch compares it, and writes the next number into it. If the answer to a commit was lost, the record says whether the
//! batch was applied, and a further commit keeps one that was not from ever applying. It also shows that an engine has
//! lost commits which it had confirmed: then its number is lower than the last one confirmed.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::engine::{AsOf, Batch, Change, Commit, Engine, EngineError, Purpose, Version, Wanted};
use crate::record::{RecordKey, decode_lane, encode_lane};

/// How long it is tried to find out what became of a commit before its callers are told that it is unknown.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How long it is tried again before each later commit, until it is known.
pub(crate) const PATIENCE_AGAIN: Duration = Duration::from_secs(1);

/// The pause before the engine is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// What became of a commit whose answer was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It was applied, and its first change got this version.
    Applied { first: Version },
    /// It was not applied, and never will be.
    Not,
    /// The engine did not say in time.
    Unknown,
    /// The engine has lost commits which it had confirmed.
    HistoryLost(String),
}

/// A lane, as its last confirmed commit left it.
pub(crate) struct Lane {
    key: RecordKey,
    number: u64,
    /// The version of the record; `None` before the first commit.
    version: Option<Version>,
    /// The commit whose answer was lost, until it is settled.
    doubt: Option<Doubt>,
    /// The answer to a commit was lost that compares the record as absent. If it is late, only the record keeps it out.
    is_first_in_doubt: bool,
}

/// A batch whose answer was lost.
struct Doubt {
    /// How many changes it has.
    changes: usize,
    /// What it means if the record has a later number: that of each commit that was sent to settle it.
    meanings: Vec<Settled>,
}

/// What the engine has of the lane.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found {
    number: u64,
    version: Option<Version>,
    as_of: AsOf,
}

impl Lane {
    /// A new lane. Its first commit makes its record.
    pub(crate) fn new() -> Result<Lane, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        let key = RecordKey::lane(id);
        Ok(Lane { key, number: 0, version: None, doubt: None, is_first_in_doubt: false })
    }

    /// Adds the lane to a batch. Its change comes last, so that the others keep their places.
    pub(crate) fn join(&self, batch: &mut Batch) {
        self.step(batch, self.number + 1, self.version);
    }

    fn step(&self, batch: &mut Batch, number: u64, over: Option<Version>) {
        batch.compare.push((self.key.clone(), over));
        batch.changes.push((self.key.clone(), Change::Put(encode_lane(number))));
    }

    /// A batch that changes only the lane.
    fn alone(&self, found: Found, number: u64) -> Batch {
        let (shared, compare, changes) = (Vec::new(), Vec::new(), Vec::new());
        let mut batch = Batch { as_of: found.as_of, shared, compare, changes, purpose: Purpose::Free };
        self.step(&mut batch, number, found.version);
        batch
    }

    /// A batch with this many changes, which the lane had joined, was committed.
    pub(crate) fn committed(&mut self, first: Version, changes: usize) {
        (self.number, self.version) = (self.number + 1, Some(last(first, changes)));
    }

    /// After a conflict: whether the engine still has all that it confirmed. Otherwise why not.
    pub(crate) async fn check(&self, engine: &dyn Engine) -> Result<(), String> {
        match self.look(engine).await {
            Ok(found) if self.is_as_confirmed(found) => Ok(()),
            Ok(found) if self.is_proved(engine, found).await => Err(self.lost(found)),
            // If the engine cannot be read, the next attempt fails as well.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn is_as_confirmed(&self, found: Found) -> bool {
        found.number == self.number && found.version == self.version
    }

    /// Whether this is what the engine has now. Where a load is no proof, a server that was replaced may have answered it;
    /// then a commit proves it. It writes the number that is there: a higher one could be taken for that of a batch.
    async fn is_proved(&self, engine: &dyn Engine, found: Found) -> bool {
        let proving = || engine.commit(self.alone(found, found.number));
        engine.load_is_proof() || matches!(proving().await, Ok(Commit::Done { .. }))
    }

    /// Whether it is not known yet what became of an earlier batch.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// The answer to a batch with this many changes, which the lane had joined, was lost.
    pub(crate) fn doubts(&mut self, changes: usize) {
        self.is_first_in_doubt |= self.version.is_none();
        self.doubt = Some(Doubt { changes, meanings: Vec::new() });
    }

    /// Finds out what became of the batch in doubt. Until that is known, the lane must not be used: what is late could
    /// be applied, and what the engine has confirmed before would not be compared any more.
    pub(crate) async fn settle(&mut self, engine: &dyn Engine, patience: Duration) -> Settled {
        let deadline = Instant::now() + patience;
        let Some(mut doubt) = self.doubt.take() else { return Settled::Not };
        while Instant::now() < deadline {
            match timeout_at(deadline, self.settle_once(engine, &mut doubt)).await {
                Ok(Some(settled)) => return settled,
                Ok(None) => tokio::time::sleep(PAUSE).await,
                Err(_) => {}
            }
        }
        self.doubt = Some(doubt);
        Settled::Unknown
    }

    /// One attempt. `None`: the engine did not answer, or something else was committed meanwhile.
    async fn settle_once(&mut self, engine: &dyn Engine, doubt: &mut Doubt) -> Option<Settled> {
        let found = self.look(engine).await.ok()?;
        let attempt = self.number + 1;
        let lost = || Settled::HistoryLost(self.lost(found));
        let meaning = match found.number.checked_sub(attempt) {
            None if self.is_as_confirmed(found) => Settled::Not,
            None => lost(),
            Some(0) => match found.version.and_then(|version| first(version, doubt.changes)) {
                Some(first) => Settled::Applied { first },
                None => lost(),
            },
            Some(step) => {
                let sent = usize::try_from(step - 1).ok().and_then(|at| doubt.meanings.get(at));
                sent.cloned().unwrap_or_else(lost)
            }
        };
        if matches!(meaning, Settled::HistoryLost(_)) {
            return self.is_proved(engine, found).await.then_some(meaning);
        }
        if found.number >= attempt && engine.load_is_proof() {
            (self.number, self.version) = (found.number, found.version);
            return Some(meaning);
        }
        // If this commits, nothing that was sent before it can be applied any more; and the engine that was asked is the one
        // that commits.
        doubt.meanings.push(meaning.clone());
        let number = attempt + doubt.meanings.len() as u64;
        match engine.commit(self.alone(found, number)).await {
            Ok(Commit::Done { first }) => {
                (self.number, self.version) = (number, Some(first));
                Some(meaning)
            }
            Ok(_) | Err(_) => None,
        }
    }

    async fn look(&self, engine: &dyn Engine) -> Result<Found, EngineError> {
        let loaded = engine.load_to_change(&[Wanted::bytes(self.key.clone())], 0).await?;
        let record = loaded.records.into_iter().next().flatten();
        let number = record.as_ref().map(|record| decode_lane(&record.bytes)).transpose();
        let number = number.map_err(|error| EngineError(error.to_string()))?.unwrap_or(0);
        Ok(Found { number, version: record.map(|record| record.version), as_of: loaded.as_of })
    }

    /// Removes the record at the end. A gateway that was killed leaves it behind, and so does one whose commit is in doubt or
    /// whose first one was: it may be late.
    pub(crate) async fn leave(&self, engine: &dyn Engine) {
        let Some(version) = self.version.filter(|_| !self.is_first_in_doubt && !self.is_in_doubt()) else { return };
        let batch = Batch {
            as_of: AsOf(0),
            shared: Vec::new(),
            compare: vec![(self.key.clone(), Some(version))],
            changes: vec![(self.key.clone(), Change::Delete)],
            purpose: Purpose::Free,
        };
        if let Err(error) = engine.commit(batch).await {
            tracing::debug!(%error, "the record of this gateway's commits stays");
        }
    }

    fn lost(&self, found: Found) -> String {
        format!(
            "the database has lost writes that it had confirmed: commit {} of this gateway is missing, and it has commit {}. Its \
             fences are too low now. Go back to the server that has these writes; or stop every gateway, and run `fencepost \
             restored --yes`",
            self.number, found.number
        )
    }
}

/// The version of the last of these changes.
fn last(first: Version, changes: usize) -> Version {
    Version(first.0 + changes as u64 - 1)
}

/// The version of the first of these changes, given that of the last.
fn first(last: Version, changes: usize) -> Option<Version> {
    (last.0 + 1).checked_sub(changes as u64).map(Version)
}
