//! Events that make etcd's numbers go backwards: the client stops, names the command to run, and works again after it.

use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use fencepost_client::{Client, Credentials, ErrorKind, Gateway, LockOptions, Loss, WriteOptions};
use fencepost_core::{Key, ProblemKind};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::binary;
use fencepost_harness::servers::etcd::Etcd;

use super::{LONG, TTL};
use crate::suite::{Service, connect, reason, resource, take};

/// Long enough that no lease expires while etcd restarts.
const OUTLIVES: Duration = Duration::from_secs(20);

fn gateway(fresh: &Fresh) -> Gateway {
    Gateway::new(fresh.url()).unwrap()
}

async fn locks(fresh: &Fresh, etcd: &Etcd) -> Client {
    let options = LockOptions::new().ttl(OUTLIVES).wait(LONG);
    Client::new(gateway(fresh), connect(&etcd.url()).await).with_lock_options(options)
}

/// A write that bypasses every guard; returns the kind of the refusal.
async fn write(gateway: &Gateway, key: &str, credentials: &Credentials) -> Result<(), Option<ProblemKind>> {
    let options = WriteOptions::new().credentials(credentials.clone());
    match gateway.put(&Key::new(key).unwrap(), Bytes::from_static(b"stale"), None, &options).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Fenced => Err(reason(&error)),
        Err(error) => panic!("{error}"),
    }
}

/// Runs the command at the end of the message.
fn follow_advice(fresh: &Fresh, message: &str) {
    let (_, advice) = message.split_once("run: fencepost ").unwrap_or_else(|| panic!("no command in: {message}"));
    let arguments: Vec<_> = advice.split_whitespace().map(|word| word.trim_matches('\'')).collect();
    let mut command = Command::new(binary());
    command.args(arguments).env("FENCEPOST_ADMIN_SOCKET", fresh.data().join("admin.sock")).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t06_a_wiped_etcd_is_another_issuer() {
    let (mut etcd, fresh) = (Etcd::start(), Fresh::memory(&[]));
    let (locks, direct) = (locks(&fresh, &etcd).await, gateway(&fresh));
    for _ in 0..10 {
        etcd.etcdctl(&["put", "unrelated", "x"]);
    }
    let old = locks.acquire("orders/1").await.unwrap();
    old.put("orders/1", "before").await.unwrap();

    etcd.wipe();
    assert_eq!(tokio::time::timeout(LONG, old.lost()).await.unwrap(), Loss::TakenOver);
    // The same client, which knew the old incarnation.
    let error = locks.acquire("orders/1").await.unwrap_err();
    let message = error.to_string();
    assert_eq!(reason(&error), Some(ProblemKind::ForeignIssuer), "{error:?}");
    let refusal = error.refusal().unwrap();
    assert_eq!((refusal.issuer.as_ref(), refusal.generation), (old.issuer(), Some(0)), "{message}");
    let ours = refusal.presented_issuer.unwrap();
    assert!(Some(&ours) != old.issuer() && ours.as_str().starts_with("etcd:"), "{message}");
    assert!(message.contains(ours.as_str()), "{message}");

    // Neither a lower nor a higher number of the new incarnation is accepted.
    let backend = connect(&etcd.url()).await;
    let mut refused = Vec::new();
    for holder in ["low#1", "high#1"] {
        let lease = take(backend.as_ref(), "orders/1", holder, TTL).await;
        let token = fencepost_core::Token::from_parts(0, lease.number);
        refused.push(token < old.token());
        let presented = Credentials { token, holder: Some(lease.holder.clone()), issuer: Some(lease.issuer.clone()) };
        assert_eq!(write(&direct, "orders/1", &presented).await, Err(Some(ProblemKind::ForeignIssuer)), "{holder}");
        backend.release(lease).await.unwrap();
        for _ in 0..20 {
            etcd.etcdctl(&["put", "unrelated", "x"]);
        }
    }
    assert_eq!(refused, [true, false]);
    let value = direct.get(&Key::new("orders/1").unwrap(), None).await.unwrap().unwrap();
    assert_eq!(value.body, "before");

    follow_advice(&fresh, &message);
    let new = locks.acquire("orders/1").await.unwrap();
    new.put("orders/1", "after").await.unwrap();
    assert_eq!(new.issuer(), Some(&ours));
    assert!(write(&direct, "orders/1", old.credentials()).await.is_err());
    assert_eq!(new.get("orders/1").await.unwrap().unwrap().body, "after");
    new.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t05_t36_a_restored_etcd_went_backwards() {
    let (mut etcd, fresh) = (Etcd::start(), Fresh::memory(&[]));
    let (locks, direct) = (locks(&fresh, &etcd).await, gateway(&fresh));
    let first = locks.acquire("orders/1").await.unwrap();
    let issuer = first.issuer().unwrap().clone();
    first.release().await.unwrap();
    let snapshot = etcd.snapshot("snapshot");
    for _ in 0..20 {
        etcd.etcdctl(&["put", "unrelated", "x"]);
    }
    let old = locks.acquire("orders/1").await.unwrap();
    old.put("orders/1", "before").await.unwrap();
    let (credentials, fence) = (old.credentials().clone(), old.token());
    old.release().await.unwrap();

    etcd.restore(&snapshot);
    let error = locks.acquire("orders/1").await.unwrap_err();
    let message = error.to_string();
    assert_eq!(reason(&error), Some(ProblemKind::Stale), "{error:?}");
    let refusal = error.refusal().unwrap();
    let number = refusal.presented.unwrap().number().get();
    assert_eq!((refusal.fence, refusal.generation), (Some(fence), Some(0)), "{message}");
    assert!(number < fence.number().get(), "{message}");
    assert!(message.contains(&format!("handed out {number} for `orders/1`, whose fence is {fence}")), "{message}");
    // The lock was released, so the next acquisition ends the same way.
    let again = locks.acquire("orders/1").await.unwrap_err();
    assert!(again.kind() == ErrorKind::Fenced && again.to_string().contains("went backwards"), "{again:?}");
    // A number that was granted twice does not get past the fence either.
    let backend = connect(&etcd.url()).await;
    let lease = take(backend.as_ref(), "orders/1", "b#1", TTL).await;
    assert_eq!(lease.issuer, issuer, "a restore brings the incarnation back too");
    let token = fencepost_core::Token::from_parts(0, lease.number);
    let presented = Credentials { token, holder: Some(lease.holder.clone()), issuer: Some(issuer.clone()) };
    assert_eq!(write(&direct, "orders/1", &presented).await, Err(Some(ProblemKind::Stale)));
    backend.release(lease).await.unwrap();
    assert_eq!(direct.get(&Key::new("orders/1").unwrap(), None).await.unwrap().unwrap().body, "before");

    follow_advice(&fresh, &message);
    let new = locks.acquire("orders/1").await.unwrap();
    assert_eq!((new.resource(), new.token().generation()), (&resource("orders/1"), 1));
    new.put("orders/1", "after").await.unwrap();
    assert!(write(&direct, "orders/1", &credentials).await.is_err());
    assert_eq!(new.get("orders/1").await.unwrap().unwrap().body, "after");
    new.release().await.unwrap();
}
