//! The zombie: a worker that is stopped for longer than its lease lasts, while another takes over.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fencepost_conformance::proxy::Proxy;
use fencepost_conformance::wait;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{RECOVERY, Service};

/// `fencepost run` of a shell script.
fn worker(gateway: &Fresh, lock: &str, ttl: Duration, script: &str) -> Command {
    let mut command = Command::new(binary());
    let ttl = format!("{}ms", ttl.as_millis());
    command.args(["run", "--lock", lock, "--url", gateway.url(), "--resource", "stock"]);
    command.args(["--ttl", &ttl, "--wait", "60s", "--on-lost", "notify", "--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn written(path: &Path) -> String {
    wait::until(&format!("{}", path.display()), RECOVERY, || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n')).map(|text| text.trim().to_owned())
    })
}

fn ended(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs two workers, the first of which is stopped while the second does its work. Returns the result of the first
/// one's late write, and the final value of the key.
pub(crate) fn played(
    gateway: &Fresh,
    [first, second]: [&str; 2],
    ttl: Duration,
    network: Option<&Proxy>,
) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let (pid, go) = (dir.path().join("pid"), dir.path().join("go"));
    let put = |value: &str| format!("{} kv put stock {value}", binary().display());
    let script =
        format!("echo $$ > {}; until [ -e {} ]; do sleep 0.02; done; {}", pid.display(), go.display(), put("old"));
    let first = worker(gateway, first, ttl, &script).spawn().unwrap();
    let program = Pid::from_raw(written(&pid).parse().unwrap()).unwrap();
    // The whole worker stops, and its connections are cut: a session that ends with its connection ends too.
    let signal = |signal| {
        kill_process(Pid::from_child(&first), signal).unwrap();
        kill_process_group(program, signal).unwrap();
    };
    signal(Signal::STOP);
    if let Some(network) = network {
        network.shut();
    }
    let second = worker(gateway, second, ttl, &put("new")).spawn().unwrap();
    let (code, said) = ended(second);
    assert_eq!(code, Some(0), "the second takes over and writes: {said}");
    assert_eq!(gateway.client().get("stock").text(), "new");
    if let Some(network) = network {
        network.pass();
    }
    std::fs::write(&go, "").unwrap();
    signal(Signal::CONT);
    let (code, said) = ended(first);
    (code, said, gateway.client().get("stock").text())
}

fn played_with<S: Service>(gateway: &Fresh) -> (Option<i32>, String, String) {
    let service = S::start();
    let mut proxy = Proxy::start(service.address());
    let url = service.url_through(&mut proxy);
    played(gateway, [&url, &service.url()], S::TTL, Some(&proxy))
}

/// The purpose of the project: the late write is refused.
pub(crate) async fn a_zombie_is_refused<S: Service>() {
    let (code, said, value) = tokio::task::block_in_place(|| played_with::<S>(&Fresh::memory(&[])));
    assert_eq!((code, value.as_str()), (Some(3), "new"), "{said}");
    assert!(said.contains("stale"), "{said}");
}

/// The same without enforcement, to show what the fence prevents.
pub(crate) async fn in_observe_mode_a_zombie_overwrites<S: Service>() {
    let observe = "[[guard]]\nkeys = \"**\"\nmode = \"observe\"\n";
    let (code, said, value) = tokio::task::block_in_place(|| played_with::<S>(&Fresh::configured(observe, &[])));
    assert_eq!((code, value.as_str()), (Some(0), "old"), "{said}");
}
