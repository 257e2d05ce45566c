//! Signature version 4 of S3 requests, written by hand so that a test decides which bytes are sent, and when.

use data_encoding::HEXLOWER;
use fencepost_core::{Timestamp, percent_decode_name};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::bucketed::Credentials;

/// The algorithm of a request. Chunks and trailers have their own.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The value of `x-amz-content-sha256` for an unsigned body.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// The key that is derived from a key pair for one day, and signs at one time of that day.
#[derive(Clone)]
pub struct SigningKey {
    date: String,
    scope: String,
    credential: String,
    mac: Hmac<Sha256>,
}

impl SigningKey {
    /// Derives the key. `date` has the form of [`amz_date`].
    pub fn new(credentials: &Credentials, date: &str) -> SigningKey {
        let scope = format!("{}/us-east-1/s3/aws4_request", &date[..8]);
        let credential = format!("{}/{scope}", credentials.access_key_id);
        let mut mac = keyed(format!("AWS4{}", credentials.secret_access_key).as_bytes());
        for part in scope.split('/') {
            mac.update(part.as_bytes());
            mac = keyed(&mac.finalize().into_bytes());
        }
        SigningKey { date: date.to_owned(), scope, credential, mac }
    }

    /// The signature of a text. Requests, chunks and trailers differ in the name of the algorithm.
    pub fn sign(&self, algorithm: &str, text: &str) -> String {
        let mut mac = self.mac.clone();
        mac.update(format!("{algorithm}\n{}\n{}\n{text}", self.date, self.scope).as_bytes());
        HEXLOWER.encode(&mac.finalize().into_bytes())
    }

    fn sign_request(&self, canonical: &str) -> String {
        self.sign(ALGORITHM, &HEXLOWER.encode(&Sha256::digest(canonical)))
    }

    /// The `authorization` header of a request that signs exactly these headers. Their names must be in lower case, and
    /// the query of `target` must be percent-encoded.
    pub fn authorization(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (canonical_path(path), canonical_query(query));
        let mut headers = headers.to_vec();
        headers.sort_unstable();
        let payload =
            headers.iter().find(|(name, _)| *name == "x-amz-content-sha256").map_or(UNSIGNED, |found| found.1);
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let signature = self.sign_request(&format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}"));
        format!("{ALGORITHM} Credential={}, SignedHeaders={names}, Signature={signature}", self.credential)
    }
}

/// Signs requests to one host in the query of their URL. Such a signature covers method, path, host and time, but not
/// the body.
#[derive(Clone)]
pub struct Presigner {
    host: String,
    /// The query up to the signature.
    query: String,
    key: SigningKey,
}

impl Presigner {
    /// The signatures are valid for this many seconds after the date of the key.
    pub fn new(key: SigningKey, host: &str, seconds: u32) -> Presigner {
        let credential = key.credential.replace('/', "%2F");
        let query = format!(
            "X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={credential}&X-Amz-Date={}&X-Amz-Expires={seconds}&\
             X-Amz-SignedHeaders=host",
            key.date
        );
        Presigner { host: host.to_owned(), query, key }
    }

    /// The path with its signed query. The path is signed unchanged, so it must be percent-encoded as S3 does it.
    pub fn target(&self, method: &str, path: &str) -> String {
        let Presigner { host, query, key } = self;
        let signature = key.sign_request(&format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\n{UNSIGNED}"));
        format!("{path}?{query}&X-Amz-Signature={signature}")
    }
}

/// A time in the form of `x-amz-date`: 2026-01-31T01:02:03.456Z is written `20260131T010203Z`.
pub fn amz_date(time: Timestamp) -> String {
    time.to_string().chars().filter(char::is_ascii_alphanumeric).take(15).chain(['Z']).collect()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// Decoded once and encoded as S3 does it, so that every spelling of a path has one signature.
fn canonical_path(path: &str) -> String {
    let Ok(decoded) = percent_decode_name(path) else { return path.to_owned() };
    let mut encoded = String::new();
    for byte in decoded.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                encoded.push(char::from(byte))
            }
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// Sorted by name, then by value.
fn canonical_query(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(&str, &str)> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with botocore 1.44: `generate_presigned_url` with signature version s3v4, at the same time.
    #[test]
    fn the_signature_is_that_of_botocore() {
        let credentials = Credentials { access_key_id: "DEVKEY".to_owned(), secret_access_key: "DEVSECRET".to_owned() };
        let key = SigningKey::new(&credentials, &amz_date(Timestamp(1_769_821_323_456)));
        let target = Presigner::new(key, "127.0.0.1:28333", 86_400).target("GET", "/bench/read/0001");
        let (_, signature) = target.split_once("X-Amz-Signature=").unwrap();
        assert!(target.contains("X-Amz-Date=20260131T010203Z"), "{target}");
        assert_eq!(signature, "82eba0f2b13710cb86cbae1e67b251f2f7394fde99a84ca7432553554197aa5d");
    }
}
