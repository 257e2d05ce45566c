//! What happened in a case: every operation with its times, and what was done to the resource meanwhile.

mod file;

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::Op;
use crate::subject::Shift;
use crate::verdict::Status;

pub use file::Unreadable;

/// Nanoseconds since the case began, by the harness's one monotonic clock.
pub type Time = u64;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its number in the case, from 1, in the order of the calls.
    pub id: u64,
    /// Which client made it. A client makes one after the other.
    pub client: u32,
    /// What was asked.
    pub op: Op,
    /// When it was called.
    pub called: Time,
    /// When the answer was there, or the harness gave up waiting.
    pub returned: Time,
    /// What was answered. After `returned` an unknown outcome may still come about.
    pub answer: Answer,
    /// An unknown outcome that came about before this time, or never: everything that could bring it about was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_by: Option<Time>,
    /// It is a copy of this operation, sent by the network and not by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<u64>,
}

impl Operation {
    /// Had it been answered when the other one was called?
    pub fn precedes(&self, other: &Operation) -> bool {
        self.latest() < other.called
    }

    /// The last moment at which it can have taken effect.
    pub fn latest(&self) -> Time {
        match (self.answer.is_unknown(), self.dead_by) {
            (false, _) => self.returned,
            (true, Some(dead)) => dead.max(self.called),
            (true, None) => Time::MAX,
        }
    }
}

/// What was done to the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Its process was stopped.
    Paused,
    /// It went on.
    Resumed,
    /// Its process was killed.
    Killed,
    /// It was stopped in order.
    Stopped,
    /// It was ready again.
    Restarted,
    /// Its clock was set so far from the right one.
    Clock(Shift),
}

/// An event and when it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub at: Time,
    /// What.
    pub event: Event,
    /// The step that the process was about to take, where that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

impl Mark {
    /// An event of which no more is known.
    pub fn new(at: Time, event: Event) -> Mark {
        Mark { at, event, before: None }
    }
}

/// Everything that happened in one run of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Which case.
    pub case: String,
    /// With which seed.
    pub seed: u64,
    /// What the resource said about itself.
    pub manifest: Manifest,
    /// In the order of their calls.
    pub operations: Vec<Operation>,
    /// In the order of time.
    pub marks: Vec<Mark>,
    /// What the run said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
}

/// What was said about a history when it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// How the case ended.
    pub status: Status,
    /// Why.
    pub reason: String,
    /// Who said so.
    pub by: Judge,
}

/// Who judges: the checker can do it again, the case cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judge {
    /// The case itself, by what it knew or missed.
    Case,
    /// The checker, by the history alone.
    Checker,
}

impl History {
    /// The operation with this number.
    pub fn operation(&self, id: u64) -> Option<&Operation> {
        self.operations.iter().find(|operation| operation.id == id)
    }
}
