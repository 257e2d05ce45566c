//! Conditions of requests: what S3 means by them.

use std::ops::Range;

use fencepost_store::ObjectCondition;
use fencepost_store::record::ObjectRecord;
use hyper::header::{
    CACHE_CONTROL, ETAG, EXPIRES, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED,
};
use s3s::dto::{ETagCondition, Range as Wanted, Timestamp};
use s3s::{S3Error, S3Result, s3_error};

use super::attributes::{http_date, kept, time};

/// The condition of a write.
pub(super) fn of_write(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> S3Result<ObjectCondition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(ObjectCondition::Always),
        (Some(ETagCondition::Any), None) => Ok(ObjectCondition::Exists),
        (Some(ETagCondition::ETag(etag)), None) => Ok(ObjectCondition::ETag(etag.into_value())),
        (None, Some(ETagCondition::Any)) => Ok(ObjectCondition::Absent),
        (None, Some(ETagCondition::ETag(etag))) => Ok(ObjectCondition::NotETag(etag.into_value())),
        (Some(_), Some(_)) => Err(s3_error!(InvalidRequest, "If-Match and If-None-Match cannot be given together.")),
    }
}

/// The same, of a call that has no place for them.
pub(super) fn of_headers(headers: &HeaderMap) -> S3Result<ObjectCondition> {
    let condition = |name: HeaderName| {
        let found = headers.get(&name).map(|value| ETagCondition::parse_http_header(value.as_bytes())).transpose();
        found.map_err(|error| s3_error!(InvalidArgument, "{name}: {error}"))
    };
    of_write(condition(IF_MATCH)?, condition(IF_NONE_MATCH)?)
}

/// Conditions of a read, or of the source of a copy.
pub(super) struct OfRead {
    pub(super) if_match: Option<ETagCondition>,
    pub(super) if_none_match: Option<ETagCondition>,
    pub(super) if_modified_since: Option<Timestamp>,
    pub(super) if_unmodified_since: Option<Timestamp>,
}

/// What a condition that does not hold means.
#[derive(Clone, Copy)]
pub(super) enum Unmet {
    /// A reader has it already: 304.
    NotModified,
    /// A copy is not made: 412.
    Failed,
}

impl OfRead {
    /// As RFC 9110 orders them: a condition on the ETag makes the one on the time of no account.
    pub(super) fn hold(&self, object: &ObjectRecord, unmet: Unmet) -> S3Result<()> {
        let matches = |condition: &ETagCondition| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(etag) => etag.value() == object.etag,
        };
        let changed_after = |since: &Timestamp| time(object.modified) > *since;
        let wanted = match (&self.if_match, &self.if_unmodified_since) {
            (Some(condition), _) => matches(condition),
            (None, Some(since)) => !changed_after(since),
            (None, None) => true,
        };
        if !wanted {
            return Err(s3_error!(PreconditionFailed, "A condition of the request does not hold."));
        }
        let fresh = match (&self.if_none_match, &self.if_modified_since) {
            (Some(condition), _) => !matches(condition),
            (None, Some(since)) => changed_after(since),
            (None, None) => true,
        };
        match (fresh, unmet) {
            (true, _) => Ok(()),
            (false, Unmet::NotModified) => Err(not_modified(object)),
            (false, Unmet::Failed) => {
                Err(s3_error!(PreconditionFailed, "A condition on the source of the copy does not hold."))
            }
        }
    }
}

/// An answer without a body, which says of what, and for how long (RFC 9110, 15.4.5).
fn not_modified(object: &ObjectRecord) -> S3Error {
    let mut error = s3_error!(NotModified, "Not modified.");
    let told = [
        (ETAG, Some(format!("\"{}\"", object.etag))),
        (LAST_MODIFIED, Some(http_date(&time(object.modified)))),
        (CACHE_CONTROL, kept(&object.attributes, "cache-control")),
        (EXPIRES, kept(&object.attributes, "expires")),
    ];
    // These take the place of all others, also of the type of a body that there is not.
    let mut headers = HeaderMap::new();
    for (name, value) in told {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    error.set_headers(headers);
    error
}

/// Which bytes are wanted, and how that is told if they are not all.
pub(super) fn range(wanted: Option<&Wanted>, size: u64) -> S3Result<(Range<u64>, Option<String>)> {
    let Some(wanted) = wanted else { return Ok((0..size, None)) };
    let range = wanted
        .check(size)
        .map_err(|_| s3_error!(InvalidRange, "The range asked for does not lie in an object of {size} bytes."))?;
    let shown = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
    Ok((range, Some(shown)))
}
