//! Calls under a lock: each carries token, holder and issuer, and a retry never applies twice.

use std::time::Duration;

use bytes::Bytes;
use fencepost_core::wire::{OutcomeAnswer, S3CredentialsAnswer, TxnAnswer, TxnRequest};
use fencepost_core::{IdempotencyKey, Key, ProblemDocument, ProblemKind};

use super::attempts::{Attempts, Conflicts};
use super::observer::{LockEvent, notify};
use super::{Guard, Loss};
use crate::error::{Cause, Error, ErrorKind};
use crate::random::{self, jittered};
use crate::transport::Missed;
use crate::{Precondition, ReadValue, WriteOptions, Written};

impl Guard {
    /// Writes a value.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<Written, Error> {
        self.put_if(key, value, Precondition::Always).await
    }

    /// Writes a value if a condition holds.
    pub async fn put_if(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        precondition: Precondition,
    ) -> Result<Written, Error> {
        let (key, value, options) = (named(key)?, value.into(), self.write(precondition)?);
        let attempts = Attempts::with(options.idempotency_key.as_ref(), Conflicts::of(&options.precondition));
        self.call(attempts, || self.client.gateway.try_put(&key, value.clone(), None, &options)).await
    }

    /// Removes a value; the fence stays.
    pub async fn delete(&self, key: &str) -> Result<Written, Error> {
        let (key, options) = (named(key)?, self.write(Precondition::Always)?);
        let attempts = Attempts::with(options.idempotency_key.as_ref(), Conflicts::of(&options.precondition));
        self.call(attempts, || self.client.gateway.try_delete(&key, &options)).await
    }

    /// Reads a value; `None` if the key has none. Refused if a newer holder has claimed the resource.
    pub async fn get(&self, key: &str) -> Result<Option<ReadValue>, Error> {
        let key = named(key)?;
        self.call(Attempts::harmless(), || self.client.gateway.read(&key, Some(&self.presented))).await
    }

    /// Credentials for the S3 front end that carry this lock's token. Call again before they expire. Nothing more is
    /// acquired: once the lock is taken over, the fence refuses them. Without a ttl, they last as long as the gateway
    /// allows.
    pub async fn s3_credentials(&self, ttl: Option<Duration>) -> Result<S3CredentialsAnswer, Error> {
        let issue = || self.client.gateway.s3_credentials(&self.resource, &self.presented, ttl);
        self.call(Attempts::harmless(), issue).await
    }

    /// The outcome of a call that ended in [`ErrorKind::UnknownOutcome`]; its key is in [`Error::unknown_outcome`]. It
    /// needs no lock, so it can be called after the lease was lost. `NotRecorded` is not final;
    /// [`abandon`](Guard::abandon) makes it so.
    pub async fn outcome(&self, key: &IdempotencyKey) -> Result<OutcomeAnswer, Error> {
        self.client.gateway.outcome(key).await
    }

    /// Ensures that such a call is never applied, unless it already has been; the answer reports which.
    pub async fn abandon(&self, key: &IdempotencyKey) -> Result<OutcomeAnswer, Error> {
        self.client.gateway.abandon(key).await
    }

    /// Applies a transaction atomically, under this lock's token.
    pub async fn transact(&self, transaction: TxnRequest) -> Result<TxnAnswer, Error> {
        Guard::transact_all(&[self], transaction).await
    }

    /// Applies a transaction atomically, under the tokens of several locks.
    pub async fn transact_all(guards: &[&Guard], mut transaction: TxnRequest) -> Result<TxnAnswer, Error> {
        let Some(first) = guards.first() else {
            return Err(Error::invalid("a transaction under no lock has no token"));
        };
        for guard in guards {
            if let Some(loss) = guard.loss() {
                return Err(Cause::LeaseLost(loss).into());
            }
            transaction.tokens.retain(|(resource, _)| *resource != guard.resource);
            transaction.tokens.push((guard.resource.clone(), guard.presented.clone().into()));
        }
        let once = new_key()?;
        // The conditions of a transaction may hold later, unlike a condition on a version that is gone.
        let attempts = Attempts::with(Some(&once), Conflicts::MayPass);
        let done = first.call(attempts, || first.client.gateway.try_transact(&transaction, Some(&once))).await;
        if let Some(problem) = done.as_ref().err().and_then(refusal) {
            guards.iter().skip(1).for_each(|guard| guard.refused(problem));
        }
        done
    }

    /// A refusal of our token ends the lease, whatever the lock service reports.
    fn refused(&self, problem: &ProblemDocument) {
        notify(self.client.options.observer.as_ref(), &self.resource, LockEvent::Refused(&problem.detail));
        let concerned = problem.resource.as_ref().is_none_or(|resource| *resource == self.resource)
            || problem.refusals.iter().any(|refusal| refusal.resource == self.resource);
        // A token spent by its one write, or one not claimed yet, does not mean that the lock is lost.
        let ends = !matches!(problem.kind(), Some(ProblemKind::Spent | ProblemKind::Unclaimed));
        if concerned && ends {
            self.standing.send_modify(|standing| {
                standing.lost.get_or_insert(Loss::TakenOver);
            });
        }
    }

    fn write(&self, precondition: Precondition) -> Result<WriteOptions, Error> {
        Ok(WriteOptions { credentials: Some(self.presented.clone()), precondition, idempotency_key: Some(new_key()?) })
    }

    /// Makes a call. Repeats it while the lock is surely held and the call is surely not applied or harmless to repeat.
    /// An outcome that was unknown once stays unknown until an answer settles it (T44).
    ///
    /// Not an `AsyncFn`: with one, a spawned task could not make calls.
    async fn call<T, E, F>(&self, mut attempts: Attempts<'_>, call: impl Fn() -> F) -> Result<T, Error>
    where
        E: Into<Missed>,
        F: Future<Output = Result<T, E>>,
    {
        if let Some(loss) = self.loss() {
            return Err(Cause::LeaseLost(loss).into());
        }
        let mut pause = Duration::from_millis(10);
        loop {
            let missed: Missed = match call().await {
                Ok(answer) => return Ok(answer),
                Err(missed) => missed.into(),
            };
            if let Some(problem) = refusal(&missed.error) {
                self.refused(problem);
            }
            if !missed.repeatable || pause >= self.validity() {
                return Err(attempts.conclude(missed).without_advice());
            }
            attempts.note(&missed.error);
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

fn named(key: &str) -> Result<Key, Error> {
    Key::new(key).map_err(|error| Error::invalid(format!("`{key}` is no key: {error}")))
}

/// The gateway's problem document, if it refused the token.
fn refusal(error: &Error) -> Option<&ProblemDocument> {
    error.problem().filter(|_| error.kind() == ErrorKind::Fenced)
}

/// A new key that identifies a request across its retries.
fn new_key() -> Result<IdempotencyKey, Error> {
    let number = || random::number().map_err(|error| Error::invalid(format!("there are no random numbers: {error}")));
    let key = IdempotencyKey::new(&format!("guard:{:016x}{:016x}", number()?, number()?));
    key.map_err(|error| Error::invalid(error.to_string()))
}
