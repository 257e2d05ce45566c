//! A resource under test, whatever way it is reached.

mod shift;

use std::fmt;

use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::Op;
use crate::proxy::Proxy;

pub use shift::Shift;

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
    /// Take a backup, and go on.
    Backup,
    /// Put the last backup back, and serve again.
    Restore,
    /// Set its clock so far from the right one.
    Clock(Shift),
}

impl Hook {
    /// All of them, in the order of the documents.
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
            Hook::Backup => "backup",
            Hook::Restore => "restore",
            Hook::Clock(_) => "clock",
        }
    }
}

/// How a backup was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackedUp {
    /// By its own means: everything that belongs to it.
    ByItself,
    /// The directory that the suite gave to it was copied. Perhaps not everything lies there.
    ByCopy,
    /// Not at all, for this reason; it serves as before.
    Cannot(String),
}

/// How it took a backup that was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It serves with it.
    Serves,
    /// It does not, for this reason, and serves again with what it had before.
    Refuses(String),
    /// The suite cannot put it back, for this reason; it serves with what it had before.
    Cannot(String),
}

impl BackedUp {
    /// For who needs it.
    pub fn must_be_there(self) -> Result<(), Broken> {
        match self {
            BackedUp::ByItself | BackedUp::ByCopy => Ok(()),
            BackedUp::Cannot(why) => Err(Broken(format!("it cannot be backed up: {why}"))),
        }
    }
}

impl Restored {
    /// For who needs it to serve with the backup.
    pub fn must_serve(self) -> Result<(), Broken> {
        match self {
            Restored::Serves => Ok(()),
            Restored::Refuses(why) => Err(Broken(format!("it does not serve with a backup that was put back: {why}"))),
            Restored::Cannot(why) => Err(Broken(format!("a backup cannot be put back: {why}"))),
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

/// Another way to reach a resource or to change it, by its name in reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Around {
    /// A write that is written in another way: a path with two slashes, a method override.
    Spelling(String),
    /// A request of its own: a copy, a rename, an expiry.
    Request(String),
}

impl Around {
    /// What reports call it.
    pub fn name(&self) -> &str {
        let (Around::Spelling(name) | Around::Request(name)) = self;
        name
    }
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

/// The steps of a resource, while somebody looks: the calls by which its processes write, sync, change names and answer. Each
/// is held for a moment before it is done, so that a kill can meet it.
pub trait Steps: Send + Sync {
    /// How many were begun so far.
    fn made(&self) -> u64;

    /// The latest of them, in a few words, if it is known.
    fn latest(&self) -> Option<String> {
        None
    }
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

    /// Whoever stands between has not answered a single request of many: then nothing is known about the resource. Asked once
    /// nothing more comes of asking.
    fn never_answered(&self) -> Result<(), Broken> {
        Ok(())
    }

    /// Can this be done to it?
    fn has(&self, hook: Hook) -> bool;

    /// Does it. Only called if `has` said yes.
    fn hook(&self, hook: Hook) -> Result<(), Broken>;

    /// Watches the steps of its processes, from now until they are killed. `Err` says why nobody can.
    fn steps(&self) -> Result<Box<dyn Steps>, String> {
        Err("it has no process of its own".to_owned())
    }

    /// `Backup`, by who can tell how it was done.
    fn back_up(&self) -> Result<BackedUp, Broken> {
        self.hook(Hook::Backup).map(|()| BackedUp::ByItself)
    }

    /// `Restore`, by who can tell whether it serves with the backup.
    fn restore(&self) -> Result<Restored, Broken> {
        self.hook(Hook::Restore).map(|()| Restored::Serves)
    }

    /// Sends a part of a request. `None`: it has no wire that could be cut in the middle.
    fn begin(&self, request: &Request<'_>, part: Part) -> Option<Result<Box<dyn Begun>, Broken>> {
        let _ = (request, part);
        None
    }

    /// Other ways to reach a resource or to change it.
    fn bypasses(&self) -> Vec<Around> {
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
