//! What administrators do. Each act is written to the audit log before it is done, and again with how it ended.

use fencepost_core::ProblemKind;
use fencepost_core::wire::{ForceReleasedAnswer, RotateAllRequest, RotatePrefixAnswer, RotateRequest, RotatedAnswer};
use fencepost_store::{Outcome, Rejected, RotatePrefix, generation_by_clock};
use serde_json::Value;

use super::Gateway;
use super::answer::{Answer, json};
use super::audit::Entry;
use super::call::AdminCall;
use super::execute::unfulfilled;
use super::permit::Identity;
use super::problem::Problem;

type Facts = Vec<(&'static str, Value)>;

impl Gateway {
    /// Reads the rules again because of a signal; audited like any other act.
    pub(super) async fn reload_by_signal(&self) {
        let id = self.next_id();
        match self.administer(AdminCall::Reload, &Identity::Signal, &id).await {
            Ok(_) => tracing::info!(request = id, "the rules were read again"),
            Err(problem) => tracing::error!(request = id, error = problem.detail(), "the rules were not read again"),
        }
    }

    pub(super) async fn administer(&self, call: AdminCall, identity: &Identity, id: &str) -> Result<Answer, Problem> {
        let entry = entry(&call, identity, id);
        // An act that cannot be written down is not done.
        self.audit.write(entry.clone().with("outcome", "requested")).await.map_err(|error| {
            tracing::error!(%error, "the audit log cannot be written");
            Problem::from(Rejected::Unavailable(format!("the audit log cannot be written: {error}")))
        })?;
        let result = self.act(call).await;
        let entry = match &result {
            Ok((_, facts)) => {
                facts.iter().fold(entry, |entry, (name, fact)| entry.with(name, fact.clone())).again("done")
            }
            Err(problem) => entry.with("problem", problem.kind().slug()).again(match problem.kind() {
                ProblemKind::OutcomeUnknown => "unknown",
                _ => "not-done",
            }),
        };
        if let Err(error) = self.audit.write(entry).await {
            tracing::error!(%error, request = id, "the end of an administrator's act could not be written to the audit log");
        }
        result.map(|(answer, _)| answer)
    }

    /// The answer, and what the audit log should know of it.
    async fn act(&self, call: AdminCall) -> Result<(Answer, Facts), Problem> {
        match call {
            AdminCall::Rotate(resource, RotateRequest { from, issuer, .. }) => {
                match self.store.rotate(&resource, from, issuer).await?? {
                    Outcome::Rotated { generation } => {
                        let answer = RotatedAnswer { resource: Some(resource), generation };
                        Ok((Answer::json_bytes(json(&answer)), vec![("generation", generation.into())]))
                    }
                    other => Err(unfulfilled(other)),
                }
            }
            // By the clock too, in case this store is an older copy that was put back unnoticed (trap 40).
            AdminCall::RotateAll(RotateAllRequest { from, .. }) => {
                match self.store.rotate_all_to(from, generation_by_clock()).await? {
                    Outcome::Rotated { generation } => {
                        let answer = RotatedAnswer { resource: None, generation };
                        Ok((Answer::json_bytes(json(&answer)), vec![("generation", generation.into())]))
                    }
                    other => Err(unfulfilled(other)),
                }
            }
            AdminCall::RotatePrefix(asked) => {
                let (prefix, from, issuer, after) = (asked.prefix, asked.from, asked.issuer, asked.after);
                let done = self.store.rotate_prefix(RotatePrefix { prefix, from, issuer, after }).await?;
                let answer = RotatePrefixAnswer { rotated: done.rotated, left: done.left, next: done.next };
                let facts = vec![("rotated", answer.rotated.into()), ("left", answer.left.into())];
                Ok((Answer::json_bytes(json(&answer)), facts))
            }
            AdminCall::ForceRelease(resource) => match self.store.force_release(&resource).await?? {
                Outcome::ForceReleased { holder, token, fence } => {
                    let facts = vec![("holder", holder.as_str().into()), ("token", token.to_string().into())];
                    let answer = ForceReleasedAnswer { name: resource, holder, token, fence };
                    Ok((Answer::json_bytes(json(&answer)), facts))
                }
                Outcome::NotHeld => Err(Problem::not_held(resource)),
                other => Err(unfulfilled(other)),
            },
            AdminCall::CheckObjects(asked) => {
                let answer = self.check_objects(asked).await?;
                let facts = vec![("differences", answer.differences.len().into()), ("mended", answer.mended.into())];
                Ok((Answer::json_bytes(json(&answer)), facts))
            }
            AdminCall::CollectObjects(asked) => {
                let answer = self.collect_objects(asked).await?;
                let facts = vec![
                    ("found", answer.found.into()),
                    ("removed", answer.removed.into()),
                    ("uploads", answer.uploads.into()),
                ];
                Ok((Answer::json_bytes(json(&answer)), facts))
            }
            AdminCall::Reload => match self.reload.run(&self.store, self.s3.as_deref()) {
                Ok(answer) => {
                    let facts = vec![("changed", answer.changed.clone().into())];
                    Ok((Answer::json_bytes(json(&answer)), facts))
                }
                Err(error) => {
                    // A message about the file shows its lines, and ends with one.
                    let detail = format!("the old rules stay: {}", error.to_string().trim_end());
                    Err(Problem::new(ProblemKind::ReloadRefused, detail))
                }
            },
        }
    }
}

fn entry(call: &AdminCall, identity: &Identity, id: &str) -> Entry {
    let entry = |action| Entry::new(action, identity, id);
    let issuer = |issuer: &Option<fencepost_core::Issuer>| issuer.as_ref().map(ToString::to_string);
    match call {
        AdminCall::Rotate(resource, asked) => entry("rotate")
            .with("resource", resource.as_str())
            .with("from", asked.from)
            .with("reason", asked.reason.as_str())
            .with("issuer", issuer(&asked.issuer)),
        AdminCall::RotatePrefix(asked) => entry("rotate-prefix")
            .with("prefix", asked.prefix.as_str())
            .with("after", asked.after.as_deref())
            .with("from", asked.from)
            .with("reason", asked.reason.as_str())
            .with("issuer", issuer(&asked.issuer)),
        AdminCall::RotateAll(asked) => {
            entry("rotate-all").with("from", asked.from).with("reason", asked.reason.as_str())
        }
        AdminCall::ForceRelease(resource) => entry("force-release").with("lock", resource.as_str()),
        AdminCall::Reload => entry("reload"),
        AdminCall::CheckObjects(asked) => entry("check-objects")
            .with("bucket", asked.bucket.as_deref())
            .with("after", asked.after.as_deref())
            .with("adopt", asked.adopt),
        AdminCall::CollectObjects(asked) => {
            entry("collect-objects").with("older_than_s", asked.older_than_s).with("dry_run", asked.dry_run)
        }
    }
}
