//! The example of a Rust struct, tested as a user would: every case is a test here.

#[path = "../../../examples/conformance/rust/ledger.rs"]
#[expect(unreachable_pub, reason = "it is a file to copy, where it is the crate that is tested")]
#[expect(clippy::disallowed_types, reason = "a file to copy needs no dependency but the suite")]
mod ledger;

fencepost_conformance::suite!(ledger::Ledger::new, L2);
