//! Calls under a lock: token, holder and issuer go with each of them, and a retry never applies twice.

use std::time::Duration;

use bytes::Bytes;
use fencepost_core::wire::{OutcomeAnswer, S3CredentialsAnswer, TxnAnswer, TxnRequest};
use fencepost_core::{IdempotencyKey, Key, ProblemDocument, ProblemKind};

use super::attempts::{Attempts, Conflicts};
use super::observer::{LockEvent, tell};
use super::{Guard, Loss};
use crate::random::{self, jittered};
use crate::transport::Missed;
use crate::{CallError, Precondition, ReadValue, WriteOptions, Written};

/// Why a call under a lock failed.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The lease was lost before the call was made; nothing was sent.
    #[error("{0}; nothing was sent")]
    Lost(Loss),
    /// Refused by the fence: a newer holder has been here, and nothing was applied. Stop.
    #[error("{}", .0.detail)]
    Fenced(Box<ProblemDocument>),
    /// Everything else.
    #[error(transparent)]
    Call(CallError),
}

impl Guard {
    /// Writes a value.
    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<Written, GuardError> {
        self.put_if(key, value, Precondition::Always).await
    }

    /// Writes a value if a condition holds.
    pub async fn put_if(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        precondition: Precondition,
    ) -> Result<Written, GuardError> {
        let (key, value, options) = (named(key)?, value.into(), self.write(precondition)?);
        let attempts = Attempts::with(options.once.as_ref(), Conflicts::of(&options.precondition));
        self.call(attempts, || self.locks.gateway.try_put(&key, value.clone(), None, &options)).await
    }

    /// Removes a value; the fence stays.
    pub async fn delete(&self, key: &str) -> Result<Written, GuardError> {
        let (key, options) = (named(key)?, self.write(Precondition::Always)?);
        let attempts = Attempts::with(options.once.as_ref(), Conflicts::of(&options.precondition));
        self.call(attempts, || self.locks.gateway.try_delete(&key, &options)).await
    }

    /// Reads a value; refused if somebody newer has been here.
    pub async fn get(&self, key: &str) -> Result<ReadValue, GuardError> {
        let key = named(key)?;
        self.call(Attempts::harmless(), || self.locks.gateway.read(&key, Some(&self.presented))).await
    }

    /// Credentials for the S3 face, which carry this lock's token; again whenever they are about to expire. Nothing is
    /// acquired for it: once the lock is taken over, the fence refuses. Without a time they last as long as the gateway
    /// allows.
    pub async fn s3_credentials(&self, ttl: Option<Duration>) -> Result<S3CredentialsAnswer, GuardError> {
        let issue = || self.locks.gateway.s3_credentials(&self.resource, &self.presented, ttl);
        self.call(Attempts::harmless(), issue).await
    }

    /// What became of a call that ended in [`CallError::Unknown`], whose key is in the error. Needs no lock: it may be
    /// asked after the lease was lost. `NotRecorded` is not final, [`abandon`](Guard::abandon) makes it so.
    pub async fn outcome(&self, key: &IdempotencyKey) -> Result<OutcomeAnswer, CallError> {
        self.locks.gateway.outcome(key).await
    }

    /// Makes sure that such a call is never applied, unless it has been; the answer says which.
    pub async fn abandon(&self, key: &IdempotencyKey) -> Result<OutcomeAnswer, CallError> {
        self.locks.gateway.abandon(key).await
    }

    /// Does everything or nothing, under this lock's token.
    pub async fn transact(&self, transaction: TxnRequest) -> Result<TxnAnswer, GuardError> {
        Guard::transact_all(&[self], transaction).await
    }

    /// Does everything or nothing, under the tokens of several locks.
    pub async fn transact_all(guards: &[&Guard], mut transaction: TxnRequest) -> Result<TxnAnswer, GuardError> {
        let Some(first) = guards.first() else {
            return Err(GuardError::Call(CallError::Failed("a transaction under no lock has no token".into())));
        };
        for guard in guards {
            if let Some(loss) = guard.loss() {
                return Err(GuardError::Lost(loss));
            }
            transaction.tokens.retain(|(resource, _)| *resource != guard.resource);
            transaction.tokens.push((guard.resource.clone(), guard.presented.clone().into()));
        }
        let once = new_key()?;
        // Conditions of a transaction may hold later, unlike a version that is gone.
        let attempts = Attempts::with(Some(&once), Conflicts::MayPass);
        let done = first.call(attempts, || first.locks.gateway.try_transact(&transaction, Some(&once))).await;
        if let Err(GuardError::Fenced(problem)) = &done {
            guards.iter().skip(1).for_each(|guard| guard.refused(problem));
        }
        done
    }

    /// A refusal of our token is the end of the lease, whatever the lock service says.
    fn refused(&self, problem: &ProblemDocument) {
        tell(self.locks.options.observer.as_ref(), &self.resource, LockEvent::Refused(&problem.detail));
        let concerned = problem.resource.as_ref().is_none_or(|resource| *resource == self.resource)
            || problem.refusals.iter().any(|refusal| refusal.resource == self.resource);
        // One write per token leaves the lock as it is, and so does a claim that is asked for.
        let ends = !matches!(problem.kind(), Some(ProblemKind::Spent | ProblemKind::Unclaimed));
        if concerned && ends {
            self.standing.send_modify(|standing| {
                standing.lost.get_or_insert(Loss::TakenOver);
            });
        }
    }

    fn write(&self, precondition: Precondition) -> Result<WriteOptions, GuardError> {
        Ok(WriteOptions { credentials: Some(self.presented.clone()), precondition, once: Some(new_key()?) })
    }

    /// Makes a call; again while it is surely not applied, or harmless to repeat, and the lock is surely ours. What was
    /// unknown once stays so until an answer settles it (T44).
    ///
    /// Not an `AsyncFn`: with one, no task that is spawned could make a call.
    async fn call<T, E, F>(&self, mut attempts: Attempts<'_>, call: impl Fn() -> F) -> Result<T, GuardError>
    where
        E: Into<Missed>,
        F: Future<Output = Result<T, E>>,
    {
        if let Some(loss) = self.loss() {
            return Err(GuardError::Lost(loss));
        }
        let mut pause = Duration::from_millis(10);
        loop {
            let missed: Missed = match call().await {
                Ok(answer) => return Ok(answer),
                Err(missed) => missed.into(),
            };
            if let CallError::Fenced(problem) = &missed.error {
                self.refused(problem);
            }
            if !missed.repeatable || pause >= self.validity() {
                return Err(match attempts.conclude(missed) {
                    CallError::Fenced(problem) => GuardError::Fenced(problem),
                    error => GuardError::Call(error),
                });
            }
            attempts.note(&missed.error);
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

fn named(key: &str) -> Result<Key, GuardError> {
    Key::new(key).map_err(|error| GuardError::Call(CallError::Failed(format!("`{key}` is no key: {error}"))))
}

/// Names a request over all its retries.
fn new_key() -> Result<IdempotencyKey, GuardError> {
    let failed = |why: String| GuardError::Call(CallError::Failed(why));
    let number = || random::number().map_err(|error| failed(format!("there are no random numbers: {error}")));
    let key = IdempotencyKey::new(&format!("guard:{:016x}{:016x}", number()?, number()?));
    key.map_err(|error| failed(error.to_string()))
}
