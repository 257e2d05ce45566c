//! Group R.

use super::Case;

pub(super) const CASES: &[Case] = &[];
