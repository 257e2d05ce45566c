//! Locks of a PostgreSQL server: a row per lock that counts its acquisitions, never deleted.
//!
//! There are two ways to hold a lock. In `mode=lease` the row records the holder and the expiry, by the server's clock.
//! In `mode=advisory` a session lock determines the holder, and the row only counts.

mod advisory;
mod lease;
mod settings;
mod table;
mod trouble;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::Issuer;

use super::list::{Backend, Connecting};
use super::{LockBackend, LockError, LockUrl};
use settings::{Mode, Settings};

pub(super) const BACKEND: Backend = Backend {
    scheme: "postgres",
    aliases: &["postgresql"],
    example: "postgres://user:password@127.0.0.1:5432/db?mode=lease",
    encrypted: Some(
        "postgres://user@db:5432/app?sslmode=verify-full&sslrootcert=ca.pem&sslcert=worker.pem&sslkey=worker.key",
    ),
    number: "a counter in the lock's row, raised in the statement that takes the lock",
    waiting: "mode=lease: told by NOTIFY, in no order between processes; mode=advisory: the server's own queue, in order \
              of arrival",
    breaks: "promotion of a standby that missed writes, point-in-time restore, a deleted row: the floor or a lift heals \
             it; a dropped table: rotate",
    connect,
};

/// How often a statement is sent if its answer was lost, or if the server asks to repeat it. All statements compare the
/// holder's nonce, so that is harmless.
const ATTEMPTS: usize = 3;

/// The pause between attempts while the server is unreachable.
const OUTAGE: Duration = Duration::from_millis(100);

/// Longer waits are cut to this, because `Instant` would overflow.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest ttl: a few round trips.
const MIN_TTL: Duration = Duration::from_millis(100);

/// The longest ttl: the maximum of the server's settings in milliseconds.
const MAX_TTL: Duration = Duration::from_millis(i32::MAX as u64);

fn connect(url: LockUrl) -> Connecting {
    Box::pin(async move {
        let settings = Settings::read(&url)?;
        Ok(match settings.mode {
            Mode::Lease => Arc::new(lease::Leases::connect(settings).await?) as Arc<dyn LockBackend>,
            Mode::Advisory => Arc::new(advisory::Sessions::connect(settings).await?),
        })
    })
}

/// The floor as a number that the server can store.
fn countable(service: &str, floor: u64) -> Result<i64, LockError> {
    match i64::try_from(floor) {
        Ok(floor) if floor < i64::MAX => Ok(floor),
        _ => Err(exhausted(service)),
    }
}

fn exhausted(service: &str) -> LockError {
    LockError::Invalid(format!(
        "{service} cannot count above {}, and the fence is there: rotate the resource (fencepost fence rotate)",
        i64::MAX
    ))
}

/// A number returned by the server.
fn counted(service: &str, number: i64) -> Result<NonZeroU64, LockError> {
    u64::try_from(number).ok().and_then(NonZeroU64::new).ok_or_else(|| LockError::Failed {
        service: service.to_owned(),
        why: format!("its counter is at {number}, which no acquisition makes it; was the table edited?"),
    })
}

fn issuer(service: &str, incarnation: &str) -> Result<Issuer, LockError> {
    Issuer::new(&format!("postgres:{incarnation}")).map_err(|error| LockError::Failed {
        service: service.to_owned(),
        why: format!("its incarnation `{incarnation}` is odd ({error}); was the table edited?"),
    })
}

fn checked_ttl(capabilities: super::Capabilities, ttl: Duration) -> Result<i64, LockError> {
    capabilities.check_ttl(ttl)?;
    if ttl > MAX_TTL {
        let (asked, most) = (ttl.as_secs(), MAX_TTL.as_secs());
        return Err(LockError::Invalid(format!(
            "a ttl of {asked} s is too long for PostgreSQL, which keeps up to {most} s"
        )));
    }
    // Rounded up to whole milliseconds.
    Ok(i64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX))
}
