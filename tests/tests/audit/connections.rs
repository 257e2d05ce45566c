//! Connections: deadlines on every listener, connection limits, and how connections end.

mod clients;
mod exhaustion;
mod http2;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::process::{GatewayProcess, binary};
use fencepost_harness::venv;
use http2::Http2;

/// A request that stays in progress as long as its body does not arrive.
const UNFINISHED: &[u8] =
    b"PUT /v1/kv/k HTTP/1.1\r\nhost: localhost\r\nfencing-token: 1\r\ncontent-length: 9\r\n\r\nhalf";

/// Runs a Python program of the venv and returns what it printed.
fn python(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(venv::program("python")).arg("-c").arg(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A presigned URL.
fn presigned(gateway: &Bucketed, credentials: &Credentials, call: &str, key: &str) -> String {
    let program = "import sys, boto3, botocore.config as c\n\
        a, k, s, call, key = sys.argv[1:]\n\
        s3 = boto3.client('s3', endpoint_url=a, aws_access_key_id=k, aws_secret_access_key=s, region_name='us-east-1',\n\
            config=c.Config(signature_version='s3v4', s3={'addressing_style': 'path'}))\n\
        print(s3.generate_presigned_url(call, Params={'Bucket': 'reports', 'Key': key}, ExpiresIn=600))";
    let endpoint = format!("http://{}", gateway.s3());
    python(program, &[&endpoint, &credentials.access_key_id, &credentials.secret_access_key, call, key])
}

/// The number of open descriptors of a process.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Raises this process's limit of open files, for many connections.
fn many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// Does the other side close this connection in time, with or without an answer?
fn is_closed_in_time(mut client: Client) -> bool {
    let started = Instant::now();
    client.set_timeout(Duration::from_secs(20));
    client.drain();
    started.elapsed() < Duration::from_secs(15)
}

#[test]
fn s03_silent_and_half_begun_connections_are_closed_on_every_listener() {
    let gateway = Bucketed::with(&["--header-timeout", "1s"]);
    let (s3, public) = (gateway.s3().to_string(), gateway.address().to_owned());
    let connect = [
        ("public", Box::new(move || Client::connect(&public)) as Box<dyn Fn() -> Client>),
        ("S3", Box::new(move || Client::connect(&s3))),
        ("admin", Box::new(|| Client::connect_unix(&gateway.admin_socket()))),
    ];
    // Bytes that are neither HTTP/1 nor HTTP/2 yet, and a head that stops. A complete preface with nothing after it
    // counts as idle, not late.
    for sent in ["", "PRI * HT", "GET / HTTP/1.1\r\nhost: loc"] {
        for (listener, connect) in &connect {
            let mut client = connect();
            client.send(sent.as_bytes()).unwrap();
            assert!(is_closed_in_time(client), "{listener} after {sent:?}");
        }
    }
}

#[test]
fn s03_sixteen_silent_connections_do_not_lock_the_administrator_out() {
    let gateway = Bucketed::with(&["--header-timeout", "10min"]);
    let silent: Vec<_> = (0..16).map(|_| UnixStream::connect(gateway.admin_socket()).unwrap()).collect();
    let answer = wait::until("a place", PATIENCE, || {
        let mut client = Client::connect_unix(&gateway.admin_socket());
        client.try_request("GET", "/readyz", &[], b"").ok().filter(|answer| answer.status == 200)
    });
    assert_eq!(answer.text(), "ready\n");
    drop(silent);
}

/// A gateway with a limit of open files. `Err`: it exited, with this output.
fn with_descriptors(limit: usize, data: &std::path::Path, arguments: &[&str]) -> Result<GatewayProcess, String> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")]).arg(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
    GatewayProcess::spawn(command)
}

#[test]
fn s03_writes_go_on_when_silent_connections_have_taken_every_place() {
    many_descriptors();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("objects/reports")).unwrap();
    let objects = format!("dir:{}", dir.path().join("objects").display());
    let arguments = ["--write-buffer", "1MiB", "--header-timeout", "10min"];
    let s3 = ["--s3-listen", "127.0.0.1:0", "--objects", &objects];
    let gateway = with_descriptors(1024, &dir.path().join("data"), &[&arguments[..], &s3].concat()).unwrap();
    assert!(gateway.stderr().contains("max_connections is "), "{}", gateway.stderr());
    let address = gateway.s3_address();
    let mut holder = gateway.client();
    assert_eq!(holder.put("k", "1", "v").status, 204);
    // More connections than there are descriptors, on both ports.
    let public: SocketAddr = gateway.address().parse().unwrap();
    let silent: Vec<_> = (0..1200).filter_map(|n| TcpStream::connect([address, public][n % 2]).ok()).collect();
    assert!(silent.len() > 1024);
    // The engine switches to a new log every MiB, which needs a descriptor.
    let value = "x".repeat(256 << 10);
    for n in 0..40 {
        let written = wait::until("a write", PATIENCE, || {
            holder
                .try_request("PUT", &format!("/v1/kv/k{n}"), &[("fencing-token", "1")], value.as_bytes())
                .ok()
                .or_else(|| {
                    // Connections that never sent a request are closed before this one.
                    holder = gateway.client();
                    None
                })
        });
        assert_eq!(written.status, 204, "{}", written.text());
    }
    assert!(descriptors(gateway.pid()) < 1024);
    assert_eq!(gateway.client().request("GET", "/readyz", &[], b"").status, 200);
}

#[test]
fn s03_too_few_descriptors_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let said = with_descriptors(300, dir.path(), &[]).err().expect("it does not start");
    assert!(said.contains("the limit of open files (nofile) is 300") && said.contains("LimitNOFILE"), "{said}");
}

#[test]
fn s12_a_limit_per_address_that_was_set_binds_loopback_too() {
    let gateway = Fresh::memory(&["--max-connections-per-peer", "2"]);
    let mut busy: Vec<_> = (0..2).map(|_| gateway.client()).collect();
    for client in &mut busy {
        client.send(UNFINISHED).unwrap();
    }
    wait::until("both to be read", PATIENCE, || gateway.has_read_everything().then_some(()));
    let refused = gateway.client().receive().unwrap();
    assert_eq!((refused.status, refused.problem().as_str()), (503, "overloaded"));
    assert!(refused.text().contains("all 2 connections that one address may have"), "{}", refused.text());
    drop(busy);
    wait::until("a place", PATIENCE, || {
        gateway.client().try_request("GET", "/readyz", &[], b"").ok().filter(|answer| answer.status == 200)
    });
}

#[test]
fn s12_silent_connections_make_room_and_those_in_use_do_not() {
    let gateway = Bucketed::with(&["--max-connections", "4", "--header-timeout", "10min", "--body-timeout", "10min"]);
    for (address, answer) in [(gateway.address().to_owned(), 200), (gateway.s3().to_string(), 403)] {
        let silent: Vec<_> = (0..4).map(|_| TcpStream::connect(&address).unwrap()).collect();
        let found = wait::until("a place", PATIENCE, || {
            Client::connect(&address).try_request("GET", "/readyz", &[], b"").ok().filter(|found| found.status != 503)
        });
        assert_eq!(found.status, answer, "{}", found.text());
        drop(silent);
    }
    let mut busy: Vec<_> = (0..4).map(|_| gateway.client()).collect();
    for client in &mut busy {
        client.send(UNFINISHED).unwrap();
    }
    wait::until("all to be read", PATIENCE, || gateway.has_read_everything().then_some(()));
    assert_eq!(gateway.client().receive().unwrap().status, 503);
    for client in &mut busy {
        client.send(b"12345").unwrap();
        assert_eq!(client.receive().unwrap().status, 204);
    }
}

#[test]
fn s12_an_idle_http2_connection_is_closed_with_goaway() {
    let gateway = Bucketed::with(&["--idle-timeout", "1s"]);
    for address in [gateway.address().to_owned(), gateway.s3().to_string()] {
        let mut idle = Http2::connect(&address, 65_535);
        let frames = idle.frames_until_closed();
        assert!(frames.iter().any(|frame| frame.kind == http2::GOAWAY), "{address}: {frames:?}");
    }
}

#[test]
fn s04_http2_streams_whose_answer_is_not_taken_are_reset() {
    let gateway = Fresh::memory(&["--max-body", "1MiB", "--max-bodies", "16MiB", "--write-timeout", "2s"]);
    let mut client = gateway.client();
    assert_eq!(client.put("large", "1", &"x".repeat(1 << 20)).status, 204);
    assert_eq!(client.put("small", "1", "v").status, 204);
    // A client with a window of zero, and one that accepts a single byte.
    for window in [0, 1] {
        let mut stuck = Http2::connect(gateway.address(), window);
        for n in 0..64 {
            stuck.request(2 * n + 1, "GET", "/v1/kv/large", gateway.address());
        }
        wait::until("its share to be taken", PATIENCE, || stuck.statuses().contains("503").then_some(()));
        // Other clients read, list and claim during and after that.
        for _ in 0..50 {
            assert_eq!(client.get("small").status, 200);
            assert_eq!(client.request("GET", "/v1/kv", &[], b"").status, 200);
            assert_eq!(client.claim("small", "1").status, 200);
        }
        let resets = wait::until("the streams to be reset", PATIENCE, || {
            let resets = stuck.frames().filter(|frame| frame.kind == http2::RST_STREAM).count();
            (resets >= 4).then_some(resets)
        });
        assert!(resets <= 64);
        match window {
            0 => {
                stuck.request(201, "GET", "/v1/fences/none", gateway.address());
                wait::until("another answer", PATIENCE, || stuck.has_headers(201).then_some(()));
            }
            // Its small answers, 503, were begun: nothing is left to reset.
            _ => drop(stuck.frames_until_closed()),
        }
    }
}

/// A small answer that the client gives no window at all is reset, and the connection goes on.
#[test]
fn s04_a_small_http2_answer_that_is_not_taken_does_not_end_the_connection() {
    let gateway = Fresh::memory(&["--write-timeout", "1s", "--idle-timeout", "10min", "--header-timeout", "10min"]);
    assert_eq!(gateway.client().put("small", "1", "some bytes").status, 204);
    let mut stuck = Http2::connect(gateway.address(), 0);
    for round in 0..3 {
        let stream = 4 * round + 1;
        stuck.request(stream, "GET", "/v1/kv/small", gateway.address());
        wait::until("its reset", PATIENCE, || {
            stuck.frames().any(|frame| frame.kind == http2::RST_STREAM && frame.stream == stream).then_some(())
        });
        stuck.request(stream + 2, "HEAD", "/v1/kv/small", gateway.address());
        wait::until("another answer", PATIENCE, || stuck.has_headers(stream + 2).then_some(()));
    }
}

/// A small answer is sent with its end, so once it is begun nothing is left to reset: the connection is closed.
#[test]
fn s04_http2_connections_that_do_not_take_small_answers_are_closed() {
    let gateway = Fresh::memory(&["--write-timeout", "2s", "--idle-timeout", "10min"]);
    let mut client = gateway.client();
    assert_eq!(client.put("small", "1", "some bytes").status, 204);
    let mut stuck = Http2::connect(gateway.address(), 1);
    for n in 0..64 {
        stuck.request(2 * n + 1, "GET", "/v1/kv/small", gateway.address());
    }
    // One that takes its answers is served meanwhile, and afterwards.
    let mut taking = Http2::connect(gateway.address(), 65_535);
    taking.request(1, "GET", "/v1/kv/small", gateway.address());
    wait::until("an answer", PATIENCE, || taking.has_headers(1).then_some(()));
    stuck.frames_until_closed();
    taking.request(3, "GET", "/v1/kv/small", gateway.address());
    wait::until("another answer", PATIENCE, || taking.has_headers(3).then_some(()));
}

#[test]
fn s04_objects_that_are_not_taken_are_closed_and_their_number_is_bounded() {
    let gateway = Bucketed::filled_with(
        |objects| std::fs::write(objects.join("reports/large"), vec![0; 4 << 20]).unwrap(),
        &["--max-connections", "4", "--write-timeout", "3s"],
    );
    let url = presigned(&gateway, &Credentials::reader(), "get_object", "large");
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let before = descriptors(gateway.pid());
    let mut stuck = Http2::connect(address, 0);
    for n in 0..12 {
        stuck.request(2 * n + 1, "GET", &format!("/{path}"), address);
    }
    wait::until("all to be answered", PATIENCE, || (0..12).all(|n| stuck.has_headers(2 * n + 1)).then_some(()));
    assert!(stuck.statuses().contains("503"), "at most eight at once: {}", stuck.statuses());
    assert!(descriptors(gateway.pid()) <= before + 10);
    wait::until("the objects to be closed", PATIENCE, || (descriptors(gateway.pid()) <= before + 1).then_some(()));
    let resets = stuck.frames().filter(|frame| frame.kind == http2::RST_STREAM).count();
    assert!(resets >= 8, "{resets}");
}
