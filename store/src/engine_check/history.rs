//! What writers saw and did under stress, and whether one order of the commits explains all of it.
//!
//! Engines promise nothing about the order of versions, so the order of the states of a record is taken from what is certain:
//! a commit that compared a state and wrote the record put its own state behind it; a state that was seen before a commit was
//! sent comes before what that commit wrote; and a commit compares a state that is not older than one seen before it was sent.
//! Where two orders are possible, none is taken, so that a report of a cycle is never a mistake.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::failure::{Checked, ensure};
use super::graph::{Graph, Link, Step};
use crate::engine::Version;

/// A record of the stress, by its number.
pub(super) type Place = usize;

/// A commit that was done.
#[derive(Clone, Debug)]
pub(super) struct Done {
    /// Says which writer sent it, and when; it is in everything that the commit wrote.
    pub(super) label: u64,
    /// Just before it was sent.
    pub(super) begun: Instant,
    /// When it was known to be done.
    pub(super) ended: Instant,
    /// What it compared. `None`: as absent.
    pub(super) compared: Vec<(Place, Option<Version>)>,
    /// What it left behind. `None`: it removed the record, which it had compared as present.
    pub(super) left: Vec<(Place, Option<Version>)>,
    /// The versions that it was given.
    pub(super) versions: Range<u64>,
}

/// A state that a load returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) place: Place,
    pub(super) version: Version,
    /// The label in the bytes.
    pub(super) label: u64,
    pub(super) at: Instant,
}

/// Everything that happened.
#[derive(Debug)]
pub(super) struct History {
    /// When all records were absent.
    pub(super) start: Instant,
    pub(super) done: Vec<Done>,
    pub(super) seen: Vec<Seen>,
    /// Labels of commits that may have been done.
    pub(super) unknown: HashSet<u64>,
}

/// Nothing is visible at the instant at which it is sent.
const INSTANT: Duration = Duration::from_nanos(1);

/// A state of a record: what one commit left behind.
struct State {
    /// The commit, by its place in the history; `None` for the absence at the start.
    by: Option<usize>,
    version: Option<Version>,
    begun: Instant,
    /// From then on it was surely there, or replaced.
    visible: Instant,
    /// Commits that compared it and left another state.
    replaced_by: Vec<usize>,
}

/// The states of one record, by the time at which their commits were sent.
struct Line {
    states: Vec<State>,
    /// For each state, when the first of it and those sent later was visible.
    soonest: Vec<Instant>,
    /// For each state, when the last of it and those sent before was visible.
    latest: Vec<Instant>,
    by_version: HashMap<Version, usize>,
}

/// The name of a writer's commit.
pub(super) fn named(label: u64) -> String {
    format!("commit {} of writer {}", label & u64::from(u32::MAX), label >> 32)
}

impl History {
    /// An empty history, which starts now.
    pub(super) fn new() -> History {
        History { start: Instant::now(), done: Vec::new(), seen: Vec::new(), unknown: HashSet::new() }
    }

    /// Adds what another writer saw and did.
    pub(super) fn extend(&mut self, other: History) {
        self.done.extend(other.done);
        self.seen.extend(other.seen);
        self.unknown.extend(other.unknown);
    }

    /// Every version was given once (E3), every state that was seen had been committed (E4, E5), and the commits have an order
    /// in which each compared what was there (E2).
    pub(super) fn check(&self, names: &[&str]) -> Checked {
        self.check_versions()?;
        let writers = self.writers();
        for seen in &self.seen {
            let expected = writers.get(&(seen.place, seen.version)).map(|by| self.done[*by].label);
            ensure!(
                expected == Some(seen.label) || self.unknown.contains(&seen.label),
                "E4: a load returned version {} of {}, written by {}, which {}",
                seen.version.0,
                names[seen.place],
                named(seen.label),
                if expected.is_some() { "has another version" } else { "was not done, as far as its writer was told" }
            );
        }
        let cycle = self.graph(names)?.cycle();
        let steps: Vec<String> = cycle.iter().map(|step| self.explain(*step, names)).collect();
        ensure!(steps.is_empty(), "E2: no order of the commits explains what they compared: {}", steps.join("; "));
        Ok(())
    }

    fn check_versions(&self) -> Checked {
        let mut given: Vec<_> =
            self.done.iter().map(|done| (done.versions.start, done.versions.end, done.label)).collect();
        given.sort_unstable();
        for pair in given.windows(2) {
            let ((_, end, one), (start, _, other)) = (pair[0], pair[1]);
            ensure!(end <= start, "E3: {} and {} were given the same version {start}", named(one), named(other));
        }
        Ok(())
    }

    /// Which commit wrote a version of a record.
    fn writers(&self) -> HashMap<(Place, Version), usize> {
        let left = self.done.iter().enumerate().flat_map(|(by, done)| done.left.iter().map(move |left| (by, left)));
        left.filter_map(|(by, (place, version))| Some(((*place, (*version)?), by))).collect()
    }

    fn explain(&self, Step { from, to, link }: Step, names: &[&str]) -> String {
        let (from, to) = (named(self.done[from].label), named(self.done[to].label));
        match link {
            Link::Compared(place) => format!("{to} compared {} as {from} had left it", names[place]),
            Link::Replaced(place) => format!("{from} compared {} as it was before {to}", names[place]),
            Link::Wrote(place) => format!("{from} was done with {} before {to} was sent", names[place]),
            Link::NotBehind(place) => {
                format!("{} was compared as {to} had left it, after {from} was done with it", names[place])
            }
        }
    }

    fn graph(&self, names: &[&str]) -> Checked<Graph> {
        let mut graph = Graph::new(self.done.len());
        for (place, mut line) in self.lines(names.len()).into_iter().enumerate() {
            line.order(place, &mut graph);
            // Which states each commit may have compared; those that replaced one must be known first.
            let compared: Vec<(usize, Vec<usize>)> = self
                .done
                .iter()
                .enumerate()
                .filter_map(|(by, done)| {
                    let (_, version) = done.compared.iter().find(|(compared, _)| *compared == place)?;
                    Some((by, line.found(*version, done)))
                })
                .collect();
            for (by, found) in &compared {
                // A removal whose outcome is not known may explain an absence.
                ensure!(
                    !found.is_empty() || !self.unknown.is_empty(),
                    "E2: {} compared {} as absent, or in a version that nobody wrote, and was done",
                    named(self.done[*by].label),
                    names[place]
                );
                if let ([only], true) = (&found[..], self.done[*by].left.iter().any(|(left, _)| *left == place)) {
                    line.states[*only].replaced_by.push(*by);
                }
            }
            for (by, found) in compared {
                line.link(place, by, &found, &self.done[by], &mut graph);
            }
        }
        Ok(graph)
    }

    /// The states of every record.
    fn lines(&self, places: usize) -> Vec<Line> {
        let (start, soon) = (self.start, self.start + INSTANT);
        let start = || State { by: None, version: None, begun: start, visible: soon, replaced_by: Vec::new() };
        let mut lines: Vec<Vec<State>> = (0..places).map(|_| vec![start()]).collect();
        for (by, done) in self.done.iter().enumerate() {
            for (place, version) in &done.left {
                let (version, replaced_by) = (*version, Vec::new());
                lines[*place].push(State {
                    by: Some(by),
                    version,
                    begun: done.begun,
                    visible: done.ended,
                    replaced_by,
                });
            }
        }
        let mut seen: HashMap<(Place, Version), Instant> = HashMap::new();
        for found in &self.seen {
            let at = seen.entry((found.place, found.version)).or_insert(found.at);
            *at = found.at.min(*at);
        }
        let lines = lines.into_iter().enumerate();
        lines
            .map(|(place, mut states)| {
                for state in &mut states {
                    let seen = state.version.and_then(|version| seen.get(&(place, version)));
                    state.visible =
                        seen.map_or(state.visible, |seen| state.visible.min(*seen)).max(state.begun + INSTANT);
                }
                Line::new(states)
            })
            .collect()
    }
}

impl Line {
    fn new(mut states: Vec<State>) -> Line {
        states.sort_by_key(|state| state.begun);
        let mut soonest: Vec<Instant> = states.iter().map(|state| state.visible).collect();
        for at in (1..soonest.len()).rev() {
            soonest[at - 1] = soonest[at - 1].min(soonest[at]);
        }
        let mut latest: Vec<Instant> = states.iter().map(|state| state.visible).collect();
        for at in 1..latest.len() {
            latest[at] = latest[at].max(latest[at - 1]);
        }
        let versions = states.iter().enumerate();
        let by_version = versions.filter_map(|(at, state)| Some((state.version?, at))).collect();
        Line { states, soonest, latest, by_version }
    }

    /// The first state whose commit was sent at this time or later.
    fn from(&self, time: Instant) -> usize {
        self.states.partition_point(|state| state.begun < time)
    }

    /// The states that come next behind everything that was visible at this time: those sent later, without the ones that have
    /// another of them before them.
    fn next(&self, visible: Instant) -> Range<usize> {
        let from = self.from(visible);
        let before = self.soonest.get(from).copied();
        let sent_before = move |state: &State| before.is_some_and(|before| state.begun <= before);
        let count = self.states[from..].iter().take_while(|state| sent_before(state)).count();
        from..from + count
    }

    /// Which state was there when a commit compared this version. Several, if that is not known; none, if nobody knows of it.
    fn found(&self, version: Option<Version>, done: &Done) -> Vec<usize> {
        match version {
            Some(version) => self.by_version.get(&version).copied().into_iter().collect(),
            None => {
                let may_be = |state: &State| {
                    let replaced = self.soonest.get(self.from(state.visible));
                    let is_replaced = replaced.is_some_and(|replaced| *replaced <= done.begun);
                    state.version.is_none() && state.begun <= done.ended && !is_replaced
                };
                (0..self.states.len()).filter(|at| may_be(&self.states[*at])).collect()
            }
        }
    }

    /// The order of the states, as far as their times tell.
    fn order(&self, place: Place, graph: &mut Graph) {
        for state in &self.states {
            let Some(by) = state.by else { continue };
            for next in self.next(state.visible) {
                if let Some(other) = self.states[next].by {
                    graph.add(by, other, Link::Wrote(place));
                }
            }
        }
    }

    /// What follows from a commit that compared one of these states.
    fn link(&self, place: Place, by: usize, found: &[usize], done: &Done, graph: &mut Graph) {
        let Some(visible) = found.iter().map(|at| self.states[*at].visible).max() else { return };
        for next in self.next(visible) {
            if let Some(other) = self.states[next].by {
                graph.add(by, other, Link::Replaced(place));
            }
        }
        let [only] = found else { return };
        let state = &self.states[*only];
        if let Some(writer) = state.by {
            graph.add(writer, by, Link::Compared(place));
            // What was visible before the commit was sent is not behind the state that it found.
            for other in (0..self.from(done.begun)).rev().take_while(|at| self.latest[*at] > state.begun) {
                let other = &self.states[other];
                if let (Some(earlier), true) = (other.by, other.visible <= done.begun) {
                    graph.add(earlier, writer, Link::NotBehind(place));
                }
            }
        }
        for other in &state.replaced_by {
            graph.add(by, *other, Link::Replaced(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["x", "y"];
    const X: Place = 0;
    const Y: Place = 1;

    /// Builds histories on a clock of milliseconds.
    struct Story {
        history: History,
        next: u64,
    }

    impl Story {
        fn new() -> Story {
            Story { history: History::new(), next: 0 }
        }

        /// A commit from one millisecond to another: what it compared, and what it wrote. Returns its version.
        fn commit(
            &mut self,
            (begun, ended): (u64, u64),
            compared: &[(Place, Option<Version>)],
            written: &[Place],
            removed: &[Place],
        ) -> Option<Version> {
            let at = |millis| self.history.start + Duration::from_millis(millis);
            self.next += 1;
            let version = Version(self.next);
            let written = written.iter().map(|place| (*place, Some(version)));
            let left = written.chain(removed.iter().map(|place| (*place, None))).collect();
            let done = Done {
                label: self.next,
                begun: at(begun),
                ended: at(ended),
                compared: compared.to_vec(),
                left,
                versions: self.next..self.next + 1,
            };
            self.history.done.push(done);
            Some(version)
        }

        fn verdict(&self) -> Result<(), String> {
            self.history.check(&NAMES).map_err(|failure| failure.to_string())
        }
    }

    #[test]
    fn what_has_an_order_passes() {
        let mut story = Story::new();
        let first = story.commit((1, 2), &[(X, None), (Y, None)], &[X, Y], &[]);
        // Three at the same time, each after what it compared.
        let second = story.commit((3, 9), &[(X, first)], &[X], &[]);
        story.commit((3, 9), &[(Y, first)], &[Y], &[]);
        story.commit((3, 9), &[], &[Y], &[]);
        story.commit((10, 11), &[(X, second)], &[], &[X]);
        story.commit((12, 13), &[(X, None)], &[X], &[]);
        assert_eq!(story.verdict(), Ok(()));
    }

    #[test]
    fn a_lost_update_is_found() {
        let mut story = Story::new();
        let first = story.commit((1, 2), &[], &[X], &[]);
        story.commit((3, 9), &[(X, first)], &[X], &[]);
        story.commit((4, 8), &[(X, first)], &[X], &[]);
        assert!(story.verdict().unwrap_err().contains("compared x as it was before"), "{:?}", story.verdict());
    }

    #[test]
    fn write_skew_is_found_although_writes_are_blind() {
        let mut story = Story::new();
        let first = story.commit((1, 2), &[], &[X, Y], &[]);
        story.commit((3, 9), &[(X, first)], &[Y], &[]);
        assert_eq!(story.verdict(), Ok(()));
        story.commit((3, 9), &[(Y, first)], &[X], &[]);
        assert!(story.verdict().is_err());
    }

    #[test]
    fn two_that_make_what_the_other_compared_as_absent_are_found() {
        let mut story = Story::new();
        let first = story.commit((1, 2), &[], &[X, Y], &[]);
        story.commit((3, 4), &[(X, first), (Y, first)], &[], &[X, Y]);
        story.commit((5, 9), &[(X, None)], &[Y], &[]);
        assert_eq!(story.verdict(), Ok(()));
        story.commit((5, 9), &[(Y, None)], &[X], &[]);
        assert!(story.verdict().is_err());
    }

    #[test]
    fn a_stale_comparison_is_found() {
        let mut story = Story::new();
        let first = story.commit((1, 2), &[], &[X], &[]);
        story.commit((3, 4), &[], &[X], &[]);
        story.commit((5, 6), &[(X, first)], &[Y], &[]);
        assert!(story.verdict().is_err());
        let mut story = Story::new();
        story.commit((1, 2), &[], &[X], &[]);
        story.commit((5, 6), &[(X, None)], &[Y], &[]);
        assert!(story.verdict().unwrap_err().contains("as absent, or"), "{:?}", story.verdict());
    }

    #[test]
    fn a_version_that_is_given_twice_is_found() {
        let mut story = Story::new();
        story.commit((1, 2), &[], &[X], &[]);
        story.next = 0;
        story.commit((3, 4), &[], &[Y], &[]);
        assert!(story.verdict().unwrap_err().starts_with("E3"), "{:?}", story.verdict());
    }

    #[test]
    fn what_was_seen_must_have_been_committed() {
        let mut story = Story::new();
        story.commit((1, 2), &[], &[X], &[]);
        let seen = |version, label| Seen { place: X, version: Version(version), label, at: Instant::now() };
        story.history.seen.push(seen(1, 1));
        assert_eq!(story.verdict(), Ok(()));
        story.history.seen.push(seen(7, 7));
        assert!(story.verdict().unwrap_err().contains("was not done"), "{:?}", story.verdict());
        // Unless nobody knows what became of it.
        story.history.unknown.insert(7);
        assert_eq!(story.verdict(), Ok(()));
    }
}
