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

/// One thing the suite asks.
#[derive(Debug)]
pub struct Case {
    /// Group and number in listing order: `R03`.
    pub id: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// What must hold, in a sentence.
    pub rule: &'static str,
    /// What goes wrong in practice where it does not.
    pub why: &'static str,
    /// From which level on it runs.
    pub level: Level,
    /// What the resource must have.
    pub needs: &'static [Need],
    /// What must have been seen for a pass.
    pub minima: &'static [Minimum],
    /// Does it. What happened is judged by the model afterwards, so it only asserts what the model cannot know.
    pub run: fn(&Trial<'_>) -> Result<(), Ended>,
}

/// A group of cases.
#[derive(Debug)]
pub struct Group {
    /// Its letter.
    pub letter: char,
    /// What it is about.
    pub title: &'static str,
    /// In order.
    pub cases: &'static [Case],
}

/// Cases that wait for a moment which not every right resource offers: how often it came is told with a pass.
pub(crate) const RARE_MOMENTS: [&str; 2] = ["R03", "R04"];

/// Cases that few can run, and what a run without them has not tested.
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

/// How a case ends that does not simply go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The rule was broken.
    Failed(Failure),
    /// The resource does not have what the case is about.
    NotApplicable(String),
    /// It cannot be run here.
    Skipped(String),
    /// Too little was seen.
    Unknown(String),
    /// Neither right nor wrong, and worth knowing.
    Info(String),
    /// The harness or the adapter failed.
    Broken(Broken),
}

impl From<Broken> for Ended {
    fn from(broken: Broken) -> Ended {
        Ended::Broken(broken)
    }
}

/// Something a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The resource has this verb.
    Verb(Verb),
    /// It treats used tokens like this.
    Policy(Policy),
    /// It tells holders of one token apart.
    Holders,
    /// Its reads are linearizable.
    FreshReads,
    /// Its tokens are text on their way.
    TextTokens,
    /// This can be done to it.
    Hook(Hook),
    /// Its clock can be set. Few can do that, and crashes are about more: without it the level is not capped.
    Clock,
    /// Requests travel over a connection that the suite can cut in the middle.
    Wire,
    /// So many processes serve one store.
    Instances(usize),
}

impl Need {
    /// `Err`: it is not there, and this is how the case ends.
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
