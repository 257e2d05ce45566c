//! `POST /v1/locks/{name}`: acquire a lock, or wait for it.

use std::time::Duration;

use fencepost_core::wire::{AcquireRequest, LeaseAnswer, MAX_WAIT_MS};
use fencepost_core::{ProblemKind, Resource};
use fencepost_store::{self as store, AcquireOutcome, CallerId, RecordedGrant};
use hyper::Method;
use serde_json::json;

use super::lease::{leased, no_token_nor_conditions, ttl};
use super::replayed::replayed;
use super::{Context, HttpCall, Request};
use crate::http::answer::Answer;
use crate::http::fingerprint::fingerprint;
use crate::http::openapi::{Details, ONCE, WRITING, parts};
use crate::http::permit::Permitted;
use crate::http::problem::Problem;
use crate::http::routes::Route;

pub(super) struct AcquireLock(store::AcquireLock);

impl HttpCall for AcquireLock {
    const ROUTE: Route = Route::new(Method::POST, "/v1/locks/", "acquire a lock").named("name").with_body();

    fn decode(request: Request<'_>) -> Result<AcquireLock, Problem> {
        no_token_nor_conditions(request.headers())?;
        let AcquireRequest { holder, ttl_ms, wait_ms } =
            request.json(r#"{"holder": "worker-a#9f2c", "ttl_ms": 30000, "wait_ms": 5000}"#)?;
        let resource = Resource::from_raw_path(request.name)?;
        if wait_ms > MAX_WAIT_MS {
            let detail = format!("wait_ms is {wait_ms}, the limit is {MAX_WAIT_MS}; ask again when it is over");
            return Err(Problem::new(ProblemKind::MalformedBody, detail));
        }
        // The wait is not part of the fingerprint: a retry has less time left.
        let once = request.once(|| {
            fingerprint(&[b"ACQUIRE", resource.as_str().as_bytes(), holder.as_str().as_bytes(), &ttl_ms.to_le_bytes()])
        })?;
        let (wait, caller) = (Duration::from_millis(wait_ms), CallerId::new(request.peer));
        Ok(AcquireLock(store::AcquireLock { resource, holder, ttl: ttl(ttl_ms)?, wait, once, caller }))
    }

    async fn execute(call: Permitted<AcquireLock>, context: &Context<'_>) -> Result<Answer, Problem> {
        let AcquireLock(wanted) = call.into_inner();
        let resource = wanted.resource.clone();
        let outcome = acquire(wanted, context).await?;
        context.gateway.metrics.lock(&outcome);
        match outcome {
            AcquireOutcome::Granted(grant) => Ok(leased(201, resource, *grant)),
            AcquireOutcome::Held(holding) => Err(Problem::lock_held(resource, *holding)),
            AcquireOutcome::Refused(refusal) => Err(Problem::refused(*refusal)),
            AcquireOutcome::Exhausted(exhausted) => Err(Problem::exhausted(exhausted)),
            AcquireOutcome::Replayed(RecordedGrant::Granted(grant), fence) => {
                replayed(Ok(leased(201, resource, *grant)), fence)
            }
            AcquireOutcome::Replayed(RecordedGrant::Lost(lost), fence) => {
                replayed(Err(Problem::lease_lost(resource, lost)), fence)
            }
            AcquireOutcome::KeyReused => Err(Problem::key_reused()),
            AcquireOutcome::Abandoned => Err(Problem::abandoned()),
        }
    }

    fn describe() -> Details {
        Details::of("locks")
            .named::<Resource>()
            .parameters([parts::idempotency_key()])
            .body::<AcquireRequest>(json!({"holder": "worker-a#9f2c", "ttl_ms": 30_000, "wait_ms": 500}))
            .json::<LeaseAnswer>(201, "The lock is yours.", parts::observed().optional_replayed())
            .problems(&[
                ProblemKind::NotAResource,
                ProblemKind::ForeignIssuer,
                ProblemKind::Exhausted,
                ProblemKind::LeaseLost,
                ProblemKind::LockHeld,
            ])
            .problems(&ONCE)
            .problems(&WRITING)
    }
}

/// Waits for a lock only while enough connections are left for lock holders.
async fn acquire(wanted: store::AcquireLock, context: &Context<'_>) -> Result<AcquireOutcome, Problem> {
    let Context { gateway, caller, .. } = context;
    let store = gateway.stores.of(wanted.resource.as_str());
    if wanted.wait.is_zero() {
        return Ok(store.acquire(wanted).await?);
    }
    match gateway.waiting.enter(&caller.waits) {
        Ok(_waiting) => Ok(store.acquire(wanted).await?),
        // A free lock can be acquired without waiting.
        Err(full) => match store.acquire(store::AcquireLock { wait: Duration::ZERO, ..wanted }).await? {
            AcquireOutcome::Held(_) => Err(full.into()),
            outcome => Ok(outcome),
        },
    }
}
