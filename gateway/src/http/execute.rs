//! Doing what was permitted, and putting the outcome into an answer.

use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fencepost_core::wire::{
    ClaimAnswer, ClaimedValue, FenceAnswer, FencePage, FenceView, KeyEntry, KeyPage, TextOrBase64, header,
};
use fencepost_core::{Key, ProblemKind, Resource};
use fencepost_store::engine::Version;
use fencepost_store::record::Value;
use fencepost_store::{Claimed, Health, Outcome};
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};

use super::Gateway;
use super::answer::{Answer, etag, json};
use super::body::{hold, hold_anyway};
use super::call::{Call, Get};
use super::metrics::METRICS_CONTENT_TYPE;
use super::permit::Permitted;
use super::problem::Problem;
use super::query::ListQuery;

const FENCING_TOKEN: HeaderName = HeaderName::from_static(header::FENCING_TOKEN);
const FENCING_UNCLAIMED: HeaderName = HeaderName::from_static(header::FENCING_UNCLAIMED);

impl Gateway {
    pub(super) async fn execute(&self, call: Permitted<Call>) -> Result<Answer, Problem> {
        match call.into_inner() {
            Call::Put(put) => self.written(self.store.put(put).await??),
            Call::Delete(delete) => self.written(self.store.delete(delete).await??),
            Call::Claim(claim) => {
                // Its answer is sent in any case, so there must be room for answers before it is made.
                drop(hold(Bytes::from_static(b"{}"), &self.answers)?);
                let resource = claim.resource.clone();
                self.claimed(resource, self.store.claim(claim).await??)
            }
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
            Call::Healthz => Ok(match self.store.health() {
                Health::Ready => Answer::text(200, "ok\n"),
                Health::Poisoned(reason) => Answer::text(200, &format!("alive, but writes have stopped: {reason}\n")),
            }),
            Call::Readyz => self.ready(),
            Call::Metrics => {
                let body = self.metrics.encode(self.store.queue_depth(), self.store.health() == Health::Ready);
                Ok(Answer::new(200).header_static(CONTENT_TYPE, METRICS_CONTENT_TYPE).body(body.into()))
            }
        }
    }

    /// Writes and deletes: 204 with the new version and the fence, or the refusal.
    fn written(&self, outcome: Outcome) -> Result<Answer, Problem> {
        self.metrics.write(&outcome);
        match outcome {
            Outcome::Applied(applied) => {
                let answer = Answer::new(204).fence(applied.fence).observed(applied.observed);
                Ok(match applied.version {
                    Some(version) => answer.etag(version),
                    None => answer,
                })
            }
            other => Err(unfulfilled(other)),
        }
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
                    .observed(observed))
            }
            other => Err(unfulfilled(other)),
        }
    }

    async fn get(&self, get: Get) -> Result<Answer, Problem> {
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
                .header_static(X_CONTENT_TYPE_OPTIONS, "nosniff")
                .header(CONTENT_LENGTH, &value.body.len().to_string())
                .body(hold(value.body, &self.answers)?)
        };
        if let Some(token) = value.token {
            answer = answer.header(FENCING_TOKEN, &token.to_string());
        }
        if read.unclaimed {
            answer = answer.header_static(FENCING_UNCLAIMED, "true");
        }
        Ok(answer.etag(version).header_static(CACHE_CONTROL, "no-store").fence(fence).observed(read.observed))
    }

    async fn list_keys(&self, query: &ListQuery) -> Result<Answer, Problem> {
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

    async fn list_fences(&self, query: &ListQuery) -> Result<Answer, Problem> {
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

    fn ready(&self) -> Result<Answer, Problem> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(Problem::new(ProblemKind::Draining, "the gateway is finishing its last requests"));
        }
        match self.store.health() {
            Health::Ready => Ok(Answer::text(200, "ready\n")),
            Health::Poisoned(reason) => Err(fencepost_store::Rejected::Poisoned(reason).into()),
        }
    }
}

/// Every known outcome other than the one hoped for.
fn unfulfilled(outcome: Outcome) -> Problem {
    match outcome {
        Outcome::Refused(refusal) => Problem::refused(&refusal),
        Outcome::ConditionFailed { current, fence } => Problem::condition_failed(current).with_fence(fence),
        Outcome::TooLarge { bytes, limit } => {
            let detail =
                format!("the values asked for have {bytes} bytes, the limit is {limit}; claim fewer keys at once");
            Problem::new(ProblemKind::TooLarge, detail)
        }
        Outcome::Applied(_) | Outcome::Claimed(_) => {
            Problem::new(ProblemKind::OutcomeUnknown, "the store answered another question than was asked")
        }
    }
}

fn claimed_value(key: Key, value: Option<(Version, Value)>) -> ClaimedValue {
    match value {
        None => ClaimedValue::Absent { key, absent: true },
        Some((version, Value { token, content_type, body })) => {
            let value = match std::str::from_utf8(&body) {
                // Control characters would take six bytes each.
                Ok(text) if !text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) => {
                    TextOrBase64::Text(text.to_owned())
                }
                _ => TextOrBase64::Base64(STANDARD.encode(&body)),
            };
            ClaimedValue::Present { key, etag: etag(version), token, content_type, value }
        }
    }
}
