//! The single entry point: passes a command to the sequencer and returns its outcome (G6).

use std::sync::Arc;

use fencepost_core::{Presented, Resource};
use tokio::sync::{mpsc, oneshot};

use crate::command::Command;
use crate::fence_cache::FenceCache;
use crate::outcome::{Failure, Outcome, Rejected};
use crate::poison::Poison;
use crate::sequencer::Queued;

#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) queue: mpsc::Sender<Queued>,
    pub(crate) cache: Arc<FenceCache>,
    pub(crate) poison: Poison,
}

impl Door {
    pub(crate) async fn submit(&self, command: Command) -> Result<Outcome, Failure> {
        if let Some(reason) = self.poison.reason() {
            return Err(Rejected::Poisoned(reason.to_owned()).into());
        }
        // The cache must not refuse a retry of an applied write: its recorded outcome is looked up first (trap 29).
        if command.once.is_none()
            && let [judged] = command.judged.as_slice()
            && let Some(refusal) = self.cache.refuse(judged)
        {
            return Ok(Outcome::Refused(vec![refusal]));
        }
        let observed = command.is_observed().then(|| command.judged.clone());
        let (reply, answer) = oneshot::channel();
        self.queue.try_send((command, reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Rejected::Overloaded { limit: self.queue.max_capacity() },
            mpsc::error::TrySendError::Closed(_) => {
                Rejected::Poisoned(self.poison.reason().unwrap_or("the store is closed").to_owned())
            }
        })?;
        // A dropped reply means that the committer died while it had the command.
        let outcome =
            answer.await.unwrap_or_else(|_| Err(Failure::Unknown("the committer stopped before it answered".into())));
        if let (Some(judged), Ok(outcome)) = (observed, &outcome) {
            for judged in judged {
                record_observed(&judged.guarded.resource, judged.presented.as_ref(), outcome);
            }
        }
        outcome
    }
}

/// Observe mode: logs requests that would have been refused, so that they can be found before enforcement.
fn record_observed(resource: &Resource, presented: Option<&Presented>, outcome: &Outcome) {
    let (reason, fence) = match outcome {
        Outcome::Applied(applied) => (applied.observed, applied.fence),
        Outcome::Claimed(claimed) => (claimed.observed, claimed.state.token()),
        Outcome::Transacted(transacted) => {
            let observed = transacted.observed.iter().find(|(observed, _)| observed == resource);
            (observed.map(|(_, reason)| *reason), transacted.fence)
        }
        Outcome::Changed(changed) => {
            let observed = changed.observed.iter().find(|(observed, _)| observed == resource);
            (observed.map(|(_, reason)| *reason), changed.fence)
        }
        Outcome::Granted(grant) => (grant.observed, None),
        _ => return,
    };
    if let Some(reason) = reason {
        let shown = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        tracing::info!(
            reason = reason.as_str(),
            %resource,
            presented = shown(presented.map(|presented| presented.token.to_string())),
            holder = shown(presented.and_then(|presented| presented.holder.as_ref()).map(ToString::to_string)),
            fence = shown(fence.map(|fence| fence.to_string())),
            "observed: would be refused"
        );
    }
}
