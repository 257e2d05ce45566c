//! Conversion of errors to S3 errors.
//!
//! A refusal by the fence is 403, because clients then stop and show the message. They would retry 409 and 412, or
//! take them for a lost compare-and-swap.

use fencepost_core::{NameError, Reason, Refusal, Timestamp, Token};
use fencepost_objects::layout::LayoutError;
use fencepost_objects::{Failure, ObjectError, Rejected};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use s3s::{S3Error, S3ErrorCode};

/// The header with the current fence.
pub(super) const FENCE: HeaderName = HeaderName::from_static("fence");

/// Converts an error of the object service.
pub(super) fn s3_error(error: ObjectError) -> S3Error {
    let text = error.to_string();
    let plain = |code| S3Error::with_message(code, text.clone());
    match &error {
        ObjectError::Refused(refusals) => match refusals.first() {
            Some(refusal) => refused(refusal),
            None => plain(S3ErrorCode::InternalError),
        },
        ObjectError::ConditionFailed { fence } => with_fence(plain(S3ErrorCode::PreconditionFailed), *fence),
        ObjectError::NoObject(_) => plain(S3ErrorCode::NoSuchKey),
        ObjectError::NoUpload => plain(S3ErrorCode::NoSuchUpload),
        ObjectError::InvalidPart(_) => plain(S3ErrorCode::InvalidPart),
        ObjectError::PartOrder => plain(S3ErrorCode::InvalidPartOrder),
        ObjectError::PartTooSmall { .. } => plain(S3ErrorCode::EntityTooSmall),
        ObjectError::Incomplete { .. } | ObjectError::Body(_) => plain(S3ErrorCode::IncompleteBody),
        ObjectError::BadDigest(_) => plain(S3ErrorCode::BadDigest),
        ObjectError::TooLarge { .. } => plain(S3ErrorCode::EntityTooLarge),
        ObjectError::Expired => plain(S3ErrorCode::ExpiredToken),
        ObjectError::Revoked => plain(S3ErrorCode::InvalidAccessKeyId),
        ObjectError::NotEmpty => plain(S3ErrorCode::BucketNotEmpty),
        ObjectError::Name(_) => plain(S3ErrorCode::InvalidArgument),
        ObjectError::Collected => plain(S3ErrorCode::SlowDown),
        ObjectError::Layout(LayoutError::NoBucket(_)) => plain(S3ErrorCode::NoSuchBucket),
        ObjectError::Layout(LayoutError::Name(_)) => plain(S3ErrorCode::InvalidArgument),
        ObjectError::Layout(LayoutError::Clash(_)) => coded("ObjectNameClash", StatusCode::CONFLICT, text),
        ObjectError::Layout(LayoutError::NoSpace(_)) => {
            coded("InsufficientStorage", StatusCode::INSUFFICIENT_STORAGE, text)
        }
        ObjectError::Failure(Failure::Rejected(Rejected::NoSpace { .. })) => {
            coded("InsufficientStorage", StatusCode::INSUFFICIENT_STORAGE, text)
        }
        ObjectError::Failure(Failure::Rejected(_)) => plain(S3ErrorCode::SlowDown),
        ObjectError::Blocked { .. } => plain(S3ErrorCode::ServiceUnavailable),
        ObjectError::Unshown { .. }
        | ObjectError::Changed { .. }
        | ObjectError::Layout(LayoutError::Missing(_) | LayoutError::Failed { .. })
        | ObjectError::Failure(Failure::Unknown(_))
        | ObjectError::Read(_)
        | ObjectError::Unknown(_) => {
            tracing::error!(%error, "an S3 request failed");
            plain(S3ErrorCode::InternalError)
        }
    }
}

/// The error for a name that no object can have.
pub(super) fn name(shown: &str, error: &NameError) -> S3Error {
    let code = match error {
        NameError::TooLong(_) => S3ErrorCode::KeyTooLongError,
        _ => S3ErrorCode::InvalidArgument,
    };
    let shown: String = shown.chars().take(100).flat_map(char::escape_debug).collect();
    S3Error::with_message(code, format!("`{shown}` cannot be the name of an object here: {error}."))
}

/// A refusal by the fence.
fn refused(refusal: &Refusal) -> S3Error {
    let code = match refusal.reason {
        Reason::Stale => "StaleFencingToken",
        Reason::MissingToken => "MissingFencingToken",
        Reason::Spent => "SpentFencingToken",
        Reason::Collision => "FencingTokenCollision",
        Reason::ForeignIssuer => "ForeignFencingIssuer",
        Reason::MissingIssuer => "MissingFencingIssuer",
        Reason::RetiredGeneration => "RetiredFencingGeneration",
        Reason::UnknownGeneration => "UnknownFencingGeneration",
        Reason::Implausible => "ImplausibleFencingToken",
        Reason::Unclaimed => "UnclaimedFencingToken",
    };
    let advice = match refusal.reason {
        Reason::MissingToken => {
            "These credentials carry no fencing token. Write with lease credentials (fencepost s3 credentials)."
        }
        reason => reason.advice(),
    };
    let text = format!("{} {advice}", refusal.detail(Timestamp::now()));
    with_fence(coded(code, StatusCode::FORBIDDEN, text), refusal.found.token())
}

pub(super) fn coded(code: &'static str, status: StatusCode, text: String) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), text);
    error.set_status_code(status);
    error
}

pub(super) fn with_fence(mut error: S3Error, fence: Option<Token>) -> S3Error {
    if let Some(fence) = fence.and_then(|fence| HeaderValue::try_from(fence.to_string()).ok()) {
        // The error's own headers replace all others, so the content type is set too.
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        headers.insert(FENCE, fence);
        error.set_headers(headers);
    }
    error
}
