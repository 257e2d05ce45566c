//! The administrator's Unix socket itself: its permissions, and what may be in its place.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use fencepost_conformance::wait::PATIENCE;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::process::{GatewayProcess, binary};
use rustix::process::Signal;
use serde_json::json;

/// Starts a gateway on the memory engine with this admin socket.
fn serve(dir: &Path, socket: &Path) -> Result<GatewayProcess, String> {
    let mut command = Command::new(binary());
    command.args(["serve", "--engine", "memory", "--listen", "127.0.0.1:0", "--data"]).arg(dir);
    command.arg("--admin-socket").arg(socket);
    GatewayProcess::spawn(command)
}

fn rotate(socket: &Path, resource: &str) -> u16 {
    let body = json!({"from": 0, "reason": "a test"});
    Client::connect_unix(socket).post(&format!("/v1/admin/fences/{resource}/rotate"), &body).status
}

#[test]
fn only_its_owner_can_open_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let socket = dir.path().join("admin.sock");
    let _gateway = serve(&dir.path().join("data"), &socket).unwrap();
    let found = std::fs::metadata(&socket).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
    if rustix::process::geteuid().is_root() {
        let path = socket.to_str().unwrap();
        let curl = ["-sS", "--unix-socket", path, "-X", "POST", "http://x/v1/admin/reload"];
        let stranger = Command::new("curl").args(curl).uid(65534).gid(65534).output().unwrap();
        assert_eq!(stranger.status.code(), Some(7), "it cannot even connect: {stranger:?}");
        let owner = Command::new("curl").args(curl).output().unwrap();
        assert!(String::from_utf8_lossy(&owner.stdout).contains("\"changed\":[]"), "{owner:?}");
    }
}

#[test]
fn it_is_removed_by_a_clean_stop_and_replaced_after_a_kill() {
    let (gateway, dir) = Fresh::rocksdb(&[]).into_parts();
    let data = dir.path().join("data");
    let socket = data.join("admin.sock");
    assert!(socket.exists());
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(PATIENCE).code(), Some(0));
    assert!(!socket.exists(), "a clean stop removes it");
    GatewayProcess::start(&data, &[]).kill();
    assert!(socket.exists(), "a killed process leaves it behind");
    let _gateway = GatewayProcess::start(&data, &[]);
    assert_eq!(rotate(&socket, "k"), 200, "and the next one replaces it");
}

#[test]
fn a_second_gateway_does_not_steal_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("admin.sock");
    let first = serve(&dir.path().join("one"), &socket).unwrap();
    let said = serve(&dir.path().join("two"), &socket).err().expect("it must not start");
    assert!(said.contains("another gateway serves the admin socket") && said.contains("--admin-socket"), "{said}");
    assert!(said.contains(socket.to_str().unwrap()) && said.starts_with("exit status: 1"), "{said}");
    assert_eq!(rotate(&socket, "k"), 200, "the first still answers");
    let fence = first.client().request("GET", "/v1/fences/k", &[], b"").json();
    assert_eq!(fence["generation"], 1);
    let _other = serve(&dir.path().join("two"), &dir.path().join("other.sock")).unwrap();
}

#[test]
fn a_file_in_the_way_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("admin.sock");
    std::fs::write(&socket, "precious").unwrap();
    let said = serve(&dir.path().join("data"), &socket).err().expect("it must not start");
    assert!(said.contains("is in the way of the admin socket"), "{said}");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
    let link = dir.path().join("link.sock");
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    assert!(serve(&dir.path().join("data"), &link).is_err(), "nor is a link followed");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}

#[test]
fn a_path_that_is_too_long_or_cannot_be_made_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("x".repeat(120)).join("admin.sock");
    let said = serve(&dir.path().join("data"), &long).err().expect("it must not start");
    assert!(said.contains("choose a shorter path with --admin-socket"), "{said}");
    std::fs::write(dir.path().join("file"), "").unwrap();
    let said = serve(&dir.path().join("data"), &dir.path().join("file/admin.sock")).err().expect("it must not start");
    assert!(said.contains("cannot make") || said.contains("cannot listen"), "{said}");
    let nested = dir.path().join("made/for/it/admin.sock");
    let _gateway = serve(&dir.path().join("data"), &nested).unwrap();
    assert_eq!(rotate(&nested, "k"), 200);
}

#[test]
fn administrators_who_stay_connected_do_not_keep_a_gateway_from_stopping() {
    let (gateway, dir) = Fresh::rocksdb(&[]).into_parts();
    let socket = dir.path().join("data/admin.sock");
    let mut idle: Vec<_> = (0..4).map(|_| Client::connect_unix(&socket)).collect();
    assert_eq!(idle[0].request("GET", "/readyz", &[], b"").status, 200);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(PATIENCE).code(), Some(0));
    assert!(idle.iter_mut().all(Client::is_closed));
}
