//! Levels, statuses, and the verdict of a whole run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::history::History;
use crate::manifest::{Kill, Manifest};

/// How thorough the suite is.
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
    /// All levels, from the lowest to the highest.
    pub const ALL: [Level; 4] = [Level::L1, Level::L2, Level::L3, Level::L4];

    /// The subject of the level.
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
    /// The resource does not have the feature under test; does not cap the level.
    NotApplicable,
    /// Run, but with too little evidence for a verdict.
    Unknown,
    /// Worth reporting, neither right nor wrong.
    Info,
    /// The harness or the adapter failed.
    Error,
}

impl Status {
    /// All statuses, the most important first.
    pub const ALL: [Status; 7] =
        [Status::Fail, Status::Error, Status::Unknown, Status::Skip, Status::Info, Status::NotApplicable, Status::Pass];

    /// The word that is printed.
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

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pass => "pass",
            Status::Fail => "fail",
            Status::Skip => "skip",
            Status::NotApplicable => "not-applicable",
            Status::Unknown => "unknown",
            Status::Info => "info",
            Status::Error => "error",
        }
    }

    /// The word after a count: `3 failed`.
    pub fn counted(self) -> &'static str {
        match self {
            Status::Pass => "passed",
            Status::Fail => "failed",
            Status::Skip => "skipped",
            Status::NotApplicable => "n/a",
            Status::Unknown => "unknown",
            Status::Info => "info",
            Status::Error => "error",
        }
    }
}

/// How a rule was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The violation in one sentence, like a proof.
    pub sentence: String,
    /// The numbers of the operations that prove it.
    pub operations: Vec<u64>,
}

/// The result of one case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case that was run.
    pub case: &'static crate::cases::Case,
    /// How it ended.
    pub status: Status,
    /// The reason, for everything but a pass.
    pub reason: String,
    /// For a failure: the proof.
    pub failure: Option<Failure>,
    /// The evidence in the history.
    pub evidence: Evidence,
    /// How long it took.
    pub took: Duration,
    /// The history; kept if the case did not pass.
    pub history: Option<History>,
    /// A remark of the case about a pass.
    pub remark: Option<String>,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Results {
    /// The resource, in one line.
    pub subject: String,
    /// What the resource declares about itself.
    pub manifest: Manifest,
    /// How many processes serve it.
    pub instances: usize,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The requested level.
    pub level: Level,
    /// The results in listing order, without cases beyond the level.
    pub cases: Vec<CaseResult>,
    /// The excluded cases, and why; each is also a skipped case.
    pub excluded: BTreeMap<String, String>,
    /// How many cases `--only` did not select: with any, no level is claimed.
    pub left_out: usize,
    /// The reason if the harness failed or the run was ended; the cases after it were not run.
    pub broken: Option<String>,
    /// Likely errors in the description of the resource that no case can detect.
    pub warnings: Vec<String>,
}

impl CaseResult {
    /// The result of a case that was left out because it would be pointless.
    pub fn not_tried(case: &'static crate::cases::Case, reason: String) -> CaseResult {
        let (evidence, took) = (Evidence::default(), Duration::ZERO);
        CaseResult { case, status: Status::Unknown, reason, failure: None, evidence, took, history: None, remark: None }
    }
}

impl CaseResult {
    /// A note for the reader of a pass: the remark of the case, or how often the moment occurred that it waits for.
    pub fn note(&self) -> Option<String> {
        if self.remark.is_some() {
            return self.remark.clone();
        }
        let Evidence { kills_in_flight, shown_in_flight, restarts, .. } = self.evidence;
        let rare = self.status == Status::Pass && crate::cases::RARE_MOMENTS.contains(&self.case.id);
        rare.then(|| {
            format!(
                "at {kills_in_flight} of {restarts} kills a request was in flight and stayed unanswered; at {shown_in_flight} \
                 of them somebody had been told of it already"
            )
        })
    }
}

/// The verdict of a run. Each has its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every requested level was shown.
    Safe,
    /// Every case that `--only` selected passed. No level is claimed.
    Passed,
    /// A rule was broken.
    NotSafe,
    /// Less was shown than requested, and no violation was found.
    Unknown,
    /// The harness or the adapter failed.
    Broken,
}

impl Outcome {
    /// 0 passed, 1 failed, 2 unknown or a required case was skipped, 3 the harness failed.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Safe | Outcome::Passed => 0,
            Outcome::NotSafe => 1,
            Outcome::Unknown => 2,
            Outcome::Broken => 3,
        }
    }
}

impl Results {
    /// The highest level that can be claimed: on it and on every level below, at least one case passed and all others
    /// passed too, do not apply, or only inform. After a failure, or if cases were left out, there is none.
    pub fn shown(&self) -> Option<Level> {
        if self.left_out > 0 || self.broken.is_some() || self.any(Status::Fail) || self.any(Status::Error) {
            return None;
        }
        Level::ALL.into_iter().take_while(|level| *level <= self.level && self.holds_at(*level)).last()
    }

    fn holds_at(&self, level: Level) -> bool {
        let statuses = || self.cases.iter().filter(|result| result.case.level == level).map(|result| result.status);
        statuses().any(|status| status == Status::Pass)
            && statuses().all(|status| matches!(status, Status::Pass | Status::NotApplicable | Status::Info))
    }

    /// Whether a case of this level made any observation.
    fn tried(&self, level: Level) -> bool {
        let ran = |result: &CaseResult| !matches!(result.status, Status::Skip | Status::NotApplicable);
        self.cases.iter().any(|result| result.case.level == level && ran(result))
    }

    /// How long the cases up to this level took together.
    pub fn took(&self, level: Level) -> Duration {
        self.cases.iter().filter(|result| result.case.level <= level).map(|result| result.took).sum()
    }

    /// Whether there was a case with this status.
    pub fn any(&self, status: Status) -> bool {
        self.cases.iter().any(|result| result.status == status)
    }

    /// The ids of the cases with this status.
    pub fn ids(&self, status: Status) -> Vec<&'static str> {
        self.cases.iter().filter(|result| result.status == status).map(|result| result.case.id).collect()
    }

    /// The verdict of the run. A failure counts even if the harness failed later: it was observed.
    pub fn outcome(&self) -> Outcome {
        if self.any(Status::Fail) {
            Outcome::NotSafe
        } else if self.broken.is_some() || self.any(Status::Error) {
            Outcome::Broken
        } else if self.left_out > 0 {
            let short = self.any(Status::Unknown) || self.any(Status::Skip) || !self.any(Status::Pass);
            if short { Outcome::Unknown } else { Outcome::Passed }
        } else if self.shown() == Some(self.level) {
            Outcome::Safe
        } else {
            Outcome::Unknown
        }
    }

    /// 0 passed, 1 failed, 2 unknown or a required case was skipped, 3 the harness failed.
    pub fn exit_code(&self) -> u8 {
        self.outcome().exit_code()
    }

    /// What was not tested, from the lowest level to the highest.
    pub fn not_tested(&self) -> Vec<String> {
        let mut not_tested = Vec::new();
        for level in Level::ALL {
            if !self.tried(level) {
                not_tested.push(level.about().to_owned());
            } else if level == Level::L3 && self.manifest.kill == Kill::Process {
                // Only the process was killed: the systems behind it have not crashed.
                not_tested.push("a crash of what lies behind the process (kill = process)".to_owned());
            }
            if self.tried(level) {
                not_tested.extend(self.seldom(level).map(str::to_owned));
            }
        }
        not_tested
    }

    /// Rarely possible tests that were not made at this level.
    fn seldom(&self, level: Level) -> impl Iterator<Item = &'static str> {
        let not_here = self.cases.iter().filter(move |result| result.case.level == level);
        let not_here = not_here.filter(|result| result.status == Status::NotApplicable);
        not_here
            .filter_map(|result| crate::cases::SELDOM.into_iter().find(|(id, _)| *id == result.case.id))
            .map(|(_, what)| what)
    }

    /// Levels that were requested and tried, and are not shown.
    pub fn not_shown(&self) -> Vec<Level> {
        let shown = self.shown();
        let short = |level: &Level| *level <= self.level && Some(*level) > shown && self.tried(*level);
        Level::ALL.into_iter().filter(short).collect()
    }
}
