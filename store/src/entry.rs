//! The single entry point: passes a command to the sequencer and returns its outcome (G6).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fencepost_core::{Access, Refusal, Resource};
use tokio::sync::mpsc;

use crate::command::{Action, Command, Judged, Once};
use crate::failure::{Failure, Rejected};
use crate::fence_cache::FenceCache;
use crate::poison::Poison;
use crate::reply::Reply;
use crate::unsettled::Unsettled;

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) queue: mpsc::Sender<Command>,
    pub(crate) cache: Arc<FenceCache>,
    pub(crate) poison: Poison,
    /// The number of commands that are queued or being executed.
    pub(crate) under_way: Arc<AtomicUsize>,
    /// Whether other gateways may raise fences, too.
    pub(crate) is_shared: bool,
}

impl Entry {
    /// The refusal that a durable fence in the cache is enough for, if there is one.
    pub(crate) fn known_refusal(&self, judged: &[Judged], once: Option<&Once>) -> Result<Option<Refusal>, Rejected> {
        self.check()?;
        Ok(match judged {
            // The cache must not refuse a retry of an applied write: its recorded outcome is looked up first (trap 29).
            [judged] if once.is_none() && !self.is_shared => self.cache.refuse(judged),
            // A holder whose claim is refused lifts its lock service above the fence that it is told.
            [judged] if once.is_none() && judged.access != Access::Claim => {
                self.cache.refuse(judged).map(|refusal| Refusal { at_least: true, ..refusal })
            }
            _ => None,
        })
    }

    /// Returns whether every command that was queued has been answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    fn check(&self) -> Result<(), Rejected> {
        match self.poison.reason() {
            Some(reason) => Err(Rejected::Poisoned(reason.to_owned())),
            None => Ok(()),
        }
    }

    /// Queues a command, and waits for its outcome.
    pub(crate) async fn submit<P: Unsettled>(
        &self,
        judged: Vec<Judged>,
        once: Option<Once>,
        action: impl FnOnce(Reply<P>) -> Action,
    ) -> Result<P::Settled, Failure> {
        self.check()?;
        let (reply, answer) = Reply::new();
        let command =
            Command { judged, once, action: action(reply), _under_way: Some(UnderWay::begin(&self.under_way)) };
        let observed = command.is_observed().then(|| command.judged.clone());
        self.queue.try_send(command).map_err(|error| match error {
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
                record_observed::<P>(&judged, outcome);
            }
        }
        outcome
    }
}

/// Counts a command as queued or being executed.
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn begin(count: &Arc<AtomicUsize>) -> UnderWay {
        count.fetch_add(1, Ordering::SeqCst);
        UnderWay(count.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Observe mode: logs requests that would have been refused, so that they can be found before enforcement.
fn record_observed<P: Unsettled>(judged: &Judged, outcome: &P::Settled) {
    let (resource, presented): (&Resource, _) = (&judged.guarded.resource, judged.presented.as_ref());
    if let Some((reason, fence)) = P::observed(outcome, resource) {
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
