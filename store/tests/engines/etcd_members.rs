//! Three members of etcd, whose leaders are killed or stopped while several gateways commit through their lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fencepost_core::{Guards, Key, Presented, Resource};
use fencepost_harness::budget;
use fencepost_harness::servers::etcd_cluster::EtcdCluster;
use fencepost_remote::ServerUrl;
use fencepost_store::engines::{EngineOptions, Place, find};
use fencepost_store::{Failure, NoObserver, Operation, Store, StoreOptions, TransactOutcome, Transaction};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::bench::Bench;

/// In which gateways must be at work again, on a busy machine.
const RECOVERY: Duration = Duration::from_secs(120);

const GATEWAYS: usize = 3;
const WRITERS: usize = 4;

/// The number to which all writers add.
const SUM: &str = "sum";

async fn gateway(hosts: &str) -> Arc<Store> {
    let url = ServerUrl::parse(&format!("etcd://{hosts}/members")).unwrap();
    let open = async {
        loop {
            // Without a leader it is refused. On a busy machine there may be none at any time.
            match (find("etcd").unwrap().open)(&Place::Server(url.clone()), &EngineOptions::default()).await {
                Ok(engine) => {
                    match Store::open(engine, Guards::default(), StoreOptions::default(), Arc::new(NoObserver)).await {
                        Ok(store) => return Arc::new(store),
                        Err(error) => println!("{error}"),
                    }
                }
                Err(error) => println!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(RECOVERY, open).await.expect("a gateway starts")
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Adds 1 to the number of a writer and to that of all, or to neither.
fn addition(own: &str) -> Transaction {
    let presented = Presented { token: "1".parse().unwrap(), holder: None, issuer: None };
    let add = Operation::Add { by: 1, min: i64::MIN, max: i64::MAX };
    Transaction {
        tokens: [own, SUM].map(|name| (Resource::new(name).unwrap(), presented.clone())).to_vec(),
        conditions: Vec::new(),
        operations: [own, SUM].map(|name| (key(name), add.clone())).to_vec(),
        max_bytes: 1 << 20,
        body: Bytes::new(),
        once: None,
    }
}

/// What a writer was told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    applied: u64,
    unknown: u64,
    rejected: u64,
}

/// Adds until it is stopped.
async fn write(store: Arc<Store>, own: String, count: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> (String, Told) {
    let mut told = Told::default();
    while !stop.load(Ordering::Acquire) {
        match store.transact(addition(&own)).await {
            Ok(TransactOutcome::Transacted(_)) => {
                told.applied += 1;
                count.fetch_add(1, Ordering::AcqRel);
            }
            Ok(other) => panic!("{other:?}"),
            Err(Failure::Unknown(_)) => told.unknown += 1,
            Err(Failure::Rejected(rejected)) => {
                assert!(!rejected.to_string().contains("restart"), "{rejected}");
                told.rejected += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    (own, told)
}

async fn number(store: &Store, name: &str) -> u64 {
    let read = store.read(&key(name), None).await.unwrap().unwrap();
    read.value.map_or(0, |(_, value)| std::str::from_utf8(&value.body).unwrap().parse().unwrap())
}

/// Waits until this many more additions were applied.
async fn progress(count: &AtomicU64, more: u64) {
    let due = count.load(Ordering::Acquire) + more;
    let waiting = async {
        while count.load(Ordering::Acquire) < due {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(RECOVERY, waiting).await.expect("writers go on");
}

/// Runs writers at several gateways during faults, then counts.
async fn survive(faults: impl AsyncFnOnce(&mut EtcdCluster, &AtomicU64)) {
    let mut cluster = EtcdCluster::with(&[]);
    let hosts = cluster.hosts();
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (mut stores, mut writers) = (Vec::new(), JoinSet::new());
    for gateway_number in 0..GATEWAYS {
        let store = gateway(&hosts).await;
        for writer in 0..WRITERS {
            let own = format!("own/{gateway_number}/{writer}");
            writers.spawn(write(store.clone(), own, count.clone(), stop.clone()));
        }
        stores.push(store);
    }
    progress(&count, 20).await;
    faults(&mut cluster, &*count).await;
    progress(&count, 20).await;
    stop.store(true, Ordering::Release);

    // Another gateway than those that were told, on a cluster that has all its members.
    let fresh = gateway(&hosts).await;
    let (mut all, mut sum) = (Told::default(), 0);
    while let Some(ended) = timeout(RECOVERY, writers.join_next()).await.expect("writers end") {
        let (own, told) = ended.unwrap();
        let found = number(&fresh, &own).await;
        let possible = told.applied..=told.applied + told.unknown;
        assert!(possible.contains(&found), "{own} is {found}, and its writer was told {told:?}");
        all.applied += told.applied;
        all.unknown += told.unknown;
        all.rejected += told.rejected;
        sum += found;
    }
    assert_eq!(number(&fresh, SUM).await, sum, "both were added to, or neither");
    println!("{all:?}; the sum is {sum}");
    stores.push(fresh);
    for store in stores {
        Arc::into_inner(store).expect("its writers have ended").close().await;
    }
}

pub(crate) async fn nothing_is_lost_when_leaders_are_killed(_: Bench) {
    survive(async |cluster: &mut EtcdCluster, count: &AtomicU64| {
        for _ in 0..budget::pick(2, 12) {
            let leader = cluster.leader();
            cluster.kill(leader);
            progress(count, 20).await;
            cluster.restart(leader);
            progress(count, 20).await;
        }
    })
    .await;
}

pub(crate) async fn nothing_is_lost_when_leaders_are_stopped_and_go_on(_: Bench) {
    survive(async |cluster: &mut EtcdCluster, count: &AtomicU64| {
        for _ in 0..budget::pick(2, 12) {
            let leader = cluster.leader();
            cluster.stop(leader);
            progress(count, 20).await;
            // What it had in hand when it was stopped arrives now.
            cluster.go_on(leader);
            progress(count, 20).await;
        }
    })
    .await;
}
