//! TAP version 14.
//!
//! UNKNOWN and ERROR are `not ok`, SKIP and N/A are `ok … # SKIP`, and the last line stands for the whole run: it is
//! `ok` exactly if the exit code is 0.

use std::io::{self, Write};

use super::setting::Setting;
use super::text::{one_line, visible_lines};
use crate::verdict::{CaseResult, Results, Status};

/// Writes the whole run.
pub fn tap(out: &mut dyn Write, results: &Results, setting: &Setting) -> io::Result<()> {
    writeln!(out, "TAP version 14")?;
    writeln!(out, "1..{}", results.cases.len() + 1)?;
    writeln!(out, "# {}", one_line(&results.subject))?;
    for (index, result) in results.cases.iter().enumerate() {
        case(out, index + 1, result, results.seed, setting)?;
    }
    for warning in &results.warnings {
        writeln!(out, "# warning: {}", one_line(warning))?;
    }
    let ok = if results.exit_code() == 0 { "ok" } else { "not ok" };
    writeln!(out, "{ok} {} - verdict: {}", results.cases.len() + 1, description(&results.last_line()))?;
    if let Some(broken) = &results.broken {
        writeln!(out, "Bail out! {}", one_line(broken))?;
    }
    out.flush()
}

fn case(out: &mut dyn Write, number: usize, result: &CaseResult, seed: u64, setting: &Setting) -> io::Result<()> {
    let name = description(&format!("{} {}", result.case.id, result.case.title));
    let reason = description(&result.reason);
    match result.status {
        Status::Pass => writeln!(out, "ok {number} - {name}"),
        Status::Skip => writeln!(out, "ok {number} - {name} # SKIP {reason}"),
        Status::NotApplicable => writeln!(out, "ok {number} - {name} # SKIP not applicable: {reason}"),
        Status::Info => {
            writeln!(out, "ok {number} - {name}")?;
            details(out, &[("status", "INFO"), ("message", &result.reason)])
        }
        Status::Fail | Status::Unknown | Status::Error => {
            writeln!(out, "not ok {number} - {name}")?;
            let again = setting.again(result.case.id, seed);
            let (rule, why) = (result.case.rule, result.case.why);
            let fields = [
                ("status", result.status.word()),
                ("message", &result.reason),
                ("rule", rule),
                ("why", why),
                ("again", &again),
            ];
            details(out, &fields)
        }
    }
}

/// Writes YAML whose values are JSON strings, which are valid YAML.
fn details(out: &mut dyn Write, fields: &[(&str, &str)]) -> io::Result<()> {
    writeln!(out, "  ---")?;
    for (name, value) in fields {
        let value = serde_json::to_string(&visible_lines(value)).map_err(io::Error::other)?;
        writeln!(out, "  {name}: {value}")?;
    }
    writeln!(out, "  ...")
}

/// Escapes a description: `#` would begin a directive, and `\` is the escape character.
fn description(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('#', "\\#")
}
