//! The servers of engines that need one: started by the first case that uses it, and shared by all of this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::postgres::Postgres;
use parking_lot::Mutex;

static ETCD: Mutex<Option<Arc<Etcd>>> = Mutex::new(None);

static POSTGRES: Mutex<Option<Arc<Postgres>>> = Mutex::new(None);

/// The etcd server, of one member.
pub(crate) fn etcd() -> Arc<Etcd> {
    ETCD.lock().get_or_insert_with(|| Arc::new(Etcd::start())).clone()
}

/// The PostgreSQL server. It syncs its log: the engine refuses one that does not.
pub(crate) fn postgres() -> Arc<Postgres> {
    POSTGRES.lock().get_or_insert_with(|| Arc::new(Postgres::with(&["fsync=on"]))).clone()
}

/// A name for a schema, a prefix, a role or a database that no other case uses.
pub(crate) fn new_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("case_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Stops the servers that were started.
pub(crate) fn stop() {
    drop(ETCD.lock().take());
    drop(POSTGRES.lock().take());
}
