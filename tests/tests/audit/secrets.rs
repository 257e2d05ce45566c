//! Files and process settings that keep secrets.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use fencepost_conformance::wait;
use fencepost_harness::fresh::{Fresh, write_config};
use fencepost_harness::http::Client;
use fencepost_harness::process::{GatewayProcess, binary, run};
use tempfile::TempDir;

const SECRET: &str = "hunter2-hunter2-hunter2";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn entries(path: &Path) -> BTreeSet<OsString> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Starts a gateway that must refuse to serve: its output and its exit code.
fn refused(data: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let data = data.to_str().unwrap();
    let all = [&["serve", "--listen", "127.0.0.1:0", "--engine", "memory", "--data", data], arguments].concat();
    let output = Command::new("timeout").arg("60").arg(binary()).args(all).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (said, output.status.code())
}

#[test]
fn s15_a_data_directory_that_others_may_enter_is_refused() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    set_mode(&data, 0o755);
    drop(GatewayProcess::start(&data, &[]));
    assert_eq!(mode(&data), 0o700, "an empty one is made private");
    let before = entries(&data);
    for open in [0o755, 0o701, 0o770] {
        set_mode(&data, open);
        let (said, code) = refused(&data, &[]);
        assert_eq!(code, Some(2), "{open:o}: {said}");
        assert!(said.contains(&format!("chmod 700 {}", data.display())) && said.contains("--data-mode-ok"), "{said}");
        assert_eq!((entries(&data), mode(&data)), (before.clone(), open), "nothing was changed");
    }
    // The operator may override the check, and a group may have read access.
    set_mode(&data, 0o755);
    let insisting = GatewayProcess::start(&data, &["--data-mode-ok"]);
    wait::until("a warning in the log", wait::PATIENCE, || {
        insisting.stderr().contains("other users may enter the data directory").then_some(())
    });
    drop(insisting);
    set_mode(&data, 0o750);
    drop(GatewayProcess::start(&data, &[]));
}

/// Every file and directory in the data directory is private to its owner, whatever the umask of the caller.
#[test]
fn s15_files_of_the_gateway_are_private_and_objects_are_not() {
    let dir = TempDir::new().unwrap();
    let (data, objects) = (dir.path().join("data"), dir.path().join("objects"));
    fs::create_dir_all(objects.join("reports")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 022; exec \"$@\"", "sh"]).arg(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
    command.args(["--s3-listen", "127.0.0.1:0", "--s3-create-buckets", "--objects"]);
    command.arg(format!("dir:{}", objects.display()));
    let gateway = GatewayProcess::spawn(command).unwrap();
    assert_eq!(gateway.client().put("k", "1", "v").status, 204);
    assert_eq!(mode(&data), 0o700);
    let mut left = vec![data];
    while let Some(path) = left.pop() {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let answer = gateway.client().request(
        "POST",
        "/v1/s3/credentials",
        &[("fencing-token", "1"), ("content-type", "application/json")],
        br#"{"resource": "reports/2026/today.csv"}"#,
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let json = answer.json();
    let member = |name: &str| json[name].as_str().unwrap();
    let put = Command::new("curl")
        .args(["-sS", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}", "-X", "PUT", "--data-binary", "x"])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user"])
        .arg(format!("{}:{}", member("access_key_id"), member("secret_access_key")))
        .args(["-H", "x-amz-content-sha256: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"])
        .arg(format!("{}/reports/2026/today.csv", member("endpoint")))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&put.stdout), "200", "{put:?}");
    assert_eq!(mode(&objects.join("reports/2026/today.csv")), 0o644, "other processes read it");
    assert_eq!(mode(&objects.join("reports/2026")), 0o755);
    assert_eq!(mode(&objects.join(".fencepost")), 0o700);
}

const KEY: &str = "[[s3.key]]\naccess_key_id = 'reader'\n";

/// Neither at start nor in the answer to a reload.
#[test]
fn s16_an_error_repeats_no_line_of_a_configuration_with_keys() {
    let gateway = Fresh::with_s3("", &[]);
    let directory = gateway.data().parent().unwrap().to_owned();
    for wrong in [
        format!("{KEY}secret_access_key = {SECRET}\n"),
        format!("{KEY}secret_access_key = ['{SECRET}']\n"),
        format!("{KEY}secret_access_key = \"\"\"\n{SECRET}\n"),
        format!("{KEY}password = '{SECRET}'\n"),
        format!("{KEY}{SECRET} = 1\n"),
        format!("[s3]\nmac_keys = ['{SECRET}']\n"),
        format!("[[s3.key]]\naccess_key_id = '{SECRET}/'\nsecret_access_key = '{SECRET}'\n"),
    ] {
        let config = write_config(&directory, &wrong);
        let (said, code) = refused(&directory.join("other"), &["--config", config.to_str().unwrap()]);
        assert_eq!(code, Some(2), "{wrong}: {said}");
        assert!(!said.contains(SECRET), "{wrong}: {said}");
        let checked = run(&["config", "check", "--config", config.to_str().unwrap()]);
        assert!(!checked.status.success() && !format!("{checked:?}").contains(SECRET), "{wrong}: {checked:?}");
        let mut admin = Client::connect_unix(&gateway.data().join("admin.sock"));
        let answer = admin.request("POST", "/v1/admin/reload", &[], b"");
        assert_eq!((answer.status, answer.problem().as_str()), (422, "reload-refused"), "{wrong}");
        assert!(!answer.text().contains(SECRET), "{wrong}: {}", answer.text());
    }
    assert!(!gateway.stderr().contains(SECRET), "{}", gateway.stderr());
}

#[test]
fn s16_a_configuration_with_a_secret_in_it_must_be_private() {
    let gateway = Fresh::with_s3("", &[]);
    let directory = gateway.data().parent().unwrap().to_owned();
    let config = write_config(&directory, &format!("{KEY}secret_access_key = '{SECRET}'\n"));
    let mut admin = Client::connect_unix(&gateway.data().join("admin.sock"));
    set_mode(&config, 0o640);
    let (said, code) = refused(&directory.join("other"), &["--config", config.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("chmod 600 {}", config.display())) && !said.contains(SECRET), "{said}");
    let answer = admin.request("POST", "/v1/admin/reload", &[], b"");
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert!(answer.text().contains("chmod 600"), "{}", answer.text());
    set_mode(&config, 0o600);
    assert_eq!(admin.request("POST", "/v1/admin/reload", &[], b"").status, 200);
}

/// A FIFO that is never written to, a link, and (where the test may make one) a file of another user.
#[test]
fn s16_secrets_come_from_regular_files_of_root_or_the_gateway() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let config = |secret: &Path| {
        write_config(dir.path(), &format!("{KEY}secret_access_key_file = '{}'\n", secret.display()))
            .display()
            .to_string()
    };
    fs::write(at("regular"), SECRET).unwrap();
    set_mode(&at("regular"), 0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::from_bits_truncate(0o600)).unwrap();
    std::os::unix::fs::symlink(at("regular"), at("link")).unwrap();
    let check = |name: &str| {
        let output = Command::new("timeout")
            .arg("30")
            .arg(binary())
            .args(["config", "check", "--config", &config(&at(name))])
            .output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = check("regular");
    assert_eq!(code, Some(0), "{said}");
    for (name, word) in [("fifo", "is not a regular file"), ("link", "is a symbolic link")] {
        let (code, said) = check(name);
        assert!(code == Some(2) && said.contains(word), "{name}: {code:?} {said}");
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(at("regular"), Some(65_534), None).unwrap();
        let (code, said) = check("regular");
        assert!(code == Some(2) && said.contains("belongs to user 65534"), "{code:?} {said}");
    }
}

/// Core dumps would contain every key. strace sees the call, and the limit can be read.
#[test]
fn s24_the_process_cannot_dump_core_unless_told() {
    let started = |arguments: &[&str]| {
        let (dir, calls) = (TempDir::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-e", "trace=prctl", "-o"]).arg(calls.path()).arg(binary());
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--engine", "memory", "--data"])
            .arg(dir.path())
            .args(arguments);
        let gateway = GatewayProcess::spawn(command).unwrap();
        let limits = fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        let core = core.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        gateway.kill();
        (core, fs::read_to_string(calls.path()).unwrap().contains("PR_SET_DUMPABLE, SUID_DUMP_DISABLE"))
    };
    assert_eq!(started(&[]), ("0 0".to_owned(), true));
    let own = fs::read_to_string("/proc/self/limits").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    let own = own.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(started(&["--debuggable"]), (own, false), "it is left alone");
}
