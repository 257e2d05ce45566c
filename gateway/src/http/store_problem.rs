//! Results of the store as problems: refusals, failed conditions, locks, and outcomes that are not known.

use fencepost_core::{Key, ProblemKind, Refusal, RefusedResource, Resource, Timestamp};
use fencepost_store::engine::Version;
use fencepost_store::{
    Exhausted, FailedCondition, Failure, Held, Holding, Impossible, ImpossibleAddition, LeaseLost, ReadError, Rejected,
    SeveralEngines, TooLarge, WrongResource,
};

use super::answer::etag;
use super::problem::{LATER, Problem, SOON};

impl Problem {
    /// Every resource that refused a transaction. The top-level fields are those of the resource to look at first.
    pub(super) fn all_refused(refusals: &[Refusal]) -> Problem {
        let fenced = refusals.iter().find(|refusal| refusal.reason.problem().status() == 409);
        let Some(first) = fenced.or(refusals.first()) else {
            return Problem::new(ProblemKind::OutcomeUnknown, "the store refused without saying why");
        };
        let mut problem = Problem::refused(first.clone());
        let now = Timestamp::now();
        problem.document.refusals = refusals
            .iter()
            .map(|refusal| RefusedResource {
                resource: refusal.resource.clone(),
                reason: refusal.reason.as_str().to_owned(),
                detail: refusal.detail(now),
                presented: refusal.presented_token(),
                fence: refusal.found.token(),
                generation: refusal.found.generation,
                holder: refusal.found.holder.clone(),
            })
            .collect();
        if refusals.len() > 1 {
            let others = format!(" ({} resources refused; nothing was done to any of them)", refusals.len());
            problem.document.detail.push_str(&others);
        }
        problem
    }

    /// A condition in a transaction's `if` did not hold.
    pub(super) fn txn_condition_failed(failed: FailedCondition) -> Problem {
        let FailedCondition { at, key, current, .. } = failed;
        let mut problem = Problem::condition_failed(current);
        problem.document.detail = match current {
            Some(version) => {
                format!("condition {at} of `if` does not hold: `{key}` has version {} now", etag(version))
            }
            None => format!("condition {at} of `if` does not hold: `{key}` has no value"),
        };
        problem.document.advice =
            Some("Nothing was done. Read again, decide anew, and retry; your tokens are still good.".into());
        problem.document.condition = Some(at);
        problem.document.key = Some(key);
        problem
    }

    pub(super) fn add_impossible(addition: ImpossibleAddition) -> Problem {
        let ImpossibleAddition { at, key, why } = addition;
        let detail = match why {
            Impossible::NotANumber => format!("operation {at} adds to `{key}`, whose value is no whole number"),
            Impossible::OutOfBounds { value, by, min, max } => {
                let bounds = match (min > i64::MIN, max < i64::MAX) {
                    (true, true) => format!("from {min} to {max}"),
                    (true, false) => format!("at least {min}"),
                    (false, true) => format!("at most {max}"),
                    (false, false) => "a 64-bit number".to_owned(),
                };
                format!("operation {at} adds {by} to `{key}`, which is {value}; the sum must be {bounds}")
            }
        };
        let mut problem = Problem::new(ProblemKind::AddImpossible, detail)
            .advice("Nothing was done. Read again and decide anew; your tokens are still good.");
        problem.document.operation = Some(at);
        problem.document.key = Some(key);
        problem.document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn lock_held(resource: Resource, holding: Holding) -> Problem {
        let Holding { by, remaining_ms, waiting } = holding;
        let others = match waiting {
            0 => String::new(),
            1 => "; one other waits for it".to_owned(),
            waiting => format!("; {waiting} others wait for it"),
        };
        let detail = match &by {
            Some(Held { holder, token, .. }) => format!(
                "`{resource}` is held by `{holder}` with token {token}, for {} more at the most unless it is renewed{others}",
                seconds(remaining_ms)
            ),
            None => format!("`{resource}` is free, but promised to those who wait for it{others}"),
        };
        let mut problem = Problem::new(ProblemKind::LockHeld, detail)
            .advice("Try again later, or wait for it in turn: give wait_ms.")
            .not_applied(u32::try_from(remaining_ms.div_ceil(1000)).unwrap_or(LATER).clamp(SOON, LATER));
        problem.document.resource = Some(resource);
        problem.document.holder = by.map(|by| by.holder);
        problem.document.remaining_ms = Some(remaining_ms);
        problem.document.waiting = Some(waiting);
        problem
    }

    pub(super) fn lease_lost(resource: Resource, lost: LeaseLost) -> Problem {
        let LeaseLost { holder, fence } = lost;
        let detail = match &holder {
            Some(holder) => format!("the lease on `{resource}` is not current any more: `{holder}` has the lock"),
            None => format!("the lease on `{resource}` is not current any more"),
        };
        let mut problem = Problem::new(ProblemKind::LeaseLost, detail)
            .advice("Nothing was changed. Stop what the lock protects, and acquire it again.");
        problem.document.resource = Some(resource);
        problem.document.holder = holder;
        problem.document.fence = fence;
        problem.document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn not_held(resource: Resource) -> Problem {
        let mut problem = Problem::new(ProblemKind::NotHeld, format!("the lock `{resource}` is free"));
        problem.document.resource = Some(resource);
        problem
    }

    /// Values asked for do not fit into an answer.
    pub(super) fn too_large(too_large: TooLarge) -> Problem {
        let TooLarge { bytes, limit } = too_large;
        let detail =
            format!("the values asked for have {bytes} bytes, the limit is {limit}; ask for fewer keys at once");
        Problem::new(ProblemKind::TooLarge, detail)
    }

    pub(super) fn exhausted(exhausted: Exhausted) -> Problem {
        let Exhausted { fence, generation } = exhausted;
        let (detail, advice) = match fence {
            Some(fence) => (
                format!("there is no number above the fence, {fence}"),
                "A caller presented the highest number there is. Have an administrator rotate the resource: \
                 `fencepost fence rotate`.",
            ),
            None => (
                format!("there is no generation above {generation}"),
                "All generations are used up. Move to a new store, and to new names for the resources.",
            ),
        };
        let mut problem = Problem::new(ProblemKind::Exhausted, detail).advice(advice);
        problem.document.fence = fence;
        problem.document.generation = Some(generation);
        problem.document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn other_generation(found: u32) -> Problem {
        let mut problem =
            Problem::new(ProblemKind::ConditionFailed, format!("the generation is {found} now, not `from`")).advice(
                "Nothing was changed. If an answer was lost, the rotation may have been done by your first request.",
            );
        problem.document.generation = Some(found);
        problem.document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn key_reused() -> Problem {
        let mut problem = Problem::new(
            ProblemKind::KeyReused,
            "the idempotency key was used before, for a request with another path, body, condition or content type",
        )
        .advice("Nothing was done by this request. Use a new key for a new request, and the old one for retries only.");
        problem.document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn abandoned() -> Problem {
        let mut problem =
            Problem::new(ProblemKind::Abandoned, "the idempotency key was abandoned: nothing sent under it is applied")
                .advice("Use a new key if you want it after all.");
        problem.document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn refused(refusal: Refusal) -> Problem {
        let reason = refusal.reason;
        let mut problem = Problem::new(reason.problem(), refusal.detail(Timestamp::now())).advice(reason.advice());
        let document = &mut problem.document;
        document.presented = refusal.presented_token();
        match refusal.at_least {
            false => document.fence = refusal.found.token(),
            true => document.fence_at_least = refusal.found.token(),
        }
        document.resource = Some(refusal.resource);
        document.generation = Some(refusal.found.generation);
        document.holder = refusal.found.holder;
        document.issuer = refusal.found.issuer;
        document.raised_at = refusal.found.raised_at.map(|at| at.to_string());
        document.outcome = Some("not-applied".into());
        problem
    }

    pub(super) fn condition_failed(current: Option<Version>) -> Problem {
        let detail = match current {
            Some(version) => format!("the key's version is now {}", etag(version)),
            None => "the key has no value".to_owned(),
        };
        let mut problem = Problem::new(ProblemKind::ConditionFailed, detail)
            .advice("Read the value again, decide anew, and retry with the new version. Your token is still good.");
        problem.document.etag = current.map(etag);
        problem.document.outcome = Some("not-applied".into());
        problem
    }
}

/// A duration in seconds, for messages.
fn seconds(millis: u64) -> String {
    format!("{:.1} s", millis as f64 / 1000.0)
}

impl From<WrongResource> for Problem {
    fn from(error: WrongResource) -> Problem {
        let detail = error.to_string();
        match error {
            WrongResource::Name(error) => error.into(),
            WrongResource::Unused(resource) => {
                let mut problem =
                    Problem::new(ProblemKind::MalformedBody, detail).advice("Leave the token out, or check the keys.");
                problem.document.resource = Some(resource);
                problem
            }
            WrongResource::Belongs { resource, .. } => {
                let mut problem = Problem::new(ProblemKind::NotAResource, detail)
                    .advice("Use that resource's name, and a token of its lock.");
                problem.document.resource = Some(resource);
                problem
            }
        }
    }
}

impl From<SeveralEngines> for Problem {
    fn from(error: SeveralEngines) -> Problem {
        let detail = format!("{error}: nothing can be committed on both at once, so nothing was judged or done");
        let mut problem = Problem::new(ProblemKind::SeveralEngines, detail).advice(
            "Send a request for the keys of each engine; or have the operator keep keys that change together on one engine.",
        );
        problem.document.key = Key::new(&error.second.0).ok();
        problem.document.outcome = Some("not-applied".into());
        problem
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        match failure {
            Failure::Rejected(rejected) => rejected.into(),
            Failure::Unknown(why) => {
                let mut problem = Problem::new(
                    ProblemKind::OutcomeUnknown,
                    format!("the write may or may not have been applied: {why}"),
                )
                .advice(
                    "Read the key, or ask /v1/outcomes/{key} if you sent an idempotency key. Do not assume either outcome.",
                );
                problem.document.outcome = Some("unknown".into());
                problem
            }
        }
    }
}

impl From<Rejected> for Problem {
    fn from(rejected: Rejected) -> Problem {
        let detail = rejected.to_string();
        match rejected {
            Rejected::Closing => Problem::draining(&detail),
            Rejected::WrongResource(wrong) => wrong.into(),
            Rejected::Overloaded { .. } | Rejected::TooManyWaiters { .. } | Rejected::Contended { .. } => {
                Problem::new(ProblemKind::Overloaded, detail)
                    .advice("This request was not applied. Try again shortly.")
                    .not_applied(SOON)
            }
            Rejected::TooLarge(_) => {
                let mut problem = Problem::new(ProblemKind::TooLarge, detail)
                    .advice("This request was not applied. Send less at once: fewer keys, or a smaller value.");
                problem.document.outcome = Some("not-applied".into());
                problem
            }
            Rejected::Unavailable(_) => Problem::new(ProblemKind::Unavailable, detail)
                .advice("This request was not applied. If this goes on, look at the gateway's log.")
                .not_applied(SOON),
            Rejected::Poisoned(_) => Problem::new(ProblemKind::Poisoned, detail)
                .advice(
                    "This request was not applied. The operator must check the disk and restart the gateway; reads go on.",
                )
                .not_applied(LATER),
            Rejected::MappingChanged => Problem::new(ProblemKind::MappingChanged, detail)
                .advice("This request was not applied. The operator must restart this gateway with the stored guards.")
                .not_applied(LATER),
            Rejected::NoSpace { .. } => Problem::new(ProblemKind::NoSpace, detail)
                .advice("This request was not applied. Writes go on by themselves when the operator has freed disk space.")
                .not_applied(LATER),
        }
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        match error {
            ReadError::MappingChanged => Rejected::MappingChanged.into(),
            ReadError::WrongResource(wrong) => wrong.into(),
            ReadError::Unreachable(why) => Rejected::Unavailable(why).into(),
            ReadError::Failed(why) => Problem::new(ProblemKind::ReadFailed, why)
                .advice("Nothing was changed. The operator should look at the gateway's log and the disk."),
        }
    }
}
