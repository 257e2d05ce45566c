//! etcd, over its JSON gateway. The number of an acquisition is the `create_revision` of its key.
//!
//! A client that wants a lock creates a key under a lease of its own, and waits until no older key of that lock is
//! left. The revision that created the key is the number: it is fixed on joining the queue, and locks are granted in
//! its order.

mod calls;
mod held;
mod identity;
mod keys;
mod queue;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fencepost_remote::tls;

use self::calls::Calls;
use self::held::Held;
use self::identity::{create_incarnation, new_lease_id};
use self::keys::Keys;
use self::queue::{Place, Turn};
use super::list::{Backend, Connecting};
use super::url::wrong;
use super::{Acquired, Capabilities, Kept, Lease, LockBackend, LockError, LockUrl, Wanted};

/// The time limit of each attempt at a call while connecting.
const CONNECT: Duration = Duration::from_secs(5);

/// Longer waits are cut to this.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(super) const BACKEND: Backend = Backend {
    scheme: "etcd",
    aliases: &["etcds"],
    example: "etcd://a:2379,b:2379,c:2379/fencepost",
    encrypted: Some("etcds://a:2379,b:2379,c:2379/fencepost?ca=ca.pem&cert=worker.pem&key=worker.key"),
    number: "`create_revision` of the own key, fixed when getting in line",
    waiting: "in order of arrival; each waiter watches the one before it",
    breaks: "wiped or replaced: another incarnation, refused until rotated; restored from a snapshot: seen as a stale \
             claim, refused until rotated",
    connect,
};

struct Etcd {
    calls: Arc<Calls>,
    keys: Keys,
    /// The shortest ttl that etcd does not round up. It depends on the cluster's election timeout.
    min_ttl: Duration,
}

fn connect(url: LockUrl) -> Connecting {
    Box::pin(async move {
        let certificates = tls::by_scheme(&url, "etcds")?;
        if url.hosts.is_empty() {
            return Err(wrong(&url.to_string(), "it names one host and port, or several with commas between"));
        }
        let keys = Keys::below(&url.path);
        let keys = keys.ok_or_else(|| wrong(&url.to_string(), "its path has other than letters, digits and `-_./`"))?;
        let protocol = if certificates.is_some() { "https" } else { "http" };
        let members = url.hosts.iter().map(|host| member(protocol, host)).collect();
        let user = url.user.clone().map(|(user, password)| (user, password.unwrap_or_default()));
        let calls = Arc::new(Calls::new(members, certificates.as_ref(), user, url.to_string())?);
        calls.sign_in(CONNECT).await.map_err(|trouble| calls.error(trouble))?;
        create_incarnation(&calls, &keys, CONNECT).await?;
        let min_ttl = shortest_lease(&calls).await?;
        Ok(Arc::new(Etcd { calls, keys, min_ttl }) as Arc<dyn LockBackend>)
    })
}

/// `http://host:port`
fn member(protocol: &str, host: &str) -> String {
    let after_address = host.rsplit(']').next().unwrap_or(host);
    let port = if after_address.contains(':') { "" } else { ":2379" };
    format!("{protocol}://{host}{port}")
}

/// The ttl that etcd grants for the shortest possible request.
async fn shortest_lease(calls: &Calls) -> Result<Duration, LockError> {
    let lease = new_lease_id()?;
    let granted = calls.grant(lease, 1, CONNECT).await.map_err(|trouble| calls.error(trouble))?;
    calls.revoke(lease, CONNECT).await.map_err(|trouble| calls.error(trouble))?;
    let granted = u64::try_from(granted).map_err(|_| calls.nonsense("it granted a lease for no time"))?;
    Ok(Duration::from_secs(granted))
}

#[async_trait]
impl LockBackend for Etcd {
    fn capabilities(&self) -> Capabilities {
        Capabilities { fair: true, watch: true, floor: false, lift: false, min_ttl: self.min_ttl, detachable: true }
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        self.capabilities().check_ttl(wanted.ttl)?;
        if wanted.ttl.subsec_nanos() != 0 {
            let (asked, least) = (wanted.ttl.as_secs_f64(), wanted.ttl.as_secs());
            return Err(LockError::Invalid(format!(
                "a ttl of {asked} s cannot be kept: etcd counts whole seconds. Ask for {least} s or {} s",
                least.saturating_add(1)
            )));
        }
        let deadline = Instant::now() + wanted.wait.min(LONGEST_WAIT);
        loop {
            let mut place = Place::take(&self.calls, &self.keys, wanted).await?;
            match place.turn(deadline).await? {
                Turn::Ours => return Ok(Acquired::Held(place.keep(wanted)?)),
                Turn::Gone if Instant::now() < deadline => {}
                Turn::Late | Turn::Gone => {
                    if let Err(error) = place.leave().await {
                        tracing::debug!(%error, "a place in line could not be given up; it ends with its ttl");
                    }
                    return Ok(Acquired::Busy);
                }
            }
        }
    }

    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError> {
        Held::of(lease)?.verify(&self.calls).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError> {
        Held::of(lease)?.renew(&self.calls).await
    }

    async fn release(&self, lease: Lease) -> Result<(), LockError> {
        Held::of(&lease)?.release(&self.calls).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_a_port() {
        assert_eq!(member("https", "a"), "https://a:2379");
        assert_eq!(member("http", "a:1"), "http://a:1");
        assert_eq!(member("http", "[::1]"), "http://[::1]:2379");
        assert_eq!(member("http", "[::1]:1"), "http://[::1]:1");
    }
}
