//! Engines with one mistake at a time. A check that does not find its mistake proves nothing about other engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_store::engine::{
    Batch, Commit, Engine, EngineError, Loaded, Ownership, Record, Scan, Scanned, Version, Wanted,
};
use fencepost_store::engine_check::{Check, Failure, all};
use fencepost_store::engines::memory::Memory;
use fencepost_store::record::RecordKey;

use super::bench::Bench;
use super::mutants::assert_check_finds;

/// The time for stress.
const STRESS: Duration = Duration::from_secs(5);

/// How long a commit whose answer was lost is on its way.
const LATE: Duration = Duration::from_millis(20);

/// Versions are given again after this many.
const PERIOD: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// None: answers are lost, and what was sent is applied late if it still holds.
    LosesAnswers,
    /// One of the compared records is not compared.
    LosesACompare,
    /// Versions begin anew.
    ReusesVersions,
    /// What was sent is applied late, whatever happened since.
    AppliesLate,
}

/// An engine that several gateways share.
struct Wrong {
    memory: Memory,
    mistake: Mistake,
    commits: AtomicU64,
    /// Held while versions are translated.
    one_by_one: tokio::sync::Mutex<()>,
}

impl Wrong {
    fn check(mistake: Mistake) -> Check {
        let (commits, one_by_one) = (AtomicU64::new(0), tokio::sync::Mutex::default());
        let wrong = Wrong { memory: Memory::new(Ownership::Shared), mistake, commits, one_by_one };
        let engine: Arc<dyn Engine> = Arc::new(wrong);
        Check::new([engine.clone(), engine.clone(), engine], STRESS)
    }

    fn shown(&self, version: Version) -> Version {
        match self.mistake {
            Mistake::ReusesVersions => Version(version.0 % PERIOD + 1),
            _ => version,
        }
    }

    fn shown_record(&self, record: Record) -> Record {
        Record { version: self.shown(record.version), ..record }
    }

    /// Replaces versions as they were shown by those that are stored, if they seem to be the same.
    async fn stored(&self, batch: &mut Batch) -> Result<(), EngineError> {
        let keys: Vec<RecordKey> = batch.compare.iter().map(|(key, _)| key.clone()).collect();
        let records = self.memory.load(&keys).await?.records;
        for ((_, compared), record) in batch.compare.iter_mut().zip(records) {
            let found = record.map(|record| record.version);
            if found.map(|found| self.shown(found)) == *compared {
                *compared = found;
            }
        }
        Ok(())
    }
}

/// Whether it is the record that tells what became of a commit.
fn is_lane(key: &RecordKey) -> bool {
    key.as_bytes().first() == Some(&b'c')
}

#[async_trait]
impl Engine for Wrong {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        let Loaded { records, as_of } = self.memory.load_wanted(wanted, spare).await?;
        let records = records.into_iter().map(|record| record.map(|record| self.shown_record(record)));
        Ok(Loaded { records: records.collect(), as_of })
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        let Scanned { records, more } = self.memory.scan(scan).await?;
        let records = records.into_iter().map(|(key, record)| (key, self.shown_record(record))).collect();
        Ok(Scanned { records, more })
    }

    async fn commit(&self, mut batch: Batch) -> Result<Commit, EngineError> {
        let number = self.commits.fetch_add(1, Ordering::Relaxed);
        match self.mistake {
            Mistake::LosesACompare if number.is_multiple_of(3) => {
                if let Some(at) = batch.compare.iter().position(|(key, _)| !is_lane(key)) {
                    batch.compare.remove(at);
                }
            }
            Mistake::ReusesVersions => {
                let _alone = self.one_by_one.lock().await;
                self.stored(&mut batch).await?;
                let commit = self.memory.commit(batch).await?;
                return Ok(match commit {
                    Commit::Done { first } => Commit::Done { first: self.shown(first) },
                    other => other,
                });
            }
            // A commit of the lane alone settles another one.
            Mistake::LosesAnswers | Mistake::AppliesLate if number.is_multiple_of(3) && batch.changes.len() > 1 => {
                if self.mistake == Mistake::AppliesLate {
                    batch.compare.clear();
                    batch.changes.retain(|(key, _)| !is_lane(key));
                }
                let late = self.memory.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(LATE * u32::from(number.is_multiple_of(2))).await;
                    late.commit(batch).await
                });
                return Err(EngineError("the answer was lost".to_owned()));
            }
            _ => {}
        }
        self.memory.commit(batch).await
    }

    fn fault(&self) -> Option<String> {
        None
    }

    fn ownership(&self) -> Ownership {
        Ownership::Shared
    }

    fn position(&self) -> Option<u64> {
        None
    }
}

/// Runs a case that must pass.
async fn passes(check: &Check, name: &str) -> Result<String, Failure> {
    let case = all().find(|case| case.name == name).expect("there is a case of this name");
    check.run_case(case, 0).await.result
}

pub(crate) async fn a_shared_engine_that_loses_answers_passes(_: Bench) {
    let check = Wrong::check(Mistake::LosesAnswers);
    for name in ["lost_answers_are_settled", "commits_have_one_order"] {
        let said = passes(&check, name).await.unwrap();
        println!("{said}");
    }
}

pub(crate) async fn a_compare_that_is_lost_is_found(_: Bench) {
    let check = Wrong::check(Mistake::LosesACompare);
    assert_check_finds(&check, "commits_have_one_order").await;
    assert_check_finds(&check, "e2_no_increment_is_lost").await;
    assert_check_finds(&check, "e2_compare_covers_absent_records").await;
}

pub(crate) async fn versions_that_are_given_again_are_found(_: Bench) {
    assert_check_finds(&Wrong::check(Mistake::ReusesVersions), "commits_have_one_order").await;
}

pub(crate) async fn a_commit_that_is_applied_after_it_was_settled_is_found(_: Bench) {
    assert_check_finds(&Wrong::check(Mistake::AppliesLate), "lost_answers_are_settled").await;
}
