//! The history of a case: every operation with its times, and what was done to the resource meanwhile.

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

/// One operation with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its number in the case, from 1, in the order of the calls.
    pub id: u64,
    /// The client that made it. A client makes one operation at a time.
    pub client: u32,
    /// The request.
    pub op: Op,
    /// When it was called.
    pub called: Time,
    /// When the answer arrived, or the harness gave up waiting.
    pub returned: Time,
    /// The answer. An unknown outcome may still take effect after `returned`.
    pub answer: Answer,
    /// For an unknown outcome: it took effect before this time, or never will, because everything that could apply it
    /// was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_by: Option<Time>,
    /// The operation that this one is a copy of. The network sent the copy, not the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<u64>,
}

impl Operation {
    /// Whether it was answered before the other one was called.
    pub fn precedes(&self, other: &Operation) -> bool {
        self.latest() < other.called
    }

    /// The latest moment at which it can have taken effect.
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
    /// The process was paused.
    Paused,
    /// The process was resumed.
    Resumed,
    /// The process was killed.
    Killed,
    /// The process was stopped gracefully.
    Stopped,
    /// The process was ready again.
    Restarted,
    /// The clock was set off by this much.
    Clock(Shift),
}

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When it happened.
    pub at: Time,
    /// What happened.
    pub event: Event,
    /// The step that the process was about to take, if that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

impl Mark {
    /// An event without further details.
    pub fn new(at: Time, event: Event) -> Mark {
        Mark { at, event, before: None }
    }
}

/// Everything that happened in one run of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The id of the case.
    pub case: String,
    /// The seed of the run.
    pub seed: u64,
    /// The resource's description of itself.
    pub manifest: Manifest,
    /// All operations, in the order of their calls.
    pub operations: Vec<Operation>,
    /// All events, in the order of time.
    pub marks: Vec<Mark>,
    /// The verdict of the run, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
}

/// The verdict on a history when it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// How the case ended.
    pub status: Status,
    /// The reason for the status.
    pub reason: String,
    /// Where the verdict comes from.
    pub by: Judge,
}

/// The origin of a verdict: the checker can repeat its own, the case cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judge {
    /// The case itself, by what it observed or missed.
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
