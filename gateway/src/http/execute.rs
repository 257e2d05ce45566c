//! Doing what was permitted, and putting the outcome into an answer.

use std::time::Duration;

use bytes::Bytes;
use fencepost_core::wire::{ClaimAnswer, ClaimedValue, FenceAnswer, FenceNow, FenceView, TxnAnswer};
use fencepost_core::{Key, ProblemKind, Resource, Token};
use fencepost_store::engine::Version;
use fencepost_store::record::Value;
use fencepost_store::{AcquireLock, Claimed, Health, Operation, Outcome};
use hyper::header::CONTENT_TYPE;
use tokio::sync::SemaphorePermit;

use super::Gateway;
use super::answer::{Answer, etag, json};
use super::body::{hold, hold_anyway};
use super::call::Call;
use super::caller::Caller;
use super::metrics::METRICS_CONTENT_TYPE;
use super::openapi;
use super::permit::Permitted;
use super::problem::Problem;
use super::reading::{lease_answer, outcome_answer};
use super::txn;

impl Gateway {
    pub(super) async fn execute(&self, call: Permitted<Call>, caller: &Caller, id: &str) -> Result<Answer, Problem> {
        match call.into_inner() {
            Call::Put(put) => self.written(self.store.put(put).await??),
            Call::Delete(delete) => self.written(self.store.delete(delete).await??),
            Call::Claim(claim) => {
                let _turn = self.room_for_an_answer(caller).await?;
                let resource = claim.resource.clone();
                self.claimed(resource, self.store.claim(claim).await??)
            }
            Call::Transact(transaction) => {
                let reads = transaction.operations.iter().any(|(_, operation)| *operation == Operation::Get);
                let _turn = if reads { Some(self.room_for_an_answer(caller).await?) } else { None };
                self.transacted(self.store.transact(*transaction).await??)
            }
            Call::S3Credentials(asked) => self.s3_credentials(asked).await,
            Call::Acquire(wanted) => {
                let resource = wanted.resource.clone();
                self.leased(201, resource, self.acquire(wanted, caller).await?)
            }
            Call::Renew(resource, lease, ttl) => {
                let outcome = self.store.renew(&resource, lease, ttl).await??;
                self.leased(200, resource, outcome)
            }
            Call::Release(resource, lease) => {
                let outcome = self.store.release(&resource, lease).await??;
                self.released(resource, outcome)
            }
            Call::Abandon(scope, key) => {
                let _turn = self.room_for_an_answer(caller).await?;
                let outcome = self.store.abandon(scope, &key).await?;
                Ok(Answer::json_bytes(hold_anyway(json(&outcome_answer(key, outcome, None)), &self.answers)))
            }
            Call::Admin(call) => self.administer(call, &caller.identity, id).await,
            Call::Get(get) => self.get(get).await,
            Call::ListKeys(query) => self.list_keys(&query).await,
            Call::Fence(resource) => {
                let state = self.store.fence(&resource).await??;
                Ok(Answer::json_bytes(json(&FenceAnswer {
                    resource,
                    generation: state.generation,
                    fence: FenceView::of(&state),
                })))
            }
            Call::ListFences(query) => self.list_fences(&query).await,
            Call::Lock(resource) => self.lock(resource).await,
            Call::ListLocks(query) => self.list_locks(&query).await,
            Call::Outcome(scope, key) => self.outcome(scope, key).await,
            Call::Healthz => Ok(match self.store.health() {
                Health::Ready => Answer::text(200, "ok\n"),
                Health::Poisoned(reason) => Answer::text(200, &format!("alive, but writes have stopped: {reason}\n")),
            }),
            Call::Readyz => self.ready(),
            Call::Metrics => {
                let ready = self.store.health() == Health::Ready;
                let body = self.metrics.encode(self.store.queue_depth(), self.store.waiters(), ready);
                Ok(Answer::new(200).header_static(CONTENT_TYPE, METRICS_CONTENT_TYPE).body(body.into()))
            }
            Call::OpenApi => Ok(Answer::json_bytes(openapi::document())),
        }
    }

    /// Waits for a lock only while enough connections are left for those who hold one.
    async fn acquire(&self, wanted: AcquireLock, caller: &Caller) -> Result<Outcome, Problem> {
        if wanted.wait.is_zero() {
            return Ok(self.store.acquire(wanted).await??);
        }
        match self.waiting.enter(&caller.waits) {
            Ok(_waiting) => Ok(self.store.acquire(wanted).await??),
            // A lock that is free can be had without waiting.
            Err(full) => match self.store.acquire(AcquireLock { wait: Duration::ZERO, ..wanted }).await?? {
                Outcome::Held(_) => Err(full.into()),
                outcome => Ok(outcome),
            },
        }
    }

    /// An answer that is sent in any case needs room before it is made. Only so many are made at once, so that they
    /// cannot all find the same room.
    async fn room_for_an_answer<'r>(&'r self, caller: &'r Caller) -> Result<[Option<SemaphorePermit<'r>>; 2], Problem> {
        let of_caller = caller.share.turn().await?;
        // The semaphore is never closed.
        let turn = self.makers.acquire().await.ok();
        hold(Bytes::from_static(b"{}"), &self.answers).map(|_| [of_caller, turn])
    }

    /// Writes and deletes: 204 with the new version and the fence, or the refusal.
    fn written(&self, outcome: Outcome) -> Result<Answer, Problem> {
        self.metrics.write(&outcome);
        marked(outcome, |outcome| match outcome {
            Outcome::Applied(applied) => {
                let answer = Answer::new(204).fence(applied.fence).observed(applied.observed.as_slice());
                Ok(match applied.version {
                    Some(version) => answer.etag(version),
                    None => answer,
                })
            }
            Outcome::ConditionFailed { current, fence, .. } => {
                Err(Problem::condition_failed(current).with_fence(fence))
            }
            other => Err(unfulfilled(other)),
        })
    }

    fn claimed(&self, resource: Resource, outcome: Outcome) -> Result<Answer, Problem> {
        self.metrics.claim(&outcome);
        match outcome {
            Outcome::Claimed(claimed) => {
                let Claimed { state, values, observed } = *claimed;
                let values = values.into_iter().map(|(key, value)| claimed_value(key, value)).collect();
                let answer = ClaimAnswer { resource, fence: FenceView::of(&state), values };
                Ok(Answer::json_bytes(hold_anyway(json(&answer), &self.answers))
                    .fence(state.token())
                    .observed(observed.as_slice()))
            }
            other => Err(unfulfilled(other)),
        }
    }

    fn transacted(&self, outcome: Outcome) -> Result<Answer, Problem> {
        self.metrics.transaction(&outcome);
        let fences_now = match &outcome {
            // One fence goes into a header, and leaves the body as it was.
            Outcome::Replayed(_, fences) if fences.len() > 1 => fences.iter().cloned().map(fence_now).collect(),
            _ => Vec::new(),
        };
        marked(outcome, |outcome| match outcome {
            Outcome::Transacted(transacted) => {
                let observed: Vec<_> = transacted.observed.iter().map(|(_, reason)| *reason).collect();
                let results = transacted.results.into_iter().map(txn::result).collect();
                let answer = TxnAnswer { results, fences_now };
                Ok(Answer::json_bytes(hold_anyway(json(&answer), &self.answers)).observed(&observed))
            }
            Outcome::Refused(refusals) => Err(Problem::all_refused(&refusals)),
            Outcome::ConditionFailed { at, key, current, .. } => Err(Problem::txn_condition_failed(at, key, current)),
            other => Err(unfulfilled(other)),
        })
    }

    /// A lock that was acquired (201) or renewed (200).
    fn leased(&self, status: u16, resource: Resource, outcome: Outcome) -> Result<Answer, Problem> {
        self.metrics.lock(&outcome);
        marked(outcome, |outcome| match outcome {
            Outcome::Granted(grant) => {
                let observed = grant.observed;
                let answer = lease_answer(resource, *grant);
                Ok(Answer::json_status(status, json(&answer)).observed(observed.as_slice()))
            }
            Outcome::Held(holding) => Err(Problem::lock_held(resource, *holding)),
            Outcome::LeaseLost { holder, fence } => Err(Problem::lease_lost(resource, holder, fence)),
            other => Err(unfulfilled(other)),
        })
    }

    fn released(&self, resource: Resource, outcome: Outcome) -> Result<Answer, Problem> {
        self.metrics.lock(&outcome);
        match outcome {
            Outcome::Released => Ok(Answer::new(204)),
            Outcome::LeaseLost { holder, fence } => Err(Problem::lease_lost(resource, holder, fence)),
            other => Err(unfulfilled(other)),
        }
    }
}

fn fence_now((resource, fence): (Resource, Option<Token>)) -> FenceNow {
    FenceNow { resource, fence }
}

/// Marks what was answered before, with the fence now: what was recorded names that of its time.
fn marked(outcome: Outcome, answer: impl FnOnce(Outcome) -> Result<Answer, Problem>) -> Result<Answer, Problem> {
    match outcome {
        Outcome::Replayed(outcome, fences) => {
            let fence = match fences.as_slice() {
                [(_, fence)] => *fence,
                _ => None,
            };
            answer(*outcome).map(|answer| answer.replayed(fence)).map_err(|problem| problem.replayed(fence))
        }
        outcome => answer(outcome),
    }
}

/// Every known outcome other than the one hoped for.
pub(super) fn unfulfilled(outcome: Outcome) -> Problem {
    match outcome {
        Outcome::Refused(refusals) => match refusals.first() {
            Some(refusal) => Problem::refused(refusal),
            None => another_question(),
        },
        Outcome::ConditionFailed { at, key, current, .. } => Problem::txn_condition_failed(at, key, current),
        Outcome::Impossible { at, key, why } => Problem::add_impossible(at, key, &why),
        Outcome::TooLarge { bytes, limit } => {
            let detail =
                format!("the values asked for have {bytes} bytes, the limit is {limit}; ask for fewer keys at once");
            Problem::new(ProblemKind::TooLarge, detail)
        }
        Outcome::Exhausted { fence, generation } => Problem::exhausted(fence, generation),
        Outcome::OtherGeneration { found } => Problem::other_generation(found),
        Outcome::KeyReused => Problem::key_reused(),
        Outcome::Abandoned => Problem::abandoned(),
        Outcome::Applied(_)
        | Outcome::Transacted(_)
        | Outcome::Claimed(_)
        | Outcome::Granted(_)
        | Outcome::Held(_)
        | Outcome::LeaseLost { .. }
        | Outcome::Released
        | Outcome::ForceReleased { .. }
        | Outcome::NotHeld
        | Outcome::Rotated { .. }
        | Outcome::Replayed(..)
        | Outcome::Changed(_)
        | Outcome::Unmet { .. }
        | Outcome::Forgotten => another_question(),
    }
}

fn another_question() -> Problem {
    Problem::new(ProblemKind::OutcomeUnknown, "the store answered another question than was asked")
}

fn claimed_value(key: Key, value: Option<(Version, Value)>) -> ClaimedValue {
    match value {
        None => ClaimedValue::Absent { key, absent: true },
        Some((version, Value { token, content_type, body })) => {
            let value = txn::text_or_base64(&body);
            ClaimedValue::Present { key, etag: etag(version), token, content_type, value }
        }
    }
}
