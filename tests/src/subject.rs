//! A resource under test, whatever way it is reached.

use std::fmt;

use crate::answer::Answer;
use crate::harness::proxy::Proxy;
use crate::manifest::Manifest;
use crate::op::Op;

/// The harness or the adapter failed, so nothing can be said about the resource. Ends the run with exit code 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

/// What can be done to a resource from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Start it.
    Start,
    /// Wait until it serves.
    Ready,
    /// End it at once, as a crash does.
    Kill,
    /// Stop it in order if it runs, and start it again with the data it had.
    Restart,
    /// Stop its process, as a long pause does.
    Pause,
    /// Let it go on.
    Resume,
    /// Lose what was not synced.
    Powerloss,
    /// Forget everything; runs before every case.
    Reset,
    /// Go back to an older backup.
    Restore,
}

impl Hook {
    /// All of them, in the order of the documents.
    pub const ALL: [Hook; 9] = [
        Hook::Start,
        Hook::Ready,
        Hook::Kill,
        Hook::Restart,
        Hook::Pause,
        Hook::Resume,
        Hook::Powerloss,
        Hook::Reset,
        Hook::Restore,
    ];

    /// Its name in files and documents.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Start => "start",
            Hook::Ready => "ready",
            Hook::Kill => "kill",
            Hook::Restart => "restart",
            Hook::Pause => "pause",
            Hook::Resume => "resume",
            Hook::Powerloss => "powerloss",
            Hook::Reset => "reset",
            Hook::Restore => "restore",
        }
    }
}

/// Which way a request goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Straight to the resource.
    #[default]
    Direct,
    /// Through the subject's [`Proxy`], if it has one.
    Proxied,
}

/// One request, with everything that a log of the resource should be able to say about it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Which case makes it.
    pub case: &'a str,
    /// With which seed.
    pub seed: u64,
    /// Its number in the case.
    pub id: u64,
    /// Which client makes it; instance `client % instances` gets it.
    pub client: u32,
    /// Which way it goes.
    pub route: Route,
    /// What is asked.
    pub op: &'a Op,
}

/// How much of a request is sent before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its head, and nothing of its body.
    Head,
    /// Its head and half of its body.
    HalfBody,
}

/// A request that was sent in part.
pub trait Begun: Send {
    /// Sends the rest and waits for the answer.
    fn finish(self: Box<Self>) -> Result<Answer, Broken>;

    /// Breaks the connection. What becomes of the request is unknown.
    fn abandon(self: Box<Self>);
}

/// A resource that can be called and hurt.
///
/// 1. `call` blocks until there is an answer or a limit of time is reached, and never retries by itself.
/// 2. Whatever is not a clear answer is `Unknown`: a timeout, a reset, an answer that nothing was said about.
/// 3. `call` may be used by many threads at once; calls of different clients do not wait for each other here.
/// 4. After `Kill` calls fail soon; after `Restart` has returned, new calls reach the new process.
/// 5. Dropping it leaves no process and no file behind.
pub trait Subject: Send + Sync {
    /// What it is, in a line, for reports.
    fn describe(&self) -> String;

    /// What it says about itself.
    fn manifest(&self) -> &Manifest;

    /// How many processes serve one store.
    fn instances(&self) -> usize {
        1
    }

    /// Makes one request.
    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken>;

    /// Can this be done to it?
    fn has(&self, hook: Hook) -> bool;

    /// Does it. Only called if `has` said yes.
    fn hook(&self, hook: Hook) -> Result<(), Broken>;

    /// Sends a part of a request. `None`: it has no wire that could be cut in the middle.
    fn begin(&self, request: &Request<'_>, part: Part) -> Option<Result<Box<dyn Begun>, Broken>> {
        let _ = (request, part);
        None
    }

    /// Other ways to reach a resource or to change it, by name: a path with two slashes, a method override, a copy.
    fn bypasses(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes a request by one of these ways. It may be taken for another resource, but must never get around the fence.
    fn bypass(&self, way: usize, request: &Request<'_>) -> Result<Answer, Broken> {
        let _ = (way, request);
        Ok(Answer::Unsupported)
    }

    /// What looks wrong in how it is described, after a run.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The proxy that `Route::Proxied` leads through.
    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
