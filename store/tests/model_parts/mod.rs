//! What histories are made of, and what should come of them.

pub(crate) mod command;
pub(crate) mod expected;
pub(crate) mod generate;
pub(crate) mod known;
pub(crate) mod locks;
pub(crate) mod reference;
