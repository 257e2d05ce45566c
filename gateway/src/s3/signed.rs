//! What a signature has to cover, and how long it may live, beyond what the S3 library asks of it.

use fencepost_core::Timestamp;
use hyper::Uri;
use hyper::header::{AUTHORIZATION, HeaderMap};
use s3s::{S3Result, s3_error};

/// A presigned URL lives at most a week, as with S3.
const MAX_PRESIGNED_SECONDS: u64 = 7 * 24 * 3600;

/// Says what may be sent unsigned beside a presigned URL: it says itself that the body is not signed.
const BESIDE_PRESIGNED: &str = "x-amz-content-sha256";

/// Refuses a request, verified already, whose signature leaves out something that decides what is done, or never ages.
///
/// Which signature was verified, if there are several, is asked in the order of the S3 library.
pub(super) fn check(headers: &HeaderMap, uri: &Uri) -> S3Result<()> {
    let query: Vec<_> = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect();
    let parameter = |name: &str| query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_ref());
    // Version 2, which covers every such header.
    if parameter("Signature").is_some() {
        return lives(parameter("Expires"), Timestamp::now().0 / 1000);
    }
    if parameter("X-Amz-Signature").is_some() {
        lives(parameter("X-Amz-Expires"), 0)?;
        return covers(headers, parameter("X-Amz-SignedHeaders").unwrap_or_default(), Some(BESIDE_PRESIGNED));
    }
    match headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        Some(header) if header.starts_with("AWS4-") => {
            let signed = header.split([',', ' ']).find_map(|part| part.trim().strip_prefix("SignedHeaders="));
            covers(headers, signed.unwrap_or_default(), None)
        }
        _ => Err(s3_error!(
            InvalidRequest,
            "Signature version 2 in a header never ages, and does not cover the body. Sign with version 4."
        )),
    }
}

/// Is every header signed that says what to do?
fn covers(headers: &HeaderMap, signed: &str, besides: Option<&str>) -> S3Result<()> {
    let unsigned = headers.keys().map(|name| name.as_str()).find(|name| {
        name.starts_with("x-amz-") && besides != Some(name) && !signed.split(';').any(|known| known == *name)
    });
    match unsigned {
        None => Ok(()),
        Some(name) => {
            Err(s3_error!(AccessDenied, "The header {name} is not signed. Sign every header that begins with x-amz-."))
        }
    }
}

fn lives(until: Option<&str>, from: u64) -> S3Result<()> {
    match until.and_then(|until| until.parse::<u64>().ok()) {
        Some(until) if until.saturating_sub(from) > MAX_PRESIGNED_SECONDS => Err(s3_error!(
            AuthorizationQueryParametersError,
            "A presigned URL lives at most {MAX_PRESIGNED_SECONDS} seconds, a week."
        )),
        _ => Ok(()),
    }
}
