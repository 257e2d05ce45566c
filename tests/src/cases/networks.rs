//! Group Z.

use super::Case;

pub(super) const CASES: &[Case] = &[];
