//! Unique names: of an etcd cluster, and of a lease in it.

use std::time::Duration;

use super::calls::Calls;
use super::keys::Keys;
use super::wire::{created_by, put};
use crate::locks::LockError;

/// Names this etcd cluster, if it has no name yet.
pub(super) async fn create_incarnation(calls: &Calls, keys: &Keys, limit: Duration) -> Result<(), LockError> {
    let (key, uuid) = (keys.incarnation(), crate::random::uuid().map_err(no_luck)?);
    let created = calls.txn(&[created_by(&key, 0)], &[put(&key, &uuid, 0)], &[], limit).await;
    created.map(drop).map_err(|trouble| calls.error(trouble))
}

/// A positive id for a lease, chosen by the client so that it is known before the lease is granted.
pub(super) fn new_lease_id() -> Result<i64, LockError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(no_luck)?;
    Ok((i64::from_be_bytes(bytes) & i64::MAX).max(1))
}

fn no_luck(error: getrandom::Error) -> LockError {
    LockError::Invalid(format!("this machine gives no random numbers: {error}"))
}
