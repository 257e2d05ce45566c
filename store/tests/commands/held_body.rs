//! A transaction keeps its request body until it has ended, even if its caller is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::testbed::{applied, key, memory_store, put, resource, token, within};
use bytes::Bytes;
use fencepost_store::engines::memory::Fault;
use fencepost_store::{Operation, Transaction};

/// A buffer that records when its last reference is dropped.
struct Counted(Arc<AtomicBool>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        b"body"
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_whose_caller_left_keeps_its_body_until_it_has_ended() {
    let (store, memory) = memory_store().await;
    memory.inject(Fault::Hold);
    let gone = Arc::new(AtomicBool::new(false));
    let transaction = Transaction {
        tokens: vec![(resource("a"), token("1"))],
        conditions: Vec::new(),
        operations: vec![(key("a"), Operation::Put { content_type: None, body: Bytes::from_static(b"value") })],
        max_bytes: 0,
        body: Bytes::from_owner(Counted(gone.clone())),
        once: None,
    };
    let mut leaving = Box::pin(store.transact(transaction));
    // Polling queues the command; then its caller is dropped.
    assert!(tokio::time::timeout(std::time::Duration::from_millis(1), &mut leaving).await.is_err());
    drop(leaving);
    assert!(!gone.load(Ordering::SeqCst), "it is still under way, and takes memory");
    memory.release();
    applied(within(put(&store, "b", token("1"), "the next")).await);
    within(async {
        while !gone.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    store.close().await;
}
