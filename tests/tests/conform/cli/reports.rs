//! What is written and printed, also under difficult conditions.

use super::{conform, dir, last_line, text};

/// An adapter that answers `ok` to everything, and runs this at the first request.
fn agreeable(at_first: &str) -> [String; 3] {
    let script = format!(
        r#"
import json, os, shutil, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {{"id": request["id"], "result": "ok"}}
    if request["op"] == "init":
        answer["caps"] = []
        {at_first}
    print(json.dumps(answer), flush=True)
"#
    );
    ["python3".to_owned(), "-c".to_owned(), script]
}

#[test]
fn a_directory_that_cannot_be_written_to_is_told_before_the_run() {
    let dir = dir();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let adapter = agreeable("open('started', 'w').close()");
    let output = conform(dir.path(), &["exec", "--only", "A01", "--out", "file/reports"], &adapter);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("file/reports cannot be written") && stderr.contains("--out"), "{stderr}");
    assert!(!dir.path().join("started").exists(), "nothing was run for nothing");
}

#[test]
fn a_verdict_is_told_although_its_report_cannot_be_written() {
    for (case, code, said) in
        [("A01", 3, "PASSED: 1 of 1 case (A01)"), ("A03", 1, "NOT SAFE: 1 of 1 case failed (A03)")]
    {
        let dir = dir();
        let adapter = agreeable("shutil.rmtree('conform-report'); open('conform-report', 'w').close()");
        let output = conform(dir.path(), &["exec", "--only", case], &adapter);
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(text(&output.stdout).contains(said), "{printed}");
        assert!(text(&output.stderr).contains("conform-report cannot be written"), "{printed}");
    }
}

#[test]
fn a_verdict_does_not_wait_for_the_resource_to_go() {
    let dir = dir();
    let script = r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"], "result": "ok"}
    if request["op"] == "init":
        answer["caps"] = []
    print(json.dumps(answer), flush=True)
with open("note", "w") as note:
    note.write(str(os.path.exists("conform-report/results.json")))
"#;
    let adapter = ["python3", "-c", script].map(str::to_owned);
    let output = conform(dir.path(), &["exec", "--only", "A01"], &adapter);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let note = std::fs::read_to_string(dir.path().join("note")).unwrap();
    assert_eq!(note, "True", "the report was there before the adapter was told to end");
}

/// The adapter ends only when it is killed, some seconds after it was asked to end.
#[test]
fn who_waits_for_the_end_after_the_verdict_is_told_why() {
    let dir = dir();
    let script = r#"trap '' TERM; read -r line; echo '{"id":1,"result":"ok","caps":[]}'
        while read -r line; do id=${line#*\"id\":}; echo "{\"id\":${id%%,*},\"result\":\"ok\"}"; done; sleep 600; sleep 600"#;
    let output = conform(dir.path(), &["exec", "--only", "A01"], &["sh", "-c", script].map(str::to_owned));
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(
        text(&output.stderr).contains("That is the verdict. What was started is being ended"),
        "{}",
        text(&output.stderr)
    );
}

/// Prints two lines to standard error and exits instead of giving its second answer.
const DIES: &str =
    r#"read -r line; echo '{"id":1,"result":"ok","caps":[]}'; read -r line; printf 'no disk\nno hope\n' >&2; exit 5"#;

#[test]
fn the_lines_of_a_crash_stay_lines() {
    let dir = dir();
    let dies = ["sh", "-c", DIES].map(str::to_owned);
    for arguments in [&["exec", "--only", "A01"][..], &["exec", "--only", "A01", "--tap"]] {
        let output = conform(dir.path(), arguments, &dies);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("no hope") && !said.contains('\u{240a}'), "{said}");
    }
    let output = conform(dir.path(), &["exec", "--only", "A01"], &dies);
    let stdout = text(&output.stdout);
    assert!(stdout.lines().any(|line| line.trim() == "| no hope"), "{stdout}");
    assert!(last_line(&output).contains("| no disk | no hope"), "{stdout}");
    for file in ["report.html", "junit.xml", "results.json"] {
        let written = std::fs::read_to_string(dir.path().join("conform-report").join(file)).unwrap();
        assert!(written.contains("no hope") && !written.contains('\u{240a}'), "{file}");
    }
}
