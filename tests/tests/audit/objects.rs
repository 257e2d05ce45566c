//! Objects: staged bytes, the free-space floor, and recovery.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::Credentials;
use fencepost_harness::process::{GatewayProcess, run};
use fencepost_harness::small_disk::SmallDisk;
use rustix::process::Signal;
use serde_json::json;

use signing::Signer;

#[allow(dead_code, reason = "made for the tests of the S3 front end, which use all of it")]
#[path = "../s3/parsing.rs"]
mod parsing;
#[allow(dead_code, reason = "made for the tests of the S3 front end, which use all of it")]
#[path = "../s3/signing.rs"]
mod signing;

const MIB: u64 = 1 << 20;

/// The free-space floor of these tests.
const FLOOR: u64 = 64 * MIB;

/// A gateway whose data and objects share a small disk.
struct OnSmallDisk {
    gateway: GatewayProcess,
    s3: SocketAddr,
}

impl OnSmallDisk {
    fn start(disk: &SmallDisk) -> OnSmallDisk {
        OnSmallDisk::try_start(disk).unwrap_or_else(|said| panic!("the gateway did not start:\n{said}"))
    }

    fn try_start(disk: &SmallDisk) -> Result<OnSmallDisk, String> {
        std::fs::create_dir_all(disk.outside("objects/reports")).unwrap();
        let mut command: Command = disk.fencepost();
        command.args(["serve", "--listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--free-space-floor", "64MiB"]);
        // Small buffers: the data itself takes almost no space.
        command.args(["--write-buffer", "1MiB", "--data"]).arg(disk.inside().join("data"));
        command.arg("--objects").arg(format!("dir:{}", disk.inside().join("objects").display()));
        let gateway = GatewayProcess::spawn(command)?;
        let s3 = gateway.s3_address();
        Ok(OnSmallDisk { gateway, s3 })
    }

    /// A holder of the object `reports/NAME` with this token.
    fn holder(&self, name: &str, token: &str) -> Signer {
        let body = json!({"resource": format!("reports/{name}")}).to_string();
        let headers = [("fencing-token", token), ("content-type", "application/json")];
        let answer = self.gateway.client().request("POST", "/v1/s3/credentials", &headers, body.as_bytes());
        Signer { address: self.s3, credentials: Credentials::issued(&answer) }
    }

    /// The same credentials at this gateway's address.
    fn again(&self, signer: &Signer) -> Signer {
        Signer { address: self.s3, credentials: signer.credentials.clone() }
    }

    fn stop(self) {
        self.gateway.signal(Signal::TERM);
        assert!(self.gateway.wait(PATIENCE).success());
    }
}

/// The number of files with staged bytes, and their total size.
fn staged(disk: &SmallDisk) -> (usize, u64) {
    let files = std::fs::read_dir(disk.outside("objects/.fencepost/staging")).unwrap();
    let sizes: Vec<u64> = files.map(|file| file.unwrap().metadata().map_or(0, |found| found.len())).collect();
    (sizes.len(), sizes.iter().sum())
}

fn until_nothing_is_staged(disk: &SmallDisk) {
    wait::until("staged bytes to be removed", PATIENCE, || (staged(disk).0 == 0).then_some(()));
}

/// Trap 47: neither an announced upload nor one in progress may take the space that every other write needs.
#[test]
fn c04_one_upload_below_the_floor_is_refused_and_leaves_nothing() {
    let disk = SmallDisk::of(400);
    let running = OnSmallDisk::start(&disk);
    let signer = running.holder("large", "33");
    let mut client = running.gateway.client();
    disk.leave_free(241 * MIB);

    // Refused by its announced length: not a byte of the body is sent.
    let refused = signer.begin("PUT", "/reports/large", &[], 200 << 20).receive_after("PUT").unwrap();
    assert_eq!((refused.status, parsing::code(&refused).as_str()), (507, "InsufficientStorage"), "{}", refused.text());
    assert_eq!(staged(&disk), (0, 0));
    assert_eq!(client.put("orders/1", "34", "paid").status, 204, "others go on");

    // Admitted, and stopped when its room is used up.
    let mut upload = signer.begin("PUT", "/reports/large", &[], 150 << 20);
    let chunk = vec![b'x'; 1 << 20];
    upload.send(&chunk).unwrap();
    wait::until("the upload to begin", PATIENCE, || (staged(&disk).1 > 0).then_some(()));
    disk.leave_free(70 * MIB);
    // The gateway may answer and close the connection before everything is sent.
    let _ = (0..149).try_for_each(|_| upload.send(&chunk));
    let stopped = upload.receive_after("PUT").unwrap();
    assert_eq!((stopped.status, parsing::code(&stopped).as_str()), (507, "InsufficientStorage"), "{}", stopped.text());
    until_nothing_is_staged(&disk);
    assert_eq!(client.put("orders/1", "34", "shipped").status, 204, "others go on");
    assert_eq!(signer.put("reports/large", b"small").status, 200, "and so does its holder");
}

/// Trap 47: below the floor, operations that remove something still work, and the gateway starts.
#[test]
fn c04_below_the_floor_deletes_releases_collecting_and_starting_work() {
    let disk = SmallDisk::of(400);
    let running = OnSmallDisk::start(&disk);
    let mut client = running.gateway.client();
    let signers: Vec<Signer> = ["a", "b", "c"].map(|name| running.holder(name, "33")).into();
    for (name, signer) in ["a", "b"].iter().zip(&signers) {
        assert_eq!(signer.put(&format!("reports/{name}"), &[b'x'; 1000]).status, 200);
    }
    let upload = signers[2].begin_upload("reports/c");
    assert_eq!(signers[2].put_part("reports/c", &upload, 1, b"a part").status, 200);
    for key in ["orders/1", "orders/2", "orders/3"] {
        assert_eq!(client.put(key, "34", "paid").status, 204);
    }
    let lease = client.acquire("jobs/1", "worker#1", 600_000).json()["lease"].as_str().unwrap().to_owned();

    disk.leave_free(FLOOR / 2);
    let full = client.put("orders/1", "34", "shipped");
    assert_eq!((full.status, full.problem().as_str()), (507, "no-space"), "{}", full.text());
    let keyed = [("fencing-token", "35"), ("idempotency-key", "remove-orders-1")];
    assert_eq!(client.request("DELETE", "/v1/kv/orders/1", &keyed, b"").status, 204, "also with an idempotency key");
    let mixed = json!({"tokens": {"orders/2": "34", "orders/3": "34"},
                       "then": [{"delete": "orders/2"}, {"put": "orders/3", "text": "x"}]});
    assert_eq!(client.post("/v1/txn", &mixed).status, 507, "a transaction that also stores");
    assert_eq!(client.delete("orders/2", "33").status, 409, "a delete is judged as ever");
    assert_eq!(client.release("jobs/1", &lease).status, 204);
    assert_eq!(signers[0].delete("reports/a").status, 204);
    let aborted = signers[2].request("DELETE", &format!("/reports/c?uploadId={upload}"), &[], b"");
    assert_eq!(aborted.status, 204, "{}", aborted.text());
    let socket = disk.outside("data/admin.sock").display().to_string();
    let collected = run(&["objects", "collect", "--older-than", "0s", "--admin-socket", &socket]);
    assert!(collected.status.success(), "{}", String::from_utf8_lossy(&collected.stderr));
    running.stop();

    // A delete needs fresh refs, and none are reserved.
    disk.leave_free(FLOOR / 2);
    let running = OnSmallDisk::start(&disk);
    let signer = running.again(&signers[1]);
    assert_eq!(signer.get("reports/b").body.len(), 1000, "reads go on");
    assert_eq!(signer.put("reports/b", b"y").status, 507);
    assert_eq!(signer.delete("reports/b").status, 204);
    running.stop();

    // Far below the floor nothing is committed any more, but the gateway still starts and reads.
    disk.leave_free(FLOOR / 8);
    let running = OnSmallDisk::start(&disk);
    let mut client = running.gateway.client();
    assert_eq!(client.get("orders/3").text(), "paid");
    let full = client.delete("orders/3", "34");
    assert_eq!(full.status, 507, "{}", full.text());
    disk.leave_free(2 * FLOOR);
    assert_eq!(client.put("orders/3", "34", "shipped").status, 204);
    running.stop();
}

/// A start below the floor removes what a killed gateway had staged, and reports where it looked.
#[test]
fn c04_a_start_far_below_the_floor_removes_what_was_staged_and_names_the_place() {
    let disk = SmallDisk::of(400);
    let running = OnSmallDisk::start(&disk);
    let signer = running.holder("large", "33");
    let mut upload = signer.begin("PUT", "/reports/large", &[], 100 << 20);
    let chunk = vec![b'x'; 1 << 20];
    (0..50).for_each(|_| upload.send(&chunk).unwrap());
    wait::until("the upload to be staged", PATIENCE, || (staged(&disk).1 >= 45 * MIB).then_some(()));
    running.gateway.kill();
    disk.leave_free(FLOOR / 8);
    let running = OnSmallDisk::start(&disk);
    assert_eq!(staged(&disk), (0, 0));
    assert!(disk.free() > 40 * MIB, "{} bytes are free", disk.free());
    assert_eq!(running.gateway.client().get("orders/1").status, 404, "it serves");
    running.stop();

    // Refs of uploads are still pending, and there is no room to forget them.
    let running = OnSmallDisk::start(&disk);
    disk.leave_free(100 * MIB);
    let signer = running.holder("other", "33");
    assert_eq!(signer.put("reports/other", b"x").status, 200);
    running.stop();
    disk.leave_free(FLOOR / 8);
    let running = OnSmallDisk::start(&disk);
    let staging = disk.inside().join("objects/.fencepost/staging").display().to_string();
    wait::until("the log to name the staging directory", Duration::from_secs(10), || {
        let said = running.gateway.stderr();
        (said.contains("collected later") && said.contains(&staging)).then_some(())
    });
    running.stop();
}
