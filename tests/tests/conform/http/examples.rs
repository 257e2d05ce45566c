//! The maps that users copy: our own gateway and the Node.js services.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_conformance::adapters::http::{HttpSubject, Overrides, open};
use fencepost_conformance::cases;
use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::Subject;
use fencepost_conformance::verdict::{Level, Outcome, Results, Status};
use fencepost_conformance::wait;
use fencepost_conformance::{Answer, Op, Token, Verb, Write};
use fencepost_harness::{budget, process};

use crate::committed::Committed;
use crate::http::clock::{shows_its_clock, with_a_clock};
use crate::http::{MapFile, call};

pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/conformance")
}

/// Our gateway by its example map, with the current build of the binary.
pub(crate) fn gateway() -> MapFile {
    let text = std::fs::read_to_string(examples().join("gateway/fencepost.toml")).unwrap();
    let started = format!("exec {} serve", process::binary().display());
    assert!(text.contains("exec fencepost serve"));
    MapFile::new(&text.replace("exec fencepost serve", &started))
}

/// A long timeout, because every one of very many requests must be answered.
fn patient(map: &Path) -> HttpSubject {
    open(map, &Overrides { timeout: Some(wait::PATIENCE), ..Overrides::default() }).unwrap()
}

fn node(name: &str) -> HttpSubject {
    patient(&examples().join(name).join("fencepost.toml"))
}

fn at(level: Level, seed: u64) -> Options {
    Options { level, seed, ..Options::default() }
}

/// The cases that did not pass, and why.
fn told(results: &Results) -> String {
    let lines = results.cases.iter().filter(|result| result.status != Status::Pass);
    lines.map(|result| format!("{} {} {}\n", result.case.id, result.status.word(), result.reason)).collect()
}

/// Exercises every verb, with success and refusal.
fn speaks(subject: &HttpSubject, verbs: &[Verb]) {
    let ok = |value: Option<&str>, high| Answer::Ok { value: Some(value.map(str::to_owned)), high: Some(high) };
    let manifest = subject.manifest();
    assert_eq!(manifest.caps, verbs.iter().copied().collect());
    let call = |op: Op| call(subject, &op);
    let name = "a/b ü";
    let read = call(Op::read(name));
    assert_eq!((read.value(), read.high()), (Some(None), None));
    assert_eq!(call(Op::write(name, 9, "h1", "v-1")).high(), Some(9));
    assert_eq!(call(Op::read(name)), ok(Some("v-1"), 9));
    assert_eq!(call(Op::write(name, 8, "h2", "v-2")), Answer::Stale { high: Some(9) });
    for token in [Token::Absent, Token::text("x"), Token::Both("5".into(), "20".into())] {
        assert!(call(Op::write(name, token.clone(), "h2", "v-3")).is_not_done(), "{token}");
    }
    if manifest.has(Verb::CheckedRead) {
        assert_eq!(call(Op::checked_read(name, 10)), ok(Some("v-1"), 9));
        assert_eq!(call(Op::checked_read(name, 8)), Answer::Stale { high: Some(9) });
    }
    if manifest.has(Verb::Cas) {
        assert!(matches!(call(Op::cas(name, 9, "h1", None, "v-4")), Answer::Mismatch { .. }));
        assert!(matches!(call(Op::cas(name, 9, "h1", Some("v"), "v-4")), Answer::Mismatch { .. }));
        assert!(call(Op::cas(name, 9, "h1", Some("v-1"), "v-4")).is_ok());
        assert_eq!(call(Op::cas(name, 8, "h1", Some("v-4"), "v-5")), Answer::Stale { high: Some(9) });
        assert!(call(Op::cas("fresh", 9, "h1", None, "v-6")).is_ok());
        assert_eq!(call(Op::read(name)), ok(Some("v-4"), 9));
    }
    if manifest.has(Verb::Claim) {
        assert_eq!(call(Op::claim(name, 10, "h1")), ok(Some("v-4"), 10));
        assert_eq!(call(Op::claim(name, 9, "h1")), Answer::Stale { high: Some(10) });
        assert_eq!(call(Op::claim("none", 1, "h1")), ok(None, 1));
    }
    if manifest.has(Verb::Delete) {
        assert_eq!(call(Op::delete(name, 9, "h1")), Answer::Stale { high: Some(10) });
        assert_eq!(call(Op::delete(name, 11, "h1")).high(), Some(11));
        assert_eq!(call(Op::read(name)), ok(None, 11));
    }
    if manifest.has(Verb::Batch) {
        let both =
            |token| Op::Batch { writes: vec![Write::new("b1", token, "h", "x"), Write::new(name, 12, "h", "y")] };
        assert!(call(both(1.into())).is_ok());
        assert_eq!(call(Op::read(name)), ok(Some("y"), 12));
        assert!(call(both(0.into())).is_not_done());
        assert!(call(both(Token::Absent)).is_not_done());
    }
}

#[test]
fn our_gateway_speaks_all_verbs() {
    let map = gateway();
    let subject = map.open().unwrap();
    speaks(&subject, &Verb::ALL);
    let said = subject.describe();
    assert!(said.starts_with("HTTP at http://127.0.0.1:") && !said.contains("{port}"), "{said}");
}

#[test]
fn the_node_examples_speak_theirs() {
    let without_batch: Vec<_> = Verb::ALL.into_iter().filter(|verb| *verb != Verb::Batch).collect();
    speaks(&node("node"), &without_batch);
    speaks(&node("node-memory"), &[Verb::Write, Verb::Read]);
}

#[test]
fn our_gateway_is_safe_at_l3() {
    let map = with_a_clock(&std::fs::read_to_string(gateway().path()).unwrap());
    let subject = patient(&map.path());
    shows_its_clock(&subject);
    let results = run(&subject, &at(Level::L3, 6), &mut ());
    assert_eq!(results.cases.len(), cases::all().filter(|case| case.level <= Level::L3).count());
    assert_eq!(results.outcome(), Outcome::Safe, "{}", told(&results));
    assert_eq!(results.last_line(), "SAFE at L3 · not tested: power loss and disk faults");
    assert_eq!(results.warnings, Vec::<String>::new());
    assert_eq!(results.not_tested(), [Level::L4.about()], "{}", told(&results));
    // The goals of ten seconds and one minute are for two idle cores; here other tests run too.
    for (level, aim) in [(Level::L1, 10), (Level::L2, 60)] {
        let took = results.took(level);
        println!("our gateway up to {level}: {took:?}");
        assert!(took < 3 * Duration::from_secs(aim), "{level} took {took:?}");
    }
}

#[test]
fn the_node_service_is_safe_at_l3() {
    let results = run(&node("node"), &at(Level::L3, 6), &mut ());
    assert_eq!(results.outcome(), Outcome::Safe, "{}", told(&results));
}

#[test]
fn the_report_of_a_service_that_forgets_is_still_true() {
    let committed = Committed::of("node-memory");
    committed.agrees_with(&run(&node("node-memory"), &committed.asked(), &mut ()));
}

#[test]
fn a_service_that_forgets_its_fences_is_convicted_by_a_crash() {
    // Its writes take some milliseconds each; in CI only the cases that can show the fault are run.
    let only = budget::pick(vec!["A".to_owned(), "R".to_owned()], Vec::new());
    let results = run(&node("node-memory"), &Options { only, ..at(Level::L3, 6) }, &mut ());
    assert_eq!(results.outcome(), Outcome::NotSafe, "{}", told(&results));
    for result in results.cases.iter().filter(|result| result.status == Status::Fail) {
        assert_eq!(result.case.level, Level::L3, "only what restarts shows it: {}", told(&results));
    }
}
