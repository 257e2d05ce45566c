//! What histories are made of, and what should come of them.

pub(crate) mod command;
pub(crate) mod reference;
