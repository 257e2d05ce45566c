//! A shared value, taken back once nothing else uses it.

use std::sync::Arc;
use std::time::Duration;

/// Waits up to a second for other owners: a connection that has just ended keeps its reference until its task is gone.
pub(crate) async fn sole_owner<T>(mut shared: Arc<T>) -> Option<T> {
    for _ in 0..200 {
        match Arc::try_unwrap(shared) {
            Ok(owned) => return Some(owned),
            Err(still) => shared = still,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}
