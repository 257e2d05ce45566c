//! The example of a Rust struct, as a user would test it: every case is a test here.

#[path = "../../examples/conformance/rust/ledger.rs"]
mod ledger;

fencepost_conformance::suite!(ledger::Ledger::new, L2);
