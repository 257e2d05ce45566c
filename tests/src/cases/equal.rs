//! Group E.

use super::Case;

pub(super) const CASES: &[Case] = &[];
