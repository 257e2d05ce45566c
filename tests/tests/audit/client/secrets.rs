//! Leases and passwords stay out of the sight of other users; text that could mislead a terminal is escaped.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::GatewayProcess;
use serde_json::Value;
use tempfile::TempDir;

use super::{command, fencepost, text};

fn acquire(gateway: &Fresh) -> (String, Value) {
    let acquired = fencepost(gateway, &["lock", "acquire", "job", "--json"]);
    assert!(acquired.status.success(), "{acquired:?}");
    let json: Value = serde_json::from_slice(&acquired.stdout).unwrap();
    (json["lease"].as_str().unwrap().to_owned(), json)
}

fn file(dir: &TempDir, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn with_input(gateway: &GatewayProcess, arguments: &[&str], input: &str) -> Output {
    let mut command = command(gateway, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn s20_a_lease_travels_in_a_header() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let (lease, _) = acquire(&gateway);
    let other = "0".repeat(32);
    let header = ("fencing-lease", lease.as_str());
    let body = br#"{"ttl_ms": 30000}"#;
    assert_eq!(client.request("POST", "/v1/locks/job/renew", &[header], body).status, 200);
    let same = format!(r#"{{"lease": "{lease}", "ttl_ms": 30000}}"#);
    assert_eq!(client.request("POST", "/v1/locks/job/renew", &[header], same.as_bytes()).status, 200);
    let different = format!(r#"{{"lease": "{other}", "ttl_ms": 30000}}"#);
    for (method, target, headers, body, word) in [
        ("POST", "/v1/locks/job/renew".to_owned(), &[header][..], different.as_bytes(), "malformed-header"),
        ("POST", "/v1/locks/job/renew".to_owned(), &[], body, "malformed-body"),
        ("DELETE", format!("/v1/locks/job?lease={other}"), &[header], b"", "malformed-header"),
        ("DELETE", "/v1/locks/job".to_owned(), &[], b"", "malformed-query"),
        ("DELETE", "/v1/locks/job".to_owned(), &[header, header], b"", "malformed-header"),
        ("DELETE", "/v1/locks/job".to_owned(), &[("fencing-lease", "xyz")], b"", "malformed-header"),
    ] {
        let answer = client.request(method, &target, headers, body);
        assert_eq!((answer.status, answer.problem().as_str()), (400, word), "{method} {target}: {answer:?}");
        assert!(!answer.text().contains(&lease), "an error does not repeat a secret: {answer:?}");
    }
    let both = client.request("DELETE", &format!("/v1/locks/job?lease={lease}"), &[header], b"");
    assert_eq!(both.status, 204, "{both:?}");
    let (lease, _) = acquire(&gateway);
    assert_eq!(client.request("DELETE", "/v1/locks/job", &[("fencing-lease", &lease)], b"").status, 204);
}

#[test]
fn s20_our_commands_put_no_lease_into_a_url() {
    use std::io::{BufRead, BufReader};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let lease = "0123456789abcdef0123456789abcdef";
    let seen = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let head: Vec<String> = reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
        head
    });
    let gateway = Fresh::memory(&[]);
    let released =
        command(&gateway, &["lock", "release", "job", "--lease", lease]).env("FENCEPOST_URL", url).output().unwrap();
    assert!(released.status.success(), "{released:?}");
    let head = seen.join().unwrap();
    assert!(!head[0].contains(lease), "{head:?}");
    assert!(head.iter().any(|line| *line == format!("fencing-lease: {lease}")), "{head:?}");
}

#[test]
fn s20_a_lease_comes_from_a_file_or_standard_input() {
    let gateway = Fresh::memory(&[]);
    let dir = TempDir::new().unwrap();
    let (lease, json) = acquire(&gateway);
    let (bare, whole) =
        (file(&dir, "lease", &format!("{lease}\n"), 0o600), file(&dir, "json", &json.to_string(), 0o600));
    for arguments in [["--lease-file", path(&bare)], ["--lease-file", path(&whole)]] {
        let renewed = fencepost(&gateway, &[&["lock", "renew", "job"][..], &arguments].concat());
        assert!(renewed.status.success(), "{renewed:?}");
    }
    let renewed = command(&gateway, &["lock", "renew", "job"]).env("FENCEPOST_LEASE_FILE", &bare).output().unwrap();
    assert!(renewed.status.success(), "{renewed:?}");
    let both = ["lock", "release", "job", "--lease", &lease, "--lease-file", path(&bare)];
    assert_eq!(fencepost(&gateway, &both).status.code(), Some(2));
    let empty = file(&dir, "empty", "\n", 0o600);
    for wrong in [path(&empty), "/no/such/file"] {
        let output = fencepost(&gateway, &["lock", "release", "job", "--lease-file", wrong]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("--lease-file"), "{output:?}");
    }
    let two = ["lock", "release", "job", "--lease-file", "-", "--lock-file", "-"];
    assert_eq!(with_input(&gateway, &two, &lease).status.code(), Some(2), "one input is not two files");
    let released = with_input(&gateway, &["lock", "release", "job", "--lease-file", "-"], &lease);
    assert!(released.status.success(), "{released:?}");
    let help = text(
        &command(&gateway, &["lock", "release", "--help"]).env("FENCEPOST_LEASE", "5ecret").output().unwrap().stdout,
    );
    assert!(help.contains("FENCEPOST_LEASE") && !help.contains("5ecret"), "{help}");
}

#[test]
fn s20_the_url_of_a_lock_service_comes_from_a_file_that_others_cannot_read() {
    let gateway = Fresh::memory(&[]);
    let dir = TempDir::new().unwrap();
    let url = format!("fencepost://{}\n", gateway.address());
    let (good, open) = (file(&dir, "lock", &url, 0o600), file(&dir, "open", &url, 0o644));
    let run = |more: &[&str]| {
        let line = ["run", "--resource", "job", "--wait", "30s"];
        fencepost(&gateway, &[&line, more, &["--", "sh", "-c", "echo $FENCEPOST_TOKEN"]].concat())
    };
    let output = run(&["--lock-file", path(&good)]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "1\n"), "{output:?}");
    let output = run(&["--lock-file", path(&open)]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains(&format!("chmod 600 {}", open.display())), "{output:?}");
    assert_eq!(run(&["--lock-file", "-"]).status.code(), Some(2), "standard input is the program's");
    assert_eq!(run(&["--lock-file", path(&good), "--lock", "token:1"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2), "one of the two is needed");
    // Acquire, renew and release. A pipe has no file mode to check.
    let taken = with_input(&gateway, &["lock", "acquire", "other", "--lock-file", "-", "--json"], &url);
    assert!(taken.status.success(), "{taken:?}");
    let lease = file(&dir, "lease.json", &text(&taken.stdout), 0o600);
    for verb in ["renew", "release"] {
        let line = ["lock", verb, "other", "--lock-file", path(&good), "--lease-file", path(&lease)];
        let output = fencepost(&gateway, &line);
        assert!(output.status.success(), "{verb}: {output:?}");
    }
    let from_variable =
        command(&gateway, &["lock", "acquire", "third"]).env("FENCEPOST_LOCK_FILE", &good).output().unwrap();
    assert!(from_variable.status.success(), "{from_variable:?}");
    let line = ["s3", "credentials", "--resource", "job", "--lock-file", path(&open)];
    assert_eq!(fencepost(&gateway, &line).status.code(), Some(2));
}

#[test]
fn s20_the_program_under_run_does_not_get_the_password() {
    let gateway = Fresh::memory(&[]);
    let own = format!("fencepost://{}", gateway.address());
    // The `FENCEPOST_LOCK` that the program sees, given its value in the environment of the command.
    let found = |variable: &str| {
        let line = ["run", "--lock", &own, "--resource", "job", "--wait", "30s", "--", "env"];
        let output = command(&gateway, &line).env("FENCEPOST_LOCK", variable).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let variables = text(&output.stdout);
        assert!(!variables.contains("s3cret"), "{variables}");
        variables.lines().find_map(|line| line.strip_prefix("FENCEPOST_LOCK=")).map(str::to_owned)
    };
    assert_eq!(found("redis://bob:s3cret@127.0.0.1:1/0").as_deref(), Some("redis://bob@127.0.0.1:1/0"));
    assert_eq!(found("redis://:s3cret@127.0.0.1:1").as_deref(), Some("redis://127.0.0.1:1"));
    assert_eq!(found(&own).as_deref(), Some(own.as_str()), "there is no secret in it");
    assert_eq!(found("redis://bob:s3cret/x@127.0.0.1:1"), None, "one that cannot be read is not passed on");
    // Also if the lock itself is configured by that variable: a nested command uses the same service.
    let nested = ["run", "--resource", "job", "--wait", "30s", "--", "sh", "-c", "echo $FENCEPOST_LOCK"];
    let output = command(&gateway, &nested).env("FENCEPOST_LOCK", &own).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), own, "{output:?}");
}

#[test]
fn s23_hidden_characters_are_refused_in_labels_and_escaped_in_names() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let (hidden, seen) = ("worker\u{202e}a#1", "r\u{2066}x");
    let holder = client.request("PUT", "/v1/kv/k", &[("fencing-token", "1"), ("fencing-holder", hidden)], b"v");
    assert_eq!((holder.status, holder.problem().as_str()), (400, "malformed-header"), "{holder:?}");
    let lock = format!(r#"{{"holder": "{hidden}", "ttl_ms": 1000}}"#);
    let lock = client.request("POST", "/v1/locks/k", &[], lock.as_bytes());
    assert_eq!((lock.status, lock.problem().as_str()), (400, "malformed-body"), "{lock:?}");
    let line = ["fence", "rotate", "k", "--from", "0", "--reason", "because\u{200b}"];
    let socket = gateway.data().join("admin.sock");
    let reason = command(&gateway, &line).env("FENCEPOST_ADMIN_SOCKET", socket).output().unwrap();
    assert_eq!(reason.status.code(), Some(1), "{reason:?}");
    // Names are stored unchanged, and shown so that a terminal cannot misinterpret them.
    assert!(fencepost(&gateway, &["kv", "put", seen, "value\u{1b}[31m", "--token", "1"]).status.success());
    for arguments in [
        &["fence", "show", seen][..],
        &["fence", "list"],
        &["kv", "list"],
        &["kv", "list", "--json"],
        &["claim", seen, "--token", "1"],
        &["fence", "show", seen, "--json"],
        &["kv", "put", seen, "v2", "--token", "1"],
    ] {
        let output = fencepost(&gateway, arguments);
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains("r\\u2066x") && !said.contains('\u{2066}'), "{output:?}");
        assert!(!said.contains('\u{1b}'), "{output:?}");
    }
    let stale = fencepost(&gateway, &["lock", "show", seen]);
    assert!(text(&stale.stderr).contains("r\\u2066x") && !text(&stale.stderr).contains('\u{2066}'), "{stale:?}");
    let listed = fencepost(&gateway, &["kv", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["keys"][0]["key"], seen, "for programs it is the same name");
    assert_eq!(fencepost(&gateway, &["kv", "get", seen]).stdout, b"v2", "values are bytes");
}
