//! The traps between a lock and its token.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_client::{Admin, Client, ErrorKind};
use fencepost_conformance::proxy::{Direction, Rule};
use fencepost_core::ProblemKind;
use fencepost_core::wire::RotateRequest;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::{GatewayProcess, binary};

use super::scripted::{Lift, Moment, Scripted};
use super::{LONG, TTL, address, gateway_at, locks, locks_at, locks_of, options, proxied};
use crate::suite::{reason, resource, until};

#[tokio::test]
async fn t12_the_token_is_captured_once() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Can);
    let (a, b) = (locks_of(&gateway, service.clone(), options("a", LONG)), options("b", LONG));
    let old = a.acquire("orders/1").await.unwrap();
    let (token, holder) = (old.token(), old.holder().cloned());
    service.expire();
    let new = a.with_lock_options(b).acquire("orders/1").await.unwrap();
    assert!(new.token() > token);
    assert_eq!((old.token(), old.holder().cloned()), (token, holder), "not its successor's");
    let refused = old.put("orders/1", "late").await.unwrap_err();
    let refusal = refused.refusal().unwrap_or_else(|| panic!("{refused}"));
    assert_eq!((refusal.presented, refusal.fence), (Some(token), Some(new.token())));
    assert_eq!(old.token(), token);
    new.put("orders/1", "new").await.unwrap();
}

#[tokio::test]
async fn t13_a_lock_is_not_re_entrant() {
    let gateway = Fresh::memory(&[]);
    let locks = locks(&gateway, options("a", LONG).wait(TTL / 2)).await;
    let outer = locks.acquire("orders/1").await.unwrap();
    let inner = locks.acquire("orders/1").await;
    let busy = inner.unwrap_err();
    assert!(busy.kind() == ErrorKind::Busy && busy.to_string().contains("`orders/1`"), "{busy}");
    outer.put("orders/1", "the outer scope is not fenced").await.unwrap();
    outer.release().await.unwrap();
    let _ = locks.acquire("orders/1").await.unwrap();
}

#[tokio::test]
async fn t23_a_lock_that_is_lost_when_acquire_returns_is_not_used() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Can);
    let late = locks_of(&gateway, service.clone(), options("late", LONG));
    let mut pause = service.pause_at(Moment::Granted);
    let asking = late.clone();
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    pause.reached().await;
    service.expire();
    let quick = late.with_lock_options(options("quick", LONG)).acquire("orders/1").await.unwrap();
    assert_eq!(quick.token().number().get(), 2);
    quick.put("orders/1", "quick").await.unwrap();
    let between = quick.token();
    quick.release().await.unwrap();
    pause.go_on();
    let guard = acquiring.await.unwrap().unwrap();
    assert!(guard.token() > between, "{}: the number of the lost lease was 1", guard.token());
    assert_eq!(service.lifts(), 0, "a lease that is lost is not even claimed");
    assert_eq!(guard.get("orders/1").await.unwrap().unwrap().body, "quick");
}

#[tokio::test]
async fn t24_validity_counts_from_before_the_request() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    // Long enough that no renewal happens on the way, however slow the machine is.
    let locks = locks_at(address(&gateway), proxy.address(), options("a", LONG)).await;
    let delay = Duration::from_secs(1);
    proxy.set(Direction::Down, Rule::Delay(delay));
    let guard = locks.acquire("orders/1").await.unwrap();
    // At least two delayed answers came since the request of the grant: its own, and that of the check after it.
    assert!(guard.validity() <= LONG - delay * 2, "{:?}", guard.validity());
    assert!(guard.validity() > Duration::ZERO && guard.loss().is_none());
}

#[tokio::test]
async fn t24_validity_counts_from_the_first_of_repeated_requests() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let ttl = Duration::from_secs(8);
    let locks = locks_at(address(&gateway), proxy.address(), options("a", ttl)).await;
    // The lock is granted and the answer lost; the second request is answered with the same grant.
    proxy.set(Direction::Down, Rule::Drop);
    let acquiring = tokio::spawn(async move { locks.acquire("orders/1").await });
    until("the answer to be lost", || proxy.count(Direction::Down).dropped > 0).await;
    let granted = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.pass();
    proxy.cut();
    let guard = acquiring.await.unwrap().unwrap();
    let (left, since) = (guard.validity(), granted.elapsed());
    assert_eq!(guard.token().number().get(), 1, "granted once");
    // After a quarter of its ttl, the lease would have been renewed.
    assert!(left + since <= ttl || since > ttl / 4, "{left:?} left {since:?} after the grant");
}

#[tokio::test]
async fn t30_a_generation_learned_late_is_never_used() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Can);
    service.set_counter(32);
    let zombie = locks_of(&gateway, service.clone(), options("zombie", LONG));
    let mut pause = service.pause_at(Moment::Granted);
    let asking = zombie.clone();
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    pause.reached().await;
    // 33 is granted in generation 0. The administrator rotates, and the service restarts its numbers.
    let admin = Admin::new(&gateway.data().join("admin.sock"), LONG);
    let rotation: RotateRequest = serde_json::from_str(r#"{"from": 0, "reason": "replaced"}"#).unwrap();
    admin.rotate(&resource("orders/1"), &rotation).await.unwrap();
    service.set_counter(0);
    pause.go_on();
    let guard = acquiring.await.unwrap().unwrap();
    assert_eq!(guard.token().to_string(), "1:1", "acquired again; 33 did not become 1:33");
    assert_eq!(service.asked().len(), 2);
    assert_eq!(service.lifts(), 0);
}

/// DESIGN 6.4: a refusal by generation does not end the acquisition, even for a caller that does not wait.
#[tokio::test]
async fn a_generation_that_ended_on_the_way_is_read_again_without_a_wait() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Can);
    let impatient = options("a", LONG).wait(Duration::ZERO);
    let locks = locks_of(&gateway, service.clone(), impatient);
    let admin = Admin::new(&gateway.data().join("admin.sock"), LONG);
    let rotation = |from: u32| -> RotateRequest {
        serde_json::from_str(&format!(r#"{{"from": {from}, "reason": "replaced"}}"#)).unwrap()
    };
    let mut pause = service.pause_at(Moment::Granted);
    let asking = locks.clone();
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    pause.reached().await;
    admin.rotate(&resource("orders/1"), &rotation(0)).await.unwrap();
    pause.go_on();
    let guard = acquiring.await.unwrap().unwrap();
    assert_eq!((guard.token().to_string().as_str(), service.asked().len()), ("1:2", 2));
    guard.release().await.unwrap();
    // The retries are bounded: if the generation ends each time, the acquisition fails.
    let asking = locks.clone();
    let mut pause = service.pause_at(Moment::Granted);
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    for from in 1..=3 {
        pause.reached().await;
        admin.rotate(&resource("orders/1"), &rotation(from)).await.unwrap();
        let next = service.pause_at(Moment::Granted);
        std::mem::replace(&mut pause, next).go_on();
    }
    let error = acquiring.await.unwrap().unwrap_err();
    assert_eq!(reason(&error), Some(ProblemKind::RetiredGeneration), "{error}");
    assert_eq!(service.asked().len(), 5, "three times");
    assert!(service.holder().is_none(), "given back");
}

/// The claim arrives at a gateway that knows less: it was restored, or is behind the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_that_is_not_known_is_read_again() {
    let gateway = Fresh::memory(&[]);
    let at = gateway.address().to_owned();
    let admin = Admin::new(&gateway.data().join("admin.sock"), LONG);
    let rotation: RotateRequest = serde_json::from_str(r#"{"from": 0, "reason": "replaced"}"#).unwrap();
    admin.rotate(&resource("orders/1"), &rotation).await.unwrap();
    let service = Scripted::new(Lift::Can);
    let locks = locks_of(&gateway, service.clone(), options("a", LONG).wait(Duration::ZERO));
    let mut pause = service.pause_at(Moment::Granted);
    let acquiring = tokio::spawn(async move { locks.acquire("orders/1").await });
    pause.reached().await;
    // A gateway without that rotation takes its place.
    drop(gateway);
    let data = tempfile::tempdir().unwrap();
    let mut restored = std::process::Command::new(binary());
    restored.args(["serve", "--engine", "memory", "--listen", &at, "--data"]).arg(data.path().join("data"));
    let _restored = GatewayProcess::spawn(restored).unwrap_or_else(|said| panic!("it did not start:\n{said}"));
    pause.go_on();
    let guard = acquiring.await.unwrap().unwrap();
    assert_eq!(guard.token().to_string(), "2", "acquired again, in the generation that is known there");
    assert_eq!((service.asked().len(), service.lifts()), (2, 0));
}

#[tokio::test]
async fn t31_whoever_was_taken_over_does_not_heal() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Can);
    let late = locks_of(&gateway, service.clone(), options("late", LONG));
    let mut pause = service.pause_at(Moment::Verified);
    let asking = late.with_lock_options(options("late", LONG).wait(Duration::ZERO));
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    pause.reached().await;
    service.expire();
    let quick = late.with_lock_options(options("quick", LONG)).acquire("orders/1").await.unwrap();
    pause.go_on();
    let error = acquiring.await.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("lost before"), "{error}");
    assert_eq!(service.lifts(), 1, "the service was asked, and said that it is lost");
    quick.put("orders/1", "the rightful holder is not fenced").await.unwrap();
}

#[tokio::test]
async fn t31_a_service_that_went_backwards_is_lifted_under_the_lock() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Can);
    service.set_counter(99);
    let locks = locks_of(&gateway, service.clone(), options("a", LONG));
    let first = locks.acquire("orders/1").await.unwrap();
    first.put("orders/1", "before").await.unwrap();
    first.release().await.unwrap();
    service.set_counter(4);
    let second = locks.acquire("orders/1").await.unwrap();
    assert_eq!(second.token().to_string(), "101");
    assert_eq!(service.asked().last().unwrap().1, 100, "the fence is the floor");
    assert_eq!(service.lifts(), 1);
    second.put("orders/1", "after").await.unwrap();
}

#[tokio::test]
async fn t05_a_service_that_went_backwards_and_cannot_be_lifted_is_named() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Cannot);
    service.set_counter(99);
    let locks = locks_of(&gateway, service.clone(), options("a", LONG));
    locks.acquire("orders/1").await.unwrap().release().await.unwrap();
    service.set_counter(4);
    let error = locks.acquire("orders/1").await.unwrap_err();
    let (said, refusal) = (error.to_string(), error.refusal().unwrap());
    assert_eq!((refusal.presented.unwrap().to_string().as_str(), refusal.generation), ("5", Some(0)), "{said}");
    assert!(error.kind() == ErrorKind::Fenced && said.contains("went backwards"), "{said}");
    assert!(said.contains("5") && said.contains("100") && said.contains("fencepost fence rotate orders/1"), "{said}");
    // The acquired lock is released.
    until("the lock to be free", || service.asked().len() == 2).await;
    service.set_counter(100);
    let _ = locks.with_lock_options(options("b", LONG).wait(Duration::ZERO)).acquire("orders/1").await.unwrap();
}

#[tokio::test]
async fn an_acquisition_that_is_cancelled_gives_its_grant_back() {
    let gateway = Fresh::memory(&[]);
    let service = Scripted::new(Lift::Can);
    let locks = locks_of(&gateway, service.clone(), options("a", LONG));
    let mut pause = service.pause_at(Moment::Verified);
    let asking = locks.clone();
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    pause.reached().await;
    assert!(service.holder().is_some());
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    until("the lock to be given back", || service.holder().is_none()).await;
    // Cancelled while the claim is in progress.
    let proxy = proxied(&gateway);
    let slow =
        Client::new(gateway_at(proxy.address()), Arc::new(service.clone())).with_lock_options(options("a", LONG));
    proxy.set(Direction::Down, Rule::DropAfter(1));
    let acquiring = tokio::spawn(async move { slow.acquire("orders/1").await });
    until("the claim's answer to be lost", || proxy.count(Direction::Down).dropped > 0).await;
    assert!(service.holder().is_some());
    acquiring.abort();
    assert!(acquiring.await.unwrap_err().is_cancelled());
    until("the lock to be given back", || service.holder().is_none()).await;
    let _ = locks.acquire("orders/1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_before_its_claim() {
    let gateway = Fresh::memory(&[]);
    let proxy = proxied(&gateway);
    let locks = locks_at(proxy.address(), address(&gateway), options("a", TTL * 5)).await;
    // The fence is read; the answer to the claim is lost.
    proxy.set(Direction::Down, Rule::DropAfter(1));
    let asking = locks.clone();
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    until("the claim's answer to be lost", || proxy.count(Direction::Down).dropped > 0).await;
    assert!(!acquiring.is_finished(), "a guard without a claim");
    // The second attempt receives its answer.
    proxy.cut();
    proxy.pass();
    let guard = acquiring.await.unwrap().unwrap();
    guard.put("orders/1", "claimed").await.unwrap();
    guard.release().await.unwrap();
    // Never claimed: no guard, and the lock is released.
    proxy.set(Direction::Down, Rule::DropAfter(1));
    let before = proxy.count(Direction::Down).dropped;
    let asking = locks.with_lock_options(options("b", TTL));
    let acquiring = tokio::spawn(async move { asking.acquire("orders/1").await });
    until("the claim's answer to be lost", || proxy.count(Direction::Down).dropped > before).await;
    proxy.shut();
    let error = acquiring.await.unwrap().unwrap_err();
    assert!(error.lock_error().is_none(), "{error}");
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome), "{error}");
    proxy.pass();
    let _ = locks.acquire("orders/1").await.unwrap();
}
