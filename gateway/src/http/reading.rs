//! Reads: values, lists, locks and outcomes, as they are committed.

use std::sync::atomic::Ordering;

use fencepost_core::wire::{
    FenceAnswer, FencePage, FenceView, KeyEntry, KeyPage, LeaseAnswer, LockPage, LockView, OutcomeAnswer, OutcomeState,
    header,
};
use fencepost_core::{IdempotencyKey, ProblemKind, Resource, Timestamp};
use fencepost_store::{Grant, Health, LockInfo, Outcome};
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};

use super::Gateway;
use super::answer::{Answer, etag, json};
use super::body::hold;
use super::call::Get;
use super::problem::Problem;
use super::query::ListQuery;
use super::txn;

const FENCING_TOKEN: HeaderName = HeaderName::from_static(header::FENCING_TOKEN);
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const FENCING_UNCLAIMED: HeaderName = HeaderName::from_static(header::FENCING_UNCLAIMED);

impl Gateway {
    pub(super) async fn get(&self, get: Get) -> Result<Answer, Problem> {
        let read = self.store.read(&get.key, get.presented.as_ref()).await??;
        let read = read.map_err(|refusal| {
            self.metrics.read_refused(refusal.reason);
            Problem::refused(&refusal)
        })?;
        self.metrics.read_observed(read.observed);
        let fence = read.state.token();
        let current = read.value.as_ref().map(|(version, _)| *version);
        if get.if_match.is_some_and(|tags| !tags.match_weakly(current)) {
            return Err(Problem::condition_failed(current).with_fence(fence));
        }
        let Some((version, value)) = read.value else {
            let detail = format!("the key `{}` has no value", get.key);
            return Err(Problem::new(ProblemKind::Absent, detail).with_fence(fence));
        };
        let mut answer = if get.if_none_match.is_some_and(|tags| tags.match_weakly(current)) {
            Answer::new(304)
        } else {
            Answer::new(200)
                .header(CONTENT_TYPE, value.content_type.as_deref().unwrap_or("application/octet-stream"))
                .header(CONTENT_LENGTH, itoa::Buffer::new().format(value.body.len()))
                .body(hold(value.body, &self.answers)?)
        };
        if let Some(token) = value.token {
            answer = answer.header(FENCING_TOKEN, &token.text());
        }
        if read.unclaimed {
            answer = answer.header_static(FENCING_UNCLAIMED, "true");
        }
        // Whoever wrote the value chose its type. As a page it must not act with the gateway's origin, nor be part of
        // another site's page.
        Ok(answer
            .header_static(CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox")
            .header_static(CROSS_ORIGIN_RESOURCE_POLICY, "same-origin")
            .etag(version)
            .header_static(CACHE_CONTROL, "no-store")
            .fence(fence)
            .observed(read.observed.as_slice()))
    }

    pub(super) async fn list_keys(&self, query: &ListQuery) -> Result<Answer, Problem> {
        let page = self.store.keys(&query.prefix, query.after.as_deref(), query.limit).await?;
        let keys = page
            .entries
            .into_iter()
            .map(|entry| KeyEntry {
                key: entry.key,
                etag: etag(entry.version),
                token: entry.token,
                content_type: entry.content_type,
                size: entry.size,
            })
            .collect();
        Ok(Answer::json_bytes(hold(json(&KeyPage { keys, next: page.next }), &self.answers)?))
    }

    pub(super) async fn list_fences(&self, query: &ListQuery) -> Result<Answer, Problem> {
        let page = self.store.fences(&query.prefix, query.after.as_deref(), query.limit).await?;
        let fences = page
            .entries
            .into_iter()
            .map(|(resource, state)| FenceAnswer {
                resource,
                generation: state.generation,
                fence: FenceView::of(&state),
            })
            .collect();
        Ok(Answer::json_bytes(hold(json(&FencePage { fences, next: page.next }), &self.answers)?))
    }

    pub(super) fn ready(&self) -> Result<Answer, Problem> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Problem::draining("the gateway is finishing its last requests"));
        }
        match self.store.health() {
            Health::Ready => Ok(Answer::text(200, "ready\n")),
            Health::Poisoned(reason) => Err(fencepost_store::Rejected::Poisoned(reason).into()),
        }
    }

    pub(super) async fn lock(&self, resource: Resource) -> Result<Answer, Problem> {
        match self.store.lock(&resource).await?? {
            Some(lock) => Ok(Answer::json_bytes(json(&lock_view(lock)))),
            None => Err(Problem::not_held(resource)),
        }
    }

    pub(super) async fn list_locks(&self, query: &ListQuery) -> Result<Answer, Problem> {
        let page = self.store.locks(&query.prefix, query.after.as_deref(), query.limit).await?;
        let locks = page.entries.into_iter().map(lock_view).collect();
        Ok(Answer::json_bytes(hold(json(&LockPage { locks, next: page.next }), &self.answers)?))
    }

    pub(super) async fn outcome(&self, caller: &str, key: IdempotencyKey) -> Result<Answer, Problem> {
        let answer = match self.store.outcome(caller, &key).await? {
            Some(recorded) => outcome_answer(key, recorded.outcome, Some(recorded.at)),
            None => OutcomeAnswer {
                key,
                outcome: OutcomeState::NotRecorded,
                problem: None,
                results: None,
                token: None,
                recorded_at: None,
            },
        };
        Ok(Answer::json_bytes(hold(json(&answer), &self.answers)?))
    }
}

fn lock_view(lock: LockInfo) -> LockView {
    let LockInfo { resource, holder, token, ttl_ms, remaining_ms, waiting } = lock;
    LockView { name: resource, token, holder, ttl_ms, remaining_ms, waiting }
}

/// A lease as its holder sees it.
pub(super) fn lease_answer(name: Resource, grant: Grant) -> LeaseAnswer {
    let Grant { lease, token, holder, issuer, ttl_ms, .. } = grant;
    LeaseAnswer { name, lease: lease.to_string(), token, holder, issuer, ttl_ms }
}

/// A recorded outcome.
pub(super) fn outcome_answer(key: IdempotencyKey, outcome: Outcome, at: Option<Timestamp>) -> OutcomeAnswer {
    let failed = |kind: ProblemKind| (OutcomeState::Failed, Some(kind.slug().to_owned()));
    let (mut results, mut token) = (None, None);
    let (state, problem) = match outcome {
        Outcome::Transacted(transacted) => {
            results = Some(transacted.results.into_iter().map(txn::result).collect());
            (OutcomeState::Applied, None)
        }
        Outcome::Granted(grant) => {
            token = Some(grant.token);
            (OutcomeState::Applied, None)
        }
        Outcome::ConditionFailed { .. } => failed(ProblemKind::ConditionFailed),
        Outcome::Impossible { .. } => failed(ProblemKind::AddImpossible),
        _ => failed(ProblemKind::Abandoned),
    };
    let recorded_at = at.map(|at| at.to_string());
    OutcomeAnswer { key, outcome: state, problem, results, token, recorded_at }
}
