//! Conditions and ranges of requests, as S3 defines them.

use std::ops::Range;

use fencepost_objects::{Composition, Object, ObjectCondition};
use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, ETAG, EXPIRES, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LAST_MODIFIED,
};
use s3s::dto::{ETagCondition, Range as Wanted, Timestamp};
use s3s::{S3Error, S3Result, s3_error};

use super::attributes::{http_date, kept, time};
use super::errors;

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

/// The condition of a write whose input type in the S3 library has no fields for it.
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

/// How an unmet condition is answered.
#[derive(Clone, Copy)]
pub(super) enum Unmet {
    /// 304: the reader already has the object.
    NotModified,
    /// 412: the copy is not made.
    Failed,
}

impl OfRead {
    /// Checks the conditions in the order of RFC 9110: a condition on the ETag overrides the one on the time.
    pub(super) fn hold(&self, object: &Object, unmet: Unmet) -> S3Result<()> {
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

/// An answer without a body, with the headers that describe the object (RFC 9110, 15.4.5).
fn not_modified(object: &Object) -> S3Error {
    let mut error = s3_error!(NotModified, "Not modified.");
    let told = [
        (ETAG, Some(format!("\"{}\"", object.etag))),
        (LAST_MODIFIED, Some(http_date(&time(object.modified)))),
        (CACHE_CONTROL, kept(&object.attributes, "cache-control")),
        (EXPIRES, kept(&object.attributes, "expires")),
    ];
    // These headers replace all others, including the content type of the absent body.
    let mut headers = HeaderMap::new();
    for (name, value) in told {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    error.set_headers(headers);
    error
}

/// The requested bytes of an object.
pub(super) struct Bytes {
    pub(super) range: Range<u64>,
    /// The `Content-Range` of the answer, unless the whole object was requested.
    pub(super) shown: Option<String>,
    /// The number of parts of the object, if one part was requested.
    pub(super) parts_count: Option<i32>,
}

/// Determines the bytes that a range or a part number requests.
pub(super) fn wanted(wanted: Option<&Wanted>, part: Option<i32>, object: &Object) -> S3Result<Bytes> {
    match (wanted, part) {
        (Some(_), Some(_)) => Err(s3_error!(InvalidRequest, "A range and a partNumber cannot be given together.")),
        (wanted, None) => {
            let (range, shown) = range(wanted, object.size)?;
            Ok(Bytes { range, shown, parts_count: None })
        }
        (None, Some(number)) => part_of(object, number),
    }
}

/// The bytes of one part. An object that was not uploaded in parts counts as one part.
fn part_of(object: &Object, number: i32) -> S3Result<Bytes> {
    let composition = Composition::of(object);
    let sizes = match &composition {
        Composition::Whole => std::slice::from_ref(&object.size),
        Composition::Parts(sizes) => sizes.as_slice(),
        Composition::Unknown => {
            return Err(s3_error!(
                NotImplemented,
                "Where the parts of this object begin was not kept when it was uploaded. Read it by ranges."
            ));
        }
    };
    let before = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let Some((before, size)) = before.and_then(|before| Some((before, *sizes.get(before)?))) else {
        let text = format!("There is no part {number}: this object has {}.", sizes.len());
        return Err(errors::coded("InvalidPartNumber", StatusCode::RANGE_NOT_SATISFIABLE, text));
    };
    let start: u64 = sizes.iter().take(before).sum();
    let range = start..start + size;
    // `Content-Range` cannot express an empty range.
    let shown = (size > 0).then(|| format!("bytes {}-{}/{}", range.start, range.end - 1, object.size));
    let parts_count = match composition {
        Composition::Parts(_) => i32::try_from(sizes.len()).ok(),
        Composition::Whole | Composition::Unknown => None,
    };
    Ok(Bytes { range, shown, parts_count })
}

/// The range of the source of a part. It must lie within the source: a part that is shorter than expected would
/// produce a wrong object.
pub(super) fn source_range(asked: Option<&str>, size: u64) -> S3Result<Range<u64>> {
    let Some(asked) = asked else { return Ok(0..size) };
    let parsed = asked.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let parsed = parsed.and_then(|(first, last)| Some((decimal(first)?, decimal(last)?)));
    match parsed {
        Some((first, last)) if first <= last && last < size => Ok(first..last + 1),
        Some(_) => Err(s3_error!(
            InvalidArgument,
            "x-amz-copy-source-range `{asked}` does not lie in a source of {size} bytes."
        )),
        None => {
            Err(s3_error!(InvalidArgument, "x-amz-copy-source-range has the form `bytes=first-last`, counted from 0."))
        }
    }
}

/// Parses digits only: a range has no signs.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The requested bytes, and their `Content-Range` if they are not the whole object.
fn range(wanted: Option<&Wanted>, size: u64) -> S3Result<(Range<u64>, Option<String>)> {
    let Some(wanted) = wanted else { return Ok((0..size, None)) };
    let range = wanted
        .check(size)
        .map_err(|_| s3_error!(InvalidRange, "The range asked for does not lie in an object of {size} bytes."))?;
    let shown = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
    Ok((range, Some(shown)))
}
