//! Tests of objects over a store and a storage that fail at chosen moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use fencepost_core::{EngineName, GuardSpec, Guards, Key, Policy, Presented, Token};
use fencepost_store::engines::memory::{Fault, Memory};
use fencepost_store::{Failure, NoObserver, ObjectCondition, Store, StoreOptions};
use futures_util::{Stream, stream};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::digest::Promised;
use crate::directory::Directory;
use crate::layout::{BucketFound, Layout, LayoutError, Mark, Opened, Place, Ref, Staging, Walked};
use crate::service::MAX_UNDER_WAY;
use crate::{Body, Grant, ObjectError, Objects, Put, PutPart, Removal, Written};

/// A directory whose calls can be made to fail or wait.
struct Faulty {
    inner: Directory,
    publishing_panics: AtomicBool,
    /// Makes a walk pause after reading: it first notifies the test, then waits for permission to continue.
    walk_waits: AtomicBool,
    walked: Notify,
    go_on: Notify,
}

#[async_trait]
impl Layout for Faulty {
    async fn stage(&self, id: Ref, length: Option<u64>) -> Result<Box<dyn Staging>, LayoutError> {
        self.inner.stage(id, length).await
    }

    fn staging_place(&self) -> String {
        self.inner.staging_place()
    }

    async fn prepare(&self, key: &Key) -> Result<Box<dyn Place>, LayoutError> {
        self.inner.prepare(key).await
    }

    async fn publish(&self, key: &Key, id: Ref, mark: Mark) -> Result<(), LayoutError> {
        assert!(!self.publishing_panics.load(Ordering::SeqCst), "injected: publishing panics");
        self.inner.publish(key, id, mark).await
    }

    async fn remove(&self, key: &Key) -> Result<(), LayoutError> {
        self.inner.remove(key).await
    }

    async fn open(&self, key: &Key) -> Result<Box<dyn Opened>, LayoutError> {
        self.inner.open(key).await
    }

    async fn open_staged(&self, id: Ref) -> Result<Box<dyn Opened>, LayoutError> {
        self.inner.open_staged(id).await
    }

    async fn discard(&self, id: Ref) -> Result<(), LayoutError> {
        self.inner.discard(id).await
    }

    async fn staged(&self) -> Result<Vec<Ref>, LayoutError> {
        self.inner.staged().await
    }

    async fn buckets(&self) -> Result<Vec<BucketFound>, LayoutError> {
        self.inner.buckets().await
    }

    async fn has_bucket(&self, bucket: &str) -> Result<bool, LayoutError> {
        self.inner.has_bucket(bucket).await
    }

    async fn create_bucket(&self, bucket: &str) -> Result<bool, LayoutError> {
        self.inner.create_bucket(bucket).await
    }

    async fn delete_bucket(&self, bucket: &str) -> Result<bool, LayoutError> {
        self.inner.delete_bucket(bucket).await
    }

    async fn walk(&self, bucket: &str, after: Option<&Key>, limit: usize) -> Result<Walked, LayoutError> {
        let walked = self.inner.walk(bucket, after, limit).await;
        if self.walk_waits.swap(false, Ordering::SeqCst) {
            self.walked.notify_one();
            self.go_on.notified().await;
        }
        walked
    }
}

/// Objects with one bucket, `reports`.
struct Trial {
    objects: Arc<Objects>,
    layout: Arc<Faulty>,
    memory: Memory,
    _dir: TempDir,
}

impl Trial {
    async fn new() -> Trial {
        Trial::guarded(Guards::default()).await
    }

    async fn guarded(guards: Guards) -> Trial {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("reports")).unwrap();
        let inner = Directory::open(dir.path()).unwrap();
        let layout = Arc::new(Faulty {
            inner,
            publishing_panics: AtomicBool::new(false),
            walk_waits: AtomicBool::new(false),
            walked: Notify::new(),
            go_on: Notify::new(),
        });
        let memory = Memory::default();
        let options = StoreOptions::default();
        let store = Store::open(Arc::new(memory.clone()), guards, options, Arc::new(NoObserver));
        let objects = Objects::open(Arc::new(store.await.unwrap()), layout.clone()).await.unwrap();
        Trial { objects, layout, memory, _dir: dir }
    }

    async fn put(&self, name: &str) -> Result<Written, ObjectError> {
        let put = Put {
            key: key(name),
            presented: token(),
            condition: ObjectCondition::Always,
            attributes: Vec::new(),
            grant: lasting(),
        };
        self.objects.put(put, body()).await
    }

    /// Waits until every intent is dropped: its commit would hit a fault that is meant for another one.
    async fn settled(&self) {
        while self.objects.under_way.available_permits() < MAX_UNDER_WAY {
            tokio::task::yield_now().await;
        }
    }

    async fn staged(&self) -> usize {
        self.layout.staged().await.unwrap().len()
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn lasting() -> Grant {
    Grant::new(|| Ok(()))
}

fn token() -> Option<Presented> {
    Some(Presented { token: Token::new(0, 33).unwrap(), holder: None, issuer: None })
}

fn body() -> Body<impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin> {
    let promised = Promised { limit: 1 << 20, ..Promised::default() };
    Body { promised, bytes: stream::iter([Ok(Bytes::from_static(b"bytes"))]), trailer: Box::new(Vec::new) }
}

#[tokio::test]
async fn c04_bytes_of_a_write_that_was_surely_not_applied_are_removed() {
    let trial = Trial::new().await;
    // Reserves refs, so that the next commit is the one of the object.
    trial.put("reports/first").await.unwrap();
    trial.settled().await;
    let upload = trial.objects.begin_upload(&key("reports/large"), token().as_ref(), Vec::new()).await.unwrap().0;
    for fault in [Fault::NoSpace, Fault::Unavailable] {
        trial.memory.inject(fault.clone());
        let error = trial.put("reports/x").await.unwrap_err();
        assert!(matches!(error, ObjectError::Failure(Failure::Rejected(_))), "{fault:?}: {error}");
        assert_eq!(trial.staged().await, 0, "{fault:?}");

        trial.memory.inject(fault.clone());
        let part = PutPart { key: key("reports/large"), presented: token(), upload, number: 1, grant: lasting() };
        let error = trial.objects.put_part(part, body()).await.unwrap_err();
        assert!(matches!(error, ObjectError::Failure(Failure::Rejected(_))), "{fault:?}: {error}");
        assert_eq!(trial.staged().await, 0, "{fault:?}");
    }
}

/// A record may refer to them.
#[tokio::test]
async fn c04_bytes_of_a_write_whose_outcome_is_unknown_stay() {
    let trial = Trial::new().await;
    trial.put("reports/first").await.unwrap();
    trial.settled().await;
    trial.memory.inject(Fault::UnknownApplied);
    let error = trial.put("reports/x").await.unwrap_err();
    assert!(matches!(error, ObjectError::Failure(Failure::Unknown(_))), "{error}");
    assert_eq!(trial.staged().await, 1);
}

#[tokio::test]
async fn c04_a_start_that_the_store_rejects_serves_and_collects_later() {
    let trial = Trial::new().await;
    trial.put("reports/x").await.unwrap();
    trial.objects.close().await;
    let store = trial.objects.store.clone();
    assert!(!store.pending_refs(None, 10).await.unwrap().entries.is_empty(), "refs were reserved and not used");
    // The first commit of a start is that of the collection.
    trial.memory.inject(Fault::NoSpace);
    let again = Objects::open(store.clone(), trial.layout.clone()).await.unwrap();
    assert!(!store.pending_refs(None, 10).await.unwrap().entries.is_empty());
    assert_eq!(again.read(&key("reports/x")).await.unwrap().object.size, 5);
}

/// The index refers to the bytes when the task that committed them panics.
#[tokio::test]
async fn c10_bytes_of_a_committed_object_stay_if_its_task_panics() {
    let trial = Trial::new().await;
    trial.layout.publishing_panics.store(true, Ordering::SeqCst);
    let error = trial.put("reports/x").await.unwrap_err();
    assert!(matches!(error, ObjectError::Unknown(_)), "{error}");
    let object = trial.objects.store.object(&key("reports/x")).await.unwrap().unwrap();
    assert_eq!(trial.staged().await, 1, "the bytes that the index names");

    // The next start publishes them.
    trial.layout.publishing_panics.store(false, Ordering::SeqCst);
    let again = Objects::open(trial.objects.store.clone(), trial.layout.clone()).await.unwrap();
    let read = again.read(&key("reports/x")).await.unwrap();
    let now = again.store.object(&key("reports/x")).await.unwrap().unwrap();
    assert_eq!((now.id, read.object.size), (object.id, 5));
}

/// A delete that was admitted before its bucket was adopted again, and commits while the files are examined.
#[tokio::test]
async fn c11_a_delete_is_not_undone_by_taking_its_bucket_in() {
    let trial = Trial::new().await;
    trial.put("reports/x").await.unwrap();
    trial.settled().await;
    let objects = trial.objects.clone();

    // The delete has passed its early check, and waits for the lock.
    let held = objects.buckets.write().await;
    let deleting = tokio::spawn({
        let objects = objects.clone();
        let removal = Removal { keys: vec![(key("reports/x"), ObjectCondition::Always)], ..Removal::default() };
        async move { objects.delete(token(), removal).await }
    });
    while objects.under_way.available_permits() == MAX_UNDER_WAY {
        tokio::task::yield_now().await;
    }

    // The bucket counts as new, as after its removal and creation, and is adopted.
    objects.store.set_adopted("reports", false).await.unwrap();
    objects.adopted.write().await.remove("reports");
    trial.layout.walk_waits.store(true, Ordering::SeqCst);
    let taking_in = tokio::spawn({
        let objects = objects.clone();
        async move { objects.need_bucket("reports").await }
    });
    trial.layout.walked.notified().await;
    drop(held);
    deleting.await.unwrap().unwrap();
    trial.layout.go_on.notify_one();
    taking_in.await.unwrap().unwrap();
    assert_eq!(objects.store.object(&key("reports/x")).await.unwrap(), None, "what was deleted stays so");
}

/// The first read of a new bucket adopts it, which takes the locks of its files.
#[tokio::test]
async fn c11_the_first_read_of_a_new_bucket_takes_it_in() {
    let trial = Trial::new().await;
    std::fs::create_dir(trial._dir.path().join("new")).unwrap();
    std::fs::write(trial._dir.path().join("new/file"), "here").unwrap();
    let name = key("new/file");
    let reading = trial.objects.read(&name);
    let read =
        tokio::time::timeout(std::time::Duration::from_secs(30), reading).await.expect("it does not wait for itself");
    assert_eq!(read.unwrap().object.size, 4);
}

/// The bucket is known, so it is not looked for before the body. Its absence is found before the commit.
#[tokio::test]
async fn a_known_bucket_that_is_gone_is_reported_and_nothing_stays() {
    let trial = Trial::new().await;
    trial.put("reports/x").await.unwrap();
    trial.settled().await;
    std::fs::remove_dir_all(trial._dir.path().join("reports")).unwrap();
    for name in ["reports/x", "reports/new/deep"] {
        let error = trial.put(name).await.unwrap_err();
        assert!(matches!(error, ObjectError::Layout(LayoutError::NoBucket(_))), "{error}");
        assert_eq!(trial.staged().await, 0);
    }
    assert!(trial.objects.store.object(&key("reports/new/deep")).await.unwrap().is_none());
}

/// A body of several pieces whose sender promised another checksum, or goes in the middle.
#[tokio::test]
async fn a_body_of_many_pieces_that_fails_leaves_nothing() {
    let trial = Trial::new().await;
    let piece = || Ok(Bytes::from(vec![b'x'; 300_000]));
    let wrong = Promised { md5: Some("AAAAAAAAAAAAAAAAAAAAAA==".to_owned()), limit: 10 << 20, ..Promised::default() };
    let short = Promised { limit: 1 << 20, ..wrong.clone() };
    let gone = || Err(ObjectError::Body("gone".to_owned()));
    let bodies: [(Promised, Vec<Result<Bytes, ObjectError>>); 3] = [
        (wrong.clone(), (0..9).map(|_| piece()).collect()),
        (short, (0..9).map(|_| piece()).collect()),
        (wrong, (0..9).map(|_| piece()).chain([gone()]).collect()),
    ];
    let mut errors = Vec::new();
    for (promised, pieces) in bodies {
        let put = Put {
            key: key("reports/x"),
            presented: token(),
            condition: ObjectCondition::Always,
            attributes: Vec::new(),
            grant: lasting(),
        };
        let body = Body { promised, bytes: stream::iter(pieces), trailer: Box::new(Vec::new) };
        errors.push(trial.objects.put(put, body).await.unwrap_err());
        while trial.staged().await > 0 {
            tokio::task::yield_now().await;
        }
    }
    assert!(
        matches!(&errors[..], [ObjectError::BadDigest(_), ObjectError::TooLarge { .. }, ObjectError::Body(_)]),
        "{errors:?}"
    );
}

/// A bucket whose objects would be fenced elsewhere is not made, and no object is written past its fence.
#[tokio::test]
async fn names_on_a_named_engine_are_no_objects() {
    let engine = EngineName::new("b").ok();
    let spec =
        |keys: &str| GuardSpec { keys: keys.into(), resource: None, policy: Policy::default(), engine: engine.clone() };
    let trial = Trial::guarded(Guards::new(vec![spec("reports/x/**"), spec("orders/**")]).unwrap()).await;
    let refused = trial.objects.create_bucket(key("orders"), token()).await;
    assert!(matches!(&refused, Err(ObjectError::Name(why)) if why.contains("guard 2")), "{refused:?}");
    let refused = trial.put("reports/x/1").await;
    assert!(matches!(&refused, Err(ObjectError::Name(why)) if why.contains("engine `b`")), "{refused:?}");
    assert!(trial.put("reports/daily").await.is_ok());
}
