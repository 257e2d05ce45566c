//! The engine `etcd`: any number of gateways over one etcd cluster.
//!
//! A commit is one transaction, which compares the revision that last changed each record and then puts and removes: one round
//! trip, and one entry in the log of the cluster. Loads are linearizable. A record's version is its revision and its place in
//! the commit. `docs/etcd.md` says how to run it.

mod compaction;
mod history;
mod keys;
mod reading;
mod settings;
mod transaction;
mod trouble;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_remote::ServerUrl;
use fencepost_remote::etcd::messages::{
    Compare, DeleteRangeRequest, Operation, PutRequest, RangeRequest, ResponseHeader, StatusRequest, TxnRequest,
    TxnResponse,
};
use fencepost_remote::etcd::{Channel, Trouble};
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use super::{EngineOpenError, EngineOptions, SCRATCH_PREFIX};
use crate::engine::{AsOf, Batch, Commit, Engine, EngineError, Limits, Loaded, Ownership, Scan, Scanned, Wanted};
use compaction::Compactor;
use history::{History, Unreadable};
use reading::found;
use settings::{Compaction, Settings};
use transaction::Transaction;
use trouble::{Fate, explained, fate};

/// A commit that takes longer is unknown. It is short, so that a member which hangs does not hold up writes for long.
const COMMIT_LIMIT: Duration = Duration::from_secs(5);

/// Removes what is under a prefix that was made for a check. Any other is refused.
pub async fn remove_scratch(url: &ServerUrl) -> Result<(), EngineOpenError> {
    let settings = Settings::read(url)?;
    let (Some((key, range_end)), true) = (settings.keys.all(), url.path.starts_with(SCRATCH_PREFIX)) else {
        return Err(settings.unusable(format!("the prefix {} was not made for a check; it stays", url.path)));
    };
    let channel = Channel::new(settings.cluster.clone());
    let all = Operation::DeleteRange(DeleteRangeRequest { key, range_end });
    let request = TxnRequest { success: vec![all.into()], ..TxnRequest::default() };
    let removed = channel.call(&request, OPEN_LIMIT, settings.max_request()).await;
    removed.map(|_| ()).map_err(|trouble| settings.unusable(explained(&trouble)))
}

/// The time limit of the first request.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Reads under way at once, at most. Each takes up to the memory of an answer.
const READS: usize = 8;

/// Comparisons that every batch has beside those of its commands: the history, the store's own record and the lane.
const OWN_RECORDS: usize = 3;

/// Commits under way. etcd writes those together that come together.
const LANES: usize = 4;

/// Records in an etcd cluster.
pub struct Etcd {
    settings: Settings,
    channel: Arc<Channel>,
    reads: Semaphore,
    /// The cluster that answers.
    cluster: u64,
    history: RwLock<History>,
    /// The latest revision that was answered.
    seen: Arc<AtomicI64>,
    /// Set when the records have another history than they had.
    fault: OnceLock<String>,
    _compactor: Option<Compactor>,
}

impl Etcd {
    /// Connects to a cluster, and notes in it that the records are there.
    pub async fn open(url: &ServerUrl, options: &EngineOptions) -> Result<Etcd, EngineOpenError> {
        let settings = Settings::read(url)?;
        let channel = Arc::new(Channel::new(settings.cluster.clone()));
        let Opened { history, cluster, revision } = first_look(&settings, &channel, options.make).await?;
        if history.cluster != cluster && !options.accept_history {
            return Err(settings.unusable(another_cluster(history.cluster, cluster)));
        }
        let seen = Arc::new(AtomicI64::new(revision));
        let compactor = match settings.compaction {
            Compaction::Gateway => Some(Compactor::start(channel.clone(), seen.clone())),
            Compaction::Server => None,
        };
        Ok(Etcd {
            settings,
            channel,
            reads: Semaphore::new(READS),
            cluster,
            history: RwLock::new(history),
            seen,
            fault: OnceLock::new(),
            _compactor: compactor,
        })
    }

    /// The latest revision that was answered. Whatever is asked for from now on is answered with this one or a later one.
    fn seen(&self) -> i64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Checks that an answer is of the same history as all before it, and returns its revision. `known` is the revision
    /// that was known when the request was sent.
    fn note(&self, header: Option<&ResponseHeader>, known: i64) -> Result<i64, Trouble> {
        let header = header.ok_or_else(|| Trouble::Unknown("its answer has no header".to_owned()))?;
        let why = if header.cluster_id != self.cluster {
            another_cluster(self.cluster, header.cluster_id)
        } else if header.revision < known {
            format!(
                "the cluster has lost writes that it had confirmed: it is at revision {}, and was at {known}. {ADVICE}",
                header.revision
            )
        } else {
            self.seen.fetch_max(header.revision, Ordering::AcqRel);
            return Ok(header.revision);
        };
        self.fail(&why);
        Err(Trouble::Unknown(why))
    }

    /// From now on, nothing is committed. The first reason stays.
    fn fail(&self, why: &str) {
        if self.fault.set(why.to_owned()).is_ok() {
            tracing::error!(cluster = %self.settings, "{why}");
        }
    }

    /// The outcome of a transaction that was answered.
    fn outcome(&self, answer: &TxnResponse, known: i64, history: &History) -> Result<Commit, Trouble> {
        let revision = self.note(answer.header.as_ref(), known)?;
        if answer.succeeded {
            return Ok(Commit::Done { first: history.version(revision, 0) });
        }
        let noted_by = answer.responses.first().and_then(found).map_or(0, |note| note.mod_revision);
        if noted_by == history.noted_by {
            return Ok(Commit::Conflict);
        }
        let why = format!(
            "the note about the history of the records was changed or removed: an administrator has run `fencepost restored`, or \
             somebody has removed keys of {}. Restart the gateway",
            self.settings
        );
        self.fail(&why);
        Ok(Commit::Unavailable(why))
    }

    /// The outcome of a transaction whose call failed.
    async fn failed(&self, trouble: &Trouble, transaction: &Transaction) -> Result<Commit, EngineError> {
        let unusable = |why: String| self.settings.unusable(why).to_string();
        match fate(trouble) {
            Fate::Nothing(why) => Ok(Commit::Unavailable(unusable(why))),
            Fate::TooLarge(why) => Ok(Commit::TooLarge(why)),
            Fate::Decided(why) => {
                let Some((key, revision)) = &transaction.witness else { return Err(EngineError(unusable(why))) };
                match self.read(|| self.changed_by(key)).await {
                    Ok(now) if now == *revision => Ok(Commit::Unavailable(unusable(why))),
                    Ok(_) | Err(_) => Err(EngineError(unusable(why))),
                }
            }
            Fate::Unknown(why) => Err(EngineError(unusable(why))),
        }
    }

    /// Replaces the note about the history.
    async fn change_history(&self) -> Result<(), Trouble> {
        let old = *self.history.read();
        let new = old.next(self.cluster);
        let key = self.settings.keys.history();
        let request = TxnRequest {
            compare: vec![Compare::changed_by(key.clone(), old.noted_by)],
            success: vec![Operation::Put(PutRequest { key, value: new.encode() }).into()],
            failure: Vec::new(),
        };
        let known = self.seen();
        let answer = self.channel.call(&request, COMMIT_LIMIT, self.answer_bytes()).await?;
        let noted_by = self.note(answer.header.as_ref(), known)?;
        if !answer.succeeded {
            return Err(Trouble::NotSent("another process has changed the history; run the command again".to_owned()));
        }
        *self.history.write() = new.noted(noted_by);
        Ok(())
    }
}

/// What the first answer says.
struct Opened {
    history: History,
    cluster: u64,
    revision: i64,
}

/// Reads the note about the history of the records, or makes it. Several gateways may try at once.
async fn first_look(settings: &Settings, channel: &Channel, make: bool) -> Result<Opened, EngineOpenError> {
    let failed = |trouble: Trouble| settings.unusable(explained(&trouble));
    let nonsense = || settings.unusable("its answer lacks a part of what was asked for");
    let key = settings.keys.history();
    // The id of the cluster is in every answer.
    let look = RangeRequest { key: key.clone(), ..RangeRequest::default() };
    let answer = channel.call(&look, OPEN_LIMIT, settings.max_request()).await.map_err(failed)?;
    let header = answer.header.ok_or_else(nonsense)?;
    let cluster = header.cluster_id;
    if let Some(note) = answer.kvs.first() {
        let history = decoded(settings, &note.value, note.mod_revision)?;
        return Ok(Opened { history, cluster, revision: header.revision });
    }
    if !make {
        return Err(settings.unusable("there is no store under this prefix; look at the path of the URL"));
    }
    let new = History::new(cluster);
    let request = TxnRequest {
        compare: vec![Compare::changed_by(key.clone(), 0)],
        success: vec![Operation::Put(PutRequest { key, value: new.encode() }).into()],
        failure: vec![Operation::Range(look).into()],
    };
    let answer = channel.call(&request, OPEN_LIMIT, settings.max_request()).await.map_err(failed)?;
    let revision = answer.header.as_ref().ok_or_else(nonsense)?.revision;
    let history = match answer.responses.first().and_then(found) {
        _ if answer.succeeded => new.noted(revision),
        Some(note) => decoded(settings, &note.value, note.mod_revision)?,
        None => return Err(nonsense()),
    };
    Ok(Opened { history, cluster, revision })
}

fn decoded(settings: &Settings, note: &[u8], noted_by: i64) -> Result<History, EngineOpenError> {
    History::decode(note, noted_by).map_err(|unreadable| match unreadable {
        Unreadable::Newer(found) => EngineOpenError::NewerFormat {
            path: settings.to_string(),
            found: u32::from(found),
            known: u32::from(Unreadable::KNOWN),
        },
        Unreadable::Nonsense => {
            settings.unusable("something else keeps its keys there; choose another prefix: etcd://host:port/prefix")
        }
    })
}

/// What an operator does about records with another history.
const ADVICE: &str = "Their fences may be too low. If this is the state to go on with, stop every gateway and run `fencepost \
    restored --yes`";

fn another_cluster(known: u64, found: u64) -> String {
    format!(
        "the records are from cluster {known:x}, and this is cluster {found:x}: a snapshot was restored, or the URL leads \
         elsewhere. {ADVICE}"
    )
}

#[async_trait]
impl Engine for Etcd {
    async fn load_wanted(&self, wanted: &[Wanted], spare: usize) -> Result<Loaded, EngineError> {
        let records = match wanted.is_empty() {
            true => Vec::new(),
            false => self.read(|| self.load_once(wanted, spare)).await?,
        };
        Ok(Loaded { records, as_of: AsOf(0) })
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned, EngineError> {
        self.read(|| self.scan_once(&scan)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Commit, EngineError> {
        if let Some(fault) = self.fault() {
            return Ok(Commit::Unavailable(fault));
        }
        let history = *self.history.read();
        let transaction = match Transaction::of(&batch, &self.settings, &history) {
            Ok(transaction) => transaction,
            Err(why) => return Ok(Commit::TooLarge(why)),
        };
        let known = self.seen();
        let answer = self.channel.call(&transaction.request, COMMIT_LIMIT, self.answer_bytes()).await;
        match answer.and_then(|answer| self.outcome(&answer, known, &history)) {
            Ok(commit) => Ok(commit),
            Err(trouble) => self.failed(&trouble, &transaction).await,
        }
    }

    fn fault(&self) -> Option<String> {
        self.fault.get().cloned()
    }

    fn ownership(&self) -> Ownership {
        Ownership::Shared
    }

    fn limits(&self) -> Limits {
        Limits { lanes: LANES, records: self.settings.max_ops - OWN_RECORDS, bytes: self.settings.max_bytes }
    }

    /// A load is linearizable: the members agree on it.
    fn load_is_proof(&self) -> bool {
        true
    }

    async fn server(&self) -> Option<String> {
        let answer = self.channel.call(&StatusRequest {}, OPEN_LIMIT, self.answer_bytes()).await.ok()?;
        Some(format!("etcd {}", answer.version))
    }

    fn position(&self) -> Option<u64> {
        Some(self.history.read().number(self.seen()))
    }

    /// Notes the cluster in which the records are now. Versions continue above all that may have been given out and lost.
    async fn accept_history(&self) -> Result<(), EngineError> {
        let unusable = |trouble: Trouble| EngineError(self.settings.unusable(explained(&trouble)).to_string());
        self.change_history().await.map_err(unusable)
    }
}
