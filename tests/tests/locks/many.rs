//! Ten thousand locks at once: they are listed in pages, and add no cost to the use of a single one.

use std::thread;
use std::time::{Duration, Instant};

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use serde_json::json;

const LOCKS: usize = 10_000;
const CONNECTIONS: usize = 16;
/// Pipelined requests on one connection.
const AHEAD: usize = 25;

fn name(at: usize) -> String {
    format!("many/{at:05}")
}

/// Acquires every sixteenth lock, with many requests in flight.
fn acquire_all(mut client: Client, first: usize) {
    let names: Vec<String> = (first..LOCKS).step_by(CONNECTIONS).map(name).collect();
    for batch in names.chunks(AHEAD) {
        let body = json!({"holder": "w#1", "ttl_ms": 3_600_000}).to_string();
        let requests: String = batch
            .iter()
            .map(|name| {
                let length = body.len();
                format!("POST /v1/locks/{name} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}")
            })
            .collect();
        client.send(requests.as_bytes()).unwrap();
        for name in batch {
            let granted = client.receive().unwrap();
            assert_eq!(granted.status, 201, "{}", granted.text());
            assert_eq!(granted.json()["name"], name.as_str());
        }
    }
}

/// The median time of acquire, renew and release of one lock, at each of two gateways. They alternate, so that other
/// load on the machine slows down both.
fn medians(mut clients: [&mut Client; 2]) -> [Duration; 2] {
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..200 {
        for (client, times) in clients.iter_mut().zip(&mut times) {
            let started = Instant::now();
            let lease = client.acquire("one", "w#1", 30_000).json()["lease"].as_str().unwrap().to_owned();
            assert_eq!(client.renew("one", &lease, 30_000).status, 200);
            assert_eq!(client.release("one", &lease).status, 204);
            times.push(started.elapsed());
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

#[test]
fn ten_thousand_held_locks_are_listed_in_pages_and_slow_nobody_down() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let started = Instant::now();
    let workers: Vec<_> = (0..CONNECTIONS)
        .map(|first| {
            let client = gateway.client();
            thread::spawn(move || acquire_all(client, first))
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    println!("{LOCKS} locks acquired in {:?}", started.elapsed());

    let (mut names, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = client.request("GET", &format!("/v1/locks?limit=1000&after={after}"), &[], b"").json();
        for lock in page["locks"].as_array().unwrap() {
            assert!(lock["remaining_ms"].as_u64().unwrap() > 3_000_000, "{lock}");
            names.push(lock["name"].as_str().unwrap().to_owned());
        }
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(names, (0..LOCKS).map(name).collect::<Vec<_>>(), "each once, in order");
    assert!(pages <= 11, "{pages} pages");
    assert_eq!(client.acquire(&name(7), "b#2", 1_000).status, 423);

    let empty = Fresh::rocksdb(&[]);
    let [alone, among_many] = medians([&mut empty.client(), &mut client]);
    println!("acquire, renew and release: {alone:?} alone, {among_many:?} among {LOCKS}");
    assert!(among_many < alone * 5 + Duration::from_millis(5), "{alone:?} alone, {among_many:?} among {LOCKS}");
}
