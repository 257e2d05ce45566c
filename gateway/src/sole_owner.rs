//! What was shared, once nothing else uses it any more.

use std::sync::Arc;
use std::time::Duration;

/// A connection that has just ended may hold on to it for a moment, until its task is gone.
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
