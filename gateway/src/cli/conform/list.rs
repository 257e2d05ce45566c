//! The cases, for people who want to know what is asked.

use std::fmt::Write;

use fencepost_conformance::cases::GROUPS;
use fencepost_conformance::run::Options;

/// Those that the options select, group by group.
pub(super) fn list(options: &Options) -> String {
    let mut text = String::new();
    for group in GROUPS {
        let mut cases = group.cases.iter().filter(|case| options.selects(case)).peekable();
        if cases.peek().is_some() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}  {}", group.letter, group.title);
        }
        for case in cases {
            let _ = writeln!(text, "  {}  {}  {}", case.id, case.level, case.title);
            let _ = writeln!(text, "           {}", case.rule);
            let minima: Vec<String> = case.minima.iter().map(ToString::to_string).collect();
            if !minima.is_empty() {
                let _ = writeln!(text, "           evidence: {}", minima.join(", "));
            }
        }
    }
    text
}
