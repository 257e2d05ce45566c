//! The messages of etcd that are used here, with the fields that are used. Unknown fields are skipped.

#![expect(missing_docs, reason = "the names are those of etcd's rpc.proto and kv.proto, which describe them")]

use bytes::Bytes;
use prost::Message;

use super::Rpc;

#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    #[prost(int64, tag = "3")]
    pub revision: i64,
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// A part of the whole answer, which it keeps in memory.
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

/// Reads one key, or the keys from `key` up to `range_end`, in order. It is linearizable. A sort order is not asked for:
/// with one, etcd reads the whole range for every page.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    /// 0: no limit.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// 0: the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PutResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The first key that stays; empty for one key alone.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteRangeResponse {
    #[prost(int64, tag = "2")]
    pub deleted: i64,
}

/// A comparison of one key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Compare {
    #[prost(int32, tag = "1")]
    pub result: i32,
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(oneof = "Target", tags = "6")]
    pub target_union: Option<Target>,
}

/// What a key is compared with.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Target {
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

impl Compare {
    const EQUAL: i32 = 0;
    const MOD: i32 = 2;

    /// The key was last changed by this revision; 0: it is absent.
    pub fn changed_by(key: Bytes, revision: i64) -> Compare {
        let target_union = Some(Target::ModRevision(revision));
        Compare { result: Compare::EQUAL, target: Compare::MOD, key, target_union }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub request: Option<Operation>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

impl From<Operation> for RequestOp {
    fn from(operation: Operation) -> RequestOp {
        RequestOp { request: Some(operation) }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseOp {
    #[prost(oneof = "OperationResponse", tags = "1, 2, 3")]
    pub response: Option<OperationResponse>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum OperationResponse {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
}

/// It is linearizable if it has any operation. One without operations is answered by the member alone, whose state may be
/// old.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

impl TxnRequest {
    /// The bytes of the request.
    pub fn size(&self) -> usize {
        self.encoded_len()
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CompactionResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}

impl Rpc for RangeRequest {
    const PATH: &'static str = "/etcdserverpb.KV/Range";
    type Answer = RangeResponse;
}

impl Rpc for TxnRequest {
    const PATH: &'static str = "/etcdserverpb.KV/Txn";
    type Answer = TxnResponse;
}

impl Rpc for CompactionRequest {
    const PATH: &'static str = "/etcdserverpb.KV/Compact";
    type Answer = CompactionResponse;
}

impl Rpc for StatusRequest {
    const PATH: &'static str = "/etcdserverpb.Maintenance/Status";
    type Answer = StatusResponse;
}

impl Rpc for AuthenticateRequest {
    const PATH: &'static str = "/etcdserverpb.Auth/Authenticate";
    type Answer = AuthenticateResponse;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_with_an_absent_key_names_the_revision_0() {
        let bytes = Compare::changed_by(Bytes::from_static(b"k"), 0).encode_to_vec();
        // EQUAL is the default; target 2 in field 2; the key in field 3; 0 in field 6, as a choice is never left out.
        assert_eq!(bytes, [0x10, 2, 0x1a, 1, b'k', 0x30, 0]);
    }

    #[test]
    fn a_put_in_a_transaction_has_the_bytes_of_the_protocol() {
        let put = PutRequest { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") };
        let txn = TxnRequest { success: vec![Operation::Put(put).into()], ..TxnRequest::default() };
        assert_eq!(txn.encode_to_vec(), [0x12, 8, 0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'v']);
    }

    #[test]
    fn unknown_fields_are_skipped() {
        // count = 300 in field 4, and more = true in field 3.
        let answer = RangeResponse::decode(&[0x20, 0xac, 0x02, 0x18, 1][..]).unwrap();
        assert!(answer.more && answer.kvs.is_empty());
    }
}
