//! `results.json`: the results for programs. docs/conformance/reports.md describes each field.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::files::history_file;
use super::setting::Setting;
use super::terminal::group_of;
use crate::evidence::Evidence;
use crate::manifest::Manifest;
use crate::verdict::{CaseResult, Failure, Level, Outcome, Results, Status};

/// The name of the format.
pub const FORMAT: &str = "fencepost-conformance-results";

/// The version of the format: raised when a field is removed or changes its meaning, kept when one is added.
pub const FORMAT_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    format_version: u32,
    tool: Tool<'a>,
    subject: &'a str,
    instances: usize,
    manifest: &'a Manifest,
    seed: String,
    rounds: Option<u64>,
    outcome: Outcome,
    exit_code: u8,
    summary: String,
    took_ms: u64,
    level_asked: Level,
    level_shown: Option<Level>,
    not_shown: Vec<Level>,
    not_tested: Vec<String>,
    not_selected: usize,
    excluded: &'a BTreeMap<String, String>,
    broken: Option<&'a str>,
    warnings: &'a [String],
    counts: BTreeMap<&'static str, usize>,
    cases: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'static str,
    version: &'a str,
}

#[derive(Serialize)]
struct Entry<'a> {
    id: &'static str,
    title: &'static str,
    group: &'static str,
    rule: &'static str,
    why: &'static str,
    level: Level,
    status: Status,
    reason: &'a str,
    failure: Option<&'a Failure>,
    evidence: &'a Evidence,
    required: Vec<String>,
    took_ms: u64,
    history: Option<String>,
    reproduce: String,
}

/// The text of `results.json`.
pub fn json(results: &Results, setting: &Setting) -> String {
    let document = Document {
        format: FORMAT,
        format_version: FORMAT_VERSION,
        tool: Tool { name: "fencepost", version: &setting.version },
        subject: &results.subject,
        instances: results.instances,
        manifest: &results.manifest,
        seed: results.seed.to_string(),
        rounds: setting.rounds,
        outcome: results.outcome(),
        exit_code: results.exit_code(),
        summary: results.last_line(),
        took_ms: millis(results.took(Level::L4)),
        level_asked: results.level,
        level_shown: results.shown(),
        not_shown: results.not_shown(),
        not_tested: results.not_tested(),
        not_selected: results.left_out,
        excluded: &results.excluded,
        broken: results.broken.as_deref(),
        warnings: &results.warnings,
        counts: Status::ALL.into_iter().map(|status| (status.name(), results.ids(status).len())).collect(),
        cases: results.cases.iter().map(|result| entry(result, results.seed, setting)).collect(),
    };
    // Strings and numbers only: nothing here can fail to be JSON.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn entry<'a>(result: &'a CaseResult, seed: u64, setting: &Setting) -> Entry<'a> {
    let case = result.case;
    Entry {
        id: case.id,
        title: case.title,
        group: group_of(case).map_or("", |group| group.title),
        rule: case.rule,
        why: case.why,
        level: case.level,
        status: result.status,
        reason: &result.reason,
        failure: result.failure.as_ref(),
        evidence: &result.evidence,
        required: case.minima.iter().map(ToString::to_string).collect(),
        took_ms: millis(result.took),
        history: history_file(result),
        reproduce: setting.again(case.id, seed),
    }
}
