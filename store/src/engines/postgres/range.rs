//! The range of keys of a scan.

use super::super::after_prefix;
use crate::engine::Scan;

/// Keys from one on, up to another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range<'s> {
    pub(super) from: &'s [u8],
    /// Whether a record at `from` itself is included.
    pub(super) inclusive: bool,
    /// The first key behind the range; `None` if there can be none.
    pub(super) before: Option<Vec<u8>>,
}

impl<'s> Range<'s> {
    pub(super) fn of(scan: &'s Scan) -> Range<'s> {
        let (from, inclusive) = match scan.from < scan.prefix {
            true => (scan.prefix.as_slice(), true),
            false => (scan.from.as_slice(), scan.inclusive),
        };
        Range { from, inclusive, before: after_prefix(&scan.prefix) }
    }
}
