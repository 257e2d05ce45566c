//! How the outcome of a command gets to its caller. Each command carries a reply of the type of its own outcome, so the
//! compiler rules out an answer to another command.

use fencepost_core::Resource;
use tokio::sync::oneshot;

use crate::engine::Version;
use crate::failure::Failure;
use crate::lock_queue::Locks;
use crate::unsettled::Unsettled;

/// Where a caller waits for its outcome.
pub(crate) type Answer<P> = oneshot::Receiver<Result<<P as Unsettled>::Settled, Failure>>;

/// An outcome, and when it may be answered.
pub(crate) enum Draft<P> {
    /// Justified by durable records alone: at once.
    Settled(P),
    /// After the commit.
    Pending(P),
}

/// Answers one command, once.
pub(crate) struct Reply<P: Unsettled> {
    sender: Option<oneshot::Sender<Result<P::Settled, Failure>>>,
    /// The outcome, until its commit.
    pending: Option<P>,
}

impl<P: Unsettled> Reply<P> {
    pub(crate) fn new() -> (Reply<P>, Answer<P>) {
        let (sender, answer) = oneshot::channel();
        (Reply { sender: Some(sender), pending: None }, answer)
    }

    /// Answers an outcome at once, or keeps it until the commit.
    pub(crate) fn judged(&mut self, draft: Draft<P>) {
        match draft {
            Draft::Settled(outcome) => {
                self.send(Ok(outcome.settle(None)));
            }
            Draft::Pending(outcome) => self.pending = Some(outcome),
        }
    }

    fn send(&mut self, result: Result<P::Settled, Failure>) {
        if let Some(sender) = self.sender.take() {
            // The receiver may be gone; the outcome stands.
            let _ = sender.send(result);
        }
    }
}

/// A reply of any kind of command.
pub(crate) trait AnyReply {
    /// Returns whether the command has not been answered yet.
    fn is_awaited(&self) -> bool;

    /// Answers without an outcome.
    fn fail(&mut self, failure: &Failure);

    /// Drops an outcome whose commit did not happen. The command is judged again.
    fn forget_outcome(&mut self);

    /// Answers the outcome that waited for the commit. What it shows of the command's lock is noted before.
    fn settle(&mut self, first: Option<Version>, lock: Option<(&Locks, &Resource)>);
}

impl<P: Unsettled> AnyReply for Reply<P> {
    fn is_awaited(&self) -> bool {
        self.sender.is_some()
    }

    fn fail(&mut self, failure: &Failure) {
        self.pending = None;
        self.send(Err(failure.clone()));
    }

    fn forget_outcome(&mut self) {
        self.pending = None;
    }

    fn settle(&mut self, first: Option<Version>, lock: Option<(&Locks, &Resource)>) {
        let Some(outcome) = self.pending.take() else { return };
        let outcome = outcome.settle(first);
        if let (Some((locks, resource)), Some(sighting)) = (lock, P::sighting(&outcome)) {
            locks.note(resource, sighting);
        }
        self.send(Ok(outcome));
    }
}
