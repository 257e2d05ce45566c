//! Real runs of a correct resource and of incorrect ones.

use fencepost_conformance::history::History;
use fencepost_conformance::manifest::{Equal, Policy};
use fencepost_conformance::reference::{LAZY, Lazy, Reference};
use fencepost_conformance::report::{Look, Tree, html, json, junit, summary, tap, write_all};
use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::Subject;
use fencepost_conformance::verdict::{Level, Outcome, Results, Status};
use fencepost_conformance::{Answer, FencedResource, InProcess, Manifest, Verb, cases};
use serde_json::Value;

use crate::report::made_up::setting;

/// Runs the suite as the command line does, and returns the results and the output.
fn seen(subject: &dyn Subject, options: &Options) -> (Results, String) {
    let look = Look::default();
    let mut tree = Tree::new(Vec::new(), look);
    let results = run(subject, options, &mut tree);
    let mut out = tree.into_inner();
    summary(&mut out, &results, look).unwrap();
    (results, String::from_utf8(out).unwrap())
}

fn at(level: Level) -> Options {
    Options { level, ..Options::default() }
}

/// Accepts every write, whatever its token.
struct Careless(Reference);

impl FencedResource for Careless {
    fn manifest(&self) -> Manifest {
        self.0.manifest()
    }

    fn write(&self, _: &str, _: u64, _: &str, _: &str) -> Answer {
        Answer::ok()
    }
}

fn careless() -> InProcess<Careless> {
    InProcess::new(Careless(Reference::new(Policy::Ge, Equal::Any)))
}

#[test]
fn the_reference_is_safe_and_every_report_says_so() {
    let subject = InProcess::new(Reference::new(Policy::Ge, Equal::Any));
    let (results, text) = seen(&subject, &at(Level::L1));
    assert_eq!((results.outcome(), results.exit_code()), (Outcome::Safe, 0), "{text}");
    let last = "SAFE at L1 · not tested: concurrency and network, process crash, power loss and disk faults";
    assert_eq!(text.lines().last(), Some(last));
    let cases = cases::all().filter(|case| case.level == Level::L1);
    for case in cases {
        assert!(text.contains(case.id), "{} is not in {text}", case.id);
    }
    let read: Value = serde_json::from_str(&json(&results, &setting())).unwrap();
    assert_eq!(
        (&read["outcome"], &read["level_shown"], &read["summary"]),
        (&"safe".into(), &"L1".into(), &last.into())
    );
    assert_eq!(read["manifest"]["caps"].as_array().unwrap().len(), 7);
    assert!(html(&results, &setting()).contains("class=\"verdict pass\""));
    assert!(!junit(&results, &setting()).contains("<failure"));
    let mut out = Vec::new();
    tap(&mut out, &results, &setting()).unwrap();
    assert!(!String::from_utf8(out).unwrap().contains("not ok"));
}

#[test]
fn a_careless_resource_is_convicted_in_every_report() {
    let (results, text) = seen(&careless(), &at(Level::L1));
    assert_eq!((results.outcome(), results.exit_code(), results.shown()), (Outcome::NotSafe, 1, None), "{text}");
    assert!(text.lines().last().unwrap().starts_with("NOT SAFE: "), "{text}");
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &results, &setting()).unwrap();
    let read: Value = serde_json::from_slice(&std::fs::read(dir.path().join("results.json")).unwrap()).unwrap();
    let failed: Vec<&Value> =
        read["cases"].as_array().unwrap().iter().filter(|case| case["status"] == "fail").collect();
    assert!(failed.len() >= 3, "{text}");
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    for case in failed {
        let id = case["id"].as_str().unwrap();
        assert!(!case["failure"]["sentence"].as_str().unwrap().is_empty(), "{case}");
        assert!(page.contains(&format!("Timeline of {id}</title>")), "{id} is drawn");
        let file = std::fs::File::open(dir.path().join(case["history"].as_str().unwrap())).unwrap();
        let history = History::read_from(std::io::BufReader::new(file)).unwrap();
        assert_eq!(history.case, id, "{id} has its history");
        for operation in case["failure"]["operations"].as_array().unwrap() {
            assert!(history.operation(operation.as_u64().unwrap()).is_some(), "{operation} of {id} is in the file");
        }
    }
}

#[test]
fn only_claims_no_level_and_an_exclusion_caps_it() {
    let subject = InProcess::new(Reference::new(Policy::Ge, Equal::Any));
    let (results, text) = seen(&subject, &Options { only: vec!["a01".into()], ..at(Level::L1) });
    assert_eq!((results.exit_code(), results.shown()), (0, None));
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("PASSED: 1 of 1 case (A01) · no level is claimed: "), "{last}");

    let exclude = [("a02".to_owned(), "our store cannot".to_owned())].into();
    let (results, text) = seen(&subject, &Options { exclude, ..at(Level::L1) });
    assert_eq!((results.exit_code(), results.shown()), (2, None));
    assert!(
        text.contains("excluded A02: our store cannot") && text.lines().last().unwrap().starts_with("UNKNOWN: 1 of ")
    );
}

/// The pass of a case that waits for a rare moment reports how often the moment occurred.
#[test]
fn a_pass_of_a_rare_moment_says_how_often_it_came() {
    let subject = InProcess::new(Reference::new(Policy::Ge, Equal::Any));
    let (results, text) = seen(&subject, &Options { only: vec!["R02".into(), "R03".into()], ..at(Level::L3) });
    assert_eq!(results.exit_code(), 0, "{text}");
    let evidence = &results.cases[1].evidence;
    let told = format!("at {} of {} kills a request was in flight", evidence.kills_in_flight, evidence.restarts);
    assert_eq!((results.cases[0].note(), evidence.restarts > 0), (None, true));
    assert!(text.contains(&told), "{text}");
    assert!(html(&results, &setting()).contains(&told));
}

#[test]
fn lazy_adapters_never_pass() {
    for name in LAZY {
        let subject = Lazy::new(name);
        let (results, text) = seen(&subject, &at(Level::L1));
        assert_ne!(results.exit_code(), 0, "{name}: {text}");
        assert_eq!(results.shown(), None, "{name}: {text}");
        assert!(!text.lines().last().unwrap().contains("SAFE at"), "{name}: {text}");
        // No single case passes either, not even for a subject that answers `ok` to everything: each also requires a
        // value, a fence or a refusal. Subjects without reads are left out: they are not asked for a value, and some
        // rules only require acceptance.
        let readable = subject.manifest().has(Verb::Read);
        for case in cases::all().filter(|case| readable && case.level == Level::L1) {
            let (results, text) = seen(&subject, &Options { only: vec![case.id.into()], ..at(Level::L1) });
            let status = results.cases[0].status;
            assert!(!matches!(status, Status::Pass | Status::Info), "{name} passes {}: {text}", case.id);
            assert_ne!(results.exit_code(), 0, "{name}: {text}");
        }
    }
}
