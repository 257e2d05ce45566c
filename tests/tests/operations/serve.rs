//! `fencepost serve` from the command line: its output, and its refusals.

use std::process::{Command, Output};

use fencepost_harness::fresh::{Fresh, write_config};
use fencepost_harness::http::Client;
use fencepost_harness::process::{GatewayProcess, binary};

fn serve(arguments: &[&str], environment: &[(&str, &str)]) -> Result<GatewayProcess, String> {
    // The default admin socket is below the current directory, which may be removed once the gateway listens.
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command.arg("serve").args(arguments).envs(environment.iter().copied()).current_dir(dir.path());
    GatewayProcess::spawn(command)
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(binary()).args(arguments).envs(environment.iter().copied()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_three_lines_it_prints_can_be_pasted_into_a_shell() {
    let gateway = Fresh::rocksdb(&[]);
    let port: u16 = gateway.address().rsplit(':').next().unwrap().parse().unwrap();
    assert_ne!(port, 0, "the real port is printed");
    let printed = gateway.stdout();
    let lines: Vec<_> = printed.lines().filter(|line| line.trim_start().starts_with("curl ")).collect();
    assert_eq!(lines.len(), 3, "{printed}");
    for (line, status) in lines.iter().zip(["204", "200", "409"]) {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        let said = stdout(&output);
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{line}\n{said}{}", stderr(&output));
    }
    assert_eq!(gateway.client().get("orders/123").text(), "paid");
    assert!(printed.contains("engine rocksdb") && printed.contains(gateway.data().to_str().unwrap()), "{printed}");
    let memory = Fresh::memory(&[]);
    assert!(memory.stdout().contains("nothing is kept"), "{}", memory.stdout());
}

#[test]
fn it_listens_beyond_loopback_only_when_told_to() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = run(&["serve", "--engine", "memory", "--listen", address], &[]);
        assert_eq!(refused.status.code(), Some(2), "{address}: {refused:?}");
        let said = stderr(&refused);
        assert!(said.contains("--insecure-no-auth") && said.contains("not a loopback address"), "{said}");
    }
    let gateway = serve(&["--engine", "memory", "--listen", "0.0.0.0:0", "--insecure-no-auth"], &[]).unwrap();
    let port = gateway.address().rsplit(':').next().unwrap();
    assert_eq!(Client::connect(&format!("127.0.0.1:{port}")).put("k", "1", "v").status, 204);
}

#[test]
fn a_refused_address_touches_no_data() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let refused = run(&["serve", "--listen", "0.0.0.0:0", "--data", data.to_str().unwrap()], &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(!data.exists());
}

#[test]
fn addresses_that_cannot_be_used_are_named() {
    let gateway = Fresh::memory(&[]);
    let taken = run(&["serve", "--engine", "memory", "--listen", gateway.address()], &[]);
    assert!(!taken.status.success());
    assert!(stderr(&taken).contains(gateway.address()), "{}", stderr(&taken));
    assert_eq!(taken.status.code(), Some(1), "the command line is right, the machine is not");
    for address in ["3362", "127.0.0.1", "127.0.0.1:x", ""] {
        let refused = run(&["serve", "--engine", "memory", "--listen", address], &[]);
        assert_eq!(refused.status.code(), Some(2), "{address}: {refused:?}");
        assert!(stderr(&refused).contains("such as 127.0.0.1:3362"), "{address}: {}", stderr(&refused));
    }
}

#[test]
fn a_second_process_on_the_same_data_is_told_who_has_it() {
    let gateway = Fresh::rocksdb(&[]);
    let data = gateway.data();
    let data = data.to_str().unwrap();
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0", "--data", data][..],
        &["remap", "--yes", "--data", data],
        &["restored", "--yes", "--data", data],
    ] {
        let second = run(arguments, &[]);
        assert_eq!(second.status.code(), Some(1), "{second:?}");
        let said = stderr(&second);
        assert!(said.contains(data) && said.contains(&format!("process {}", gateway.pid())), "{said}");
        assert!(said.contains("--data"), "it says what to do: {said}");
    }
    assert_eq!(gateway.client().put("k", "1", "the first one is not disturbed").status, 204);
}

#[test]
fn a_configuration_that_is_wrong_is_refused_by_its_key() {
    let dir = tempfile::tempdir().unwrap();
    for (toml, word) in [
        ("listn = 'x'", "listn"),
        ("[limits]\nmax_bodies_ = 1", "max_bodies_"),
        ("[[guard]]\nkeys = 'a'\nequal = 'maybe'", "maybe"),
        ("[[guard]]\nresource = 'a'", "keys"),
        ("[[guard]]\nkeys = 'a/**/b'", "guard 1"),
        ("[[guard]]\nkeys = 'a/**'\nresource = 'a'\n[[guard]]\nkeys = 'a/b'", "guard 2"),
        ("queue = 0", "queue"),
        ("[limits]\nheader_timeout = '5'", "header_timeout"),
        ("engine = 'etcd'", "etcd"),
        ("listen = ", "fencepost.toml"),
    ] {
        let config = write_config(dir.path(), toml);
        for command in [&["serve", "--engine", "memory"][..], &["config", "check"], &["remap", "--yes"]] {
            // The engine on the command line would override the one in the file.
            if toml.starts_with("engine") && command[0] == "serve" {
                continue;
            }
            let refused = run(&[command, &["--config", config.to_str().unwrap()]].concat(), &[]);
            assert_eq!(refused.status.code(), Some(2), "{toml}: {refused:?}");
            assert!(stderr(&refused).contains(word), "{toml}: {}", stderr(&refused));
            assert!(refused.stdout.is_empty());
        }
    }
    let missing = run(&["serve", "--config", "/does/not/exist.toml"], &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("/does/not/exist.toml"), "{}", stderr(&missing));
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = write_config(dir.path(), "listen = '127.0.0.1:1111'\nqueue = 11\n[limits]\nmax_body = '1KiB'\n");
    let config = config.to_str().unwrap();
    let check = |arguments: &[&str], environment: &[(&str, &str)]| {
        let output = run(&[&["config", "check"], arguments].concat(), environment);
        assert!(output.status.success(), "{output:?}");
        let said = stdout(&output);
        let value = |name: &str| {
            let line = said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {said}"));
            line[name.len()..].trim().to_owned()
        };
        (value("listen"), value("max_body "), value("queue"))
    };
    let three = |listen: &str, body: &str, queue: &str| (listen.to_owned(), body.to_owned(), queue.to_owned());
    assert_eq!(check(&[], &[]), three("127.0.0.1:3362", "4MiB", "4096"));
    let file = &["--config", config][..];
    assert_eq!(check(file, &[]), three("127.0.0.1:1111", "1KiB", "11"));
    assert_eq!(check(&[], &[("FENCEPOST_CONFIG", config)]), three("127.0.0.1:1111", "1KiB", "11"));
    let environment = [("FENCEPOST_LISTEN", "127.0.0.1:2222"), ("FENCEPOST_MAX_BODY", "2KiB")];
    assert_eq!(check(file, &environment), three("127.0.0.1:2222", "2KiB", "11"));
    let flags = &[file, &["--listen", "127.0.0.1:3333"]].concat();
    assert_eq!(check(flags, &environment), three("127.0.0.1:3333", "2KiB", "11"));

    // The gateway behaves as `config check` reports.
    let arguments = [file, &["--engine", "memory"]].concat();
    let gateway = serve(&arguments, &[("FENCEPOST_LISTEN", "127.0.0.1:0"), ("FENCEPOST_MAX_BODY", "2KiB")]).unwrap();
    assert_eq!(gateway.client().put("k", "1", &"x".repeat(2048)).status, 204);
    assert_eq!(gateway.client().put("k", "1", &"x".repeat(2049)).status, 413);
}

#[test]
fn insecure_no_auth_can_be_said_in_the_environment_and_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = write_config(dir.path(), "insecure_no_auth = true\n");
    let arguments = ["--engine", "memory", "--listen", "0.0.0.0:0", "--config", config.to_str().unwrap()];
    assert!(serve(&arguments, &[]).is_ok());
    let gateway = serve(&arguments[..4], &[("FENCEPOST_INSECURE_NO_AUTH", "true")]);
    assert!(gateway.is_ok(), "{:?}", gateway.err());
    assert!(serve(&arguments[..4], &[("FENCEPOST_INSECURE_NO_AUTH", "1")]).is_ok());
    assert!(
        serve(&arguments, &[("FENCEPOST_INSECURE_NO_AUTH", "false")]).is_err(),
        "the environment wins over the file"
    );
    for no in ["false", "0", "perhaps"] {
        assert!(serve(&arguments[..4], &[("FENCEPOST_INSECURE_NO_AUTH", no)]).is_err(), "{no}");
    }
}

#[test]
fn config_check_prints_what_it_comes_to() {
    let dir = tempfile::tempdir().unwrap();
    let toml = "[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\nequal = 'reject'\nmax_jump = 1_000\n";
    let config = write_config(dir.path(), toml);
    let checked = run(&["config", "check", "--config", config.to_str().unwrap(), "--data", "/nowhere/at/all"], &[]);
    assert!(checked.status.success(), "{checked:?}");
    let said = stdout(&checked);
    assert!(said.contains("orders/*/** -> orders/*, enforce, equal reject"), "{said}");
    assert!(said.contains("max_jump 1000") && said.contains("/nowhere/at/all"), "{said}");
    assert!(!std::path::Path::new("/nowhere").exists(), "it only looks");
}

#[test]
fn version_completions_and_help() {
    let version = run(&["version"], &[]);
    assert!(version.status.success());
    assert_eq!(stdout(&version), stdout(&run(&["--version"], &[])));
    assert!(stdout(&version).starts_with("fencepost 0."), "{version:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell], &[]);
        assert!(script.status.success() && stdout(&script).contains("insecure-no-auth"), "{shell}");
        if shell == "bash" {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("fencepost.bash");
            std::fs::write(&path, &script.stdout).unwrap();
            let parsed = Command::new("bash").arg("-n").arg(&path).output().unwrap();
            assert!(parsed.status.success(), "{parsed:?}");
        }
    }
    assert_eq!(run(&["completions", "cobol"], &[]).status.code(), Some(2));
}

#[test]
fn help_of_every_command_tells_every_flag() {
    const GATEWAY: &[&str] = &[
        "--config",
        "--listen",
        "--data",
        "--engine",
        "--insecure-no-auth",
        "--max-body",
        "--max-headers",
        "--max-bodies",
        "--max-connections",
        "--queue",
        "--header-timeout",
        "--body-timeout",
        "--drain-timeout",
        "--free-space-floor",
        "--cache",
        "--write-buffer",
        "FENCEPOST_LISTEN",
        "FENCEPOST_MAX_BODY",
        "[default: 4MiB]",
        "rocksdb",
        "memory",
    ];
    const CONNECT: &[&str] = &["--url", "FENCEPOST_URL", "--timeout", "--json"];
    const TOKEN: &[&str] = &["--token", "FENCEPOST_TOKEN", "--holder", "--issuer"];
    const CONDITION: &[&str] = &["--if-match", "--if-absent"];
    for (command, groups) in [
        (
            &[][..],
            &[&[
                "serve",
                "kv",
                "claim",
                "fence",
                "remap",
                "restored",
                "config",
                "version",
                "completions",
                "Exit codes",
            ][..]][..],
        ),
        (&["serve"], &[GATEWAY, &["--log", "--log-format"]]),
        (&["remap"], &[GATEWAY, &["--yes"]]),
        (&["restored"], &[GATEWAY, &["--yes"]]),
        (&["config", "check"], &[GATEWAY]),
        (&["kv"], &[&["put", "get", "delete", "list"]]),
        (&["kv", "put"], &[CONNECT, TOKEN, CONDITION, &["--file", "--content-type"]]),
        (&["kv", "get"], &[CONNECT, TOKEN]),
        (&["kv", "delete"], &[CONNECT, TOKEN, CONDITION]),
        (&["kv", "list"], &[CONNECT, &["--after", "--limit"]]),
        (&["claim"], &[CONNECT, TOKEN, &["--key"]]),
        (&["fence"], &[&["show", "list"]]),
        (&["fence", "show"], &[CONNECT]),
        (&["fence", "list"], &[CONNECT, &["--after", "--limit"]]),
    ] {
        let help = run(&[command, &["--help"]].concat(), &[]);
        assert!(help.status.success(), "{command:?}");
        for flag in groups.concat() {
            assert!(stdout(&help).contains(flag), "{command:?} does not tell {flag}:\n{}", stdout(&help));
        }
    }
    let nothing = run(&[], &[]);
    assert_eq!(nothing.status.code(), Some(2), "without a command it says how to be used");
    assert!(stderr(&nothing).contains("Usage:"));
}

#[test]
fn remap_says_no_where_there_is_nothing_to_change() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("none");
    let none = run(&["remap", "--yes", "--data", data.to_str().unwrap()], &[]);
    assert!(!none.status.success());
    assert!(stderr(&none).contains("there is no store in"), "{none:?}");
    assert!(!data.exists());
    std::fs::create_dir(&data).unwrap();
    let empty = run(&["remap", "--yes", "--data", data.to_str().unwrap()], &[]);
    assert!(!empty.status.success());
    assert!(stderr(&empty).contains("there is no store in"), "{empty:?}");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "nothing was made");
}

#[test]
fn logs_are_lines_or_json() {
    let gateway = Fresh::memory(&["--log-format", "json", "--log", "debug"]);
    gateway.client().put("k", "x", "v");
    let said = fencepost_conformance::wait::until("a log line", std::time::Duration::from_secs(10), || {
        let said = gateway.stderr();
        said.contains("malformed-token").then_some(said)
    });
    let line = said.lines().find(|line| line.contains("malformed-token")).unwrap();
    assert!(line.starts_with('{') && line.contains("\"request\":"), "{line}");
    let bad = run(&["serve", "--engine", "memory", "--log", "fencepost=loud=x"], &[]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
}
