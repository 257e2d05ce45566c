//! The examples run as they are in the repository.

use std::path::PathBuf;
use std::process::{Command, Output};

use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;

/// An example of the client, built beside the binary.
fn example(name: &str) -> PathBuf {
    let program = binary().with_file_name("examples").join(name);
    assert!(program.exists(), "{} is missing: run `make test`", program.display());
    program
}

fn run(gateway: &Fresh, name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(example(name));
    command.args([gateway.url(), &format!("fencepost://{}", gateway.address())]).args(arguments);
    said(&command.output().unwrap())
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn an_order_is_paid_once() {
    let gateway = Fresh::memory(&[]);
    assert!(run(&gateway, "orders", &["123"]).contains("new -> paid"));
    assert!(run(&gateway, "orders", &["123"]).contains("already paid"));
    assert_eq!(gateway.client().get("orders/123").text(), "paid");
    assert_eq!(gateway.client().fence("orders/123").as_deref(), Some("2"));
}

#[test]
fn stock_never_goes_below_nothing() {
    let gateway = Fresh::memory(&[]);
    assert!(run(&gateway, "inventory", &["apples", "1"]).contains("not enough"));
    let stocked = run_kv(&gateway, "5");
    assert!(stocked.status.success(), "{stocked:?}");
    assert!(run(&gateway, "inventory", &["apples", "3"]).contains("sold 3"));
    assert!(run(&gateway, "inventory", &["apples", "3"]).contains("not enough"));
    assert_eq!(gateway.client().get("stock/apples").text(), "2");
}

/// Fills the stock under the same lock.
fn run_kv(gateway: &Fresh, value: &str) -> Output {
    let mut command = Command::new(binary());
    command.args(["run", "--lock", &format!("fencepost://{}", gateway.address()), "--url", gateway.url()]);
    command.args(["--resource", "stock/apples", "--"]).arg(binary()).args(["kv", "put", "stock/apples", value]);
    command.output().unwrap()
}

#[test]
fn a_leader_leads_and_steps_down() {
    let gateway = Fresh::memory(&[]);
    for (name, token) in [("ada", "1"), ("bob", "2")] {
        let said = run(&gateway, "leader", &[name, "3"]);
        assert!(said.contains(&format!("{name} leads with token {token}")) && said.contains("steps down"), "{said}");
        assert_eq!(gateway.client().get("cluster/leader").text(), format!("{name} beat 3"));
    }
}

#[test]
fn the_nightly_job_runs_under_its_lock() {
    let gateway = Fresh::memory(&[]);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/nightly/nightly.sh");
    let path = format!("{}:{}", binary().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(binary());
    command.env("PATH", path);
    command.args(["run", "--lock", &format!("fencepost://{}", gateway.address()), "--url", gateway.url()]);
    command.args(["--resource", "jobs/nightly", "--wait", "0s", "--"]).arg(script);
    let said = said(&command.output().unwrap());
    assert!(said.contains("nightly: token 1 for jobs/nightly") && said.contains("nightly: done"), "{said}");
    assert!(gateway.client().get("jobs/nightly").text().starts_with("done at "));
}
