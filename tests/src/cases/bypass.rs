//! Group B.

use super::Case;

pub(super) const CASES: &[Case] = &[];
