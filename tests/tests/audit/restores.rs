//! Stored state that outlives a process: restored copies of the data directory, the guard mapping, and outcomes when
//! the clock is changed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_core::Timestamp;
use fencepost_harness::fresh::write_config;
use fencepost_harness::http::Client;
use fencepost_harness::process::{GatewayProcess, binary, run};
use rustix::process::Signal;
use serde_json::json;

/// A data directory, and a directory in which its position is noted.
struct Noted {
    dir: tempfile::TempDir,
}

impl Noted {
    fn new() -> Noted {
        Noted { dir: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn arguments(&self) -> [String; 4] {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        ["--data".to_owned(), path("data"), "--state-dir".to_owned(), path("state")]
    }

    fn start(&self) -> Result<GatewayProcess, String> {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(self.arguments());
        GatewayProcess::spawn(command)
    }

    fn started(&self) -> GatewayProcess {
        self.start().unwrap_or_else(|said| panic!("the gateway did not start:\n{said}"))
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let own = self.arguments();
        let output = run(&[arguments, &own.each_ref().map(String::as_str)].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    fn admin(&self) -> Client {
        Client::connect_unix(&self.data().join("admin.sock"))
    }

    /// Copies one of its directories to another name, replacing that one.
    fn copy(&self, from: &str, to: &str) {
        let (from, to) = (self.dir.path().join(from), self.dir.path().join(to));
        if to.exists() {
            std::fs::remove_dir_all(&to).unwrap();
        }
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    }
}

fn stop(gateway: GatewayProcess) {
    gateway.signal(Signal::TERM);
    assert!(gateway.wait(PATIENCE).success());
}

fn unix_seconds() -> u64 {
    Timestamp::now().0 / 1000
}

/// Raises a fence that a copy of the data directory does not contain: `1:51` of `r`, with a zombie that holds `1:50`.
fn rotated_after_a_copy(noted: &Noted) {
    let gateway = noted.started();
    assert_eq!(gateway.client().put("r", "33", "first").status, 204);
    stop(gateway);
    noted.copy("data", "copy");
    let gateway = noted.started();
    let rotated = noted.admin().post("/v1/admin/fences/r/rotate", &json!({"from": 0, "reason": "a test"}));
    assert_eq!(rotated.json()["generation"], 1, "{}", rotated.text());
    let mut client = gateway.client();
    assert_eq!((client.put("r", "1:50", "v").status, client.put("r", "1:51", "w").status), (204, 204));
    assert_eq!(client.put("r", "1:50", "zombie").status, 409);
    stop(gateway);
}

/// G1, traps 27 and 40: an older copy is detected, and continues only above every generation that was ever used.
#[test]
fn c03_an_older_copy_is_refused_until_restored_goes_above_every_generation() {
    let noted = Noted::new();
    rotated_after_a_copy(&noted);
    noted.copy("copy", "data");
    let said = noted.start().err().expect("an older copy must not serve");
    assert!(said.contains("is behind") && said.contains("fencepost restored --yes"), "{said}");
    let config = write_config(noted.dir.path(), "[[guard]]\nkeys = 'a/*'\nresource = 'a'\n").display().to_string();
    let (code, said) = noted.run(&["remap", "--yes", "--config", &config]);
    assert!(code == Some(1) && said.contains("fencepost restored --yes"), "{code:?}: {said}");

    let (code, said) = noted.run(&["restored"]);
    assert!(code == Some(2) && said.contains("--yes"), "{code:?}: {said}");
    assert!(noted.start().is_err(), "without --yes nothing is changed");
    let before = unix_seconds();
    let (code, said) = noted.run(&["restored", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let gateway = noted.started();
    let mut client = gateway.client();
    for key in ["r", "never/seen"] {
        let generation = client.request("GET", &format!("/v1/fences/{key}"), &[], b"").json()["generation"].as_u64();
        assert!(generation.is_some_and(|generation| generation >= before), "{key}: {generation:?}");
        for zombie in ["33", "1:50", "1:18446744073709551615", "2:1"] {
            let refused = client.put(key, zombie, "zombie");
            assert_eq!((refused.status, refused.problem().as_str()), (409, "retired-generation"), "{key} {zombie}");
        }
        assert_eq!(client.put(key, &format!("{}:1", generation.unwrap()), "new").status, 204);
    }
    assert_eq!(client.get("r").text(), "new");
    stop(gateway);
    stop(noted.started());

    // Every copy from before the restore is out of date from now on, including the newest.
    noted.copy("copy", "data");
    assert!(noted.start().is_err());
}

/// The manual form, after a restore that was not detected.
#[test]
fn c03_rotating_all_uses_no_generation_again() {
    let noted = Noted::new();
    rotated_after_a_copy(&noted);
    noted.copy("copy", "data");
    std::fs::remove_dir_all(noted.dir.path().join("state")).unwrap();
    let gateway = noted.started();
    let before = unix_seconds();
    let rotated = noted.admin().post("/v1/admin/rotate-all", &json!({"from": 0, "reason": "restored by hand"}));
    assert!(rotated.json()["generation"].as_u64().is_some_and(|generation| generation >= before), "{}", rotated.text());
    let zombie = gateway.client().put("r", "1:50", "zombie");
    assert_eq!((zombie.status, zombie.problem().as_str()), (409, "retired-generation"));
    let generation = rotated.json()["generation"].as_u64().unwrap();
    let again = noted.admin().post("/v1/admin/rotate-all", &json!({"from": generation, "reason": "again"}));
    assert!(again.json()["generation"].as_u64().is_some_and(|next| next > generation), "{}", again.text());
    stop(gateway);
}

/// Without a setting, the position is noted in the user's state directory, or nowhere if that cannot be written.
#[test]
fn c03_by_default_the_position_is_noted_in_the_users_state_directory() {
    let dir = tempfile::tempdir().unwrap();
    let start = |variable: &str, value: &Path| {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
        command.env("FENCEPOST_STATE_DIR", "user").env_remove("XDG_STATE_HOME").env_remove("HOME").env(variable, value);
        GatewayProcess::spawn(command).unwrap_or_else(|said| panic!("{said}"))
    };
    for (variable, below) in [("XDG_STATE_HOME", "xdg/fencepost"), ("HOME", "home/.local/state/fencepost")] {
        let home = dir.path().join(below.split('/').next().unwrap());
        stop(start(variable, &home));
        let notes: Vec<_> =
            std::fs::read_dir(dir.path().join(below)).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        let note = std::fs::read_to_string(&notes[0]).unwrap();
        assert!(note.starts_with("fencepost position 1\nstore ") && note.contains("\nsequence "), "{note}");
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let gateway = start("HOME", &file);
    assert_eq!(gateway.client().put("r", "1", "served").status, 204);
    let said = "an older copy of the data directory would not be noticed";
    wait::until("the log to say so", PATIENCE, || gateway.stderr().contains(said).then_some(()));
    stop(gateway);
}

/// Leases from before the restore are no longer valid.
#[test]
fn c03_leases_are_dropped_by_a_restore() {
    let noted = Noted::new();
    let gateway = noted.started();
    let lease = gateway.client().acquire("jobs/1", "old#1", 600_000).json()["lease"].as_str().unwrap().to_owned();
    stop(gateway);
    let (code, said) = noted.run(&["restored", "--yes"]);
    assert!(code == Some(0) && said.contains("1 locks were freed"), "{said}");
    let gateway = noted.started();
    let mut client = gateway.client();
    assert_eq!(client.renew("jobs/1", &lease, 600_000).status, 410);
    let granted = client.acquire("jobs/1", "new#1", 600_000);
    assert_eq!(granted.status, 201, "{}", granted.text());
    let token = granted.json()["token"].as_str().unwrap().to_owned();
    assert!(token.ends_with(":1"), "numbers begin anew in the new generation: {token}");
    stop(gateway);
}

/// Only durable positions are noted: a process killed at any moment never looks like an older copy.
#[test]
fn c03_a_killed_gateway_is_never_taken_for_an_older_copy() {
    let noted = Noted::new();
    for round in 1..=8_u64 {
        let gateway = noted.started();
        let address = gateway.address().to_owned();
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let address = address.clone();
                std::thread::spawn(move || {
                    let mut client = Client::connect(&address);
                    let put = |number: u64| (format!("/v1/kv/k/{writer}"), number.to_string());
                    let mut done = 0;
                    for number in 1.. {
                        let (path, token) = put(round * 1_000_000 + number);
                        match client.try_request("PUT", &path, &[("fencing-token", &token)], b"x") {
                            Ok(answer) if answer.status == 204 => done += 1,
                            _ => return done,
                        }
                    }
                    done
                })
            })
            .collect();
        let mut client = gateway.client();
        let path = format!("/v1/fences/k/{}", round % 4);
        wait::until("some writes", PATIENCE, || {
            let fence =
                client.request("GET", &path, &[], b"").json()["fence"]["token"].as_str()?.parse::<u64>().ok()?;
            (fence > round * 1_000_000 + 3 * round).then_some(())
        });
        gateway.kill();
        let done: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert!(done > 0);
    }
    stop(noted.started());
}

/// G1, trap 32: two mappings with the same text are not the same mapping.
#[test]
fn c07_a_mapping_with_the_same_text_is_another_mapping() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = |toml: &str| {
        let config = write_config(dir.path(), toml);
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).arg("--config").arg(config);
        GatewayProcess::spawn(command)
    };
    let first = "[[guard]]\nkeys = 'a'\nresource = 'b -> c'\n";
    let gateway = serve(first).unwrap_or_else(|said| panic!("{said}"));
    assert_eq!((gateway.client().put("a", "34", "v").status, gateway.client().put("a", "33", "w").status), (204, 409));
    stop(gateway);
    let said = serve("[[guard]]\nkeys = 'a -> b'\nresource = 'c'\n").err().expect("another mapping must not serve");
    assert!(said.contains("fencepost remap"), "{said}");
    let gateway = serve(first).unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(gateway.client().put("a", "33", "w").status, 409);
}

/// Starts a gateway whose clock is ahead by the offset in a file.
fn with_a_clock(data: &Path, clock: &Path, retention: &str) -> GatewayProcess {
    let library = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .map(|machine| PathBuf::from(format!("/usr/lib/{machine}/faketime/libfaketimeMT.so.1")))
        .into_iter()
        .find(|path| path.exists())
        .expect("libfaketime is missing: `scripts/setup test` installs it, or apt-get install faketime");
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--outcome-retention", retention, "--data"]).arg(data);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
    command.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    GatewayProcess::spawn(command).unwrap_or_else(|said| panic!("the gateway did not start:\n{said}"))
}

/// The file is replaced as a whole: libfaketime ends a program that finds it empty.
fn set_clock(clock: &Path, offset: &str) {
    let new = clock.with_extension("new");
    std::fs::write(&new, format!("{offset}\n")).unwrap();
    std::fs::rename(new, clock).unwrap();
}

/// G7, trap 24: a clock that is set forward does not make a retry apply twice.
#[test]
fn c09_a_clock_set_forward_does_not_forget_an_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let clock = dir.path().join("clock");
    set_clock(&clock, "+0");
    // Expired outcomes are looked for every 200 ms.
    let retention = Duration::from_secs(20);
    let gateway = with_a_clock(&dir.path().join("data"), &clock, "20s");
    let mut client = gateway.client();
    let add = json!({"tokens": {"n": "1"}, "then": [{"add": "n", "by": 1}]}).to_string();
    let headers = [("idempotency-key", "once"), ("content-type", "application/json")];
    let recorded = Instant::now();
    assert_eq!(client.request("POST", "/v1/txn", &headers, add.as_bytes()).status, 200);
    set_clock(&clock, "+25h");
    // Long enough for several of those searches.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let outcome = client.request("GET", "/v1/outcomes/once", &[], b"");
        let known = outcome.json()["outcome"] == "applied";
        assert!(
            known || recorded.elapsed() > retention,
            "forgotten after {:?}: {}",
            recorded.elapsed(),
            outcome.text()
        );
        wait::pause(Duration::from_millis(50));
    }
    let again = client.request("POST", "/v1/txn", &headers, add.as_bytes());
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")), "{}", again.text());
    assert_eq!(client.get("n").text(), "1");
    wait::until("the log to say so", PATIENCE, || gateway.stderr().contains("the clock was set").then_some(()));
    stop(gateway);
}
