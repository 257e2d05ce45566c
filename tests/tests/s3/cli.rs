//! `fencepost s3 credentials`, and the variables that `fencepost run` sets for S3 clients.

use std::process::Command;

use fencepost_harness::command_line::{Said, command, run};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;
use serde_json::Value;

/// Runs a command line in a clean environment with these variables.
fn with(gateway: &Fresh, line: &str, variables: &[(&str, &str)]) -> Said {
    let arguments: Vec<_> = line.split_whitespace().collect();
    command(gateway, &arguments).envs(variables.iter().copied()).output().unwrap().into()
}

fn own_locks(gateway: &Fresh) -> String {
    format!("fencepost://{}", gateway.address())
}

/// `fencepost run` of a shell script, with these variables in the environment.
fn job(gateway: &Fresh, arguments: &[&str], script: &str, variables: &[(&str, &str)]) -> Said {
    let mut command = Command::new(binary());
    command.args(["run", "--lock", &own_locks(gateway), "--url", gateway.url(), "--resource", "reports"]);
    command.args(arguments).args(["--", "sh", "-c", script]);
    for name in ["AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap().into()
}

fn token_of(json: &Value) -> &str {
    json["token"].as_str().unwrap()
}

#[test]
fn a_token_that_the_caller_has_gets_credentials_again_and_again() {
    let gateway = Fresh::with_s3("", &[]);
    let line = "s3 credentials --lock token:34?issuer=redis:9f2c --resource reports --json";
    let first = run(&gateway, line).json();
    let again = run(&gateway, line).json();
    assert_eq!((token_of(&first), token_of(&again)), ("34", "34"));
    assert_eq!((&first["issuer"], first.get("lease")), (&"redis:9f2c".into(), None));
    run(&gateway, "lock show reports").assert_failed(5, &[]);
    let given = with(
        &gateway,
        "s3 credentials --resource reports --format json",
        // The lock of the surrounding job is not acquired again.
        &[("FENCEPOST_TOKEN", "34"), ("FENCEPOST_HOLDER", "a#1"), ("FENCEPOST_LOCK", &own_locks(&gateway))],
    );
    assert_eq!((token_of(&given.json()), &given.json()["holder"]), ("34", &"a#1".into()));
    run(&gateway, "s3 credentials --lock token:33 --resource reports").assert_failed(3, &["33 is stale", "34"]);
    run(&gateway, "s3 credentials --lock token:1:34 --resource reports").assert_failed(3, &["1:34"]);
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("34"));
}

#[test]
fn a_lock_is_taken_and_its_lease_is_the_callers() {
    let gateway = Fresh::with_s3("", &[]);
    let own = own_locks(&gateway);
    let line = format!("s3 credentials --lock {own} --resource reports --ttl 60s --credentials-ttl 10s --json");
    let taken = run(&gateway, &line).json();
    let (lease, token) = (taken["lease"].as_str().unwrap(), token_of(&taken));
    assert_eq!((token, gateway.client().fence("reports").as_deref()), ("1", Some("1")));
    assert!(run(&gateway, "lock show reports").text().contains("token 1"));
    run(&gateway, &line).assert_failed(8, &["`reports`"]);
    let lease_of = |verb| run(&gateway, &format!("lock {verb} reports --lock {own} --lease {lease}"));
    assert_eq!(lease_of("renew").text(), "renewed reports\n");
    // Credentials for the token that holds the lock are issued, because it is the same holder.
    let again = run(&gateway, "s3 credentials --lock token:1 --resource reports --json").json();
    assert_eq!(token_of(&again), "1");
    assert_eq!(lease_of("release").code, 0);
    // The next holder, and the refusal of the previous one.
    assert_eq!(token_of(&run(&gateway, &line).json()), "2");
    run(&gateway, "s3 credentials --lock token:1 --resource reports").assert_failed(3, &["1 is stale"]);
}

#[test]
fn a_credential_process_never_locks() {
    let gateway = Fresh::with_s3("", &[]);
    let line = format!("s3 credentials --lock {} --resource reports --format credential-process", own_locks(&gateway));
    run(&gateway, &line).assert_failed(2, &["takes no lock", "--lock token:34", "FENCEPOST_TOKEN"]);
    assert_eq!(gateway.client().fence("reports"), None, "nothing was even asked");
    let line = "s3 credentials --resource reports --format credential-process";
    let process = with(&gateway, line, &[("FENCEPOST_TOKEN", "34")]).json();
    let members: Vec<&str> = process.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, ["AccessKeyId", "Expiration", "SecretAccessKey", "Version"]);
    assert_eq!(process["Version"], 1);
    assert_eq!(gateway.client().claim("reports", "35").status, 200);
    with(&gateway, line, &[("FENCEPOST_TOKEN", "34")]).assert_failed(3, &["34 is stale"]);
}

#[test]
fn a_shell_takes_the_environment() {
    let gateway = Fresh::with_s3("", &[]);
    let script = format!(
        "eval \"$({} s3 credentials --lock {} --resource reports)\" && \
         echo $AWS_ACCESS_KEY_ID $AWS_ENDPOINT_URL_S3 $FENCEPOST_TOKEN ${{AWS_SESSION_TOKEN-none}} && \
         {0} lock release reports --lock {1}",
        binary().display(),
        own_locks(&gateway)
    );
    let mut shell = Command::new("sh");
    shell.args(["-euc", &script]).env("FENCEPOST_URL", gateway.url()).env("AWS_SESSION_TOKEN", "other");
    let said: Said = shell.output().unwrap().into();
    let text = said.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words[0].starts_with("FP") && words[1].starts_with("http://127.0.0.1:"), "{said:?}");
    assert_eq!(words[2..], ["1", "none", "released", "reports"], "{said:?}");
    let rclone = run(&gateway, "s3 credentials --lock token:2 --resource reports --format rclone");
    assert!(rclone.text().contains("\n[fencepost]\ntype = s3\n"), "{rclone:?}");
}

#[test]
fn what_cannot_be_done_is_said_and_leaves_no_lock() {
    let gateway = Fresh::with_s3("", &[]);
    run(&gateway, "s3 credentials --resource reports").assert_failed(2, &["--lock", "FENCEPOST_TOKEN"]);
    run(&gateway, "s3 credentials --lock token:34").assert_failed(2, &["--resource"]);
    run(&gateway, "s3 credentials --lock token:0 --resource reports").assert_failed(2, &["token 0"]);
    run(&gateway, "s3 credentials --lock token:34?issuers=x --resource a").assert_failed(2, &["`issuers` is unknown"]);
    run(&gateway, "s3 credentials --lock token:34 --resource a --format xml").assert_failed(2, &["xml"]);
    let long = "s3 credentials --resource reports --credentials-ttl 13h --lock";
    run(&gateway, &format!("{long} {}", own_locks(&gateway))).assert_failed(1, &["43200 s"]);
    run(&gateway, "lock show reports").assert_failed(5, &[]);
    let without = Fresh::memory(&[]);
    let line = format!("s3 credentials --resource reports --lock {}", own_locks(&without));
    run(&without, &line).assert_failed(1, &["serves no S3", "--s3-listen"]);
    run(&without, "lock show reports").assert_failed(5, &[]);
}

const SHOW: &str = "echo ${AWS_ACCESS_KEY_ID-none} ${AWS_SECRET_ACCESS_KEY-none} ${AWS_ENDPOINT_URL-none} \
                    ${AWS_ENDPOINT_URL_S3-none} ${AWS_REGION-none} ${AWS_SESSION_TOKEN-none} ${AWS_PROFILE-none}";

#[test]
fn a_program_under_a_lock_finds_what_s3_clients_read() {
    let gateway = Fresh::with_s3("", &[]);
    let before = [("AWS_SESSION_TOKEN", "theirs"), ("AWS_PROFILE", "theirs"), ("AWS_ACCESS_KEY_ID", "theirs")];
    let said = job(&gateway, &[], SHOW, &before);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let text = said.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words[0].starts_with("FP") && words[1].len() == 64 && words[2].starts_with("http://127."), "{said:?}");
    assert_eq!((words[2], words[3..].to_vec()), (words[3], vec![words[3], "us-east-1", "none", "none"]));
    let region = job(&gateway, &[], "echo $AWS_REGION", &[("AWS_REGION", "eu-west-1")]);
    assert_eq!(region.text(), "eu-west-1\n");
    let left_alone = job(&gateway, &["--no-s3"], SHOW, &before);
    assert_eq!(left_alone.text(), "theirs none none none none theirs theirs\n");
    let without = Fresh::memory(&[]);
    assert_eq!(job(&without, &[], SHOW, &before).text(), "theirs none none none none theirs theirs\n");
}

/// The object_store crate refuses to send without TLS unless that is allowed, and s5cmd has a variable of its own.
#[test]
fn b_run_sets_what_object_store_and_s5cmd_read() {
    let show = "echo ${AWS_ALLOW_HTTP-none} ${S3_ENDPOINT_URL-none} ${AWS_ENDPOINT_URL-none}";
    let words = |gateway: &Fresh| {
        let text = job(gateway, &[], show, &[]).text();
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let said = words(&Fresh::with_s3("", &[]));
    assert_eq!((said[0].as_str(), &said[1]), ("true", &said[2]));
    let said = words(&Fresh::with_s3("", &["--s3-endpoint", "https://files.example"]));
    assert_eq!(said, ["none", "https://files.example", "https://files.example"]);
}

#[test]
fn a_program_under_a_lock_gets_credentials_again_for_its_own_token_only() {
    let gateway = Fresh::with_s3("", &[]);
    let again = format!("{} s3 credentials --format credential-process", binary().display());
    let said = job(&gateway, &[], &format!("{again} && echo $FENCEPOST_TOKEN"), &[]);
    assert_eq!(said.code, 0, "{said:?}");
    let text = said.text();
    let (process, token) = text.split_once('\n').unwrap();
    assert!(serde_json::from_str::<Value>(process).unwrap()["AccessKeyId"].as_str().unwrap().starts_with("FP"));
    assert_eq!(token, "1\n");
    // Another holder takes over in the middle. The program is not stopped, and requests credentials.
    let curl = format!("{} claim reports --token 99 --holder other#1 --url {}", binary().display(), gateway.url());
    let script = format!("unset FENCEPOST_ISSUER; FENCEPOST_HOLDER=other#1 {curl} >/dev/null; {again}");
    let taken = job(&gateway, &["--on-lost", "notify"], &script, &[]);
    assert_eq!(taken.code, 3, "{taken:?}");
    assert!(taken.out.is_empty() && taken.err.contains("2 is stale"), "{taken:?}");
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("99"));
}
