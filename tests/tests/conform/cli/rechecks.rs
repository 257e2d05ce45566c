//! Judging recorded histories again.

use fencepost_conformance::history::{History, Judge, Judged};
use fencepost_conformance::verdict::Status;

use super::{adapter, conform, dir, last_line, text};

#[test]
fn a_broken_rule_is_1_and_its_history_can_be_judged_again() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "a03,A05", "--out", "here"], &adapter(Some("accept-all")));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(last_line(&output).starts_with("NOT SAFE: 2 of 2 cases failed (A03, A05)"), "{}", last_line(&output));
    let again = conform(dir.path(), &["recheck", "here/history-A03.jsonl"], &[]);
    assert_eq!(again.status.code(), Some(1), "{}", text(&again.stdout));
    assert!(text(&again.stdout).starts_with("VIOLATED: "), "{}", text(&again.stdout));
}

#[test]
fn a_history_that_is_explained_is_0_and_one_that_cannot_be_read_is_3() {
    let dir = dir();
    let missing = conform(dir.path(), &["recheck", "none.jsonl"], &[]);
    assert_eq!(missing.status.code(), Some(3));
    assert!(text(&missing.stderr).contains("none.jsonl"), "{}", text(&missing.stderr));
    std::fs::write(dir.path().join("odd.jsonl"), "rubbish\n").unwrap();
    let odd = conform(dir.path(), &["recheck", "odd.jsonl"], &[]);
    assert_eq!(odd.status.code(), Some(3));
    assert!(text(&odd.stderr).contains("odd.jsonl: line 1: "), "{}", text(&odd.stderr));
    let mut history = Vec::new();
    History::default().write_to(&mut history).unwrap();
    std::fs::write(dir.path().join("good.jsonl"), history).unwrap();
    let good = conform(dir.path(), &["recheck", "good.jsonl"], &[]);
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
}

/// The checker can explain an error; only the case knows that a first write must be accepted.
#[test]
fn what_the_case_itself_has_seen_broken_stays_1() {
    let dir = dir();
    let script = r#"read -r line; echo '{"id":1,"result":"ok","caps":[]}'
        while read -r line; do id=${line#*\"id\":}; echo "{\"id\":${id%%,*},\"result\":\"error\",\"definite\":true,\"code\":\"no\"}"; done"#;
    let output = conform(dir.path(), &["exec", "--only", "A01"], &["sh", "-c", script].map(str::to_owned));
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("no write was ever accepted: is the adapter right? The first was the write of v-"), "{said}");
    assert!(said.contains("and was answered with an error (no)"), "{said}");
    let again = conform(dir.path(), &["recheck", "conform-report/history-A01.jsonl"], &[]);
    let stdout = text(&again.stdout);
    assert_eq!(again.status.code(), Some(1), "{stdout}");
    assert!(stdout.starts_with("FAIL: ") && stdout.contains("the case itself ended with FAIL"), "{stdout}");
}

/// With more time the checker may explain everything, and yet too little was observed.
#[test]
fn what_the_checker_had_given_up_is_not_enough_if_too_little_was_seen() {
    let dir = dir();
    for (case, code, said) in [("C01", 2, "UNKNOWN: too little was seen: "), ("", 0, "EXPLAINED: ")] {
        let judged = Judged { status: Status::Unknown, reason: "no time".to_owned(), by: Judge::Checker };
        let history = History { case: case.to_owned(), judged: Some(judged), ..History::default() };
        let mut file = std::fs::File::create(dir.path().join("h.jsonl")).unwrap();
        history.write_to(&mut file).unwrap();
        let output = conform(dir.path(), &["recheck", "h.jsonl"], &[]);
        let stdout = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{stdout}{}", text(&output.stderr));
        assert!(stdout.starts_with(said) && stdout.contains("the run had said UNKNOWN: no time"), "{stdout}");
    }
}

#[test]
fn what_the_case_itself_missed_stays_when_its_history_is_judged_again() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "C02", "--rounds", "1"], &adapter(None));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    let again = conform(dir.path(), &["recheck", "conform-report/history-C02.jsonl"], &[]);
    let stdout = text(&again.stdout);
    assert_eq!(again.status.code(), Some(2), "{stdout}");
    assert!(stdout.starts_with("UNKNOWN: too little was seen: "), "{stdout}");
    assert!(stdout.contains("EXPLAINED") && stdout.contains("the case itself ended with UNKNOWN"), "{stdout}");
}
