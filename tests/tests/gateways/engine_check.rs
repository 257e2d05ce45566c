//! `fencepost engine check`: its verdict, its exit code, and that it leaves nothing behind.

use std::process::{Command, Output, Stdio};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::process::{binary, run};
use fencepost_harness::servers::postgres::Postgres;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::team::own_server;

/// A server that the engine takes, with a table of somebody else.
fn server() -> Postgres {
    let server = own_server();
    server.sql("create schema theirs; create table theirs.records (x integer); insert into theirs.records values (7)");
    server
}

fn check(url: &str, arguments: &[&str]) -> Output {
    run(&[&["engine", "check", url], arguments].concat())
}

/// The schemas of checks.
fn left_behind(server: &Postgres) -> String {
    server.sql("select string_agg(nspname, ' ') from pg_namespace where nspname like 'fencepost%'")
}

fn assert_untouched(server: &Postgres) {
    assert_eq!(left_behind(server), "");
    assert_eq!(server.sql("select x from theirs.records"), "7");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_server_that_keeps_the_rules_is_safe_and_nothing_is_left_on_it() {
    let server = server();
    for dialect in ["", "?dialect=serializable"] {
        let output = check(&format!("{}{dialect}", server.url()), &["--duration", "3s"]);
        let (table, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{table}{said}");
        let verdict = table.lines().last().unwrap();
        assert!(verdict.starts_with("safe: no rule was broken in ") && verdict.contains("PostgreSQL"), "{table}");
        for case in ["passed   commits have one order ", "passed   lost answers are settled "] {
            assert!(table.contains(case), "{table}");
        }
        assert!(said.is_empty(), "no progress without a terminal: {said}");
        assert_untouched(&server);
    }
}

#[test]
fn a_server_that_breaks_a_rule_is_not_safe() {
    let server = server();
    // It confirms removals from the engine's table, and does not make them.
    server.sql(
        "create function public.skip() returns trigger language plpgsql as $$ begin return null; end $$;
         create function public.spoil() returns event_trigger language plpgsql as $$ declare made record; begin
           for made in select * from pg_event_trigger_ddl_commands() where object_identity like 'fencepost_check_%.records' loop
             execute format('create trigger spoilt before delete on %s for each row execute function public.skip()',
               made.object_identity);
           end loop;
         end $$;
         create event trigger spoil on ddl_command_end when tag in ('CREATE TABLE') execute function public.spoil()",
    );
    let output = check(&server.url(), &["--duration", "1s", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["engine"]), (&"not-safe".into(), &"postgres".into()), "{report}");
    assert!(report["server"].as_str().unwrap().contains("PostgreSQL"), "{report}");
    let cases = report["cases"].as_array().unwrap();
    let found = cases.iter().find(|case| case["name"] == "removed_records_are_gone").unwrap();
    assert!(found["result"] == "failed" && !found["said"].as_str().unwrap().is_empty(), "{report}");
    assert!(cases.iter().any(|case| case["result"] == "passed"), "{report}");
    assert_untouched(&server);
}

#[test]
fn a_check_that_is_interrupted_leaves_nothing_behind() {
    let server = server();
    let mut command = Command::new(binary());
    command.args(["engine", "check", &server.url(), "--duration", "10min"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait::until("the place of the check", PATIENCE, || (!left_behind(&server).is_empty()).then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ended by SIGINT; nothing is said about the server"), "{said}");
    assert_untouched(&server);
}

#[test]
fn what_cannot_be_checked_is_refused() {
    for (url, arguments, code, told) in [
        ("memory", vec![], 2, "uses no server"),
        ("nothing://host", vec![], 2, "nothing"),
        ("postgres://postgres@127.0.0.1:1/x", vec!["--duration", "0s"], 2, "10s"),
        ("postgres://postgres:hunter2@127.0.0.1:1/x", vec!["--duration", "1s"], 1, "127.0.0.1:1"),
    ] {
        let output = check(url, &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{url}: {said}");
        assert!(said.contains(told) && !said.contains("hunter2"), "{url}: {said}");
        assert!(output.stdout.is_empty(), "{url}");
    }
}
