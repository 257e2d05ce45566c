//! A token that the caller already has.

use std::time::Duration;

use fencepost_client::locks::{self, Kept, Lifted, LockError};
use fencepost_client::{Client, ErrorKind};
use fencepost_core::ProblemKind;
use fencepost_harness::fresh::Fresh;

use crate::suite::{connect, played, reason, take};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test]
async fn is_what_the_caller_says() {
    let backend = connect("token:34?issuer=redis:9f2c").await;
    let mut lease = take(backend.as_ref(), "orders/1", "a#1", TTL).await;
    assert_eq!((lease.number.get(), lease.generation, lease.issuer.as_str()), (34, Some(0), "redis:9f2c"));
    assert!(backend.capabilities().detachable);
    assert_eq!(backend.verify(&lease).await, Ok(Kept::Kept));
    assert_eq!(backend.renew(&lease).await, Ok(Kept::Kept));
    assert_eq!(backend.lift(&mut lease, 100).await, Ok(Lifted::Unsupported));
    assert_eq!(lease.number.get(), 34);
    assert_eq!(backend.release(lease).await, Ok(()));
    let backend = connect("token:18446744073709551615").await;
    let lease = take(backend.as_ref(), "orders/1", "a#2", TTL).await;
    assert_eq!((lease.number.get(), lease.issuer.as_str()), (u64::MAX, "token:caller"));
    let backend = connect("token:2:34").await;
    let lease = take(backend.as_ref(), "orders/1", "a#3", TTL).await;
    assert_eq!((lease.number.get(), lease.generation), (34, Some(2)));
}

#[tokio::test]
async fn wrong_urls_say_what_is_wrong() {
    for (url, why) in [
        ("token:0", "from 1 to"),
        ("token:", "from 1 to"),
        ("token:abc", "from 1 to"),
        ("token:0:34", "unless that is 0"),
        ("token:1:0", "from 1 to"),
        ("token:1:2:34", "one token"),
        ("token:34/x", "one token"),
        ("token:34?isuer=a", "`isuer`"),
        ("token:34?issuer=", "issuer"),
    ] {
        let Err(LockError::Invalid(said)) = locks::connect(url).await else { panic!("{url} was taken") };
        let (written, _) = url.split_once('?').unwrap_or((url, ""));
        assert!(said.contains(why) && said.contains(&format!("`{written}`")), "{url}: {said}");
    }
    let Err(LockError::Invalid(said)) = locks::connect("token://me:secret@34").await else { panic!("it was taken") };
    assert!(said.contains("token://me") && !said.contains("secret"), "{said}");
}

async fn client(gateway: &Fresh, token: &str) -> Client {
    Client::builder().gateway_url(gateway.url()).lock_service_url(token).connect().await.unwrap()
}

#[tokio::test]
async fn is_claimed_like_any_other() {
    let gateway = Fresh::memory(&[]);
    let new = client(&gateway, "token:35").await.acquire("orders/1").await.unwrap();
    assert_eq!(new.token().to_string(), "35");
    new.put("orders/1", "paid").await.unwrap();
    // An older number is refused, with both sides named.
    let error = client(&gateway, "token:34").await.acquire("orders/1").await.unwrap_err();
    assert!(error.to_string().contains("handed out 34 for"), "{error}");
    assert_eq!(reason(&error), Some(ProblemKind::Stale), "{error}");
    // The same number for a second acquisition is a collision.
    let error = client(&gateway, "token:35").await.acquire("orders/1").await.unwrap_err();
    assert!(error.to_string().contains("handed out 35 for"), "{error}");
    assert_eq!(reason(&error), Some(ProblemKind::Collision), "{error}");
    // A number of another service cannot be compared.
    let other = client(&gateway, "token:99?issuer=redis:9f2c").await;
    let error = other.acquire("orders/1").await.unwrap_err();
    assert_eq!(reason(&error), Some(ProblemKind::ForeignIssuer), "{error}");
    assert_eq!(error.refusal().unwrap().issuer.unwrap().as_str(), "token:caller", "{error}");
    let newest = client(&gateway, "token:36").await.acquire("orders/1").await.unwrap();
    let refused = new.put("orders/1", "late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    newest.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_is_refused() {
    let gateway = Fresh::memory(&[]);
    let workers = ["token:33", "token:34"];
    let (code, said, value) = tokio::task::block_in_place(|| played(&gateway, workers, TTL, None));
    assert_eq!((code, value.as_str()), (Some(3), "new"), "{said}");
    assert!(said.contains("stale"), "{said}");
}
