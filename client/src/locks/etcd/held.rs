//! A key with its own lease: what a holder or a waiter has in etcd.

use std::time::Duration;

use super::calls::{Calls, Trouble, patience};
use super::wire::{created_by, delete, get};
use crate::locks::{Kept, Lease, LockError};

/// How often a renewal is repeated because the cluster has a new leader.
const LEADERS: usize = 3;

/// The message for a key without a lease, which can exist only for a short time.
const CHANGING: &str = "it is ending the lease, or has a new leader that does not know of it yet; ask again";

/// A key that was created by this revision, under this lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) lease: i64,
    pub(super) key: String,
    /// Its `create_revision`: the number of the acquisition.
    pub(super) revision: i64,
    pub(super) ttl: Duration,
}

impl Held {
    /// Parses the handle of a lease.
    pub(super) fn of(lease: &Lease) -> Result<Held, LockError> {
        let wrong = || LockError::Invalid(format!("`{}` is not the handle of a lock in etcd", lease.handle));
        let (id, key) = lease.handle.split_once(':').ok_or_else(wrong)?;
        let id = i64::from_str_radix(id, 16).map_err(|_| wrong())?;
        let revision = i64::try_from(lease.number.get()).map_err(|_| wrong())?;
        Ok(Held { lease: id, key: key.to_owned(), revision, ttl: lease.ttl })
    }

    /// The text form, which is enough for another process.
    pub(super) fn handle(&self) -> String {
        format!("{:016x}:{}", self.lease, self.key)
    }

    fn limit(&self) -> Duration {
        patience(self.ttl)
    }

    /// Renews the lease for its ttl from now, and reads the key afterwards.
    ///
    /// Answers about a lease come from the leader alone: a leader that was deposed without knowing it still renews
    /// leases, and a new leader may not know of a lease yet. A read is answered by a majority. So the read comes
    /// second: the key decides whether the lock is lost, and a renewal counts only if the leader is still the same.
    pub(super) async fn renew(&self, calls: &Calls) -> Result<Kept, LockError> {
        for _ in 0..LEADERS {
            let kept = calls.keep_alive(self.lease, self.limit()).await.map_err(|trouble| calls.error(trouble))?;
            let (exists, term) = self.exists(calls).await.map_err(|trouble| calls.error(trouble))?;
            if !exists {
                return Ok(Kept::Lost);
            }
            if kept.ttl <= 0 || kept.header.raft_term != term {
                continue;
            }
            if u64::try_from(kept.ttl) == Ok(self.ttl.as_secs()) {
                return Ok(Kept::Kept);
            }
            return Err(LockError::Invalid(format!(
                "this lease was granted for {} s, and etcd cannot make that {} s; acquire the lock anew with that ttl",
                kept.ttl,
                self.ttl.as_secs_f64()
            )));
        }
        Err(calls.error(Trouble::Unreachable(CHANGING.into())))
    }

    /// Checks that the key exists and the lease is alive.
    pub(super) async fn verify(&self, calls: &Calls) -> Result<Kept, LockError> {
        let lease = calls.time_to_live(self.lease, self.limit()).await.map_err(|trouble| calls.error(trouble))?;
        let (exists, _) = self.exists(calls).await.map_err(|trouble| calls.error(trouble))?;
        match exists {
            false => Ok(Kept::Lost),
            // Less than a second left is reported as 0.
            true if lease.ttl >= 0 => Ok(Kept::Kept),
            true => Err(calls.error(Trouble::Unreachable(CHANGING.into()))),
        }
    }

    /// Whether the key exists, and the current raft term.
    async fn exists(&self, calls: &Calls) -> Result<(bool, i64), Trouble> {
        let answer = calls.txn(&[created_by(&self.key, self.revision)], &[get(&self.key)], &[], self.limit()).await?;
        Ok((answer.succeeded, answer.header.raft_term))
    }

    /// Deletes the key if it is this one, and revokes the lease.
    pub(super) async fn release(&self, calls: &Calls) -> Result<(), LockError> {
        let ours = created_by(&self.key, self.revision);
        calls.txn(&[ours], &[delete(&self.key)], &[], self.limit()).await.map_err(|trouble| calls.error(trouble))?;
        if let Err(trouble) = calls.revoke(self.lease, self.limit()).await {
            tracing::debug!(?trouble, "a lease without a key could not be ended; it ends with its ttl");
        }
        Ok(())
    }
}
