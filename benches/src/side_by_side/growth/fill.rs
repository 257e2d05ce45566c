//! Fills a data directory before a gateway opens it: in this process, through the store, in transactions of many keys.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fencepost_core::{Guards, Key, Resource};
use fencepost_gateway::bench::{Http, text};
use fencepost_store::engines::{self, EngineOptions, Place};
use fencepost_store::{NoObserver, Operation, Store, StoreOptions, TransactOutcome, Transaction};
use tokio::task::JoinSet;

/// The maximum number of keys in a transaction, and of its bytes.
const KEYS: u64 = 64;
const BYTES: usize = 256 << 10;

/// Concurrent transactions, so that many share a commit.
const AT_ONCE: usize = 16;

/// A larger cache than a gateway's, so that filling takes minutes and not hours: every new key is looked up first.
const CACHE: usize = 2 << 30;

/// The content to write: keys, each with a fence of its own and a value.
pub(crate) struct Content<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) count: u64,
    pub(crate) value: usize,
}

/// Writes the content, prints progress, and returns fences per second.
pub(crate) fn fill(directory: &Path, content: &Content<'_>) -> Result<f64, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(written(directory, content))
}

async fn written(directory: &Path, content: &Content<'_>) -> Result<f64, String> {
    let kind = engines::find("rocksdb").ok_or("there is no embedded engine")?;
    let options = EngineOptions { cache_bytes: CACHE, ..EngineOptions::default() };
    let place = Place::Directory(directory.to_owned());
    let engine = (kind.open)(&place, &options).await.map_err(|error| error.to_string())?;
    let opened = Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver)).await;
    let store = Arc::new(opened.map_err(|error| error.to_string())?);
    let started = Instant::now();
    let at_a_time = KEYS.min((BYTES / content.value.max(1)) as u64).max(1);
    let (mut under_way, mut at, mut told) = (JoinSet::new(), 0, 0);
    while at < content.count || !under_way.is_empty() {
        if at < content.count && under_way.len() < AT_ONCE {
            let end = content.count.min(at + at_a_time);
            let (transaction, store) = (transaction(content, at, end)?, store.clone());
            under_way.spawn(async move { store.transact(transaction).await });
            at = end;
        } else if let Some(ended) = under_way.join_next().await {
            match ended.map_err(|error| error.to_string())? {
                Ok(TransactOutcome::Transacted(_)) => {}
                other => return Err(format!("filling failed: {other:?}")),
            }
        }
        if at - told >= 1_000_000 {
            told = at;
            eprintln!("filling: {at} of {} fences, {:.0} s", content.count, started.elapsed().as_secs_f64());
        }
    }
    let rate = content.count as f64 / started.elapsed().as_secs_f64();
    match Arc::try_unwrap(store) {
        Ok(store) => store.close().await,
        Err(_) => return Err("the store is still in use".into()),
    }
    Ok(rate)
}

fn transaction(content: &Content<'_>, from: u64, to: u64) -> Result<Transaction, String> {
    let (mut tokens, mut operations) = (Vec::new(), Vec::new());
    for number in from..to {
        let name = format!("{}{number}", content.prefix);
        let resource = Resource::new(&name).map_err(|error| error.to_string())?;
        let key = Key::new(&name).map_err(|error| error.to_string())?;
        tokens.push((resource, Http::credentials()));
        let body = Bytes::from(text(number, content.value));
        operations.push((key, Operation::Put { content_type: None, body }));
    }
    Ok(Transaction { tokens, conditions: Vec::new(), operations, max_bytes: 0, body: Bytes::new(), once: None })
}
