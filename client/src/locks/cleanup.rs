//! What is undone in the background if an acquisition ends early.

use std::pin::Pin;

use tokio::runtime::Handle;

/// A future that is spawned if it is dropped before it is disarmed. Without a runtime it never runs.
#[must_use = "it is spawned when it is dropped"]
pub(super) struct Cleanup(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Cleanup {
    /// Does not poll the future.
    pub(super) fn new(future: impl Future<Output = ()> + Send + 'static) -> Cleanup {
        Cleanup(Some(Box::pin(future)))
    }

    /// Drops the future: there is nothing left to undo.
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let (Some(future), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// A cleanup, and the receiver that reports whether it ran.
    fn reported() -> (Cleanup, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let cleanup = Cleanup::new(async move {
            let _ = sender.send(());
        });
        (cleanup, receiver)
    }

    #[tokio::test]
    async fn it_runs_when_it_is_dropped() {
        let (cleanup, ran) = reported();
        drop(cleanup);
        assert!(ran.await.is_ok());
    }

    #[tokio::test]
    async fn it_does_not_run_once_disarmed() {
        let (cleanup, ran) = reported();
        cleanup.disarm();
        assert!(ran.await.is_err());
    }

    #[test]
    fn it_does_not_run_without_a_runtime() {
        let (cleanup, ran) = reported();
        drop(cleanup);
        assert!(ran.blocking_recv().is_err());
    }
}
