//! A correct resource, and its many faulty variants.

mod backup;
mod batch;
mod bug;
mod clock;
mod http;
mod lazy;
mod reads;
mod record;
mod serve;
mod service;
mod store;
mod ways;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::answer::Answer;
use crate::manifest::{Equal, High, Kill, Manifest, Policy};
use crate::op::{Op, Verb, Write};
use crate::random::Random;
use crate::resource::FencedResource;
use crate::subject::Hook;
use record::Rules;
use store::{Gone, Store, Visit};

pub use bug::{Bug, Front, MUTANTS, Mutant, SETUPS, Setup};
pub use http::OverHttp;
pub use lazy::{LAZY, Lazy};
pub use service::Service;

/// A resource in this process that follows the model, or breaks it in one way. A kill loses its memory, not its disk.
pub struct Reference {
    manifest: Manifest,
    bug: Option<Bug>,
    seed: u64,
    calls: AtomicU64,
    store: Store,
}

impl Reference {
    /// A correct reference with all verbs, under this policy.
    pub fn new(policy: Policy, equal: Equal) -> Reference {
        let manifest = Manifest {
            caps: Verb::ALL.into_iter().collect(),
            policy,
            equal,
            kill: Kill::Everything,
            ..Manifest::default()
        };
        Reference { manifest, bug: None, seed: 0, calls: AtomicU64::new(0), store: Store::new(1) }
    }

    /// A reference with this setup and bug; its pauses are drawn from the seed.
    pub fn set_up(setup: Setup, bug: Option<Bug>, seed: u64) -> Reference {
        let store = Store::new(setup.instances);
        let plain = Reference::new(setup.policy, setup.equal);
        let manifest = Manifest { reads: setup.reads, high: setup.high, ..plain.manifest.clone() };
        Reference { manifest, bug, seed, store, ..plain }
    }

    /// Performs an operation in one of its processes.
    pub fn serve(&self, instance: usize, op: &Op) -> Answer {
        self.visit(instance, None, |visit| self.perform(visit, op))
    }

    /// The same, if the process that accepted the connection is still alive.
    fn serve_in(&self, life: u64, op: &Op) -> Answer {
        self.visit(0, Some(life), |visit| self.perform(visit, op))
    }

    fn visit(
        &self,
        instance: usize,
        life: Option<u64>,
        act: impl FnOnce(&mut Visit<'_>) -> Result<Answer, Gone>,
    ) -> Answer {
        let random = Random::from_seed(self.seed).fork(self.calls.fetch_add(1, Ordering::Relaxed));
        let served = self.store.enter(instance, random, life).and_then(|mut visit| {
            let answer = act(&mut visit)?;
            visit.breathe();
            visit.step();
            visit.alive()?;
            Ok(self.told(&mut visit, answer))
        });
        served.unwrap_or_else(|Gone(why)| Answer::unknown(why))
    }

    /// Where the reported fence need not be exact, about every second one is too low.
    fn told(&self, visit: &mut Visit<'_>, answer: Answer) -> Answer {
        if self.manifest.high == High::Exact || visit.one_of(2) {
            return answer;
        }
        match answer {
            Answer::Ok { value, high } => Answer::Ok { value, high: high.map(|high| high / 2) },
            Answer::Stale { high } => Answer::Stale { high: high.map(|high| high / 2) },
            other => other,
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules { manifest: &self.manifest, bug: self.bug }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// Takes tokens as numbers; [`Service`] takes text.
impl FencedResource for Reference {
    fn manifest(&self) -> Manifest {
        self.manifest.clone()
    }

    fn write(&self, res: &str, token: u64, holder: &str, value: &str) -> Answer {
        self.serve(0, &Op::write(res, token, holder, value))
    }

    fn read(&self, res: &str) -> Answer {
        self.serve(0, &Op::read(res))
    }

    fn checked_read(&self, res: &str, token: u64) -> Answer {
        self.serve(0, &Op::checked_read(res, token))
    }

    fn claim(&self, res: &str, token: u64, holder: &str) -> Answer {
        self.serve(0, &Op::claim(res, token, holder))
    }

    fn cas(&self, res: &str, token: u64, holder: &str, expect: Option<&str>, value: &str) -> Answer {
        self.serve(0, &Op::cas(res, token, holder, expect, value))
    }

    fn delete(&self, res: &str, token: u64, holder: &str) -> Answer {
        self.serve(0, &Op::delete(res, token, holder))
    }

    fn batch(&self, writes: &[Write]) -> Answer {
        self.serve(0, &Op::Batch { writes: writes.to_vec() })
    }

    fn has_hook(&self, hook: Hook) -> bool {
        match hook {
            Hook::Start | Hook::Ready | Hook::Kill | Hook::Restart | Hook::Pause | Hook::Resume | Hook::Reset => true,
            Hook::Backup | Hook::Restore | Hook::Clock(_) => true,
            Hook::Powerloss => false,
        }
    }

    fn hook(&self, hook: Hook) -> Result<(), String> {
        match hook {
            Hook::Start => self.store.start(self.has(Bug::FragileRecovery)),
            Hook::Ready => {}
            Hook::Kill => self.store.kill(),
            Hook::Restart => self.store.restart(self.has(Bug::AnsweredFirst)),
            Hook::Pause => self.store.pause(),
            Hook::Resume => self.store.resume(),
            Hook::Reset => self.store.reset(),
            Hook::Backup => self.back_up(),
            Hook::Restore => self.restore(),
            Hook::Clock(shift) => self.store.set_clock(shift),
            Hook::Powerloss => return Err(format!("{} is not implemented", hook.name())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
