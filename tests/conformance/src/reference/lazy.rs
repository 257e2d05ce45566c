//! Adapters that do nothing. None of them may pass the suite.

use std::collections::BTreeSet;

use crate::answer::Answer;
use crate::manifest::{Kill, Manifest};
use crate::op::Verb;
use crate::subject::{Broken, Hook, Request, Subject};

/// A resource that always gives the same answer, and whose hooks all succeed.
pub struct Lazy {
    name: &'static str,
    /// The name of the answer.
    says: &'static str,
    manifest: Manifest,
}

/// The names of all lazy resources: their answer, and whether they have no other verb than write.
pub const LAZY: [&str; 16] = [
    "unknown",
    "unsupported",
    "ok",
    "ok with a value",
    "ok with a fence",
    "ok with a value and a fence",
    "stale",
    "stale with a fence",
    "error",
    "unknown (write only)",
    "unsupported (write only)",
    "ok (write only)",
    "ok with a fence (write only)",
    "stale (write only)",
    "stale with a fence (write only)",
    "error (write only)",
];

/// The suffix of those that have no other verb than write.
const WRITE_ONLY: &str = " (write only)";

/// The value of those that report one.
const VALUE: &str = "lazy";

/// The fence of those that report one: many cases begin with this token.
const FENCE: u64 = 9;

impl Lazy {
    /// The lazy resource with this name.
    pub fn new(name: &'static str) -> Lazy {
        let (says, caps) = match name.strip_suffix(WRITE_ONLY) {
            Some(says) => (says, BTreeSet::from([Verb::Write])),
            None => (name, Verb::ALL.into_iter().collect()),
        };
        Lazy { name, says, manifest: Manifest { caps, kill: Kill::Everything, ..Manifest::default() } }
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
        let (nothing, something) = (reads.then_some(None), reads.then(|| Some(VALUE.to_owned())));
        Ok(match self.says {
            "unsupported" => Answer::Unsupported,
            "ok" => Answer::Ok { value: nothing, high: None },
            "ok with a value" => Answer::Ok { value: something, high: None },
            "ok with a fence" => Answer::Ok { value: nothing, high: Some(FENCE) },
            "ok with a value and a fence" => Answer::Ok { value: something, high: Some(FENCE) },
            "stale" => Answer::Stale { high: None },
            "stale with a fence" => Answer::Stale { high: Some(FENCE) },
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
