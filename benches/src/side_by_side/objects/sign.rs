//! Signature version 4 in the query of a URL. It covers method, path, host and time, but not the body, so that signing
//! costs the load generator as little as possible. A server has to check it like any other signature.

use data_encoding::HEXLOWER;
use fencepost_core::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The key pair that signs requests.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: String,
}

/// Signs requests to one host. Signatures are valid for a day.
#[derive(Clone)]
pub(crate) struct Signer {
    host: String,
    /// The query up to the signature.
    query: String,
    /// The part between the algorithm and the hash of a request.
    scope: String,
    key: Hmac<Sha256>,
}

impl Signer {
    pub(crate) fn new(host: &str, credentials: &Credentials) -> Signer {
        Signer::at(host, credentials, Timestamp::now())
    }

    fn at(host: &str, credentials: &Credentials, now: Timestamp) -> Signer {
        // 2026-01-31T01:02:03.456Z is written 20260131T010203Z.
        let time: String = now.to_string().chars().filter(char::is_ascii_alphanumeric).take(15).chain(['Z']).collect();
        let date = &time[..8];
        let scope = format!("{date}/us-east-1/s3/aws4_request");
        let secret = format!("AWS4{}", credentials.secret_access_key);
        let mut key = mac(secret.as_bytes());
        for part in [date, "us-east-1", "s3", "aws4_request"] {
            key.update(part.as_bytes());
            key = mac(&key.finalize().into_bytes());
        }
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}%2F{}&X-Amz-Date={time}&X-Amz-Expires=86400&X-Amz-SignedHeaders=host",
            credentials.access_key_id,
            scope.replace('/', "%2F"),
        );
        Signer { host: host.to_owned(), query, scope: format!("{time}\n{scope}"), key }
    }

    /// The head of a request up to its own headers. The path may have only letters, digits, `-` and `/`.
    pub(crate) fn head(&self, method: &str, path: &str) -> String {
        let Signer { host, query, scope, key } = self;
        let request = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
        let hash = HEXLOWER.encode(&Sha256::digest(request.as_bytes()));
        let mut mac = key.clone();
        mac.update(format!("AWS4-HMAC-SHA256\n{scope}\n{hash}").as_bytes());
        let signature = HEXLOWER.encode(&mac.finalize().into_bytes());
        format!("{method} {path}?{query}&X-Amz-Signature={signature} HTTP/1.1\r\nhost: {host}\r\n")
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("a key of any length will do"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with botocore 1.44: `generate_presigned_url` with signature version s3v4, at the same time.
    #[test]
    fn the_signature_is_that_of_botocore() {
        let credentials = Credentials { access_key_id: "DEVKEY".to_owned(), secret_access_key: "DEVSECRET".to_owned() };
        let signer = Signer::at("127.0.0.1:28333", &credentials, Timestamp(1_769_821_323_456));
        let head = signer.head("GET", "/bench/read/0001");
        let signature = head.split("X-Amz-Signature=").nth(1).unwrap().split(' ').next().unwrap();
        assert!(head.contains("X-Amz-Date=20260131T010203Z"), "{head}");
        assert_eq!(signature, "82eba0f2b13710cb86cbae1e67b251f2f7394fde99a84ca7432553554197aa5d");
    }
}
