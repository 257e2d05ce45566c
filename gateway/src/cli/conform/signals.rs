//! Handling of SIGINT and SIGTERM: a run that they end leaves no process behind, and reports what it has seen.

use std::sync::{Arc, OnceLock};
use std::thread;

use fencepost_conformance::adapters::process;
use fencepost_conformance::run::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Failed, HARNESS_FAILED, broken};

/// Handles signals from its creation to the end of the process.
pub(super) struct Signals {
    gently: Arc<OnceLock<Stop>>,
}

impl Signals {
    /// From now on a signal ends the process, and everything that the suite has started with it.
    pub(super) fn listen() -> Result<Signals, Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
        let entered = runtime.enter();
        let interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
        let terminate = signal(SignalKind::terminate()).map_err(broken)?;
        drop(entered);
        let gently = Arc::new(OnceLock::new());
        let asked = gently.clone();
        thread::spawn(move || runtime.block_on(end(interrupt, terminate, &asked)));
        Ok(Signals { gently })
    }

    /// From now on the first signal ends this run, which then reports; the second one ends the process.
    pub(super) fn end_gently(&self, run: &Stop) {
        // Called once, so this cannot fail.
        let _ = self.gently.set(run.clone());
    }
}

async fn end(mut interrupt: Signal, mut terminate: Signal, gently: &OnceLock<Stop>) {
    loop {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        };
        if gently.get().is_some_and(|run| run.now(&format!("ended by {name}"))) {
            eprintln!(
                "\nfencepost: {name}: the case that runs is ended and what was seen is reported; once more ends at once"
            );
            continue;
        }
        process::end_all();
        eprintln!("fencepost: ended by {name}; nothing is said about the resource");
        std::process::exit(HARNESS_FAILED.into());
    }
}
