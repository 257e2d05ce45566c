//! Resources that are Rust types.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::{Op, Write};
use crate::subject::{Broken, Hook, Request, Subject};
use crate::wait;

/// A fenced resource in this process. Implement the verbs that yours has; the others answer that they are unsupported.
///
/// Methods are called by many threads at once. A name that was never used is a resource without value and fence.
#[allow(unused_variables, reason = "what is unsupported looks at nothing")]
pub trait FencedResource: Send + Sync {
    /// The verbs it has, and its promises.
    fn manifest(&self) -> Manifest;

    /// Writes a value under a token.
    fn write(&self, res: &str, token: u64, holder: &str, value: &str) -> Answer;

    /// Reads value and fence.
    fn read(&self, res: &str) -> Answer {
        Answer::Unsupported
    }

    /// Reads under a token; a stale one is refused.
    fn checked_read(&self, res: &str, token: u64) -> Answer {
        Answer::Unsupported
    }

    /// Raises the fence to the token and reads, in one step.
    fn claim(&self, res: &str, token: u64, holder: &str) -> Answer {
        Answer::Unsupported
    }

    /// Writes if the value is `expect`; `None` means that there is no value.
    fn cas(&self, res: &str, token: u64, holder: &str, expect: Option<&str>, value: &str) -> Answer {
        Answer::Unsupported
    }

    /// Removes the value and keeps the fence.
    fn delete(&self, res: &str, token: u64, holder: &str) -> Answer {
        Answer::Unsupported
    }

    /// Does all these writes, or none.
    fn batch(&self, writes: &[Write]) -> Answer {
        Answer::Unsupported
    }

    /// Whether this hook is available.
    fn has_hook(&self, hook: Hook) -> bool {
        false
    }

    /// Runs a hook: `Kill` drops what a crash would lose, `Restart` starts again with the rest, `Clock` sets the time
    /// it uses, `Restore` returns to the last `Backup`.
    fn hook(&self, hook: Hook) -> Result<(), String> {
        Err(format!("{} is not implemented", hook.name()))
    }
}

/// A [`FencedResource`] as a subject of the suite. Between `Kill` and the next start it does not answer, as if its
/// process were gone.
pub struct InProcess<R> {
    resource: R,
    manifest: Manifest,
    down: AtomicBool,
}

impl<R: FencedResource> InProcess<R> {
    /// Wraps a resource. Its tokens are numbers, so malformed ones cannot be tested.
    pub fn new(resource: R) -> InProcess<R> {
        let manifest = Manifest { text_tokens: false, ..resource.manifest() };
        InProcess { resource, manifest, down: AtomicBool::new(false) }
    }
}

impl<R: FencedResource> Subject for InProcess<R> {
    fn describe(&self) -> String {
        format!("the Rust type {}", std::any::type_name::<R>())
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        if self.down.load(Ordering::Acquire) {
            return Ok(Answer::unknown("the resource was killed"));
        }
        let resource = &self.resource;
        let number = |token: &crate::token::Token| {
            token.number().ok_or_else(|| Broken(format!("{token} cannot be given to a Rust type, which takes numbers")))
        };
        travel(request.id);
        let answer = match request.op {
            Op::Write(Write { res, token, holder, value }) => resource.write(res, number(token)?, holder, value),
            Op::Read { res } => resource.read(res),
            Op::CheckedRead { res, token } => resource.checked_read(res, number(token)?),
            Op::Claim { res, token, holder } => resource.claim(res, number(token)?, holder),
            Op::Cas { res, token, holder, expect, value } => {
                resource.cas(res, number(token)?, holder, expect.as_deref(), value)
            }
            Op::Delete { res, token, holder } => resource.delete(res, number(token)?, holder),
            Op::Batch { writes } => resource.batch(writes),
        };
        travel(request.id + 1);
        Ok(answer)
    }

    fn has(&self, hook: Hook) -> bool {
        self.resource.has_hook(hook)
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        let done = self.resource.hook(hook);
        match hook {
            Hook::Kill | Hook::Powerloss => self.down.store(true, Ordering::Release),
            Hook::Start | Hook::Restart | Hook::Reset | Hook::Restore => self.down.store(false, Ordering::Release),
            Hook::Ready | Hook::Pause | Hook::Resume | Hook::Backup | Hook::Clock(_) => {}
        }
        done.map_err(|why| Broken(format!("the hook `{}` failed: {why}", hook.name())))
    }
}

/// Simulates the travel time of a request. Without it, a call in this process ends before another thread wakes up, and
/// overlaps nothing.
fn travel(id: u64) {
    match id % 4 {
        0 => wait::pause(Duration::from_micros(20)),
        _ => thread::yield_now(),
    }
}
