//! The events that an observer receives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_client::{Admin, LockEvent, LockObserver, Loss};
use fencepost_core::{Resource, Token};
use fencepost_harness::fresh::Fresh;

use super::{LONG, TTL, address, locks, locks_at, options, proxied};
use crate::suite::{patiently, resource, until};
use parking_lot::Mutex;

/// An event of a lock.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Acquired { wait: Duration, token: Token },
    RenewFailed(String),
    Lost { why: Loss, held: Duration },
    Released { held: Duration },
    Refused(String),
}

/// Records the events.
#[derive(Default)]
pub(super) struct Diary(Mutex<Vec<(Resource, Told)>>);

impl LockObserver for Diary {
    fn event(&self, lock: &Resource, event: LockEvent<'_>) {
        let told = match event {
            LockEvent::Acquired { wait, token } => Told::Acquired { wait, token },
            LockEvent::RenewFailed(why) => Told::RenewFailed(why.to_owned()),
            LockEvent::Lost { why, held } => Told::Lost { why, held },
            LockEvent::Released { held } => Told::Released { held },
            LockEvent::Refused(why) => Told::Refused(why.to_owned()),
            other => panic!("{other:?} is new here"),
        };
        self.0.lock().push((lock.clone(), told));
    }
}

impl Diary {
    fn told_of(&self, lock: &str) -> Vec<Told> {
        let lines = self.0.lock();
        lines.iter().filter(|(of, _)| of.as_str() == lock).map(|(_, told)| told.clone()).collect()
    }

    /// The number of lines with this text: a lock and its event.
    pub(super) fn lines(&self, with: &str) -> usize {
        let line = |(lock, told): &(Resource, Told)| {
            let word = match told {
                Told::Acquired { .. } => "acquired",
                Told::RenewFailed(_) => "renew failed",
                Told::Lost { .. } => "lost",
                Told::Released { .. } => "released",
                Told::Refused(_) => "refused",
            };
            format!("{lock} {word}")
        };
        self.0.lock().iter().filter(|entry| line(entry).contains(with)).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_is_told_how_long_and_why() {
    let gateway = Fresh::memory(&[]);
    let diary = Arc::new(Diary::default());
    let first = locks(&gateway, options("a", LONG)).await.acquire("orders/1").await.unwrap();
    let observed = locks(&gateway, options("b", LONG).observer(diary.clone())).await;
    // A lower bound of the wait.
    let (asking, asked) = (observed.clone(), Instant::now());
    let waiting = tokio::spawn(async move { asking.acquire("orders/1").await.unwrap() });
    until("somebody to wait", || {
        gateway.client().request("GET", "/v1/locks/orders/1", &[], b"").json()["waiting"] == 1
    })
    .await;
    let in_line = Instant::now();
    tokio::time::sleep(TTL / 10).await;
    let least = in_line.elapsed();
    first.release().await.unwrap();
    let guard = waiting.await.unwrap();
    let (claimed, most) = (Instant::now(), asked.elapsed());
    let token = guard.token();
    tokio::time::sleep(TTL / 10).await;
    let held_at_least = claimed.elapsed();
    guard.release().await.unwrap();
    let held_at_most = asked.elapsed();
    let told = diary.told_of("orders/1");
    let [Told::Acquired { wait, token: of }, Told::Released { held }] = told.as_slice() else { panic!("{told:?}") };
    assert!((least..=most).contains(wait), "{wait:?} of {least:?} to {most:?}");
    assert_eq!(*of, token);
    assert!((held_at_least..=held_at_most).contains(held), "{held:?} of {held_at_least:?} to {held_at_most:?}");
    // Taken over: the next call is refused, which ends the lease.
    let since = Instant::now();
    let guard = observed.acquire("orders/2").await.unwrap();
    Admin::new(&gateway.data().join("admin.sock"), LONG).force_release(&resource("orders/2")).await.unwrap();
    guard.put("orders/2", "late").await.unwrap_err();
    until("the loss to be told", || diary.lines("orders/2 lost") == 1).await;
    let told = diary.told_of("orders/2");
    let [Told::Acquired { .. }, Told::Refused(why), Told::Lost { why: Loss::TakenOver, held }] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert!(why.contains("stale") && *held <= since.elapsed(), "{why} after {held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_fails_is_told_with_its_reason() {
    patiently(TTL / 4, told_with_its_reason).await;
}

async fn told_with_its_reason() {
    let gateway = Fresh::memory(&[]);
    let (proxy, diary) = (proxied(&gateway), Arc::new(Diary::default()));
    let observed = options("a", TTL).observer(diary.clone());
    let guard = locks_at(address(&gateway), proxy.address(), observed).await.acquire("orders/1").await.unwrap();
    proxy.shut();
    assert_eq!(guard.lost().await, Loss::Expired);
    until("the loss to be told", || diary.lines("orders/1 lost") == 1).await;
    let told = diary.told_of("orders/1");
    let [Told::Acquired { .. }, failures @ .., Told::Lost { why: Loss::Expired, held }] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert!(*held >= TTL / 2, "{held:?}");
    let address = proxy.address().to_string();
    let told_why = |told: &Told| matches!(told, Told::RenewFailed(why) if why.contains(&address));
    assert!(failures.iter().any(told_why), "{failures:?}");
    assert!(failures.iter().all(|told| matches!(told, Told::RenewFailed(_))), "{failures:?}");
}
