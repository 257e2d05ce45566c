//! `junit.xml`, for the pages of CI systems.
//!
//! FAIL is a failure, UNKNOWN and ERROR are errors, SKIP and N/A are skipped, PASS and INFO pass. Because most pages
//! show skipped as green, a last test case stands for the whole run: it passes exactly if the exit code is 0.

use std::fmt::Write;
use std::time::Duration;

use super::setting::Setting;
use super::text::escaped;
use crate::cases::GROUPS;
use crate::verdict::{CaseResult, Outcome, Results, Status};

/// Counts of one suite.
#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
    took: Duration,
}

impl Counts {
    fn add(&mut self, status: Status, took: Duration) {
        self.tests += 1;
        self.took += took;
        match status {
            Status::Fail => self.failures += 1,
            Status::Unknown | Status::Error => self.errors += 1,
            Status::Skip | Status::NotApplicable => self.skipped += 1,
            Status::Pass | Status::Info => {}
        }
    }

    fn attributes(&self) -> String {
        let Counts { tests, failures, errors, skipped, took } = self;
        let time = took.as_secs_f64();
        format!(r#"tests="{tests}" failures="{failures}" errors="{errors}" skipped="{skipped}" time="{time:.3}""#)
    }
}

/// The text of `junit.xml`.
pub fn junit(results: &Results, setting: &Setting) -> String {
    let mut all = Counts::default();
    let mut suites = String::new();
    for group in GROUPS {
        let cases = || results.cases.iter().filter(|result| result.case.id.starts_with(group.letter));
        let mut counts = Counts::default();
        cases().for_each(|result| {
            counts.add(result.status, result.took);
            all.add(result.status, result.took);
        });
        if counts.tests == 0 {
            continue;
        }
        let name = escaped(&format!("{} {}", group.letter, group.title));
        let _ = writeln!(suites, r#"  <testsuite name="{name}" {}>"#, counts.attributes());
        cases().for_each(|result| case(&mut suites, result, results.seed, setting));
        suites.push_str("  </testsuite>\n");
    }
    verdict(&mut suites, &mut all, results);
    let name = escaped(&format!("fencepost conform: {}", results.subject));
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(text, r#"<testsuites name="{name}" {}>"#, all.attributes());
    text.push_str(&suites);
    text.push_str("</testsuites>\n");
    text
}

fn case(text: &mut String, result: &CaseResult, seed: u64, setting: &Setting) {
    let case = result.case;
    let name = escaped(&format!("{} {}", case.id, case.title));
    let time = result.took.as_secs_f64();
    let _ = write!(text, r#"    <testcase classname="fencepost.conform.{}" name="{name}" time="{time:.3}""#, case.id);
    let reason = escaped(&result.reason);
    let word = result.status.word();
    let more = || {
        let again = setting.again(case.id, seed);
        escaped(&format!("{}\nRule: {}\nWhy: {}\nAgain: {again}", result.reason, case.rule, case.why))
    };
    match result.status {
        Status::Pass => text.push_str("/>\n"),
        Status::Info => {
            let _ = writeln!(text, ">\n      <system-out>INFO: {reason}</system-out>\n    </testcase>");
        }
        Status::Skip | Status::NotApplicable => {
            let _ = writeln!(text, ">\n      <skipped message=\"{word}: {reason}\"/>\n    </testcase>");
        }
        Status::Fail => element(text, "failure", word, &reason, &more()),
        Status::Unknown | Status::Error => element(text, "error", word, &format!("{word}: {reason}"), &more()),
    }
}

/// The run as a whole, so that the CI page is green exactly if the run passed.
fn verdict(text: &mut String, all: &mut Counts, results: &Results) {
    let status = match results.outcome() {
        Outcome::Safe | Outcome::Passed => Status::Pass,
        Outcome::NotSafe => Status::Fail,
        Outcome::Unknown | Outcome::Broken => Status::Error,
    };
    let mut counts = Counts::default();
    counts.add(status, Duration::ZERO);
    all.add(status, Duration::ZERO);
    let _ = writeln!(text, r#"  <testsuite name="verdict" {}>"#, counts.attributes());
    let said = escaped(&results.last_line());
    let name = match results.left_out {
        0 => format!("the resource is safe at {}", results.level),
        _ => "the selected cases pass".to_owned(),
    };
    let _ = write!(text, r#"    <testcase classname="fencepost.conform.verdict" name="{name}" time="0.000""#);
    match status {
        Status::Pass => {
            let _ = writeln!(text, ">\n      <system-out>{said}</system-out>\n    </testcase>");
        }
        Status::Fail => element(text, "failure", "verdict", &said, &said),
        _ => element(text, "error", "verdict", &said, &said),
    }
    text.push_str("  </testsuite>\n");
}

fn element(text: &mut String, name: &str, kind: &str, message: &str, body: &str) {
    let _ = writeln!(text, ">\n      <{name} type=\"{kind}\" message=\"{message}\">{body}</{name}>\n    </testcase>");
}
