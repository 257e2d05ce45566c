//! The list of cases, with their rules and reasons.

use std::fmt::Write;

use fencepost_conformance::cases::GROUPS;
use fencepost_conformance::report::text::wrapped;
use fencepost_conformance::run::Options;

/// The width of the columns id and level, and the margin of the text below a title.
const MARGIN: usize = 11;

/// The cases that the options select, group by group, in lines of this width.
pub(super) fn list(options: &Options, width: usize) -> String {
    let mut text = String::new();
    for group in GROUPS {
        let mut cases = group.cases.iter().filter(|case| options.selects(case)).peekable();
        if cases.peek().is_some() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}  {}", group.letter, group.title);
        }
        for case in cases {
            let _ = writeln!(text, "  {}  {}  {}", case.id, case.level, case.title);
            let mut below = vec![case.rule.to_owned(), format!("why: {}", case.why)];
            let minima: Vec<String> = case.minima.iter().map(ToString::to_string).collect();
            if !minima.is_empty() {
                below.push(format!("evidence: {}", minima.join(", ")));
            }
            for line in below.iter().flat_map(|said| wrapped(said, width - MARGIN)) {
                let _ = writeln!(text, "{:MARGIN$}{line}", "");
            }
        }
    }
    text
}
