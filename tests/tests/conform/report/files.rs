//! The files for programs, checked by the rules of other programs.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use fencepost_conformance::history::History;
use fencepost_conformance::report::{json, junit, tap, write_all};
use fencepost_conformance::verdict::{Level, Results, Status};
use serde_json::Value;

use crate::report::made_up::{NASTY, every_status, results, setting, short_history};

fn nasty() -> Results {
    let mut results = every_status();
    results.subject = NASTY.into();
    results.excluded.insert("Z01".into(), NASTY.into());
    for result in &mut results.cases {
        if result.status != Status::Pass {
            result.reason = NASTY.into();
        }
    }
    results
}

fn safe() -> Results {
    results(Level::L1, &[("A01", Level::L1, Status::Pass), ("A02", Level::L1, Status::NotApplicable)])
}

#[test]
fn json_has_the_documented_fields_and_no_others() {
    let read: Value = serde_json::from_str(&json(&nasty(), &setting())).unwrap();
    assert_eq!(read["format"], "fencepost-conformance-results");
    assert_eq!(read["format_version"], 1);
    assert_eq!(read["subject"], NASTY, "JSON escapes by itself");
    assert_eq!(read["seed"], "7", "a number could be rounded");
    assert_eq!((&read["level_asked"], &read["level_shown"]), (&Value::from("L3"), &Value::Null));
    assert_eq!((&read["outcome"], &read["exit_code"]), (&Value::from("not-safe"), &Value::from(1)));
    assert_eq!(read["counts"]["fail"], 1);
    let failed = &read["cases"][1];
    assert_eq!((&failed["id"], &failed["status"], &failed["level"]), (&"A02".into(), &"fail".into(), &"L1".into()));
    assert_eq!(failed["failure"]["operations"], serde_json::json!([2, 3]));
    assert_eq!(failed["history"], "history-A02.jsonl");
    assert_eq!(failed["reproduce"], "fencepost conform http --map 'my resource.toml' --only A02 --seed 7");
    assert_eq!(read["cases"][0]["history"], Value::Null);

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance/reports.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let documented: BTreeSet<&str> =
        docs.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|line| line.split('`').next()).collect();
    let mut found = BTreeSet::new();
    let mut fields = |prefix: &str, value: &Value| {
        for name in value.as_object().unwrap().keys() {
            found.insert(format!("{prefix}{name}"));
        }
    };
    fields("", &read);
    fields("cases[].", failed);
    fields("cases[].failure.", &failed["failure"]);
    fields("cases[].evidence.", &failed["evidence"]);
    fields("tool.", &read["tool"]);
    for name in &found {
        assert!(documented.contains(name.as_str()), "docs/conformance/reports.md does not say what `{name}` is");
    }
    let left: Vec<&&str> = documented.iter().filter(|name| !found.contains(**name)).collect();
    assert!(left.is_empty(), "documented and not there: {left:?}");
}

/// Reads XML with Python and prints what CI systems evaluate.
fn parsed_xml(text: &str) -> Value {
    const SCRIPT: &str = r#"
import json, sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
cases = {case.get("classname").rsplit(".", 1)[1]: [child.tag for child in case] for case in root.iter("testcase")}
texts = [child.get("message") or child.text for case in root.iter("testcase") for child in case]
suites = [{key: suite.get(key) for key in ("name", "tests", "failures", "errors", "skipped")} for suite in root]
print(json.dumps({"tag": root.tag, "all": root.attrib, "cases": cases, "texts": texts, "suites": suites}))
"#;
    serde_json::from_str(&python(SCRIPT, text)).unwrap()
}

pub(crate) fn python(script: &str, input: &str) -> String {
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3 is installed (scripts/setup)");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn junit_is_xml_and_green_only_if_the_run_is() {
    let read = parsed_xml(&junit(&nasty(), &setting()));
    assert_eq!(read["tag"], "testsuites");
    let tags = |id: &str| read["cases"][id].clone();
    for (id, expected) in [
        ("A01", serde_json::json!([])),
        ("A02", serde_json::json!(["failure"])),
        ("E01", serde_json::json!(["skipped"])),
        ("B01", serde_json::json!(["system-out"])),
        ("C01", serde_json::json!(["error"])),
        ("Z01", serde_json::json!(["skipped"])),
        ("R01", serde_json::json!(["error"])),
        ("verdict", serde_json::json!(["failure"])),
    ] {
        assert_eq!(tags(id), expected, "{id}");
    }
    for (name, count) in [("tests", "8"), ("failures", "2"), ("errors", "2"), ("skipped", "2")] {
        assert_eq!(read["all"][name], count, "{name}");
    }
    assert!(read["texts"][0].as_str().unwrap().contains("<script>alert('x')</script> & \"q\""), "{read}");

    let read = parsed_xml(&junit(&safe(), &setting()));
    assert_eq!(read["cases"]["verdict"], serde_json::json!(["system-out"]));
    assert_eq!((&read["all"]["failures"], &read["all"]["errors"]), (&"0".into(), &"0".into()));

    // Only skipped cases: each case is green, and the whole is red.
    let skipped = results(Level::L1, &[("A01", Level::L1, Status::Pass), ("A02", Level::L1, Status::Skip)]);
    let read = parsed_xml(&junit(&skipped, &setting()));
    assert_eq!((&read["all"]["errors"], &read["cases"]["verdict"]), (&"1".into(), &serde_json::json!(["error"])));
}

#[test]
fn tap_follows_its_rules() {
    let lines = |results: &Results| {
        let mut out = Vec::new();
        tap(&mut out, results, &setting()).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let text = lines(&nasty());
    assert_eq!(text[..2], ["TAP version 14", "1..8"]);
    let points: Vec<&String> =
        text.iter().filter(|line| line.starts_with("ok ") || line.starts_with("not ok ")).collect();
    assert_eq!(points.len(), 8, "as many as planned");
    for (index, point) in points.iter().enumerate() {
        let number = index + 1;
        assert!(point.contains(&format!("ok {number} - ")), "{point}");
    }
    let good = |index: usize| points[index].starts_with("ok ");
    assert_eq!((0..8).map(good).collect::<Vec<_>>(), [true, false, true, true, false, true, false, false]);
    let directives: Vec<bool> = points.iter().map(|point| point.contains(" # SKIP ")).collect();
    assert_eq!(directives, [false, false, true, false, false, true, false, false]);
    for point in &points {
        // Any other unescaped # would begin a directive.
        let bare = point.replace("\\\\", "").replace("\\#", "").replace(" # SKIP ", "");
        assert!(!bare.contains('#'), "{point}");
    }
    // Every detail block is YAML between its markers, with JSON strings as values.
    let mut inside = false;
    for line in &text {
        match line.as_str() {
            "  ---" => inside = true,
            "  ..." => inside = false,
            line if inside => {
                let (name, value) = line.trim_start().split_once(": ").unwrap();
                assert!(["status", "message", "rule", "why", "again"].contains(&name), "{line}");
                serde_json::from_str::<String>(value).unwrap();
            }
            line => assert!(!line.starts_with(' '), "{line}"),
        }
    }
    assert!(lines(&safe()).last().unwrap().starts_with("ok 3 - verdict: SAFE at L1"));
    let mut broken = safe();
    broken.broken = Some("the adapter\nended".into());
    assert_eq!(lines(&broken).last().unwrap(), "Bail out! the adapter ended");
}

#[test]
fn all_files_are_written_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/reports");
    let written = write_all(&out, &nasty(), &setting()).unwrap();
    let names = |path: &Path| {
        let mut names: Vec<String> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let expected = ["history-A02.jsonl", "junit.xml", "report.html", "results.json"];
    assert_eq!(names(&out), expected);
    assert_eq!(written.files.len(), 4);
    // Again, replacing the existing files.
    write_all(&out, &nasty(), &setting()).unwrap();
    assert_eq!(names(&out), expected);
    let read: Value = serde_json::from_slice(&std::fs::read(out.join("results.json")).unwrap()).unwrap();
    assert_eq!(read["outcome"], "not-safe");
    let history = std::fs::File::open(out.join("history-A02.jsonl")).unwrap();
    let history = History::read_from(std::io::BufReader::new(history)).unwrap();
    assert_eq!(history, short_history(), "recheck reads what was written");
}

#[test]
fn an_error_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("junit.xml")).unwrap();
    let error = write_all(dir.path(), &safe(), &setting()).unwrap_err().to_string();
    assert!(error.contains("junit.xml cannot be written") && error.contains("--out"), "{error}");
    assert!(!dir.path().join("results.json").exists(), "it comes last");

    let file = dir.path().join("plain");
    std::fs::write(&file, "").unwrap();
    let error = write_all(&file, &safe(), &setting()).unwrap_err().to_string();
    assert!(error.contains("plain cannot be written"), "{error}");
}
