//! `fencepost conform http` against running services.

use std::path::Path;

use fencepost_harness::fresh::Fresh;

use super::{conform, dir, last_line, results, text};

#[test]
fn a_service_that_forgets_its_fences_is_1() {
    let dir = dir();
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/conformance/node-memory/fencepost.toml");
    let output = conform(dir.path(), &["http", "--map", map.to_str().unwrap(), "--only", "R01"], &[]);
    assert_eq!(output.status.code(), Some(1), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(last_line(&output).starts_with("NOT SAFE: 1 of 1 case failed (R01)"), "{}", last_line(&output));
    let results = results(dir.path());
    assert_eq!((&results["cases"][0]["id"], &results["cases"][0]["status"]), (&"R01".into(), &"fail".into()));
}

/// No service listens at the base address of this map.
const GATEWAY: &str = r#"
map = 1

[resource]
base = "http://127.0.0.1:1"

[write]
method  = "PUT"
path    = "/v1/kv/{res}"
headers = { Fencing-Token = "{token}" }
body    = "{value}"
ok      = [204]
stale   = [409]
error   = ["4xx"]

[read]
method = "GET"
path   = "/v1/kv/{res}"
ok     = [200]
absent = [404]
value  = "body"
"#;

/// One store behind two addresses passes. Two stores fail: the second has not seen what the first accepted.
#[test]
fn every_address_that_is_given_is_reached() {
    let dir = dir();
    std::fs::write(dir.path().join("map.toml"), GATEWAY).unwrap();
    let (one, other) = (Fresh::memory(&[]), Fresh::memory(&[]));
    for (second, code, said) in
        [(&one, 0, "PASSED: 1 of 1 case (C07)"), (&other, 1, "NOT SAFE: 1 of 1 case failed (C07)")]
    {
        let given = ["http", "--map", "map.toml", "--base", one.url(), "--base", second.url(), "--only", "C07"];
        let output = conform(dir.path(), &given, &[]);
        assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
        assert!(last_line(&output).starts_with(said), "{}", last_line(&output));
        let results = results(dir.path());
        assert_eq!(results["instances"], 2);
        let subject = results["subject"].as_str().unwrap();
        assert!(subject.contains(&format!("{}, {}", one.url(), second.url())), "{subject}");
    }
}
