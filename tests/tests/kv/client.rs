//! The gateway's client: HTTP/1.1 and HTTP/2, its connections, and its timeouts.

use std::error::Error as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fencepost_client::{Client, Credentials, Error, ErrorKind, Gateway, GatewayOptions, Protocol, WriteOptions, locks};
use fencepost_conformance::proxy::{Direction, Proxy, Rule};
use fencepost_core::wire::{AcquireRequest, TxnRequest};
use fencepost_core::{Holder, IdempotencyKey, Key, Resource};
use fencepost_harness::fresh::Fresh;

const LONG: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(20);
const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

fn options(protocol: Protocol) -> GatewayOptions {
    GatewayOptions::new().protocol(protocol).timeout(LONG)
}

fn at(address: SocketAddr, options: GatewayOptions) -> Gateway {
    Gateway::with_options(&format!("http://{address}"), options).unwrap()
}

fn behind_a_proxy(gateway: &Fresh) -> Proxy {
    Proxy::start(gateway.address().parse().unwrap())
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn with_token(token: &str) -> WriteOptions {
    WriteOptions::new().credentials(credentials(token))
}

fn credentials(token: &str) -> Credentials {
    Credentials { token: token.parse().unwrap(), holder: None, issuer: None }
}

fn transaction(json: &str) -> TxnRequest {
    serde_json::from_str(json).unwrap()
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited {SOON:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn ended<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let since = Instant::now();
    let ended = tokio::time::timeout(SOON, call).await.expect("a call ends");
    (ended, since.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_works_over_both() {
    for protocol in BOTH {
        let served = Fresh::memory(&[]);
        let proxy = behind_a_proxy(&served);
        let gateway = at(proxy.address(), options(protocol));
        let (k, name) = (key("k"), Resource::new("k").unwrap());
        let written = gateway.put(&k, Bytes::from("one"), Some("text/plain"), &with_token("3")).await.unwrap();
        let read = gateway.get(&k, Some(&credentials("3"))).await.unwrap().unwrap();
        assert_eq!((read.body.as_ref(), read.content_type.as_str()), (&b"one"[..], "text/plain"));
        assert_eq!(Some(read.etag), written.etag);
        let stale = gateway.put(&k, Bytes::from("late"), None, &with_token("2")).await.unwrap_err();
        assert_eq!(stale.kind(), ErrorKind::Fenced, "{stale}");
        let claimed = gateway.claim(&name, &credentials("4"), None).await.unwrap();
        assert_eq!(claimed.fence.unwrap().token.to_string(), "4");
        gateway.delete(&k, &with_token("4")).await.unwrap();
        assert_eq!(gateway.get(&k, None).await.unwrap(), None);
        let refused = gateway.get(&k, Some(&credentials("3"))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced, "no value, and still checked: {refused}");
        let once = IdempotencyKey::new("once").unwrap();
        let add = transaction(r#"{"tokens": {"n": "1"}, "then": [{"add": "n", "by": 5}]}"#);
        for _ in 0..2 {
            gateway.transact(&add, Some(&once)).await.unwrap();
        }
        assert_eq!(gateway.get(&key("n"), None).await.unwrap().unwrap().body, "5");
        assert_eq!(gateway.list("", None, 10).await.unwrap().keys.len(), 1);
        assert_eq!(gateway.fence(&name).await.unwrap().fence.unwrap().token.to_string(), "4");
        let lock = Resource::new("lock").unwrap();
        let wanted = AcquireRequest { holder: Holder::new("a#1").unwrap(), ttl_ms: 60_000, wait_ms: 0 };
        let lease = gateway.acquire(&lock, &wanted, None).await.unwrap();
        gateway.renew(&lock, &lease.lease, 60_000).await.unwrap();
        assert_eq!(gateway.lock(&lock).await.unwrap().unwrap().holder.as_str(), "a#1");
        gateway.release(&lock, &lease.lease).await.unwrap();
        assert!(gateway.lock(&lock).await.unwrap().is_none());
        // A body larger than the initial windows of HTTP/2.
        let large = Bytes::from(vec![b'x'; 1 << 20]);
        gateway.put(&k, large.clone(), None, &with_token("5")).await.unwrap();
        assert_eq!(gateway.get(&k, None).await.unwrap().unwrap().body, large);
        assert!(protocol == Protocol::Http1 || proxy.connections() == 1, "one connection is enough");
        let service = locks::connect(&format!("fencepost://{}", served.address())).await.unwrap();
        let guard = Client::new(gateway, service).acquire("orders/1").await.unwrap();
        guard.put("orders/1", "paid").await.unwrap();
        guard.release().await.unwrap();
    }
}

/// Starts many writes, and waits until the gateway has received all of them; none is answered.
async fn many(gateway: &Gateway, direct: &Gateway, proxy: &Proxy) -> Vec<tokio::task::JoinHandle<bool>> {
    const CALLS: usize = 50;
    proxy.set(Direction::Down, Rule::Hold);
    let calls = (0..CALLS).map(|call| {
        let gateway = gateway.clone();
        tokio::spawn(async move {
            gateway.put(&key(&format!("many/{call}")), Bytes::new(), None, &with_token("1")).await.is_ok()
        })
    });
    let calls: Vec<_> = calls.collect();
    until("all writes to arrive", async || direct.list("many/", None, 100).await.unwrap().keys.len() == CALLS).await;
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_calls_share_a_connection() {
    let served = Fresh::memory(&[]);
    let proxy = behind_a_proxy(&served);
    let direct = at(served.address().parse().unwrap(), options(Protocol::Http1));
    let gateway = at(proxy.address(), options(Protocol::Http2));
    gateway.fence(&Resource::new("warm").unwrap()).await.unwrap();
    let calls = many(&gateway, &direct, &proxy).await;
    assert_eq!(proxy.connections(), 1);
    proxy.pass();
    for call in calls {
        assert!(call.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http1_only_so_many_connections_are_kept() {
    let served = Fresh::memory(&[]);
    let proxy = behind_a_proxy(&served);
    let direct = at(served.address().parse().unwrap(), options(Protocol::Http1));
    let few = options(Protocol::Http1).idle_connections(3);
    // No call before these: its connection could return to the pool just after the first of them opened another one.
    let gateway = at(proxy.address(), few);
    let calls = many(&gateway, &direct, &proxy).await;
    assert_eq!(proxy.connections(), calls.len(), "nobody waits for somebody else's answer");
    proxy.pass();
    for call in calls {
        assert!(call.await.unwrap());
    }
    until("the others to be closed", async || proxy.connections() == 3).await;
    assert!(gateway.get(&key("many/1"), None).await.unwrap().is_some());
    assert_eq!(proxy.connections(), 3, "one of them is used again");
    let short = options(Protocol::Http1).idle_timeout(Duration::from_millis(50));
    let brief = at(proxy.address(), short);
    assert!(brief.get(&key("many/1"), None).await.unwrap().is_some());
    until("the unused one to be closed", async || proxy.connections() == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_never_sent_twice() {
    let add = transaction(r#"{"tokens": {"n": "1"}, "then": [{"add": "n", "by": 1}]}"#);
    for protocol in BOTH {
        let served = Fresh::memory(&[]);
        let proxy = behind_a_proxy(&served);
        let gateway = at(proxy.address(), options(protocol));
        let direct = at(served.address().parse().unwrap(), options(Protocol::Http1));
        gateway.transact(&add, None).await.unwrap();
        let count = async || -> u64 {
            let read = direct.get(&key("n"), None).await.unwrap().unwrap();
            std::str::from_utf8(&read.body).unwrap().parse().unwrap()
        };
        for round in 0..20 {
            let before = count().await;
            // The answer is lost, and the connection with it.
            proxy.set(Direction::Down, Rule::Drop);
            let (calling, adding) = (gateway.clone(), add.clone());
            let call = tokio::spawn(async move { calling.transact(&adding, None).await });
            until("it to be applied", async || count().await > before).await;
            proxy.cut();
            proxy.pass();
            let (lost, _) = ended(call).await;
            let lost = lost.unwrap().unwrap_err();
            assert_eq!(lost.kind(), ErrorKind::UnknownOutcome, "{protocol:?}: {lost}");
            assert_eq!(count().await, before + 1, "{protocol:?}, round {round}");
            // The next call works again, on another connection.
            gateway.transact(&add, None).await.unwrap();
            // A connection that breaks while it is idle.
            let before = count().await;
            proxy.cut();
            let (unsure, _) = ended(gateway.transact(&add, None)).await;
            let now = count().await;
            match unsure {
                Ok(_) => assert_eq!(now, before + 1, "{protocol:?}, round {round}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{protocol:?}: {error}");
                    assert!(now <= before + 1, "{protocol:?}, round {round}");
                }
            }
            let again = gateway.transact(&add, None).await;
            assert!(again.is_ok(), "{protocol:?}: {again:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_never_answers_ends_by_the_timeout() {
    let timeout = Duration::from_millis(300);
    for protocol in BOTH {
        let served = Fresh::memory(&[]);
        let proxy = behind_a_proxy(&served);
        proxy.hold();
        let gateway = at(proxy.address(), options(protocol).timeout(timeout));
        let (read, took) = ended(gateway.get(&key("k"), None)).await;
        let read = read.unwrap_err();
        assert!(read.kind() == ErrorKind::Unavailable && read.to_string().contains("0.3 s"), "{read:?}");
        assert!(took >= timeout, "{took:?}");
        let (written, took) = ended(gateway.put(&key("k"), Bytes::new(), None, &with_token("1"))).await;
        assert_eq!(written.as_ref().err().map(Error::kind), Some(ErrorKind::UnknownOutcome), "{written:?}");
        assert!(took >= timeout, "{took:?}");
        // A requested wait is added to the timeout.
        let wanted = AcquireRequest { holder: Holder::new("a#1").unwrap(), ttl_ms: 1000, wait_ms: 500 };
        let (_, took) = ended(gateway.acquire(&Resource::new("l").unwrap(), &wanted, None)).await;
        assert!(took >= timeout + Duration::from_millis(500), "{took:?}");
        proxy.pass();
        until("an answer", async || gateway.put(&key("k"), Bytes::new(), None, &with_token("1")).await.is_ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_a_gateway_that_is_gone_is_noticed_before_the_timeout() {
    let served = Fresh::memory(&[]);
    let proxy = behind_a_proxy(&served);
    let often = options(Protocol::Http2).keep_alive(Duration::from_millis(200));
    let gateway = at(proxy.address(), often);
    gateway.put(&key("k"), Bytes::new(), None, &with_token("1")).await.unwrap();
    proxy.hold();
    let (written, took) = ended(gateway.put(&key("k"), Bytes::new(), None, &with_token("1"))).await;
    assert_eq!(written.as_ref().err().map(Error::kind), Some(ErrorKind::UnknownOutcome), "{written:?}");
    assert!(took < LONG / 2, "{took:?}");
    proxy.pass();
    gateway.put(&key("k"), Bytes::new(), None, &with_token("1")).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_has_a_timeout_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The listener accepts nothing, and its queue is full.
    rustix::net::listen(&listener, 0).unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queue.push(stream);
        assert!(queue.len() < 100, "the queue takes everybody");
    }
    for protocol in BOTH {
        let impatient = options(protocol).connect_timeout(Duration::from_millis(200));
        let (written, _) = ended(at(address, impatient).put(&key("k"), Bytes::new(), None, &with_token("1"))).await;
        let error = written.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "surely not applied, and yet: {error}");
        assert!(error.is_unreachable() && error.source().is_some(), "{error:?}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
