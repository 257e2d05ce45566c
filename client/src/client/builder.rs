//! Building a client from its named parts.

use std::time::Duration;

use super::{Client, LockOptions};
use crate::error::Error;
use crate::{Gateway, GatewayOptions};

/// The timeout of calls, and of connecting, for a gateway that is given by its URL.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds a [`Client`]: name the gateway and the lock service, in any order, then [`connect`](ClientBuilder::connect).
#[derive(Clone, Default)]
#[must_use = "a builder does nothing until `connect` is awaited"]
pub struct ClientBuilder {
    gateway: Option<Address>,
    lock_service_url: Option<String>,
    lock_options: LockOptions,
}

#[derive(Clone)]
enum Address {
    Url(String),
    Made(Gateway),
}

impl ClientBuilder {
    /// The gateway that keeps the fences and the data: `http://127.0.0.1:3362`.
    pub fn gateway_url(self, url: impl Into<String>) -> ClientBuilder {
        ClientBuilder { gateway: Some(Address::Url(url.into())), ..self }
    }

    /// A gateway made with [`Gateway::with_options`](crate::Gateway::with_options), for other timeouts or HTTP/2.
    pub fn gateway(self, gateway: Gateway) -> ClientBuilder {
        ClientBuilder { gateway: Some(Address::Made(gateway)), ..self }
    }

    /// The service that grants and numbers the locks: `redis://127.0.0.1:6379`, or `fencepost://127.0.0.1:3362` for the
    /// gateway's own. [`locks::BACKENDS`](crate::locks::BACKENDS) lists the kinds; for a custom one, use
    /// [`Client::new`].
    pub fn lock_service_url(self, url: impl Into<String>) -> ClientBuilder {
        ClientBuilder { lock_service_url: Some(url.into()), ..self }
    }

    /// How locks are taken and kept.
    pub fn lock_options(self, lock_options: LockOptions) -> ClientBuilder {
        ClientBuilder { lock_options, ..self }
    }

    /// Checks the URLs, and connects to the lock service. The connection to the gateway is made by the first call.
    ///
    /// # Errors
    ///
    /// `Invalid` if a part is missing or a URL is wrong, `Unavailable` if the lock service cannot be reached.
    pub async fn connect(self) -> Result<Client, Error> {
        let ClientBuilder { gateway, lock_service_url, lock_options } = self;
        let gateway = match gateway {
            Some(Address::Made(gateway)) => gateway,
            Some(Address::Url(url)) => {
                let options = GatewayOptions::new().timeout(CALL_TIMEOUT).connect_timeout(CALL_TIMEOUT);
                Gateway::with_options(&url, options)?
            }
            None => return Err(Error::invalid("no gateway is given; name it with `gateway_url`")),
        };
        let lock_service = match lock_service_url {
            Some(url) => crate::locks::connect(&url).await?,
            None => return Err(Error::invalid("no lock service is given; name it with `lock_service_url`")),
        };
        Ok(Client::new(gateway, lock_service).with_lock_options(lock_options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const GATEWAY: &str = "http://127.0.0.1:3362";
    const LOCKS: &str = "fencepost://127.0.0.1:3362";

    #[tokio::test]
    async fn both_parts_are_needed_and_each_has_its_name() {
        let whole = Client::builder().lock_service_url(LOCKS).gateway_url(GATEWAY);
        whole.connect().await.unwrap();
        for (builder, missing) in [
            (Client::builder().gateway_url(GATEWAY), "`lock_service_url`"),
            (Client::builder().lock_service_url(LOCKS), "`gateway_url`"),
            (Client::builder().gateway_url(LOCKS).lock_service_url(LOCKS), "not a gateway URL"),
            (Client::builder().gateway_url(GATEWAY).lock_service_url(GATEWAY), "not the URL of a lock service"),
        ] {
            let error = builder.connect().await.map(drop).unwrap_err();
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(missing), "{error}");
        }
    }
}
