//! Levels, statuses, and what a whole run has shown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::history::History;

/// How hard the suite tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Ordering.
    L1,
    /// Concurrency and network.
    L2,
    /// Process crash.
    L3,
    /// Power loss and disk faults.
    L4,
}

impl Level {
    /// All of them.
    pub const ALL: [Level; 4] = [Level::L1, Level::L2, Level::L3, Level::L4];

    /// What it is about.
    pub fn about(self) -> &'static str {
        match self {
            Level::L1 => "ordering",
            Level::L2 => "concurrency and network",
            Level::L3 => "process crash",
            Level::L4 => "power loss and disk faults",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        let found = Level::ALL.into_iter().find(|level| level.to_string().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("`{text}` is not a level: L1, L2, L3 or L4"))
    }
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The rule held, with enough evidence.
    Pass,
    /// The rule was broken.
    Fail,
    /// Not run; caps the level.
    Skip,
    /// The resource does not have what the case is about; does not cap.
    NotApplicable,
    /// Run, and not enough seen to say anything.
    Unknown,
    /// Something worth knowing, neither right nor wrong.
    Info,
    /// The harness or the adapter failed.
    Error,
}

impl Status {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Status::Pass => "PASS",
            Status::Fail => "FAIL",
            Status::Skip => "SKIP",
            Status::NotApplicable => "N/A",
            Status::Unknown => "UNKNOWN",
            Status::Info => "INFO",
            Status::Error => "ERROR",
        }
    }
}

/// How a rule was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In one sentence, like a proof.
    pub sentence: String,
    /// The operations one has to look at.
    pub operations: Vec<u64>,
}

/// What became of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case.
    pub case: &'static crate::cases::Case,
    /// How it ended.
    pub status: Status,
    /// Why, for everything but a pass.
    pub reason: String,
    /// For a failure: the proof.
    pub failure: Option<Failure>,
    /// What was seen.
    pub evidence: Evidence,
    /// How long it took.
    pub took: Duration,
    /// What happened; kept if it did not pass.
    pub history: Option<History>,
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Results {
    /// The resource, in a line.
    pub subject: String,
    /// The seed everything was drawn from.
    pub seed: u64,
    /// What was asked for.
    pub level: Level,
    /// In the order of the list; those beyond the level are left out.
    pub cases: Vec<CaseResult>,
    /// How many cases were not selected by `--only`: with any, no level is shown.
    pub left_out: usize,
    /// The harness failed, and this is how; the cases after it were not run.
    pub broken: Option<String>,
}

impl Results {
    /// The highest level at which every case passed, was not applicable, or is only information.
    pub fn shown(&self) -> Option<Level> {
        if self.left_out > 0 || self.broken.is_some() {
            return None;
        }
        let good = |level: Level| {
            let mut cases = self.cases.iter().filter(|result| result.case.level == level).peekable();
            cases.peek().is_some()
                && cases.all(|result| matches!(result.status, Status::Pass | Status::NotApplicable | Status::Info))
        };
        Level::ALL.into_iter().take_while(|level| *level <= self.level && good(*level)).last()
    }

    /// Whether there was a case with this status.
    pub fn any(&self, status: Status) -> bool {
        self.cases.iter().any(|result| result.status == status)
    }

    /// 0 passed, 1 failed, 2 unknown or a required case was skipped, 3 the harness failed.
    pub fn exit_code(&self) -> u8 {
        if self.any(Status::Fail) {
            1
        } else if self.broken.is_some() || self.any(Status::Error) {
            3
        } else if self.any(Status::Unknown) || self.any(Status::Skip) || !self.any(Status::Pass) {
            2
        } else {
            0
        }
    }
}
