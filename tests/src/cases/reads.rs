//! Group F.

use super::Case;

pub(super) const CASES: &[Case] = &[];
