//! Adapters that do nothing. The suite must pass none of them.

use crate::answer::Answer;
use crate::manifest::{Kill, Manifest};
use crate::op::Verb;
use crate::subject::{Broken, Hook, Request, Subject};

/// Always the same answer, whatever is asked, and every hook succeeds.
pub struct Lazy {
    name: &'static str,
    manifest: Manifest,
}

/// The names of all of them.
pub const LAZY: [&str; 5] = ["unknown", "unsupported", "ok", "stale", "error"];

impl Lazy {
    /// The one with this name, with all verbs.
    pub fn new(name: &'static str) -> Lazy {
        let caps = Verb::ALL.into_iter().collect();
        Lazy { name, manifest: Manifest { caps, kill: Kill::Everything, ..Manifest::default() } }
    }
}

impl Subject for Lazy {
    fn describe(&self) -> String {
        format!("an adapter that always answers {}", self.name)
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn instances(&self) -> usize {
        2
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        let reads = matches!(request.op.verb(), Verb::Read | Verb::CheckedRead | Verb::Claim);
        Ok(match self.name {
            "unsupported" => Answer::Unsupported,
            "ok" => Answer::Ok { value: reads.then_some(None), high: None },
            "stale" => Answer::Stale { high: None },
            "error" => Answer::error("lazy"),
            _ => Answer::unknown("lazy"),
        })
    }

    fn has(&self, _: Hook) -> bool {
        true
    }

    fn hook(&self, _: Hook) -> Result<(), Broken> {
        Ok(())
    }
}
