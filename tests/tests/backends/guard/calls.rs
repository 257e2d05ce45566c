//! Calls under a guard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fencepost_client::{Admin, ErrorKind, Guard, Loss, Precondition};
use fencepost_conformance::proxy::{Direction, Proxy, Rule};
use fencepost_core::wire::TxnRequest;
use fencepost_harness::fresh::Fresh;

use super::diary::Diary;
use super::{LONG, TTL, address, locks, locks_at, options, proxied};
use crate::suite::{SLACK, patiently, resource, until};

fn transaction(json: &str) -> TxnRequest {
    serde_json::from_str(json).unwrap()
}

/// From now on the proxy drops what goes in this direction. The future waits until something was dropped, then cuts the
/// connections and lets new ones pass.
fn cut_after_a_loss(proxy: &Proxy, direction: Direction) -> impl Future<Output = ()> {
    let before = proxy.count(direction).dropped;
    proxy.set(direction, Rule::Drop);
    async move {
        until("a message to be lost", || proxy.count(direction).dropped > before).await;
        proxy.pass();
        proxy.cut();
    }
}

#[tokio::test]
async fn put_get_delete_and_transact() {
    let gateway = Fresh::memory(&[]);
    let locks = locks(&gateway, options("a", LONG)).await;
    let guard = locks.acquire("orders/1").await.unwrap();
    let written = guard.put("orders/1", "new").await.unwrap();
    assert_eq!((written.fence, written.replayed), (Some(guard.token()), false));
    let read = guard.get("orders/1").await.unwrap().unwrap();
    assert_eq!((read.body, read.token), (Bytes::from("new"), Some(guard.token())));
    guard.put_if("orders/1", "paid", Precondition::Version(read.etag.clone())).await.unwrap();
    let late = guard.put_if("orders/1", "lost", Precondition::Version(read.etag)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    assert!(guard.loss().is_none(), "a condition that fails is no loss");
    guard.delete("orders/1").await.unwrap();
    assert_eq!(guard.get("orders/1").await.unwrap(), None);
    guard.transact(transaction(r#"{"then": [{"add": "orders/1", "by": "7"}]}"#)).await.unwrap();
    assert_eq!(guard.get("orders/1").await.unwrap().unwrap().body, "7");
    // Several locks in one transaction; if one of them is missing, nothing is done.
    let stock = locks.acquire("stock/7").await.unwrap();
    let both = transaction(r#"{"then": [{"add": "orders/1", "by": "1"}, {"add": "stock/7", "by": "5"}]}"#);
    let refused = guard.transact(both.clone()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    Guard::transact_all(&[&guard, &stock], both).await.unwrap();
    assert_eq!(guard.get("orders/1").await.unwrap().unwrap().body, "8");
    assert_eq!(stock.get("stock/7").await.unwrap().unwrap().body, "5");
    stock.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_applies_exactly_once() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let guard =
        locks_at(proxy.address(), address(&gateway), options("a", LONG)).await.acquire("orders/1").await.unwrap();
    for round in 1..=10 {
        let broken = cut_after_a_loss(&proxy, Direction::Down);
        let added = guard.transact(transaction(r#"{"then": [{"add": "orders/1", "by": "1"}]}"#));
        let (added, ()) = tokio::join!(added, broken);
        added.unwrap();
        assert_eq!(guard.get("orders/1").await.unwrap().unwrap().body, round.to_string());
    }
    let broken = cut_after_a_loss(&proxy, Direction::Down);
    let (written, ()) = tokio::join!(guard.put("orders/1", "paid"), broken);
    assert!(written.unwrap().replayed, "the second attempt is told the outcome of the first");
    // The connection is reset before anything was sent.
    proxy.cut();
    assert!(!guard.put("orders/1", "sent").await.unwrap().replayed);
}

/// A read changes nothing, so it may be repeated whatever happened to the first attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_answer_is_lost_is_repeated() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let guard =
        locks_at(proxy.address(), address(&gateway), options("a", LONG)).await.acquire("orders/1").await.unwrap();
    guard.put("orders/1", "paid").await.unwrap();
    for direction in [Direction::Up, Direction::Down] {
        let broken = cut_after_a_loss(&proxy, direction);
        let (read, ()) = tokio::join!(guard.get("orders/1"), broken);
        assert_eq!(read.unwrap().unwrap().body, "paid", "{direction:?}");
    }
    guard.release().await.unwrap();
}

/// Retries end when they are no longer safe: at the end of the lock's validity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_stop_when_validity_ends() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let ttl = TTL * 3;
    for call in ["put", "get", "transact"] {
        let locks = locks_at(proxy.address(), proxy.address(), options("a", ttl)).await;
        let guard = locks.acquire("orders/1").await.unwrap();
        proxy.shut();
        let (since, left) = (Instant::now(), guard.validity());
        let error = match call {
            "put" => guard.put("orders/1", "late").await.map(drop),
            "get" => guard.get("orders/1").await.map(drop),
            _ => guard.transact(transaction(r#"{"then": [{"add": "orders/1", "by": "1"}]}"#)).await.map(drop),
        };
        let (error, took) = (error.unwrap_err(), since.elapsed());
        let lost = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome);
        assert!(lost, "{call}: {error}");
        // The next pause, at most 1.1 s, would exceed the time that is left.
        let last = Duration::from_millis(1150);
        assert!(took + last >= left, "{call} ended after {took:?}, with {left:?} left at its beginning");
        assert!(took <= left + SLACK, "{call} ended after {took:?}, with {left:?} left at its beginning");
        proxy.pass();
    }
}

#[tokio::test]
async fn everybody_whose_token_was_sent_is_told_of_a_refusal() {
    let gateway = Fresh::memory(&[]);
    let (a, b) = (Arc::new(Diary::default()), Arc::new(Diary::default()));
    let observed =
        async |name: &str, diary: &Arc<Diary>| locks(&gateway, options(name, LONG).observer(diary.clone())).await;
    let order = observed("a", &a).await.acquire("orders/1").await.unwrap();
    let stock = observed("b", &b).await.acquire("stock/7").await.unwrap();
    Admin::new(&gateway.data().join("admin.sock"), LONG).force_release(&resource("stock/7")).await.unwrap();
    let both = transaction(r#"{"then": [{"add": "orders/1", "by": "1"}, {"add": "stock/7", "by": "5"}]}"#);
    let refused = Guard::transact_all(&[&order, &stock], both).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert_eq!((a.lines("orders/1 refused"), b.lines("stock/7 refused")), (1, 1), "each once");
    assert_eq!((order.loss(), stock.loss()), (None, Some(Loss::TakenOver)), "only one of them is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_under_a_lost_lease() {
    patiently(TTL / 4, nothing_sent_under_a_lost_lease).await;
}

async fn nothing_sent_under_a_lost_lease() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let guard =
        locks_at(proxy.address(), address(&gateway), options("a", TTL)).await.acquire("orders/1").await.unwrap();
    guard.put("orders/1", "mine").await.unwrap();
    let admin = Admin::new(&gateway.data().join("admin.sock"), LONG);
    admin.force_release(&resource("orders/1")).await.unwrap();
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await.unwrap(), Loss::TakenOver);
    assert_eq!((guard.loss(), guard.validity().as_nanos()), (Some(Loss::TakenOver), 0));
    let before = proxy.count(Direction::Up);
    let errors = [
        guard.put("orders/1", "late").await.unwrap_err(),
        guard.delete("orders/1").await.unwrap_err(),
        guard.get("orders/1").await.unwrap_err(),
        guard.transact(transaction(r#"{"then": [{"add": "orders/1", "by": "1"}]}"#)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(Loss::TakenOver)), "{error}");
        assert!(error.to_string().contains("nothing was sent"), "{error}");
    }
    assert_eq!(proxy.count(Direction::Up), before);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_refused_call_ends_the_lease() {
    let gateway = Fresh::memory(&[]);
    let locks = locks(&gateway, options("a", LONG)).await;
    let guard = locks.acquire("orders/1").await.unwrap();
    let admin = Admin::new(&gateway.data().join("admin.sock"), LONG);
    admin.force_release(&resource("orders/1")).await.unwrap();
    // Long before the next renewal.
    let refused = guard.put("orders/1", "late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert_eq!(guard.lost().await, Loss::TakenOver);
    assert_eq!(guard.put("orders/1", "late").await.unwrap_err().loss(), Some(Loss::TakenOver));
}
