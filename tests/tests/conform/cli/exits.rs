//! Exit codes, the last line, and error messages.

use std::path::PathBuf;

use super::{adapter, command, conform, dir, last_line, text};

#[test]
fn a_level_that_is_shown_is_0() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--level", "L1"], &adapter(None));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert_eq!(
        last_line(&output),
        "SAFE at L1 · not tested: concurrency and network, process crash, power loss and disk faults"
    );
    for file in ["report.html", "results.json", "junit.xml"] {
        assert!(dir.path().join("conform-report").join(file).exists(), "{file}");
    }
}

#[test]
fn what_was_not_shown_is_2() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--level", "L1", "--exclude", "B10=takes too long"], &adapter(None));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("takes too long"), "{}", text(&output.stdout));
}

#[test]
fn whatever_keeps_the_suite_from_its_work_is_3() {
    let dir = dir();
    std::fs::write(dir.path().join("map.toml"), "map = 1\nnonsense = true\n").unwrap();
    for (arguments, adapter, said) in [
        (vec!["exec", "--level", "L9"], adapter(None), "`L9` is not a level"),
        (vec!["exec", "--only", "X01"], adapter(None), "there is no case or group `X01`"),
        (vec!["exec", "--exclude", "A01"], adapter(None), "an exclusion needs a reason"),
        (vec!["exec", "--rounds", "0"], adapter(None), "without rounds nothing is tried: give a number from 1 on"),
        (vec!["exec", "--rounds", "many"], adapter(None), "give a number of rounds, such as 500"),
        (vec!["exec", "--timeout", "0s"], adapter(None), "nothing can be answered in no time: give a time such as"),
        (vec!["exec", "--ready", "0ms"], adapter(None), "nothing can be answered in no time: give a time such as"),
        (vec!["exec", "--case-limit", "0min"], adapter(None), "nothing can be answered in no time"),
        (vec!["http", "--map", "map.toml", "--timeout", "0s"], vec![], "nothing can be answered in no time"),
        (vec!["exec", "--hook", "explode=true"], adapter(None), "there is no hook `explode`"),
        (vec!["exec", "--hook", "backup=true"], adapter(None), "`backup` and `restore` belong together"),
        (vec!["exec"], vec!["/nonexistent/adapter".to_owned()], "cannot be started"),
        (vec!["exec"], vec!["false".to_owned()], "ended"),
        (vec!["exec"], vec!["sh".to_owned(), "-c".to_owned(), "echo rubbish; cat".to_owned()], "rubbish"),
        (vec!["http", "--map", "none.toml"], vec![], "none.toml"),
        (vec!["http", "--map", "map.toml"], vec![], "nonsense"),
        (vec!["selftest", "--only", "no-such-mutant"], vec![], "there is no mutant `no-such-mutant`"),
    ] {
        let output = conform(dir.path(), &arguments, &adapter);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

/// Requests are answered twice, or never from the start, or never after `init`. The adapter also starts a child that
/// would be left behind.
#[test]
fn an_adapter_that_hangs_or_answers_twice_is_3_and_leaves_no_process_behind() {
    let init = r#"sleep 600 & read -r line; echo '{"id":1,"result":"ok","caps":[]}';"#;
    let twice = format!(
        r#"{init} while read -r line; do id=${{line#*\"id\":}}; id=${{id%%,*}}; for i in 1 2; do echo "{{\"id\":$id,\"result\":\"ok\"}}"; done; done"#
    );
    let patient = ["exec", "--only", "A"];
    for (arguments, script, said) in [
        (
            &[&patient[..], &["--ready", "2s"]].concat(),
            "sleep 600 & sleep 600".to_owned(),
            "did not answer init within 2s",
        ),
        (&[&patient[..], &["--timeout", "500ms"]].concat(), format!("{init} cat >/dev/null"), "answers nobody"),
        (&patient.to_vec(), twice, "was answered before"),
    ] {
        let (dir, temporary) = (dir(), dir());
        let mark = temporary.path().display().to_string();
        let adapter = ["env", &format!("CONFORM_CLI_MARK={mark}"), "sh", "-c", &script].map(str::to_owned);
        let output = command(dir.path(), arguments, &adapter).env("TMPDIR", temporary.path()).output().unwrap();
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{printed}");
        assert!(printed.contains(said), "`{said}` is missing in {printed}");
        assert_eq!(marked(&mark), Vec::<PathBuf>::new(), "processes were left behind");
        assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "or directories");
    }
}

/// Processes with this mark in their environment, or started by one with it.
fn marked(mark: &str) -> Vec<PathBuf> {
    let entry = format!("CONFORM_CLI_MARK={mark}").into_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let of_it = |path: &PathBuf| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry)
    };
    processes.filter(of_it).collect()
}

/// An error for a token behind the fence does not count as a refusal; perhaps the adapter only uses a wrong name for
/// it.
#[test]
fn an_error_in_the_place_of_stale_is_told_with_the_verdict() {
    let dir = dir();
    let script = r#"read -r line; echo '{"id":1,"result":"ok","caps":[]}'
        while read -r line; do id=${line#*\"id\":}; id=${id%%,*}
        case $line in
            *'"token":"100"'*) echo "{\"id\":$id,\"result\":\"ok\"}";;
            *) echo "{\"id\":$id,\"result\":\"error\",\"definite\":true,\"code\":\"old\"}";;
        esac; done"#;
    let output = conform(dir.path(), &["exec", "--only", "A03"], &["sh", "-c", script].map(str::to_owned));
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = "no write was ever refused as stale; `old` was answered once to a token behind the fence, and the adapter calls \
                that an error: does it belong to `stale`?";
    assert!(said.contains(hint), "{said}");
}

#[test]
fn a_case_has_a_limit_of_time() {
    let dir = dir();
    let output = conform(dir.path(), &["exec", "--only", "C01", "--case-limit", "10ms"], &adapter(None));
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{stdout}");
    assert!(stdout.contains("not finished after 10ms") && stdout.contains("--case-limit"), "{stdout}");
}
