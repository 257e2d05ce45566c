//! Which commit must come before which, and why.

use std::collections::VecDeque;
use std::iter;

use super::history::Place;

/// How many commits are tried as the start of a short cycle.
const MOST_STARTS: usize = 200;

/// Why one commit must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// The second compared what the first had left.
    Compared(Place),
    /// The first compared what the second replaced.
    Replaced(Place),
    /// What the first wrote was there before the second was sent.
    Wrote(Place),
    /// What the second wrote was there although the first had been done with the record before.
    NotBehind(Place),
}

/// One commit that must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) link: Link,
}

/// Commits by number, and what must come before what.
pub(super) struct Graph {
    /// For each commit, those that must come behind it.
    behind: Vec<Vec<(usize, Link)>>,
}

impl Graph {
    /// No commit must come before another.
    pub(super) fn new(commits: usize) -> Graph {
        Graph { behind: vec![Vec::new(); commits] }
    }

    /// The first must come before the second, unless they are one.
    pub(super) fn add(&mut self, from: usize, to: usize, link: Link) {
        if from != to && !self.behind[from].iter().any(|(other, _)| *other == to) {
            self.behind[from].push((to, link));
        }
    }

    /// Commits that must each come before the next, and the last before the first. Empty: there is an order.
    pub(super) fn cycle(&self) -> Vec<Step> {
        let mut before = vec![0_usize; self.behind.len()];
        for (to, _) in self.behind.iter().flatten() {
            before[*to] += 1;
        }
        let mut free: Vec<usize> = (0..before.len()).filter(|at| before[*at] == 0).collect();
        let mut left = before.len();
        while let Some(at) = free.pop() {
            left -= 1;
            for (to, _) in &self.behind[at] {
                before[*to] -= 1;
                if before[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        match left {
            0 => Vec::new(),
            _ => self.shortest_among(&before),
        }
    }

    /// A short cycle among commits that have something before them that has, too.
    fn shortest_among(&self, before: &[usize]) -> Vec<Step> {
        let held: Vec<usize> = (0..before.len()).filter(|at| before[*at] > 0).collect();
        // Some of them are only behind a cycle; from those, no way leads back.
        let cycles = held.iter().take(MOST_STARTS).map(|start| self.way_back(*start));
        cycles
            .flatten()
            .min_by_key(Vec::len)
            .or_else(|| held.iter().find_map(|start| self.way_back(*start)))
            .unwrap_or_default()
    }

    /// The shortest way from a commit back to itself.
    fn way_back(&self, start: usize) -> Option<Vec<Step>> {
        let mut came: Vec<Option<Step>> = vec![None; self.behind.len()];
        let mut reached = VecDeque::from([start]);
        while let Some(from) = reached.pop_front() {
            for (to, link) in &self.behind[from] {
                let step = Step { from, to: *to, link: *link };
                if *to == start {
                    let earlier = iter::successors(came[from], |step| came[step.from]);
                    let mut steps: Vec<Step> = iter::once(step).chain(earlier).collect();
                    steps.reverse();
                    return Some(steps);
                }
                if came[*to].is_none() {
                    came[*to] = Some(step);
                    reached.push_back(*to);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::new(6);
        for (from, to) in edges {
            graph.add(*from, *to, Link::Wrote(0));
        }
        graph
    }

    #[test]
    fn an_order_has_no_cycle() {
        assert!(graph(&[(0, 1), (1, 2), (0, 2), (3, 3), (4, 2)]).cycle().is_empty());
    }

    #[test]
    fn the_shortest_cycle_is_returned_in_order() {
        let found = graph(&[(0, 1), (1, 2), (2, 3), (3, 1), (2, 1), (3, 4)]).cycle();
        let found: Vec<_> = found.iter().map(|step| (step.from, step.to)).collect();
        assert!(found == [(1, 2), (2, 1)] || found == [(2, 1), (1, 2)], "{found:?}");
    }
}
