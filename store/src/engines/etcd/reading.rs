//! Loads and scans. Whatever needs several requests reads all of it at the revision of the first.

use std::time::Duration;

use bytes::Bytes;
use fencepost_remote::etcd::messages::{
    KeyValue, Operation, OperationResponse, RangeRequest, RequestOp, ResponseOp, TxnRequest,
};
use fencepost_remote::etcd::{Refusal, Trouble};
use tokio::time::Instant;

use super::Etcd;
use super::history::History;
use super::keys::{after, parts};
use super::trouble::explained;
use crate::engine::{EngineError, Record, Scan, Scanned, Version, Wanted};

/// The time limit of one request. etcd lets a read that began while there was no leader wait for longer.
const LIMIT: Duration = Duration::from_secs(3);

/// How long a read is tried again.
const PATIENCE: Duration = Duration::from_secs(8);

/// The pause before a read is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// The most bytes of an answer, unless a single record may be larger.
const ANSWER_BYTES: usize = 8 << 20;

/// How many records are asked for at once by a scan: first, and later.
const FIRST_PAGE: usize = 128;
const LARGEST_PAGE: usize = 1024;

impl Etcd {
    /// Reads, and tries again what another attempt or another member may answer.
    pub(super) async fn read<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        let turn = self.reads.acquire().await;
        let _turn = turn.map_err(|_| EngineError("the engine is closed".to_owned()))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match attempt().await {
                Ok(read) => return Ok(read),
                Err(trouble) if self.fault.get().is_none() && may_pass(&trouble) && Instant::now() < deadline => {
                    tracing::debug!(cluster = %self.settings, %trouble, "a read is tried again");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(trouble) => return Err(EngineError(self.settings.unusable(explained(&trouble)).to_string())),
            }
        }
    }

    /// Loads records as of one revision.
    ///
    /// etcd has no answer with a size and without the value, so a record of which only the version is wanted is read as
    /// well, and dropped. Values are small here.
    pub(super) async fn load_once(&self, wanted: &[Wanted], mut spare: usize) -> Result<Vec<Option<Record>>, Trouble> {
        let history = *self.history.read();
        let mut records: Vec<Option<Record>> = Vec::with_capacity(wanted.len());
        let (mut at_once, mut revision) = (self.settings.max_ops, 0);
        while records.len() < wanted.len() {
            let rest = &wanted[records.len()..];
            let part = &rest[..rest.len().min(at_once)];
            let range = |wanted: &Wanted| -> RequestOp {
                let key = self.settings.keys.of(wanted.key.as_bytes());
                Operation::Range(RangeRequest { key, revision, ..RangeRequest::default() }).into()
            };
            let request = TxnRequest { success: part.iter().map(range).collect(), ..TxnRequest::default() };
            let known = self.seen();
            let answer = match self.channel.call(&request, LIMIT, self.answer_bytes()).await {
                Err(Trouble::Oversized { .. }) if part.len() > 1 => {
                    at_once = part.len().div_ceil(2);
                    continue;
                }
                answer => answer?,
            };
            let now = self.note(answer.header.as_ref(), known)?;
            if revision == 0 {
                revision = now;
            }
            if answer.responses.len() != part.len() {
                return Err(Trouble::Unknown("its answer lacks a part of what was asked for".to_owned()));
            }
            for (wanted, response) in part.iter().zip(&answer.responses) {
                let found = found(response).map(|found| decoded(found, &history)).transpose()?;
                records.push(found.map(|(version, bytes)| match wanted.want.takes(bytes.len(), &mut spare) {
                    // A copy: a part of the answer would keep all of it in memory.
                    true => Record::whole(version, Bytes::copy_from_slice(bytes)),
                    false => Record::head(version, bytes.len()),
                }));
            }
        }
        Ok(records)
    }

    /// Reads a run of records as of one revision.
    pub(super) async fn scan_once(&self, scan: &Scan) -> Result<Scanned, Trouble> {
        let history = *self.history.read();
        let (mut scanned, mut taken) = (Scanned::default(), 0);
        let Some((mut from, end)) = self.settings.keys.range(scan) else { return Ok(scanned) };
        let (mut page, mut revision) = (FIRST_PAGE, 0);
        loop {
            // One more than the limit shows whether there is more.
            let count = (scan.limit - scanned.records.len()).saturating_add(1).min(page);
            let request = RangeRequest {
                key: from.clone(),
                range_end: end.clone(),
                limit: i64::try_from(count).unwrap_or(i64::MAX),
                revision,
                keys_only: false,
            };
            let known = self.seen();
            let answer = match self.channel.call(&request, LIMIT, self.answer_bytes()).await {
                Err(Trouble::Oversized { .. }) if count > 1 => {
                    page = count.div_ceil(2);
                    continue;
                }
                answer => answer?,
            };
            let now = self.note(answer.header.as_ref(), known)?;
            if revision == 0 {
                revision = now;
            }
            for found in &answer.kvs {
                let Some(key) = self.settings.keys.record(&found.key) else { continue };
                let (version, bytes) = decoded(found, &history)?;
                let record = Record::whole(version, Bytes::copy_from_slice(bytes));
                if !scanned.push(scan, &mut taken, key, record) {
                    return Ok(scanned);
                }
            }
            match answer.kvs.last() {
                Some(last) if answer.more => from = after(&last.key),
                _ => return Ok(scanned),
            }
            page = (page * 2).min(LARGEST_PAGE);
        }
    }

    /// The revision that changed a key last; 0 if it is absent.
    pub(super) async fn changed_by(&self, key: &Bytes) -> Result<i64, Trouble> {
        let request = RangeRequest { key: key.clone(), keys_only: true, ..RangeRequest::default() };
        let known = self.seen();
        let answer = self.channel.call(&request, LIMIT, self.answer_bytes()).await?;
        self.note(answer.header.as_ref(), known)?;
        Ok(answer.kvs.first().map_or(0, |found| found.mod_revision))
    }

    /// The most bytes of an answer. A record may have been written with a higher limit than the present one.
    pub(super) fn answer_bytes(&self) -> usize {
        ANSWER_BYTES.max(2 * self.settings.max_request())
    }
}

/// Whether another attempt may succeed: at another member, or at a newer revision if the one of the first request was
/// compacted.
fn may_pass(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Unknown(_)) || trouble.is(Refusal::Revision)
}

/// The only key in the answer to one operation.
pub(super) fn found(response: &ResponseOp) -> Option<&KeyValue> {
    match &response.response {
        Some(OperationResponse::Range(range)) => range.kvs.first(),
        Some(OperationResponse::Put(_) | OperationResponse::DeleteRange(_)) | None => None,
    }
}

/// The version and the bytes of a record.
fn decoded<'f>(found: &'f KeyValue, history: &History) -> Result<(Version, &'f [u8]), Trouble> {
    match parts(&found.value) {
        Some((place, bytes)) => Ok((history.version(found.mod_revision, place), bytes)),
        None => {
            let key = String::from_utf8_lossy(&found.key).into_owned();
            Err(Trouble::Unknown(format!(
                "the value of `{key}` is not one of fencepost's; did something else write it?"
            )))
        }
    }
}
