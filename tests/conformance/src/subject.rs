//! Resources under test, however they are reached.

mod shift;

use std::fmt;

use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::Op;
use crate::proxy::Proxy;

pub use shift::Shift;

/// The harness or the adapter failed, so there is no verdict about the resource. Ends the run with exit code 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

/// An action on the resource from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Start it.
    Start,
    /// Wait until it serves.
    Ready,
    /// End it abruptly, as a crash does.
    Kill,
    /// Stop it gracefully if it runs, and start it again with its data.
    Restart,
    /// Pause its process, as a long stall does.
    Pause,
    /// Resume its process.
    Resume,
    /// Lose everything that was not synced.
    Powerloss,
    /// Delete all data; runs before every case.
    Reset,
    /// Take a backup, and continue.
    Backup,
    /// Restore the last backup, and serve again.
    Restore,
    /// Set its clock off by this much.
    Clock(Shift),
}

impl Hook {
    /// All hooks, in the order of the documentation.
    pub const ALL: [Hook; 11] = [
        Hook::Start,
        Hook::Ready,
        Hook::Kill,
        Hook::Restart,
        Hook::Pause,
        Hook::Resume,
        Hook::Powerloss,
        Hook::Reset,
        Hook::Backup,
        Hook::Restore,
        Hook::Clock(Shift::NONE),
    ];

    /// Its name in files and documentation.
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
            Hook::Backup => "backup",
            Hook::Restore => "restore",
            Hook::Clock(_) => "clock",
        }
    }
}

/// How a backup was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackedUp {
    /// By the resource's own means: all of its data.
    ByItself,
    /// By copying the directory that the suite gave to it. The copy may be incomplete.
    ByCopy,
    /// There is no backup, for this reason; the resource serves as before.
    Cannot(String),
}

/// The result of restoring a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The resource serves with the backup.
    Serves,
    /// The resource does not serve with it, for this reason, and serves again with its former data.
    Refuses(String),
    /// The suite cannot restore it, for this reason; the resource serves with its former data.
    Cannot(String),
}

impl BackedUp {
    /// Fails if there is no backup.
    pub fn must_be_there(self) -> Result<(), Broken> {
        match self {
            BackedUp::ByItself | BackedUp::ByCopy => Ok(()),
            BackedUp::Cannot(why) => Err(Broken(format!("it cannot be backed up: {why}"))),
        }
    }
}

impl Restored {
    /// Fails unless the resource serves with the backup.
    pub fn must_serve(self) -> Result<(), Broken> {
        match self {
            Restored::Serves => Ok(()),
            Restored::Refuses(why) => Err(Broken(format!("it does not serve with a backup that was put back: {why}"))),
            Restored::Cannot(why) => Err(Broken(format!("a backup cannot be put back: {why}"))),
        }
    }
}

/// The route of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Directly to the resource.
    #[default]
    Direct,
    /// Through the subject's [`Proxy`], if it has one.
    Proxied,
}

/// One request, with everything that a log of the resource should be able to show about it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The id of the case.
    pub case: &'a str,
    /// The seed of the run.
    pub seed: u64,
    /// The number of the request in the case.
    pub id: u64,
    /// The client that makes it; instance `client % instances` gets it.
    pub client: u32,
    /// The route to the resource.
    pub route: Route,
    /// The requested operation.
    pub op: &'a Op,
}

/// Another way to reach or change a resource, by its name in reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Around {
    /// A write in another spelling: a path with two slashes, a method override.
    Spelling(String),
    /// A separate request: a copy, a rename, an expiry.
    Request(String),
}

impl Around {
    /// Its name in reports.
    pub fn name(&self) -> &str {
        let (Around::Spelling(name) | Around::Request(name)) = self;
        name
    }
}

/// How much of a request is sent before the rest is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The head, and nothing of the body.
    Head,
    /// The head and half of the body.
    HalfBody,
}

/// A request that was sent in part.
pub trait Begun: Send {
    /// Sends the rest and waits for the answer.
    fn finish(self: Box<Self>) -> Result<Answer, Broken>;

    /// Breaks the connection. The outcome of the request is unknown.
    fn abandon(self: Box<Self>);
}

/// The steps of a resource while they are watched: the calls by which its processes write, sync, rename and answer.
/// Each is held for a moment before it is done, so that a kill can hit it.
pub trait Steps: Send + Sync {
    /// How many steps were begun so far.
    fn made(&self) -> u64;

    /// The latest step, in a few words, if it is known.
    fn latest(&self) -> Option<String> {
        None
    }
}

/// A resource that can be called and disturbed.
///
/// 1. `call` blocks until there is an answer or a time limit is reached, and never retries by itself.
/// 2. Everything that is not a clear answer is `Unknown`: a timeout, a reset, an answer without a described meaning.
/// 3. `call` may be used by many threads at once; calls of different clients do not wait for each other here.
/// 4. After `Kill` calls fail soon; after `Restart` has returned, new calls reach the new process.
/// 5. Dropping it leaves no process and no file behind.
pub trait Subject: Send + Sync {
    /// A one-line description, for reports.
    fn describe(&self) -> String;

    /// What the resource declares about itself.
    fn manifest(&self) -> &Manifest;

    /// How many processes serve one store.
    fn instances(&self) -> usize {
        1
    }

    /// Makes one request.
    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken>;

    /// Fails if the adapter has not answered a single request of many: then nothing is known about the resource. Called
    /// when further requests are pointless.
    fn never_answered(&self) -> Result<(), Broken> {
        Ok(())
    }

    /// Whether this hook is available.
    fn has(&self, hook: Hook) -> bool;

    /// Runs a hook. Only called if `has` returned true for it.
    fn hook(&self, hook: Hook) -> Result<(), Broken>;

    /// Watches the steps of its processes, from now until they are killed. `Err` gives the reason why they cannot be
    /// watched.
    fn steps(&self) -> Result<Box<dyn Steps>, String> {
        Err("it has no process of its own".to_owned())
    }

    /// Runs `Backup`; implementations that know how it was done report it.
    fn back_up(&self) -> Result<BackedUp, Broken> {
        self.hook(Hook::Backup).map(|()| BackedUp::ByItself)
    }

    /// Runs `Restore`; implementations that know whether the resource serves with the backup report it.
    fn restore(&self) -> Result<Restored, Broken> {
        self.hook(Hook::Restore).map(|()| Restored::Serves)
    }

    /// Sends a part of a request. `None`: there is no connection that could be cut in the middle.
    fn begin(&self, request: &Request<'_>, part: Part) -> Option<Result<Box<dyn Begun>, Broken>> {
        let _ = (request, part);
        None
    }

    /// Other ways to reach or change a resource.
    fn bypasses(&self) -> Vec<Around> {
        Vec::new()
    }

    /// Makes a request by one of these ways. It may be taken for another resource, but must never bypass the fence.
    fn bypass(&self, way: usize, request: &Request<'_>) -> Result<Answer, Broken> {
        let _ = (way, request);
        Ok(Answer::Unsupported)
    }

    /// Likely errors in its description, found during a run.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The proxy that `Route::Proxied` leads through.
    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
