//! How an object was composed of parts. It is stored with the object, because clients read objects by part.

use crate::object::{Attributes, Object};
use crate::uploads::MAX_PARTS;

/// The upload that completed an object, so that a retry of the completion gets the same answer.
pub(crate) const COMPLETED_BY: &str = "fencepost-upload";

/// The sizes of the parts: `8388608*12,700` means twelve of 8 MiB and one of 700 bytes.
const PARTS: &str = "fencepost-parts";

/// Longer texts are not stored, because every listing of the bucket reads them.
const MAX_PARTS_TEXT: usize = 8192;

/// How an object was composed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Composition {
    /// Written in one piece.
    Whole,
    /// Joined from parts of these sizes.
    Parts(Vec<u64>),
    /// Joined from parts whose sizes are not known: an older version wrote it, or the sizes vary too much to be
    /// stored.
    Unknown,
}

impl Composition {
    /// Reads the composition stored with an object.
    pub fn of(object: &Object) -> Composition {
        let kept = |name: &str| object.attributes.iter().find(|(kept, _)| kept == name).map(|(_, value)| value);
        let sizes = kept(PARTS).and_then(|text| sizes(text)).filter(|sizes| sizes.iter().sum::<u64>() == object.size);
        match (sizes, kept(COMPLETED_BY)) {
            (Some(sizes), _) => Composition::Parts(sizes),
            (None, Some(_)) => Composition::Unknown,
            (None, None) => Composition::Whole,
        }
    }

    /// Stores the sizes of the parts in the attributes of the object.
    pub(crate) fn keep(attributes: &mut Attributes, sizes: impl IntoIterator<Item = u64>) {
        let text = text(sizes);
        if text.len() <= MAX_PARTS_TEXT {
            attributes.push((PARTS.to_owned(), text));
        }
    }
}

/// Encodes the sizes; a run of equal sizes is written once with its count.
fn text(sizes: impl IntoIterator<Item = u64>) -> String {
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for size in sizes {
        match runs.last_mut() {
            Some((last, times)) if *last == size => *times += 1,
            _ => runs.push((size, 1)),
        }
    }
    let shown = runs.into_iter().map(|(size, times)| match times {
        1 => size.to_string(),
        _ => format!("{size}*{times}"),
    });
    shown.collect::<Vec<_>>().join(",")
}

fn sizes(text: &str) -> Option<Vec<u64>> {
    let mut sizes = Vec::new();
    for run in text.split(',') {
        let (size, times) = run.split_once('*').unwrap_or((run, "1"));
        let (size, times): (u64, usize) = (size.parse().ok()?, times.parse().ok()?);
        if sizes.len().saturating_add(times) > MAX_PARTS {
            return None;
        }
        sizes.extend(std::iter::repeat_n(size, times));
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::Timestamp;

    fn composed(of: &[u64]) -> Object {
        let mut attributes = vec![(COMPLETED_BY.to_owned(), "u".to_owned())];
        Composition::keep(&mut attributes, of.iter().copied());
        let size = of.iter().sum();
        Object { size, etag: "e".to_owned(), modified: Timestamp(0), token: None, attributes }
    }

    #[test]
    fn the_sizes_of_parts_are_kept_if_they_are_short() {
        for of in [&[5][..], &[8, 8, 8, 3], &[1, 2, 3], &[0], &[7; 10_000]] {
            assert_eq!(Composition::of(&composed(of)), Composition::Parts(of.to_vec()));
        }
        let many: Vec<u64> = (5_000_000..5_010_000).collect();
        assert_eq!(Composition::of(&composed(&many)), Composition::Unknown);
        let mut damaged = composed(&[8, 8, 3]);
        damaged.size += 1;
        assert_eq!(Composition::of(&damaged), Composition::Unknown);
        damaged.attributes.clear();
        assert_eq!(Composition::of(&damaged), Composition::Whole);
    }
}
