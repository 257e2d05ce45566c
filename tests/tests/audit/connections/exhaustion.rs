//! Every attack on memory, connection limits and descriptors at once, against small limits: memory stays below the
//! bound in docs/configuration.md, and the holder of a lock keeps working.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::*;

const MIB: usize = 1 << 20;
const CONNECTIONS: usize = 64;
const SETTINGS: [&str; 20] = [
    "--max-connections",
    "64",
    "--max-body",
    "1MiB",
    "--max-bodies",
    "16MiB",
    "--cache",
    "8MiB",
    "--write-buffer",
    "4MiB",
    "--header-timeout",
    "60s",
    "--body-timeout",
    "3s",
    "--write-timeout",
    "3s",
    "--idle-timeout",
    "3s",
    "--queue",
    "256",
];

/// The bound of docs/configuration.md, without the terms for recorded outcomes and cached fences, which this test does
/// not use: engine, bodies, values read, copies of a commit, lists and reads, the process, connections, S3 requests.
const BOUND: usize =
    (8 + 4 + 5 * 16 + 9 * 8 + 3 * 9 + 32 + 20 + 70) * MIB + 2 * CONNECTIONS * MIB / 2 + 2 * CONNECTIONS * MIB;

/// The head of an upload in signed chunks, with a valid signature. It can be sent repeatedly.
const SIGNED_CHUNKS: &str = "import sys, botocore.auth as a, botocore.awsrequest as r, botocore.credentials as c\n\
    url, key, secret = sys.argv[1:]\n\
    class Streaming(a.S3SigV4Auth):\n\
    \x20   def payload(self, request): return 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD'\n\
    request = r.AWSRequest('PUT', url, headers={'Content-Encoding': 'aws-chunked', 'X-Amz-Decoded-Content-Length': '5242880'})\n\
    Streaming(c.Credentials(key, secret), 's3', 'us-east-1').add_auth(request)\n\
    request.headers['X-Amz-Content-SHA256'] = 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD'\n\
    print('\\r\\n'.join(f'{k}: {v}' for k, v in request.headers.items()))";

/// The largest resident size so far, in bytes.
fn peak(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// Stops the attacks, also when an assertion fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps this many connections of a kind open until `stop` is set, and replaces those that were closed.
fn keep_open<T>(stop: &AtomicBool, count: usize, open: impl Fn() -> Option<T>, is_open: impl Fn(&mut T) -> bool) {
    let mut held: Vec<T> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        held.retain_mut(&is_open);
        while held.len() < count && !stop.load(Ordering::Relaxed) {
            match open() {
                Some(new) => held.push(new),
                None => break,
            }
        }
        wait::pause(Duration::from_millis(20));
    }
}

/// Is the connection still open? Peeks without consuming anything; an unread answer counts as open.
fn still_there(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    stream.set_nonblocking(true).unwrap();
    let found = stream.peek(&mut byte);
    stream.set_nonblocking(false).unwrap();
    !matches!(found, Ok(0)) && found.err().is_none_or(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Sends some bytes on a new connection, and then nothing.
fn begin(address: &str, bytes: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(2))).ok()?;
    // The gateway may close the connection meanwhile, or stop reading from it.
    let _ = stream.write_all(bytes);
    Some(stream)
}

#[test]
fn exhaustion_all_attacks_at_once_leave_the_holder_alone_and_the_memory_bounded() {
    many_descriptors();
    let gateway = Arc::new(Bucketed::filled_with(
        |objects| std::fs::write(objects.join("reports/large"), vec![0; 4 * MIB]).unwrap(),
        &SETTINGS,
    ));
    assert_eq!(gateway.client().put("large", "1", &"x".repeat(MIB)).status, 204);
    let (public, s3) = (gateway.address().to_owned(), gateway.s3().to_string());
    let writer = gateway.credentials("reports", "33");
    let object = presigned(&gateway, &Credentials::reader(), "get_object", "large");
    let object = format!("/{}", object.strip_prefix("http://").unwrap().split_once('/').unwrap().1);
    let chunks = python(
        SIGNED_CHUNKS,
        &[&format!("http://{s3}/reports/chunks"), &writer.access_key_id, &writer.secret_access_key],
    );
    let chunks = format!(
        "PUT /reports/chunks HTTP/1.1\r\nhost: {s3}\r\n{chunks}\r\ncontent-length: 5300000\r\n\r\n{:x};chunk-signature={}\r\n{}",
        MIB - 1,
        "0".repeat(64),
        "x".repeat(900 << 10)
    );
    let member = format!("{{\"{}\": 1}}", "A".repeat(MIB - 16));
    let unread_error = format!(
        "POST /v1/txn HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{member}",
        member.len()
    );
    let taken = gateway.client().acquire("attacked", "other#1", 600_000);
    assert_eq!(taken.status, 201);
    let waiting = json!({"holder": "w#1", "ttl_ms": 60_000, "wait_ms": 600_000}).to_string();
    let waiter = format!(
        "POST /v1/locks/attacked HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{waiting}",
        waiting.len()
    );
    let stop = AtomicBool::new(false);
    let renewals = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (stop, gateway) = (&stop, &gateway);
        let _stop = Stop(stop);
        for address in [&public, &s3] {
            scope.spawn(move || keep_open(stop, 2 * CONNECTIONS, || begin(address, b""), still_there));
        }
        scope.spawn(move || {
            let open = || UnixStream::connect(gateway.admin_socket()).ok();
            keep_open(stop, 32, open, |_| true);
        });
        for (address, path, window, count) in
            [(&public, "/v1/kv/large", 0, 3), (&public, "/v1/kv/large", 1, 3), (&s3, object.as_str(), 0, 12)]
        {
            let open = move || {
                let mut connection = Http2::connect(address, window);
                (0..60).for_each(|n| connection.request(2 * n + 1, "GET", path, address));
                Some(connection)
            };
            let stuck = |connection: &mut Http2| {
                let resets = connection.frames().filter(|frame| frame.kind == http2::RST_STREAM).count();
                resets < 8 && !connection.is_closed()
            };
            scope.spawn(move || keep_open(stop, count, open, stuck));
        }
        scope.spawn(|| keep_open(stop, 8, || begin(&public, unread_error.as_bytes()), still_there));
        scope.spawn(|| keep_open(stop, 8, || begin(&s3, chunks.as_bytes()), still_there));
        scope.spawn(|| keep_open(stop, 8, || begin(&public, waiter.as_bytes()), still_there));
        // The holder opens a new connection for each call, as a program in a shell script does.
        let until = Instant::now() + Duration::from_secs(12);
        let attempt = |what: &str, ask: &dyn Fn(&mut Client) -> std::io::Result<_>| {
            wait::until(what, Duration::from_secs(10), || {
                let mut client = Client::try_connect(&public).ok()?;
                ask(&mut client).ok().filter(|answer: &fencepost_harness::http::Answer| answer.status != 503)
            })
        };
        while Instant::now() < until {
            let body = json!({"holder": "a#1", "ttl_ms": 60_000}).to_string();
            let leased = attempt("a lock", &|client| client.try_request("POST", "/v1/locks/own", &[], body.as_bytes()));
            assert_eq!(leased.status, 201, "{}", leased.text());
            let (lease, token) = (leased.json()["lease"].clone(), leased.json()["token"].as_str().unwrap().to_owned());
            let body = json!({"lease": lease, "ttl_ms": 60_000}).to_string();
            let renewed =
                attempt("a renewal", &|client| client.try_request("POST", "/v1/locks/own/renew", &[], body.as_bytes()));
            assert_eq!(renewed.status, 200, "{}", renewed.text());
            let written = attempt("a write", &|client| {
                client.try_request("PUT", "/v1/kv/own", &[("fencing-token", &token)], b"v")
            });
            assert_eq!(written.status, 204, "{}", written.text());
            let path = format!("/v1/locks/own?lease={}", lease.as_str().unwrap());
            let released = attempt("a release", &|client| client.try_request("DELETE", &path, &[], b""));
            assert_eq!(released.status, 204, "{}", released.text());
            renewals.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(renewals.load(Ordering::Relaxed) >= 3, "{renewals:?} rounds");
    let peak = peak(gateway.pid());
    println!("{renewals:?} rounds, {} of {} MiB", peak / MIB, BOUND / MIB);
    assert!(peak <= BOUND, "{} MiB, and {} MiB is the bound", peak / MIB, BOUND / MIB);
}
