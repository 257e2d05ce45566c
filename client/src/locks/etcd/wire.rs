//! etcd's JSON: numbers are strings, keys and values are base64, and zero or empty fields are omitted.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// The position of an answer in the history of the cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    #[serde(deserialize_with = "number")]
    pub(super) revision: i64,
    #[serde(deserialize_with = "number")]
    pub(super) raft_term: i64,
}

/// A key as it is stored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    #[serde(deserialize_with = "text")]
    pub(super) key: String,
    #[serde(deserialize_with = "text")]
    pub(super) value: String,
    #[serde(deserialize_with = "number")]
    pub(super) create_revision: i64,
    #[serde(deserialize_with = "number")]
    pub(super) lease: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    kvs: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Done {
    response_range: Option<Range>,
}

/// The result of a transaction.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnAnswer {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    responses: Vec<Done>,
}

impl TxnAnswer {
    /// The first key that each of its reads found, in order.
    pub(super) fn found<const N: usize>(self) -> Option<[Option<KeyValue>; N]> {
        let reads = self.responses.into_iter().filter_map(|done| done.response_range);
        let found: Vec<_> = reads.map(|range| range.kvs.into_iter().next()).collect();
        found.try_into().ok()
    }
}

/// The answer to granting, renewing or reading a lease.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseAnswer {
    pub(super) header: Header,
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(super) ttl: i64,
    #[serde(rename = "grantedTTL", deserialize_with = "number")]
    pub(super) granted_ttl: i64,
}

/// A message of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchAnswer {
    pub(super) canceled: bool,
    pub(super) events: Vec<IgnoredAny>,
}

/// An authentication token.
#[derive(Debug, Deserialize)]
pub(super) struct SignedIn {
    pub(super) token: String,
}

/// An answer whose content is not used.
#[derive(Debug, Deserialize)]
pub(super) struct Anything {}

/// One message of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: Option<T>,
    pub(super) error: Option<Refusal>,
}

/// An error, with its gRPC status code.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    #[serde(alias = "grpc_code")]
    pub(super) code: i64,
    pub(super) message: String,
}

/// Condition: the key was created by this revision; 0 means that it does not exist.
pub(super) fn created_by(key: &str, revision: i64) -> Value {
    json!({"target": "CREATE", "result": "EQUAL", "key": encoded(key), "create_revision": revision.to_string()})
}

/// Condition: the key exists.
pub(super) fn exists(key: &str) -> Value {
    json!({"target": "CREATE", "result": "GREATER", "key": encoded(key), "create_revision": "0"})
}

/// Reads one key.
pub(super) fn get(key: &str) -> Value {
    json!({"request_range": {"key": encoded(key)}})
}

/// Reads the oldest key of a range.
pub(super) fn get_oldest((from, to): &(String, String)) -> Value {
    json!({"request_range": {
        "key": encoded(from), "range_end": encoded(to), "sort_target": "CREATE", "sort_order": "ASCEND", "limit": "1",
    }})
}

/// Reads the newest key of a range that is older than this revision.
pub(super) fn get_newest_before((from, to): &(String, String), revision: i64) -> Value {
    json!({"request_range": {
        "key": encoded(from), "range_end": encoded(to), "sort_target": "CREATE", "sort_order": "DESCEND", "limit": "1",
        "max_create_revision": (revision - 1).to_string(),
    }})
}

/// Writes a key; with a lease, it is deleted when the lease ends.
pub(super) fn put(key: &str, value: &str, lease: i64) -> Value {
    json!({"request_put": {"key": encoded(key), "value": encoded(value), "lease": lease.to_string()}})
}

/// Deletes a key.
pub(super) fn delete(key: &str) -> Value {
    json!({"request_delete_range": {"key": encoded(key)}})
}

/// Watches for the deletion of a key, from this revision on.
pub(super) fn watch_deletion(key: &str, from: i64) -> Value {
    json!({"create_request": {"key": encoded(key), "start_revision": from.to_string(), "filters": ["NOPUT"]}})
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    // Terms and ids are unsigned on the wire; they are only compared for equality.
    let text = String::deserialize(from)?;
    let number = text.parse::<i64>().or_else(|_| text.parse::<u64>().map(|number| number as i64));
    number.map_err(D::Error::custom)
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let bytes = STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)?;
    String::from_utf8(bytes).map_err(D::Error::custom)
}
