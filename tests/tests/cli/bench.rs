//! `fencepost bench`: every workload works against a real gateway, and nothing is written without an explicit option.
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::run;
use serde_json::Value;

const SMALL: [&str; 6] = ["--warm-up", "20ms", "--resources", "50", "--connections", "4"];

/// The result lines of all workloads, each measured for this long, and the gateway under load.
fn measured(duration: &str) -> (Vec<Value>, Fresh) {
    let gateway = Fresh::memory(&[]);
    let all = ["bench", "--yes", "--json", "--url", gateway.url(), "--duration", duration];
    let output = run(&[&all[..], &SMALL].concat());
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = lines.iter().map(|line| line["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["put", "stale", "mixed", "get", "checked-get", "claim", "txn", "lock", "healthz"]);
    for line in &lines {
        assert_eq!(line["unexpected"], 0, "{line}");
    }
    (lines, gateway)
}

#[test]
fn every_workload_is_answered_as_expected() {
    let answered = |line: &Value| line["answered"].as_u64().unwrap() > 0;
    let (mut lines, mut gateway) = measured("100ms");
    // A machine that stalls during the whole short run answers nothing.
    if !lines.iter().all(answered) {
        (lines, gateway) = measured("5s");
    }
    for line in &lines {
        assert!(answered(line), "{line}");
        assert!(line["p50_ms"].as_f64().unwrap() <= line["p999_ms"].as_f64().unwrap(), "{line}");
    }
    let keys = gateway.client().request("GET", "/v1/kv?limit=1000", &[], b"").json();
    assert_eq!(keys["keys"].as_array().unwrap().len(), 50, "the load stays under its prefix");
    let get = ["bench", "get", "--yes", "--url", gateway.url(), "--duration", "100ms"];
    let table = run(&[&get[..], &SMALL].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("workload") && table.contains("\nget "), "{table}");
}

#[test]
fn nothing_is_written_without_yes() {
    let gateway = Fresh::memory(&[]);
    let output = run(&["bench", "put", "--url", gateway.url()]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("10000 keys") && said.contains("--yes"), "{said}");
    let keys = gateway.client().request("GET", "/v1/kv", &[], b"").json();
    assert_eq!(keys["keys"].as_array().unwrap().len(), 0);
}

#[test]
fn a_gateway_that_is_not_there_is_told() {
    let output = run(&["bench", "put", "--yes", "--url", "http://127.0.0.1:1", "--resources", "1"]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
}
