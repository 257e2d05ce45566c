//! The shipped adapter that needs no server passes what it claims. The others are tested in `databases`.

use fencepost_conformance::verdict::Level;

use crate::marked::{Marked, asked, example, judge, passes, python, two};

#[test]
fn sqlite_is_safe_at_l3() {
    let adapter = Marked::new(&[&python(), &example("sqlite")]);
    passes(&judge(&adapter, two(), &asked(Level::L3)), Level::L3);
}
