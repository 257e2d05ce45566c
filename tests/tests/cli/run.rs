//! `fencepost run`: any program under a lock.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use fencepost_conformance::proxy::{Direction, Proxy, Rule};
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;
use rustix::process::{Pid, Signal, kill_process};

/// Long enough that no lease expires before the test wants it to.
const TTL: &str = "10s";

/// `fencepost run` for the built-in lock service, with these arguments before the program.
fn command(gateway: &Fresh, arguments: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["run", "--lock", &format!("fencepost://{}", gateway.address()), "--url", gateway.url()]);
    command.args(["--resource", "job"]).args(arguments).arg("--").args(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(gateway: &Fresh, arguments: &[&str], program: &[&str]) -> Output {
    command(gateway, arguments, program).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn finish(mut child: Child) -> (Option<i32>, String, String) {
    let status = wait::until("the command to end", PATIENCE, || child.try_wait().unwrap());
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(status.signal(), None, "{err}");
    (status.code(), out, err)
}

fn appears(path: &Path) -> String {
    wait::until(&format!("{}", path.display()), PATIENCE, || {
        std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n')).map(|text| text.trim().to_owned())
    })
}

#[test]
fn the_program_finds_the_token_and_its_end_is_passed_on() {
    let gateway = Fresh::memory(&[]);
    let show = "echo $FENCEPOST_TOKEN $FENCEPOST_RESOURCE $FENCEPOST_URL $FENCEPOST_HOLDER $FENCEPOST_ISSUER; exit 7";
    let output = run(&gateway, &["--name", "nightly"], &["sh", "-c", show]);
    let (out, err) = said(&output);
    assert_eq!((output.status.code(), err.as_str()), (Some(7), ""));
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[..3], ["1", "job", gateway.url()]);
    assert!(words[3].starts_with("nightly#") && words[4].starts_with("fencepost:"), "{out}");
    // Claimed before the program ran, and released after it: the next run does not wait.
    assert_eq!(gateway.client().fence("job").as_deref(), Some("1"));
    let started = Instant::now();
    let next = run(&gateway, &["--wait", "0s"], &["sh", "-c", "echo $FENCEPOST_TOKEN"]);
    assert_eq!((next.status.code(), said(&next).0.as_str()), (Some(0), "2\n"), "{}", said(&next).1);
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn standard_input_and_output_are_the_programs() {
    let gateway = Fresh::memory(&[]);
    let mut child = command(&gateway, &[], &["cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let mut input = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success() && output.stdout == bytes && output.stderr.is_empty());
}

#[test]
fn the_environment_is_what_the_other_commands_read() {
    let gateway = Fresh::memory(&[]);
    let put = format!("{} kv put job paid", binary().display());
    let output = run(&gateway, &[], &["sh", "-c", &put]);
    assert!(output.status.success(), "{:?}", said(&output));
    assert_eq!(gateway.client().get("job").text().trim(), "paid");
}

/// The environment names the holder of the surrounding lock; that identity is not used for another lock.
#[test]
fn a_program_under_a_lock_takes_another_lock() {
    let gateway = Fresh::memory(&[]);
    for lock in [format!("--lock fencepost://{}", gateway.address()), String::new()] {
        let acquire = format!("echo $FENCEPOST_HOLDER; {} lock acquire other --ttl 60s {lock}", binary().display());
        let output = run(&gateway, &[], &["sh", "-c", &acquire]);
        let (out, err) = said(&output);
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{lock}");
        let (holder, taken) = out.split_once('\n').unwrap();
        assert!(taken.starts_with("acquired other for"), "{out}");
        let other = taken.lines().find_map(|line| line.strip_prefix("holder ")).unwrap();
        assert_ne!(other, holder, "unique per acquisition");
        let lease = taken.lines().find_map(|line| line.strip_prefix("lease  ")).unwrap();
        let release = format!("lock release other --url {} --lease {lease} {lock}", gateway.url());
        assert!(Command::new(binary()).args(release.split_whitespace()).output().unwrap().status.success());
    }
}

#[test]
fn programs_that_cannot_be_run() {
    let gateway = Fresh::memory(&[]);
    for (program, code) in [("/nowhere/nothing", 127), ("/etc/passwd", 126)] {
        let output = run(&gateway, &[], &[program]);
        let (_, err) = said(&output);
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert!(err.contains(program), "{err}");
    }
    // The lock was released each time.
    assert!(run(&gateway, &["--wait", "0s"], &["true"]).status.success());
}

#[test]
fn who_does_not_get_the_lock_runs_nothing() {
    let gateway = Fresh::memory(&[]);
    let dir = tempfile::tempdir().unwrap();
    let (ready, touched) = (dir.path().join("ready"), dir.path().join("touched"));
    let hold = format!("echo > {}; cat", ready.display());
    let mut holder = command(&gateway, &[], &["sh", "-c", &hold]).stdin(Stdio::piped()).spawn().unwrap();
    appears(&ready);
    let output = run(&gateway, &["--wait", "100ms"], &["touch", touched.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(8), "{:?}", said(&output));
    assert!(said(&output).1.contains("`job`") && !touched.exists());
    // Signals are handled while waiting.
    let waiting = command(&gateway, &["--wait", "60s"], &["touch", touched.to_str().unwrap()]).spawn().unwrap();
    wait::until("somebody to wait", PATIENCE, || {
        let lock = gateway.client().request("GET", "/v1/locks/job", &[], b"");
        (lock.json()["waiting"] == 1).then_some(())
    });
    signal(&waiting, Signal::TERM);
    assert_eq!(finish(waiting).0, Some(143));
    assert!(!touched.exists());
    drop(holder.stdin.take());
    assert_eq!(finish(holder).0, Some(0));
}

/// Starts `fencepost run` that holds the lock but never receives the answer to its claim. The last proxy is that of the
/// lock service.
fn unclaimed(gateway: &Fresh) -> (Child, Proxy, Proxy) {
    let behind = || Proxy::start(gateway.address().parse().unwrap());
    let (claims, service) = (behind(), behind());
    claims.set(Direction::Down, Rule::DropAfter(1));
    let mut command = Command::new(binary());
    command.args(["run", "--lock", &format!("fencepost://{}", service.address()), "--resource", "job"]);
    command.args(["--url", &format!("http://{}", claims.address()), "--ttl", "60s", "--", "true"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait::until("the claim", PATIENCE, || (claims.count(Direction::Down).dropped > 0).then_some(()));
    (child, claims, service)
}

#[test]
fn a_signal_leaves_time_to_give_back_what_was_granted() {
    let gateway = Fresh::memory(&[]);
    let delay = Duration::from_millis(1200);
    let (child, _claims, service) = unclaimed(&gateway);
    service.set(Direction::Down, Rule::Delay(delay));
    let told = Instant::now();
    signal(&child, Signal::TERM);
    assert_eq!(finish(child).0, Some(143));
    assert!(told.elapsed() >= delay, "ended after {:?}, before the answer", told.elapsed());
    assert_eq!(gateway.client().request("GET", "/v1/locks/job", &[], b"").status, 404, "free");
}

#[test]
fn giving_back_has_an_end_and_a_second_signal_is_sooner() {
    let limit = Duration::from_secs(3);
    let ends_after = |signals: usize| {
        let gateway = Fresh::memory(&[]);
        let (child, _claims, service) = unclaimed(&gateway);
        service.set(Direction::Down, Rule::Hold);
        let before = service.count(Direction::Up).bytes;
        let told = Instant::now();
        signal(&child, Signal::TERM);
        for _ in 1..signals {
            let sent = || (service.count(Direction::Up).bytes > before).then_some(());
            wait::until("the release to be on its way", PATIENCE, sent);
            signal(&child, Signal::TERM);
        }
        assert_eq!(finish(child).0, Some(143));
        told.elapsed()
    };
    let patient = ends_after(1);
    assert!(patient >= limit, "{patient:?}");
    // Several attempts: on a stalled machine, any one of them may be late.
    assert!((0..4).any(|_| ends_after(2) < limit), "a second signal is no sooner");
}

#[test]
fn signals_reach_the_program() {
    let gateway = Fresh::memory(&[]);
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready");
    let script =
        format!("trap 'exit 9' USR1; trap 'exit 10' TERM; echo > {}; while :; do sleep 0.05; done", ready.display());
    for (number, code) in [(Signal::USR1, 9), (Signal::TERM, 10)] {
        let child = command(&gateway, &[], &["sh", "-c", &script]).spawn().unwrap();
        appears(&ready);
        std::fs::remove_file(&ready).unwrap();
        signal(&child, number);
        assert_eq!(finish(child).0, Some(code));
    }
    let output = run(&gateway, &[], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(128 + 9));
}

/// Pauses `fencepost run` until another holder has its lock, then resumes it.
fn lose(gateway: &Fresh, child: &Child) {
    signal(child, Signal::STOP);
    let body = br#"{"holder":"successor#1","ttl_ms":60000,"wait_ms":40000}"#;
    assert_eq!(gateway.client().request("POST", "/v1/locks/job", &[], body).status, 201);
    signal(child, Signal::CONT);
}

#[test]
fn a_lost_lease_ends_the_program_and_all_it_started() {
    let ended = |arguments: &[&str]| {
        let gateway = Fresh::memory(&[]);
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        // Neither of the two processes reacts to TERM.
        let script =
            format!("trap '' TERM; sleep 1000 & echo $$ $! > {}; while :; do sleep 0.05; done", pids.display());
        let arguments = [&["--ttl", TTL], arguments].concat();
        let child = command(&gateway, &arguments, &["sh", "-c", &script]).spawn().unwrap();
        let pids = appears(&pids);
        lose(&gateway, &child);
        let (code, _, err) = finish(child);
        assert_eq!(code, Some(3), "{err}");
        assert!(err.contains("taken over") || err.contains("in time"), "{err}");
        assert_eq!(err.lines().filter(|line| line.contains("sending KILL")).count(), 1, "a line for each step: {err}");
        for pid in pids.split_whitespace() {
            let stat = format!("/proc/{pid}/stat");
            wait::until(&format!("{pid} to be gone"), PATIENCE, || match std::fs::read_to_string(&stat) {
                // An orphan may be dead but not yet reaped.
                Ok(text) => text.rsplit(')').next()?.trim_start().starts_with('Z').then_some(()),
                Err(_) => Some(()),
            });
        }
        err
    };
    // In parallel: each waits for a lease to run out.
    std::thread::scope(|scope| {
        let killed = scope.spawn(|| ended(&["--on-lost", "kill"]));
        let err = ended(&["--grace", "300ms"]);
        assert!(err.contains("still there"), "{err}");
        let err = killed.join().unwrap();
        assert!(!err.contains("still there"), "{err}");
    });
}

#[test]
fn a_program_that_is_only_told_is_refused_by_the_fence() {
    let gateway = Fresh::memory(&[]);
    let dir = tempfile::tempdir().unwrap();
    let (ready, go) = (dir.path().join("ready"), dir.path().join("go"));
    let script = format!(
        "echo > {}; until [ -e {} ]; do sleep 0.05; done; {} kv put job late",
        ready.display(),
        go.display(),
        binary().display()
    );
    let child = command(&gateway, &["--ttl", TTL, "--on-lost", "notify"], &["sh", "-c", &script]).spawn().unwrap();
    appears(&ready);
    lose(&gateway, &child);
    std::fs::write(&go, "").unwrap();
    let (code, _, err) = finish(child);
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains("stale"), "{err}");
    assert_eq!(gateway.client().get("job").status, 404);
}

/// The lock service stops answering while the program runs.
#[test]
fn a_lock_that_cannot_be_given_back_is_no_error_of_the_program() {
    let gateway = Fresh::memory(&[]);
    let dir = tempfile::tempdir().unwrap();
    let (ready, go) = (dir.path().join("ready"), dir.path().join("go"));
    let script = format!("echo > {}; until [ -e {} ]; do sleep 0.05; done; exit 7", ready.display(), go.display());
    let service = Proxy::start(gateway.address().parse().unwrap());
    let mut command = Command::new(binary());
    command.args(["run", "--lock", &format!("fencepost://{}", service.address()), "--url", gateway.url()]);
    command.args(["--resource", "job", "--ttl", "60s", "--", "sh", "-c", &script]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    appears(&ready);
    service.hold();
    std::fs::write(&go, "").unwrap();
    let (code, _, err) = finish(child);
    assert_eq!(code, Some(7), "{err}");
    assert!(err.contains("could not be given back"), "{err}");
}

#[test]
fn bad_arguments_and_services() {
    let gateway = Fresh::memory(&[]);
    let with = |lock: &str| {
        let mut command = Command::new(binary());
        command.args(["run", "--url", gateway.url(), "--resource", "job", "--lock", lock, "--", "true"]);
        let output = command.output().unwrap();
        (output.status.code(), said(&output).1)
    };
    for (lock, code, word) in [
        ("nonsense", 2, "scheme"),
        ("unheard://of", 2, "fencepost://"),
        ("fencepost://127.0.0.1:1", 6, "127.0.0.1:1"),
        ("fencepost://127.0.0.1:1?x=1", 2, "`x`"),
    ] {
        let (found, err) = with(lock);
        assert_eq!(found, Some(code), "{lock}: {err}");
        assert!(err.contains(word), "{lock}: {err}");
    }
    let short = run(&gateway, &["--ttl", "1ms"], &["true"]);
    assert_eq!(short.status.code(), Some(2), "{:?}", said(&short));
}

#[test]
fn help_does_not_show_a_password_in_the_environment() {
    for command in [&["run", "--help"][..], &["lock", "acquire", "--help"]] {
        let output =
            Command::new(binary()).args(command).env("FENCEPOST_LOCK", "redis://:secret@h:1").output().unwrap();
        assert!(
            said(&output).0.contains("FENCEPOST_LOCK") && !said(&output).0.contains("secret"),
            "{:?}",
            said(&output)
        );
    }
}

#[test]
fn a_grant_that_the_fence_refuses_is_a_refusal() {
    let gateway = Fresh::memory(&[]);
    let bound = [("fencing-token", "5"), ("fencing-issuer", "redis:elsewhere")];
    assert_eq!(gateway.client().request("PUT", "/v1/kv/job", &bound, b"v").status, 204);
    let output = run(&gateway, &[], &["true"]);
    assert_eq!(output.status.code(), Some(3), "{:?}", said(&output));
    assert!(said(&output).1.contains("redis:elsewhere"), "{:?}", said(&output));
}

#[test]
fn holds_have_a_least_and_a_most() {
    let gateway = Fresh::memory(&[]);
    // Longer than the ttl, and longer than a release may take. A shorter lease might come into danger, which would be
    // printed.
    let started = Instant::now();
    let held = run(&gateway, &["--min-hold", "13s", "--ttl", "12s"], &["true"]);
    assert_eq!((held.status.code(), said(&held).1.as_str()), (Some(0), ""));
    assert!(started.elapsed() >= Duration::from_secs(13), "{:?}", started.elapsed());
    assert!(run(&gateway, &["--wait", "0s"], &["true"]).status.success());
    let output = run(&gateway, &["--max-hold", "300ms", "--on-lost", "kill"], &["sleep", "1000"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).1.contains("as long as it may be"), "{:?}", said(&output));
}

#[test]
fn scripts_take_and_give_back_with_leases_as_text() {
    let gateway = Fresh::memory(&[]);
    let lock = format!("fencepost://{}", gateway.address());
    let go = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("lock").args(arguments).args(["--lock", &lock, "--url", gateway.url(), "--json"]);
        let output = command.output().unwrap();
        (output.status.code(), serde_json::from_slice::<serde_json::Value>(&output.stdout).ok(), said(&output).1)
    };
    let (code, taken, err) = go(&["acquire", "job", "--ttl", "60s"]);
    assert_eq!(code, Some(0), "{err}");
    let taken = taken.unwrap();
    assert_eq!(taken["token"], "1");
    let lease = taken["lease"].as_str().unwrap().to_owned();
    assert_eq!(go(&["acquire", "job"]).0, Some(8));
    assert_eq!(go(&["renew", "job", "--lease", &lease]).0, Some(0));
    assert_eq!(go(&["release", "other", "--lease", &lease]).0, Some(2), "a lease on another lock");
    assert_eq!(go(&["release", "job", "--lease", &lease]).0, Some(0));
    assert_eq!(go(&["release", "job", "--lease", &lease]).0, Some(0), "late is harmless");
    assert_eq!(go(&["renew", "job", "--lease", &lease]).0, Some(3));
    let listed = Command::new(binary()).args(["lock", "backends"]).output().unwrap();
    assert!(said(&listed).0.contains("fencepost://"));
}
