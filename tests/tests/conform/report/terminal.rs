//! The output on a terminal and in a pipe.

use fencepost_conformance::report::text::width;
use fencepost_conformance::report::{Look, Tree, summary};
use fencepost_conformance::run::Watch;
use fencepost_conformance::verdict::Results;

use crate::report::made_up::{NASTY, every_status};

fn shown(results: &Results, look: Look) -> String {
    let mut tree = Tree::new(Vec::new(), look);
    for (place, result) in results.cases.iter().enumerate() {
        tree.begins(result.case, place, results.cases.len());
        tree.goes_on(3, 20);
        tree.ended(result);
    }
    let mut out = tree.into_inner();
    summary(&mut out, results, look).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn in_a_pipe_it_is_plain_lines() {
    let mut results = every_status();
    results.excluded.insert("z01".into(), "our proxy cannot do this".into());
    results.warnings.push("`high` of [read] is odd".into());
    let text = shown(&results, Look::default());
    let expected = "\
A  admission
  PASS    A01  a title of a few words                                      1.2 s
  FAIL    A02  a title of a few words                                      1.2 s
               write #41 (token 5) was accepted, but read #38 had returned fence
               9.

E  equal tokens
  N/A     E01  a title of a few words                                      1.2 s
               it has no batch
";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.contains("\n7 cases in 8.6 s: 1 passed, 1 n/a, 1 info, 1 skipped, 1 unknown, 1 error,\n  1 failed\n"),
        "{text}"
    );
    assert!(text.contains("\nexcluded Z01: our proxy cannot do this\n"), "{text}");
    assert!(text.contains("\nwarning: `high` of [read] is odd\n"), "{text}");
    assert_eq!(text.lines().last(), Some("NOT SAFE: 1 of 7 cases failed (A02)"));
    assert!(!text.contains(['\x1b', '\r']), "{text}");
    for reason in [
        "there is no `kill` hook",
        "it has no batch",
        "too little was seen",
        "a duplicate of the current",
        "the adapter ended",
    ] {
        assert!(text.contains(reason), "{reason} is missing in {text}");
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let mut results = every_status();
    for result in &mut results.cases {
        result.reason = format!("{} {NASTY} 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字", "x".repeat(150));
        result.failure = None;
    }
    for columns in [40, 80, 120] {
        let text = shown(&results, Look { width: columns, ..Look::default() });
        let mut lines: Vec<&str> = text.lines().collect();
        // The last line is never wrapped, for scripts.
        lines.pop();
        for line in lines {
            assert!(width(line) <= columns, "{} columns of {columns}: {line}", width(line));
        }
    }
}

#[test]
fn nothing_from_outside_reaches_the_terminal_as_a_command() {
    let mut results = every_status();
    results.cases[1].failure.as_mut().unwrap().sentence = NASTY.into();
    results.excluded.insert("z01".into(), NASTY.into());
    results.broken = Some(NASTY.into());
    let text = shown(&results, Look::default());
    assert!(!text.contains(|character: char| character.is_control() && character != '\n'), "{text:?}");
}

#[test]
fn a_terminal_gets_colours_and_a_bar_that_goes_away() {
    let text = shown(&every_status(), Look { colour: true, bar: true, width: 80 });
    assert!(text.contains("\x1b[1;31mFAIL   \x1b[0m A02"), "{text:?}");
    assert!(text.contains("\r\x1b[2K░░░░░░░░░░░░░░░░░░░░ 1/7 · "), "{text:?}");
    assert!(text.contains("█████████████████░░░ 7/7 · ") && text.contains("· 1 failed · R01"), "{text:?}");
    assert!(text.contains(" · A01 3/20 a title"), "the round of the case: {text:?}");
    // Every bar is cleared before a line is printed.
    for (at, _) in text.match_indices("/7 · ") {
        assert!(text[at..].contains("\r\x1b[2K"), "a bar stays: {text:?}");
    }
    let plain = shown(&every_status(), Look { colour: false, bar: true, width: 80 });
    assert!(!plain.contains("\x1b[1;31m") && plain.contains("\x1b[2K"), "NO_COLOR keeps the bar");
}
