//! Shutdown: the first signal drains, a second one stops, and what was answered is kept.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::process::GatewayProcess;
use rustix::process::Signal;

const HALF: &[u8] = b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\ncontent-length: 4\r\n\r\nla";

/// A connection whose request is certainly in progress.
fn half_sent(gateway: &GatewayProcess) -> Client {
    let mut client = gateway.client();
    client.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(client.receive().unwrap().status, 200);
    client.send(b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 34\r\nexpect: 100-continue\r\n").unwrap();
    client.send(b"content-length: 4\r\n\r\n").unwrap();
    assert_eq!(client.receive().unwrap().status, 100, "the gateway waits for the body");
    client.send(b"la").unwrap();
    client
}

fn signal_and_wait(gateway: &GatewayProcess, signal: Signal) {
    gateway.signal(signal);
    wait::until("the gateway to drain", PATIENCE, || gateway.stderr().contains("draining").then_some(()));
}

#[test]
fn sigterm_and_sigint_finish_what_is_under_way_and_exit_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let (gateway, dir) = Fresh::rocksdb(&[]).into_parts();
        let mut slow = half_sent(&gateway);
        signal_and_wait(&gateway, signal);
        let address = gateway.address().to_owned();
        wait::until("new connections to be refused", PATIENCE, || Client::try_connect(&address).err());
        slow.send(b"st").unwrap();
        let answer = slow.receive().unwrap();
        assert_eq!((answer.status, answer.header("fence")), (204, Some("34")));
        assert!(slow.is_closed());
        assert_eq!(gateway.wait(PATIENCE).code(), Some(0), "{signal:?}");
        let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
        assert_eq!(gateway.client().get("k").text(), "last");
    }
}

#[test]
fn an_idle_gateway_stops_at_once_also_with_connections_open() {
    let (gateway, _dir) = Fresh::rocksdb(&["--drain-timeout", "10min"]).into_parts();
    let mut idle: Vec<_> = (0..20).map(|_| gateway.client()).collect();
    for client in idle.iter_mut().take(10) {
        assert_eq!(client.request("GET", "/healthz", &[], b"").status, 200);
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(PATIENCE).code(), Some(0));
    assert!(idle.iter_mut().all(Client::is_closed));
}

#[test]
fn readyz_says_draining_while_healthz_says_alive() {
    let (gateway, _dir) = Fresh::memory(&[]).into_parts();
    let _busy = half_sent(&gateway);
    // Requests whose headers had begun to arrive are still served.
    let mut begun: Vec<_> = ["/readyz", "/healthz"]
        .map(|path| {
            let mut client = gateway.client();
            client.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n").as_bytes()).unwrap();
            client
        })
        .into();
    wait::until("the gateway to have read those bytes", PATIENCE, || gateway.has_read_everything().then_some(()));
    signal_and_wait(&gateway, Signal::TERM);
    begun.iter_mut().for_each(|client| client.send(b"\r\n").unwrap());
    let ready = begun[0].receive().unwrap();
    assert_eq!((ready.status, ready.problem().as_str()), (503, "draining"));
    assert_eq!(begun[1].receive().unwrap().status, 200);
}

#[test]
fn a_second_signal_stops_at_once() {
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::TERM, Signal::INT), (Signal::INT, Signal::INT)] {
        let (gateway, dir) = Fresh::rocksdb(&[]).into_parts();
        assert_eq!(gateway.client().put("k", "33", "answered").status, 204);
        let mut slow = half_sent(&gateway);
        signal_and_wait(&gateway, first);
        gateway.signal(second);
        let status = gateway.wait(PATIENCE);
        assert_eq!(status.code(), Some(1), "requests were cut off: {status:?}");
        assert!(slow.is_closed());
        let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
        assert_eq!(gateway.client().get("k").text(), "answered");
        assert_eq!(gateway.client().fence("k").as_deref(), Some("33"));
    }
}

#[test]
fn the_drain_timeout_ends_it_too() {
    let (gateway, _dir) = Fresh::memory(&["--drain-timeout", "300ms"]).into_parts();
    let mut client = gateway.client();
    client.send(HALF).unwrap();
    let _slow = half_sent(&gateway);
    let started = Instant::now();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(PATIENCE).code(), Some(1));
    assert!(started.elapsed() >= Duration::from_millis(250), "{:?}", started.elapsed());
}

#[test]
fn a_body_that_never_comes_does_not_hold_the_drain_beyond_its_own_timeout() {
    let (gateway, _dir) = Fresh::memory(&["--body-timeout", "300ms"]).into_parts();
    let mut slow = half_sent(&gateway);
    gateway.signal(Signal::TERM);
    assert_eq!(slow.receive().unwrap().status, 408);
    assert_eq!(gateway.wait(PATIENCE).code(), Some(0));
}

#[test]
fn writes_under_load_are_all_answered_or_never_begun() {
    let (gateway, dir) = Fresh::rocksdb(&[]).into_parts();
    let address = gateway.address().to_owned();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&address);
                let mut answered = Vec::new();
                for n in 0.. {
                    let key = format!("{writer}/{n}");
                    match client.try_request("PUT", &format!("/v1/kv/{key}"), &[("fencing-token", "1")], b"v") {
                        Ok(answer) if answer.status == 204 => answered.push(key),
                        Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
                        Err(_) => break,
                    }
                }
                answered
            })
        })
        .collect();
    let mut client = gateway.client();
    wait::until("some load", PATIENCE, || (client.get("0/20").status == 200).then_some(()));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait(PATIENCE).code(), Some(0));
    let answered: Vec<String> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    assert!(answered.len() > 20);
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    for key in &answered {
        assert_eq!(client.get(key).status, 200, "{key} was answered");
    }
}

#[test]
fn http2_streams_are_finished_too() {
    for _ in 0..5 {
        let (gateway, dir) = Fresh::memory(&[]).into_parts();
        let log = dir.path().join("curl.log");
        let mut curl = Command::new("curl")
            .args(["--http2-prior-knowledge", "-s", "-v", "-w", "%{http_code} %{http_version}", "-X", "PUT", "-T", "-"])
            .args(["-H", "Fencing-Token: 34", &format!("{}/v1/kv/k", gateway.url())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut body = curl.stdin.take().unwrap();
        body.write_all(b"begin").unwrap();
        wait::until("curl to have sent it", PATIENCE, || {
            std::fs::read_to_string(&log).unwrap().contains("[5 bytes data]").then_some(())
        });
        wait::until("the gateway to have read it", PATIENCE, || gateway.has_read_everything().then_some(()));
        signal_and_wait(&gateway, Signal::TERM);
        body.write_all(b"end").unwrap();
        drop(body);
        let said = curl.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "204 2", "{}", std::fs::read_to_string(&log).unwrap());
        assert_eq!(gateway.wait(PATIENCE).code(), Some(0));
    }
}
