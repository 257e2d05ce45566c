//! The directory of the objects: which one is accepted, and files that appear in it without the gateway.

use std::fs;
use std::process::Command;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::process::{GatewayProcess, binary};
use rustix::process::Signal;

use crate::parsing::code;
use crate::signing::Signer;
use crate::world::{World, agreed};

/// The exit code and the output of a gateway that cannot start in this state.
fn refused(world: &World, data: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(world.path().join(data)).args(arguments);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Its threads end before the process does, so it exits as reported and does not crash.
#[test]
fn a_start_that_fails_ends_in_order() {
    let world = World::new();
    let missing = format!("dir:{}", world.path().join("missing").display());
    for round in 0..20 {
        let (exit, said) = refused(&world, "data", &["--s3-listen", "127.0.0.1:0", "--objects", &missing]);
        assert_eq!(exit, Some(1), "round {round}: {said}");
        assert!(said.contains("there is no directory"), "{said}");
    }
}

#[test]
fn a_directory_without_its_disk_is_not_taken_for_an_empty_one() {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    assert_eq!(signer.put("reports/x", b"x").status, 200);
    running.signal(Signal::TERM);
    assert!(running.gateway.wait(PATIENCE).success());
    let (objects, away) = (world.objects(), world.path().join("away"));
    fs::rename(&objects, &away).unwrap();
    fs::create_dir(&objects).unwrap();
    let said = world.try_start("data").err().expect("nothing of the index is there");
    assert!(said.contains("is the disk mounted?"), "{said}");

    // Restored without the gateway's own directory: the command named in the error makes it start.
    fs::remove_dir_all(&objects).unwrap();
    fs::rename(&away, &objects).unwrap();
    fs::remove_dir_all(objects.join(".fencepost")).unwrap();
    let said = world.try_start("data").err().expect("it was never seen there");
    let command = said.split("run: ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or_else(|| panic!("{said}"));
    assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    let running = world.start();
    assert_eq!(world.seen(&running.again(&signer))["x"], b"x");
}

#[test]
fn a_directory_inside_another_one_is_refused() {
    let world = World::new();
    let running = world.start();
    let inside = format!("dir:{}", world.objects().join("reports").display());
    let (exit, said) = refused(&world, "other-data", &["--s3-listen", "127.0.0.1:0", "--objects", &inside]);
    assert_eq!(exit, Some(1), "{said}");
    assert!(said.contains("is itself a directory of objects"), "{said}");
    assert!(!world.objects().join("reports/.fencepost").exists());
    drop(running);
}

/// The reverse: a bucket here was the whole directory of another gateway, whose fences are elsewhere.
#[test]
fn a_bucket_that_is_the_directory_of_another_gateway_is_refused() {
    let world = World::new();
    let inside = format!("dir:{}", world.objects().join("reports").display());
    fs::create_dir(world.objects().join("reports/bucket")).unwrap();
    let arguments = ["--s3-listen", "127.0.0.1:0", "--objects", &inside];
    let other = GatewayProcess::start(&world.path().join("other-data"), &arguments);
    for running in [true, false] {
        let said = world.try_start("data").err().expect("two gateways would write the same files");
        assert!(said.contains("reports") && said.contains(".fencepost"), "running: {running}: {said}");
        if running {
            other.signal(Signal::TERM);
            wait::until("the other gateway to end", PATIENCE, || ended(&other).then_some(()));
        }
    }
    // An operator can confirm the change by removing that gateway's own directory.
    fs::remove_dir_all(world.objects().join("reports/.fencepost")).unwrap();
    drop(world.start());
}

fn ended(gateway: &GatewayProcess) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", gateway.pid())).unwrap().contains(") Z ")
}

/// Clients receive a URL, and 0.0.0.0 is not a usable host.
#[test]
fn an_address_that_is_every_address_needs_an_endpoint() {
    let world = World::new();
    let objects = format!("dir:{}", world.objects().display());
    let arguments = ["--s3-listen", "0.0.0.0:0", "--s3-insecure-plaintext", "--objects", &objects];
    let (exit, said) = refused(&world, "data", &arguments);
    assert!(exit == Some(2) && said.contains("--s3-endpoint"), "{exit:?} {said}");
    let with = [&arguments[..], &["--s3-endpoint", "http://files.example:9000"]].concat();
    drop(GatewayProcess::start(&world.path().join("data"), &with));
}

#[test]
fn a_bucket_that_is_made_while_the_gateway_runs_is_taken_in_with_its_files() {
    let gateway = Bucketed::start();
    let reader = Signer::reader(&gateway);
    for (bucket, first) in [("late-get", "GET"), ("late-head", "HEAD"), ("late-list", "LIST"), ("late-put", "PUT")] {
        fs::create_dir(gateway.objects().join(bucket)).unwrap();
        fs::write(gateway.objects().join(bucket).join("a"), "precious").unwrap();
        let name = format!("{bucket}/a");
        match first {
            "GET" => assert_eq!(reader.get(&name).text(), "precious"),
            "HEAD" => assert_eq!(reader.request("HEAD", &format!("/{name}"), &[], b"").status, 200),
            "LIST" => assert_eq!(reader.list(bucket, 10).len(), 1),
            _ => {
                let signer = Signer::holder(&gateway, &name, "1");
                let answer = signer.request("PUT", &format!("/{name}"), &[("if-none-match", "*")], b"other");
                assert_eq!(answer.status, 412, "{}", answer.text());
            }
        }
        assert_eq!(agreed(&reader, bucket)["a"], b"precious", "{bucket}");
    }
    assert_eq!(code(&reader.get("nowhere/a")), "NoSuchBucket");
}

#[test]
fn a_file_that_the_index_does_not_know_is_not_replaced() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let file = gateway.objects().join("reports/by-hand");
    fs::write(&file, "precious").unwrap();
    let answer = signer.put("reports/by-hand", b"other");
    assert_eq!((answer.status, code(&answer).as_str()), (409, "ObjectNameClash"), "{}", answer.text());
    assert!(answer.text().contains("objects check --adopt"), "{}", answer.text());
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    let (exit, ..) = crate::checks::objects(&gateway, &["check", "--adopt"]);
    assert_eq!(exit, 0);
    assert_eq!(signer.get("reports/by-hand").text(), "precious");
    assert_eq!(signer.put("reports/by-hand", b"other").status, 200);
    assert_eq!(fs::read(&file).unwrap(), b"other");
}
