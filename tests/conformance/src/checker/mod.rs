//! Searches for an order of the operations that explains every answer.

mod components;
mod explain;
mod minimal;
mod model;
mod position;
mod prepare;
mod search;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use self::search::{Found, MOST_PLACES};
use crate::history::History;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An order explains every answer.
    Explained,
    /// No order does.
    Violated(Counterexample),
    /// Time ran out before an order was found or excluded.
    Undecided(String),
}

/// Why a history is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The contradiction in one sentence, like a proof.
    pub sentence: String,
    /// The numbers of the operations that prove it, as few as possible.
    pub operations: Vec<u64>,
}

/// The upper bound of any time limit.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Judges a history by the sequential model of its manifest.
pub fn check(history: &History, limit: Duration) -> Verdict {
    let began = Instant::now();
    let deadline = began.checked_add(limit).unwrap_or(began + LONGEST);
    if let Some(found) = explain::explain(history) {
        return Verdict::Violated(found);
    }
    let mut undecided = None;
    for component in components::components(history) {
        let prepared = prepare::prepare(&history.manifest, &component);
        match search::search(&prepared, deadline) {
            Found::Order => {}
            Found::Nothing(_) => {
                return Verdict::Violated(minimal::counterexample(&history.manifest, &component, deadline));
            }
            Found::GivenUp { places } => {
                undecided.get_or_insert_with(|| {
                    format!(
                        "no order of the {} operations on {} was found or excluded: {places} states were looked at, and the \
                         limits are {} s and {MOST_PLACES} states; with fewer rounds there is less to order",
                        component.len(),
                        named(&prepared.resources),
                        limit.as_secs_f64()
                    )
                });
            }
        }
    }
    undecided.map_or(Verdict::Explained, Verdict::Undecided)
}

/// `r1, r2 and 7 more`
fn named(resources: &[&str]) -> String {
    match resources {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}
