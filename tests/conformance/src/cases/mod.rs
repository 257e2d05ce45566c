//! The cases, group by group.

mod admission;
mod backups;
mod batches;
mod bypass;
mod clock;
mod concurrency;
mod crashes;
mod equal;
mod idle;
mod networks;
mod other_ways;
mod reads;
mod steps;
mod trial;

use crate::evidence::Minimum;
use crate::manifest::{Equal, Policy, Reads};
use crate::op::Verb;
use crate::subject::{Broken, Hook, Shift, Subject};
use crate::verdict::{Failure, Level};

pub use trial::{Progress, Trial};

/// One test case of the suite.
#[derive(Debug)]
pub struct Case {
    /// Group and number in listing order: `R03`.
    pub id: &'static str,
    /// A title of a few words.
    pub title: &'static str,
    /// What must hold, in a sentence.
    pub rule: &'static str,
    /// The consequence in practice if the rule does not hold.
    pub why: &'static str,
    /// The lowest level that includes the case.
    pub level: Level,
    /// The features that the resource must have.
    pub needs: &'static [Need],
    /// The evidence that a pass requires.
    pub minima: &'static [Minimum],
    /// Runs the case. The model judges the history afterwards, so this only asserts what the model cannot know.
    pub run: fn(&Trial<'_>) -> Result<(), Ended>,
}

/// A group of cases.
#[derive(Debug)]
pub struct Group {
    /// The letter that the ids of its cases begin with.
    pub letter: char,
    /// The subject of the group.
    pub title: &'static str,
    /// The cases, in listing order.
    pub cases: &'static [Case],
}

/// Cases that wait for a moment which not every correct resource offers: a pass reports how often it occurred.
pub(crate) const RARE_MOMENTS: [&str; 2] = ["R03", "R04"];

/// Cases that few resources can run, and what is untested without them.
pub(crate) const SELDOM: [(&str, &str); 3] =
    [("R09", "a kill at each system call"), ("R10", "a wrong clock"), ("R11", "a restored backup")];

/// All cases, in listing order.
pub static GROUPS: &[Group] = &[
    Group { letter: 'A', title: "admission", cases: admission::CASES },
    Group { letter: 'E', title: "equal tokens", cases: equal::CASES },
    Group { letter: 'B', title: "bypass", cases: bypass::CASES },
    Group { letter: 'F', title: "reads", cases: reads::CASES },
    Group { letter: 'M', title: "batches", cases: batches::CASES },
    Group { letter: 'C', title: "concurrency", cases: concurrency::CASES },
    Group { letter: 'Z', title: "zombies and network", cases: networks::CASES },
    Group { letter: 'R', title: "crash", cases: crashes::CASES },
];

/// All cases, in listing order.
pub fn all() -> impl Iterator<Item = &'static Case> {
    GROUPS.iter().flat_map(|group| group.cases)
}

/// The case with this id.
pub fn find(id: &str) -> Option<&'static Case> {
    all().find(|case| case.id.eq_ignore_ascii_case(id))
}

/// How a case ends that does not simply complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The rule was broken.
    Failed(Failure),
    /// The resource does not have the feature under test.
    NotApplicable(String),
    /// The case cannot be run here.
    Skipped(String),
    /// Too little was observed for a verdict.
    Unknown(String),
    /// Neither right nor wrong, but worth reporting.
    Info(String),
    /// The harness or the adapter failed.
    Broken(Broken),
}

impl From<Broken> for Ended {
    fn from(broken: Broken) -> Ended {
        Ended::Broken(broken)
    }
}

/// A feature that a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The resource has this verb.
    Verb(Verb),
    /// The resource treats used tokens like this.
    Policy(Policy),
    /// The resource distinguishes holders of one token.
    Holders,
    /// The resource's reads are linearizable.
    FreshReads,
    /// Tokens are sent as text.
    TextTokens,
    /// This hook is available.
    Hook(Hook),
    /// The clock of the resource can be set. Few resources allow that, and crashes are about more: lacking it does not
    /// cap the level.
    Clock,
    /// Requests use a connection that the suite can cut in the middle.
    Wire,
    /// At least this many processes serve one store.
    Instances(usize),
}

impl Need {
    /// `Err`: the feature is missing, and this is how the case ends.
    pub fn check(self, subject: &dyn Subject) -> Result<(), Ended> {
        let manifest = subject.manifest();
        let missing = |here: bool, otherwise: Ended| if here { Ok(()) } else { Err(otherwise) };
        let not_applicable = |why: &str| Ended::NotApplicable(why.to_owned());
        match self {
            Need::Verb(verb) => missing(manifest.has(verb), not_applicable(&format!("it has no {}", verb.name()))),
            Need::Policy(policy) => missing(
                manifest.policy == policy,
                not_applicable(match policy {
                    Policy::Ge => "a token writes only once here (policy gt)",
                    Policy::Gt => "a token may write again here (policy ge)",
                }),
            ),
            Need::Holders => missing(manifest.equal == Equal::Holder, not_applicable("it does not tell holders apart")),
            Need::FreshReads => {
                missing(manifest.reads == Reads::Linearizable, not_applicable("its reads may be stale"))
            }
            Need::TextTokens => missing(manifest.text_tokens, not_applicable("its tokens are numbers, not text")),
            Need::Hook(hook) => missing(
                subject.has(hook),
                Ended::Skipped(format!("there is no `{}` hook, so this cannot be tried", hook.name())),
            ),
            Need::Clock => missing(
                subject.has(Hook::Clock(Shift::NONE)),
                not_applicable(
                    "there is no `clock` hook; give one that sets the clock of the service CONFORM_CLOCK seconds from the right one, \
                     as libfaketime does it for one process",
                ),
            ),
            Need::Wire => missing(
                subject.proxy().is_some(),
                not_applicable("no connection lies between the suite and the resource that it could cut"),
            ),
            Need::Instances(count) => missing(
                subject.instances() >= count,
                not_applicable(&format!(
                    "one process serves it; if yours has several, start {count} (exec: --instances, http: --base)"
                )),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
