//! The client, the command line and the conformance adapters.

use std::process::{Command, Output, Stdio};

use fencepost_conformance::harness::fresh::Fresh;
use fencepost_conformance::harness::process::{GatewayProcess, binary};

/// The command line against this gateway, with nothing else of ours in its environment.
fn command(gateway: &GatewayProcess, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env("FENCEPOST_URL", gateway.url()).stdin(Stdio::null());
    command
}

fn fencepost(gateway: &GatewayProcess, arguments: &[&str]) -> Output {
    command(gateway, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn rotate(gateway: &Fresh, resource: &str, from: &str) {
    let socket = gateway.data().join("admin.sock");
    let line = ["fence", "rotate", resource, "--from", from, "--reason", "the lock service was replaced"];
    let rotated = command(gateway, &line).env("FENCEPOST_ADMIN_SOCKET", socket).output().unwrap();
    assert!(rotated.status.success(), "{rotated:?}");
}

/// `fencepost run --lock URL -- fencepost kv put r VALUE`
fn write_under(gateway: &Fresh, lock: &str, value: &str) -> Output {
    let program = binary();
    let program = program.to_str().unwrap();
    fencepost(gateway, &["run", "--lock", lock, "--resource", "r", "--", program, "kv", "put", "r", value])
}

/// T30, T39: a number that was handed out before a rotation is not moved into the new generation.
#[test]
fn c01_a_number_from_before_a_rotation_stays_in_its_generation() {
    let gateway = Fresh::memory(&[]);
    assert!(write_under(&gateway, "token:33", "old").status.success());
    rotate(&gateway, "r", "0");
    let mut client = gateway.client();
    assert_eq!(client.put("r", "1:2", "new").status, 204);
    let programs = ["exec:sh?arg=-c&arg=echo%2033", "exec:sh?arg=-c&arg=echo%200:33"];
    for lock in ["token:33", "token:34"].into_iter().chain(programs) {
        let zombie = write_under(&gateway, lock, "zombie");
        assert_eq!(zombie.status.code(), Some(3), "{lock}: {zombie:?}");
        let said = text(&zombie.stderr);
        assert!(said.contains("generation 0") && said.contains("generation 1"), "{lock}: {said}");
        assert_eq!((client.get("r").text().as_str(), client.get("r").header("fence")), ("new", Some("1:2")), "{lock}");
    }
    assert_eq!(client.put("r", "1:2", "still mine").status, 204, "the rightful holder is not fenced off");
    // Written out, a newer one is taken.
    for (lock, fence) in [
        ("token:1:3", "1:3"),
        ("exec:sh?arg=-c&arg=echo%20%24FENCEPOST_GENERATION:%24%28%28FENCEPOST_FLOOR%2B1%29%29", "1:4"),
    ] {
        let issuer = if lock.starts_with("token") { "?issuer=exec:caller" } else { "" };
        let written = write_under(&gateway, &format!("{lock}{issuer}"), "newer");
        assert!(written.status.success(), "{lock}: {written:?}");
        assert_eq!(client.get("r").header("fence"), Some(fence), "{lock}");
    }
}
