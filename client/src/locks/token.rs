//! A lock service for a token that the caller already has.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_core::{Issuer, Token};

use super::list::{Backend, Connecting};
use super::url::wrong;
use super::{Acquired, Capabilities, Kept, Lease, LockBackend, LockError, LockUrl, Wanted};
use crate::Moment;

pub(super) const BACKEND: Backend = Backend {
    scheme: "token",
    aliases: &[],
    example: "token:34?issuer=redis:9f2c6d1e",
    encrypted: None,
    number: "the one in the URL, as it stands: the caller has the lock already; `token:2:34` in generation 2",
    waiting: "none",
    breaks: "whatever breaks the service that it came from; rotate",
    connect,
};

const CAPABILITIES: Capabilities =
    Capabilities { fair: false, watch: false, floor: false, lift: false, min_ttl: Duration::ZERO, detachable: true };

/// The issuer, unless the URL names one.
const ISSUER: &str = "token:caller";

struct Given {
    token: Token,
    issuer: Issuer,
}

fn connect(url: LockUrl) -> Connecting {
    Box::pin(async move {
        let written = as_written(&url);
        if let Some((name, _)) = url.query.iter().find(|(name, _)| name != "issuer") {
            return Err(wrong(&written, &format!("the setting `{name}` is unknown; it takes `issuer`")));
        }
        let token = match url.hosts.as_slice() {
            [token] if url.user.is_none() && url.path.is_empty() => token.parse().ok(),
            _ => None,
        };
        let token = token.ok_or_else(|| {
            let why = "it names one token: a number from 1 to 18446744073709551615 as in token:34, and its generation \
                       as in token:2:34 unless that is 0";
            wrong(&written, why)
        })?;
        let issuer = Issuer::new(url.setting("issuer").unwrap_or(ISSUER));
        let issuer = issuer.map_err(|error| wrong(&written, &format!("its issuer cannot be used: {error}")))?;
        Ok(Arc::new(Given { token, issuer }) as Arc<dyn LockBackend>)
    })
}

/// The text as the caller wrote it, without its settings. A form that may hold a password is shown without it.
fn as_written(url: &LockUrl) -> String {
    match (&url.user, url.text.split_once('?')) {
        (Some(_), _) => url.to_string(),
        (None, Some((written, _))) => written.to_owned(),
        (None, None) => url.text.clone(),
    }
}

#[async_trait]
impl LockBackend for Given {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        Ok(Acquired::Held(Lease::of_token(wanted, self.token, self.issuer.clone(), Moment::now())))
    }

    async fn verify(&self, _: &Lease) -> Result<Kept, LockError> {
        Ok(Kept::Kept)
    }

    async fn renew(&self, _: &Lease) -> Result<Kept, LockError> {
        Ok(Kept::Kept)
    }

    async fn release(&self, _: Lease) -> Result<(), LockError> {
        Ok(())
    }
}
