//! Objects behind fences: bytes in a [`layout`], everything else in the store.

pub mod directory;
pub mod layout;
