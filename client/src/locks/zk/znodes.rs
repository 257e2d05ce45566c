//! The znodes in use, and the order of a queue.
//!
//! ```text
//! /fencepost                        persistent; the path of the URL
//! /fencepost/incarnation            persistent; a UUID, made once
//! /fencepost/locks                  persistent
//! /fencepost/locks/orders%2F1       container: the server removes it some time after its last child
//! /fencepost/locks/orders%2F1/6f…c1-0000000042    ephemeral, sequential: one acquisition
//! ```

use fencepost_core::{NameError, Resource};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The path if the URL has none.
const DEFAULT: &str = "fencepost";

/// Everything but letters, digits, `-` and `_` is escaped, so that a lock is one znode and never the parent of another.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The length of a nonce, in hexadecimal digits.
const NONCE: usize = 32;

/// The znodes of one URL.
pub(super) struct Znodes {
    /// The path of the UUID.
    pub(super) incarnation: String,
    /// The parent of the locks.
    pub(super) locks: String,
}

impl Znodes {
    /// Derives the paths from the path of a URL. A valid resource name is a valid ZooKeeper path as well.
    pub(super) fn new(path: &str) -> Result<Znodes, NameError> {
        let path = path.trim_matches('/');
        let base = format!("/{}", Resource::new(if path.is_empty() { DEFAULT } else { path })?);
        Ok(Znodes { incarnation: format!("{base}/incarnation"), locks: format!("{base}/locks") })
    }

    /// The queue of a lock.
    pub(super) fn queue(&self, name: &Resource) -> String {
        format!("{}/{}", self.locks, utf8_percent_encode(name.as_str(), ESCAPED))
    }
}

/// The position of an acquisition in the queue of its lock. Names are of znodes in the queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// No other znode precedes ours.
    First { own: String },
    /// This znode immediately precedes ours.
    Behind { own: String, predecessor: String },
    /// Our znode does not exist.
    Absent,
}

/// The sequence number that the server appended. It only orders a queue: it starts again at 0 with a new queue.
fn sequence(znode: &str) -> Option<i64> {
    znode.get(NONCE..)?.strip_prefix('-')?.parse().ok()
}

/// How far `to` is behind `from`; negative if it is before it. The server counts in 32 bits and wraps around.
fn distance(from: i64, to: i64) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Finds the predecessor of the acquisition with this nonce.
///
/// A create that was repeated after its answer was lost may have left two znodes with our nonce. The first one counts:
/// every znode between them has a higher number.
pub(super) fn position(queue: &[String], nonce: &str) -> Position {
    let numbered = || queue.iter().filter_map(|znode| Some((znode, sequence(znode)?)));
    let Some((own, at)) = numbered()
        .filter(|(znode, _)| znode.starts_with(nonce))
        .reduce(|first, other| if distance(first.1, other.1) < 0 { other } else { first })
    else {
        return Position::Absent;
    };
    let before = numbered().map(|(znode, sequence)| (distance(at, sequence), znode)).filter(|(far, _)| *far < 0).max();
    match before {
        Some((_, predecessor)) => Position::Behind { own: own.clone(), predecessor: predecessor.clone() },
        None => Position::First { own: own.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(digit: char) -> String {
        String::from(digit).repeat(NONCE)
    }

    fn znode(digit: char, sequence: &str) -> String {
        format!("{}-{sequence}", nonce(digit))
    }

    #[test]
    fn one_znode_per_lock() {
        let znodes = Znodes::new("apps/one/").unwrap();
        assert_eq!(znodes.incarnation, "/apps/one/incarnation");
        let queue = |name| znodes.queue(&Resource::new(name).unwrap());
        assert_eq!(queue("orders/1"), "/apps/one/locks/orders%2F1");
        assert_eq!(queue("orders%2F1"), "/apps/one/locks/orders%252F1");
        assert_eq!(queue("ä …"), "/apps/one/locks/%C3%A4%20%E2%80%A6");
        assert_eq!(queue("..."), "/apps/one/locks/%2E%2E%2E");
        assert_eq!(Znodes::new("").unwrap().locks, "/fencepost/locks");
        assert!(Znodes::new("a//b").is_err() && Znodes::new("a/../b").is_err());
    }

    #[test]
    fn the_next_before_us_is_watched() {
        let queue = [znode('c', "0000000012"), znode('a', "0000000009"), znode('b', "0000000010")];
        assert_eq!(position(&queue, &nonce('a')), Position::First { own: znode('a', "0000000009") });
        let (own, predecessor) = (znode('c', "0000000012"), znode('b', "0000000010"));
        assert_eq!(position(&queue, &nonce('c')), Position::Behind { own, predecessor });
        assert_eq!(position(&queue, &nonce('d')), Position::Absent);
    }

    #[test]
    fn the_count_wraps_around() {
        let queue = [znode('b', "-2147483648"), znode('a', "2147483647"), znode('c', "-2147483647")];
        assert_eq!(position(&queue, &nonce('a')), Position::First { own: znode('a', "2147483647") });
        let (own, predecessor) = (znode('c', "-2147483647"), znode('b', "-2147483648"));
        assert_eq!(position(&queue, &nonce('c')), Position::Behind { own, predecessor });
    }

    #[test]
    fn of_two_own_znodes_the_first_counts() {
        let queue = [znode('a', "0000000005"), znode('b', "0000000004"), znode('a', "0000000003")];
        assert_eq!(position(&queue, &nonce('a')), Position::First { own: znode('a', "0000000003") });
    }

    #[test]
    fn strangers_are_not_in_the_queue() {
        let queue = ["note".to_owned(), "x-0000000001".to_owned(), "ä".repeat(40), znode('a', "0000000007")];
        assert_eq!(position(&queue, &nonce('a')), Position::First { own: znode('a', "0000000007") });
    }
}
