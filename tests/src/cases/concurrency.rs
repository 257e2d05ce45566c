//! Group C.

use super::Case;

pub(super) const CASES: &[Case] = &[];
