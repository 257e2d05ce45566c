//! Large values and the writers that run beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::process::GatewayProcess;
use serde_json::{Value, json};

const VALUES: usize = 64;
const LARGE: usize = 4 << 20;
const CLIENTS: usize = 8;
const REQUESTS: usize = 20;

/// CPU time of all threads of a process, which does not depend on how busy the machine is.
fn cpu_time(gateway: &GatewayProcess) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.pid())).unwrap();
    // The fields after the name in brackets; user and system time are fields 14 and 15 of the whole line.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Resident memory in MiB: `VmRSS` is the current value, `VmHWM` the peak since it was reset.
fn memory(gateway: &GatewayProcess, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(which)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn forget_peak(gateway: &GatewayProcess) {
    std::fs::write(format!("/proc/{}/clear_refs", gateway.pid()), "5").unwrap();
}

#[derive(Debug)]
struct Measured {
    cpu: Duration,
    /// Of a small PUT beside the load.
    median: Duration,
    longest: Duration,
    /// MiB above the amount before.
    memory: u64,
}

/// Eight clients send requests, while another one writes small values.
fn beside(gateway: &GatewayProcess, body: impl Fn(usize) -> Value + Sync) -> Measured {
    forget_peak(gateway);
    let (cpu, resident) = (cpu_time(gateway), memory(gateway, "VmRSS:"));
    let (done, mut times) = (&AtomicBool::new(false), Vec::new());
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let (mut client, mut times) = (gateway.client(), Vec::new());
            while times.is_empty() || !done.load(Ordering::Relaxed) {
                let sent = Instant::now();
                assert_eq!(client.put("beside", "1", "small").status, 204);
                times.push(sent.elapsed());
            }
            times
        });
        let body = &body;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let mut connection = gateway.client();
                    for _ in 0..REQUESTS {
                        let answer = connection.post("/v1/txn", &body(client));
                        assert_eq!(answer.status, 200, "{}", answer.text());
                    }
                })
            })
            .collect();
        let clients: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        times = writer.join().unwrap();
        clients.into_iter().for_each(|client| client.unwrap());
    });
    times.sort_unstable();
    Measured {
        cpu: cpu_time(gateway) - cpu,
        median: times[times.len() / 2],
        longest: times[times.len() - 1],
        memory: memory(gateway, "VmHWM:").saturating_sub(resident),
    }
}

fn exist(names: &str) -> Value {
    (0..VALUES).map(|n| json!({"key": format!("{names}/{n}"), "exists": true})).collect()
}

/// Incompressible bytes: a value that compresses well would be read too quickly.
fn noise(seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..LARGE).map(step).collect()
}

fn fill(client: &mut Client) {
    for n in 0..VALUES {
        let large = client.request("PUT", &format!("/v1/kv/large/{n}"), &[("fencing-token", "1")], &noise(n));
        assert_eq!(large.status, 204, "{}", large.text());
        assert_eq!(client.put(&format!("small/{n}"), "1", "small").status, 204);
    }
}

/// A condition on a large value costs no more than one on a small value, for the requesting client and for concurrent
/// writers.
#[test]
fn c06_conditions_on_large_values_hold_up_no_writer() {
    let gateway = Fresh::rocksdb(&[]);
    fill(&mut gateway.client());
    let reads = |names: &'static str| move |_| json!({"if": exist(names)});
    let writes = |names: &'static str| {
        move |client| {
            let key = format!("w/{client}");
            json!({"tokens": {&key: "1"}, "if": exist(names), "then": [{"put": &key, "text": "x"}]})
        }
    };
    for (what, small, large) in [
        ("only reads", beside(&gateway, reads("small")), beside(&gateway, reads("large"))),
        ("writes with a token", beside(&gateway, writes("small")), beside(&gateway, writes("large"))),
    ] {
        println!("{what}: small {small:?}, large {large:?}");
        let allowed = 3 * small.cpu + Duration::from_millis(500);
        assert!(large.cpu < allowed, "{what}: {large:?} beside {small:?}");
        assert!(large.median < 5 * small.median + Duration::from_millis(50), "{what}: {large:?} beside {small:?}");
        assert!(large.longest < 5 * small.longest + Duration::from_secs(1), "{what}: {large:?} beside {small:?}");
        assert!(large.memory < 64, "{what}: {large:?}");
    }
    // The values are intact, and can be replaced and removed.
    let mut client = gateway.client();
    assert!(client.get("large/7").body == noise(7));
    assert_eq!(client.put("large/7", "2", "small now").status, 204);
    assert_eq!(client.delete("large/8", "2").status, 204);
    assert_eq!((client.get("large/7").text().as_str(), client.get("large/8").status), ("small now", 404));
    let listed = client.request("GET", "/v1/kv?prefix=large/7", &[], b"").json();
    assert_eq!(listed["keys"][0]["key"], "large/7", "{listed}");
}

/// Also after a restart, and after kill -9.
#[test]
fn c06_large_values_survive_a_kill() {
    let (gateway, dir) = Fresh::rocksdb(&[]).into_parts();
    let mut client = gateway.client();
    let put = |client: &mut Client, key: &str, token: &str, body: &[u8]| {
        let answer = client.request("PUT", &format!("/v1/kv/{key}"), &[("fencing-token", token)], body);
        assert_eq!(answer.status, 204, "{}", answer.text());
        answer.header("etag").unwrap().to_owned()
    };
    put(&mut client, "a", "1", &noise(1));
    let a = put(&mut client, "a", "2", &noise(2));
    put(&mut client, "b", "1", &noise(3));
    put(&mut client, "b", "1", b"small");
    put(&mut client, "c", "1", &noise(4));
    assert_eq!(client.delete("c", "1").status, 204);
    gateway.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    let found = client.get("a");
    assert_eq!((found.header("etag"), found.header("fencing-token")), (Some(&*a), Some("2")));
    assert!(found.body == noise(2));
    assert_eq!((client.get("b").text().as_str(), client.get("c").status), ("small", 404));
    let unchanged = json!({"if": [{"key": "a", "etag": a}, {"key": "c", "absent": true}]});
    assert_eq!(client.post("/v1/txn", &unchanged).status, 200);
}
