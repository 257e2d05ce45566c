//! A fenced resource as a Rust struct, to copy: implement `FencedResource`, and `suite!` makes a test of every case.
//!
//! In a crate of your own this file and the line `fencepost_conformance::suite!(Ledger::new, L2);` are a test file; run it
//! with `cargo test`. This ledger lives in memory, so it ends at L2: nothing of it survives a crash.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fencepost_conformance::subject::Hook;
use fencepost_conformance::{Answer, FencedResource, Manifest, Verb};

/// Values under names, each behind a fence.
#[derive(Default)]
pub struct Ledger {
    // One lock for the check and the change, so that no other caller gets between the two.
    entries: Mutex<BTreeMap<String, Entry>>,
    // Only for the suite, which pauses a resource to see what happens afterwards.
    paused: Mutex<bool>,
    resumed: Condvar,
}

#[derive(Clone, Default)]
struct Entry {
    fence: u64,
    value: Option<String>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.resumed.wait_while(paused, |paused| *paused));
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes an entry unless the token is behind its fence. The fence then rises to the token.
    fn admitted(&self, res: &str, token: u64, change: impl FnOnce(&mut Entry) -> Answer) -> Answer {
        if token == 0 {
            return Answer::error("tokens begin at 1");
        }
        let mut entries = self.entries();
        let entry = entries.entry(res.to_owned()).or_default();
        if token < entry.fence {
            return Answer::Stale { high: Some(entry.fence) };
        }
        let mut changed = Entry { fence: token, value: entry.value.clone() };
        let answer = change(&mut changed);
        if answer.is_ok() {
            *entry = changed;
        }
        answer
    }
}

fn found(entry: &Entry) -> Answer {
    // A name that was never used has fence 0, which means no fence, so it is not reported.
    Answer::Ok { value: Some(entry.value.clone()), high: Some(entry.fence).filter(|fence| *fence > 0) }
}

fn done(token: u64) -> Answer {
    Answer::Ok { value: None, high: Some(token) }
}

impl FencedResource for Ledger {
    fn manifest(&self) -> Manifest {
        let caps = [Verb::Write, Verb::Read, Verb::CheckedRead, Verb::Claim, Verb::Cas, Verb::Delete];
        Manifest { caps: caps.into(), ..Manifest::default() }
    }

    fn write(&self, res: &str, token: u64, _holder: &str, value: &str) -> Answer {
        self.admitted(res, token, |entry| {
            entry.value = Some(value.to_owned());
            done(token)
        })
    }

    fn read(&self, res: &str) -> Answer {
        found(&self.entries().get(res).cloned().unwrap_or_default())
    }

    fn checked_read(&self, res: &str, token: u64) -> Answer {
        let entry = self.entries().get(res).cloned().unwrap_or_default();
        if token < entry.fence { Answer::Stale { high: Some(entry.fence) } } else { found(&entry) }
    }

    fn claim(&self, res: &str, token: u64, _holder: &str) -> Answer {
        self.admitted(res, token, |entry: &mut Entry| found(entry))
    }

    fn cas(&self, res: &str, token: u64, _holder: &str, expect: Option<&str>, value: &str) -> Answer {
        self.admitted(res, token, |entry| {
            if entry.value.as_deref() != expect {
                return Answer::Mismatch { current: Some(entry.value.clone()) };
            }
            entry.value = Some(value.to_owned());
            done(token)
        })
    }

    fn delete(&self, res: &str, token: u64, _holder: &str) -> Answer {
        // The fence stays, or an old token could write again.
        self.admitted(res, token, |entry| {
            entry.value = None;
            done(token)
        })
    }

    fn has_hook(&self, hook: Hook) -> bool {
        matches!(hook, Hook::Pause | Hook::Resume)
    }

    fn hook(&self, hook: Hook) -> Result<(), String> {
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = hook == Hook::Pause;
        self.resumed.notify_all();
        Ok(())
    }
}
