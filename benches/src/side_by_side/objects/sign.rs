//! Requests signed as presigned URLs are, so that signing costs the load generator as little as possible: the key is
//! derived once, and bodies are not signed. A server has to check it like any other signature.

use fencepost_core::Timestamp;
use fencepost_harness::bucketed::Credentials;
use fencepost_harness::sigv4::{Presigner, SigningKey, amz_date};

/// Signs requests to one host. Signatures are valid for a day.
#[derive(Clone)]
pub(crate) struct Signer {
    host: String,
    presigner: Presigner,
}

impl Signer {
    pub(crate) fn new(host: &str, credentials: &Credentials) -> Signer {
        let key = SigningKey::new(credentials, &amz_date(Timestamp::now()));
        Signer { host: host.to_owned(), presigner: Presigner::new(key, host, 86_400) }
    }

    /// The head of a request up to its own headers. The path may have only letters, digits, `-` and `/`.
    pub(crate) fn head(&self, method: &str, path: &str) -> String {
        let target = self.presigner.target(method, path);
        format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.host)
    }
}
