//! Services whose clock is set wrong by libfaketime, as the document describes: our own gateway, and the one in
//! Node.js.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fencepost_conformance::Op;
use fencepost_conformance::adapters::http::HttpSubject;
use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::{Hook, Shift, Subject};
use fencepost_conformance::verdict::Status;
use fencepost_conformance::wait;
use fencepost_harness::process;
use serde_json::Value;

use crate::http::examples::examples;
use crate::http::{MapFile, call};

/// The lines of the document that start a service with a clock of its own.
fn documented() -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance/http-map.md");
    let text = std::fs::read_to_string(path).unwrap();
    let hooks = text.split("```toml\n").find(|part| part.contains("libfaketime")).expect("it has an example");
    let hooks = hooks.split("```").next().unwrap();
    let start = hooks.split("start = '''").nth(1).and_then(|rest| rest.split("'''").next()).unwrap().to_owned();
    let clock = hooks.lines().find(|line| line.starts_with("clock = ")).unwrap().to_owned();
    (start, clock)
}

/// A map with a clock: its `start` command runs as the document describes.
pub(crate) fn with_a_clock(map: &str) -> MapFile {
    let (start, clock) = documented();
    let line = map.lines().find(|line| line.starts_with("start = \"exec ")).expect("the map starts something");
    let command: String = toml::from_str::<toml::Table>(line).unwrap()["start"].as_str().unwrap().to_owned();
    assert!(start.contains("exec node service.js"));
    let start = start.replace("exec node service.js", &command);
    MapFile::new(&map.replace(line, &format!("start = '''{start}'''\n{clock}")))
}

/// Our gateway reports when a fence was raised: that time shows that the clock was changed while it ran.
pub(crate) fn shows_its_clock(subject: &HttpSubject) {
    let mut raised = Vec::new();
    for (res, shift) in
        [("right", Shift::NONE), ("ahead", Shift::AHEAD), ("behind", Shift::BEHIND), ("again", Shift::NONE)]
    {
        subject.hook(Hook::Clock(shift)).unwrap();
        assert!(call(subject, &Op::write(res, 9, "h", "v")).is_ok());
        raised.push((raised_at(subject, res), shift));
    }
    let (right, _) = raised[0];
    for (at, shift) in raised {
        let away = at - right - shift.0;
        assert!((0..3_600).contains(&away), "raised {away} s off with a clock of {shift} s");
    }
}

/// The time that `fencepost fence` reports for a resource, in seconds since 1970.
fn raised_at(subject: &HttpSubject, res: &str) -> i64 {
    let text = printed(Command::new(process::binary()).args(["fence", "show", res, "--json", "--url", &base(subject)]));
    let fence: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let at = fence["fence"]["raised_at"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned();
    seconds(&at)
}

fn base(subject: &HttpSubject) -> String {
    let said = subject.describe();
    said.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches(',').to_owned()
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A date in any format, in seconds since 1970.
fn seconds(date: &str) -> i64 {
    printed(Command::new("date").args(["-d", date, "+%s"])).trim().parse().unwrap()
}

/// The time according to the service, and the real time.
fn times(subject: &HttpSubject) -> (i64, i64) {
    let head = printed(Command::new("curl").args(["-s", "-m60", "-D-", "-o", "/dev/null", &base(subject)]));
    let date = head.lines().find_map(|line| line.strip_prefix("Date: ")).unwrap_or_else(|| panic!("{head}"));
    (seconds(date), seconds("now"))
}

#[test]
fn the_example_of_the_document_sets_the_clock_of_a_service() {
    let directory = examples().join("node");
    let map = with_a_clock(&std::fs::read_to_string(directory.join("fencepost.toml")).unwrap());
    std::fs::copy(directory.join("service.js"), map.dir().join("service.js")).unwrap();
    let subject = map.open().unwrap();
    for shift in [Shift::AHEAD, Shift::BEHIND, Shift::NONE] {
        subject.hook(Hook::Clock(shift)).unwrap();
        // The service updates its date every second.
        wait::until("the clock of the service to be set", Duration::from_secs(20), || {
            let (there, here) = times(&subject);
            (there - here - shift.0).abs().lt(&3_600).then_some(())
        });
    }
    let results = run(&subject, &Options { only: vec!["R10".to_owned()], ..Options::default() }, &mut ());
    let result = &results.cases[0];
    assert_eq!(result.status, Status::Pass, "{}", result.reason);
}
