//! Helpers that the store's tests share: short constructors, and a store to run commands on.

#![allow(dead_code, reason = "every test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

pub(crate) mod counted;
pub(crate) mod directory;
pub(crate) mod history;
pub(crate) mod journal_format;
pub(crate) mod log_format;
pub(crate) mod outcome;
pub(crate) mod requests;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{GuardSpec, Guards, Holder, Issuer, Key, Policy, Presented, Reason, Refusal, Resource};
use fencepost_store::engine::{Change, Engine, Ownership, Version};
use fencepost_store::engines::memory::Memory;
use fencepost_store::record::{RecordKey, Value, decode_fence};
use fencepost_store::{
    Applied, ClaimKeys, Claimed, Condition, Delete, Failure, NoObserver, Put, Read, Rejected, Store, StoreOptions,
};

pub(crate) use outcome::Outcome;

/// Longer than any test step takes, so that a hang becomes a failure.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

/// A token without a holder.
pub(crate) fn token(text: &str) -> Presented {
    Presented { token: text.parse().unwrap(), holder: None, issuer: None }
}

/// A token with its holder.
pub(crate) fn held(text: &str, holder: &str) -> Presented {
    Presented { holder: Some(Holder::new(holder).unwrap()), ..token(text) }
}

/// A token with its holder and issuer.
pub(crate) fn issued(text: &str, holder: &str, issuer: &str) -> Presented {
    Presented { issuer: Some(Issuer::new(issuer).unwrap()), ..held(text, holder) }
}

/// Guards that consist of one guard.
pub(crate) fn guard(keys: &str, resource: Option<&str>, policy: Policy) -> Guards {
    let resource = resource.map(str::to_owned);
    Guards::new(vec![GuardSpec { keys: keys.into(), resource, policy, engine: None }]).unwrap()
}

/// Guards that make every key its own resource, under this policy.
pub(crate) fn everywhere(policy: Policy) -> Guards {
    guard("**", None, policy)
}

pub(crate) async fn open(engine: Arc<dyn Engine>, guards: Guards) -> Store {
    Store::open(engine, guards, StoreOptions::default(), Arc::new(NoObserver)).await.unwrap()
}

/// A store over an exclusive memory engine, and the engine for fault injection.
pub(crate) async fn memory_store() -> (Store, Memory) {
    memory_store_of(Ownership::Exclusive, Guards::default()).await
}

pub(crate) async fn memory_store_of(ownership: Ownership, guards: Guards) -> (Store, Memory) {
    let memory = Memory::new(ownership);
    (open(Arc::new(memory.clone()), guards).await, memory)
}

pub(crate) fn put_of(name: &str, presented: Option<Presented>, condition: Condition, body: &str) -> Put {
    Put {
        key: key(name),
        presented,
        condition,
        content_type: Some("text/plain".into()),
        body: Bytes::copy_from_slice(body.as_bytes()),
        once: None,
    }
}

/// How a command ended.
pub(crate) type Ended = Result<Outcome, Failure>;

pub(crate) fn ended(result: Result<impl Into<Outcome>, Failure>) -> Ended {
    result.map(Into::into)
}

pub(crate) async fn put(store: &Store, name: &str, presented: Presented, body: &str) -> Ended {
    put_if(store, name, presented, Condition::Always, body).await
}

pub(crate) async fn put_if(store: &Store, name: &str, presented: Presented, condition: Condition, body: &str) -> Ended {
    ended(store.put(put_of(name, Some(presented), condition, body)).await)
}

pub(crate) async fn delete(store: &Store, name: &str, presented: Presented) -> Ended {
    let delete = Delete { key: key(name), presented: Some(presented), condition: Condition::Always, once: None };
    ended(store.delete(delete).await)
}

/// Claims a resource and reads the key of the same name.
pub(crate) async fn claim(store: &Store, name: &str, presented: Presented) -> Ended {
    claim_keys(store, name, presented, &[name]).await
}

pub(crate) async fn claim_keys(store: &Store, name: &str, presented: Presented, keys: &[&str]) -> Ended {
    let keys = keys.iter().map(|name| key(name)).collect();
    let claim = ClaimKeys { resource: resource(name), presented: Some(presented), keys, max_bytes: 1 << 20 };
    ended(store.claim(claim).await)
}

pub(crate) async fn read(store: &Store, name: &str) -> Read {
    store.read(&key(name), None).await.unwrap().unwrap()
}

/// A key's value, as text.
pub(crate) async fn text(store: &Store, name: &str) -> Option<String> {
    read(store, name).await.value.map(|(_, value)| body(&value))
}

pub(crate) fn body(value: &Value) -> String {
    String::from_utf8(value.body.to_vec()).unwrap()
}

/// A resource's fence, as text.
pub(crate) async fn fence(store: &Store, name: &str) -> Option<String> {
    store.fence(&resource(name)).await.unwrap().token().map(|token| token.to_string())
}

/// The fences of several resources, as text.
pub(crate) async fn fences(store: &Store, names: [&str; 3]) -> Vec<Option<String>> {
    let mut fences = Vec::new();
    for name in names {
        fences.push(fence(store, name).await);
    }
    fences
}

pub(crate) fn some(texts: [&str; 3]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

#[track_caller]
pub(crate) fn applied(ended: Ended) -> Applied {
    match ended {
        Ok(Outcome::Applied(applied)) => applied,
        other => panic!("expected it to be applied: {other:?}"),
    }
}

/// The version of an applied put.
#[track_caller]
pub(crate) fn version(ended: Ended) -> Version {
    applied(ended).version.unwrap()
}

#[track_caller]
pub(crate) fn claimed(ended: Ended) -> Claimed {
    match ended {
        Ok(Outcome::Claimed(claimed)) => *claimed,
        other => panic!("expected it to be claimed: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn refused(ended: Ended) -> Refusal {
    match ended {
        Ok(Outcome::Refused(mut refusals)) if refusals.len() == 1 => refusals.remove(0),
        other => panic!("expected it to be refused: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn reason(ended: Ended) -> Reason {
    refused(ended).reason
}

/// The fence in a change to this fence record, as text, if there is one.
pub(crate) fn fence_change(name: &str, changes: &[(RecordKey, Change)]) -> Option<String> {
    let (_, change) = changes.iter().find(|(key, _)| *key == RecordKey::fence(&resource(name)))?;
    match change {
        Change::Put(bytes) => decode_fence(bytes).unwrap().token().map(|token| token.to_string()),
        Change::Delete => panic!("a fence must never be deleted"),
    }
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.unwrap()
}

/// A command that has been queued, in the order of these calls, and can be polled.
pub(crate) struct Queued<'a>(Pin<Box<dyn Future<Output = Ended> + 'a>>);

/// Polls a command once, which queues it.
pub(crate) async fn queue<'a, O: Into<Outcome>>(command: impl Future<Output = Result<O, Failure>> + 'a) -> Queued<'a> {
    let mut queued = Queued(Box::pin(async move { ended(command.await) }));
    assert_eq!(queued.now().await, None, "it was answered before it was queued");
    queued
}

/// The same for a short queue: retries while another command is still in it.
pub(crate) async fn queue_when_free<'a, F: Future<Output = Ended> + 'a>(command: impl Fn() -> F) -> Queued<'a> {
    within(async {
        loop {
            let mut queued = Queued(Box::pin(command()));
            match queued.now().await {
                None => return queued,
                Some(Err(Failure::Rejected(Rejected::Overloaded { .. }))) => tokio::task::yield_now().await,
                Some(ended) => panic!("it was answered before it was queued: {ended:?}"),
            }
        }
    })
    .await
}

impl Queued<'_> {
    /// The answer, if there is one yet.
    pub(crate) async fn now(&mut self) -> Option<Ended> {
        poll_fn(|context| match self.0.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Waits for the answer.
    pub(crate) async fn answer(self) -> Ended {
        within(self.0).await
    }
}

/// Polls all in order until all are done. So they are queued in this order, and share commits.
pub(crate) async fn together<'a, T>(futures: Vec<Pin<Box<dyn Future<Output = T> + 'a>>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    within(poll_fn(|context| {
        for (future, result) in futures.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *result = Some(value);
            }
        }
        if futures.iter().all(|(_, result)| result.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    }))
    .await;
    futures.into_iter().filter_map(|(_, result)| result).collect()
}
