//! What a signature must cover and how long it may be valid, beyond what the S3 library requires.
//!
//! All of it is checked before the library verifies the signature. The library accepts several notations of a
//! signature. Only one is accepted here, and it is parsed as the library parses it.

use hyper::header::{AUTHORIZATION, DATE, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use s3s::dto::{Timestamp as HttpTime, TimestampFormat};
use s3s::{S3Error, S3Result, s3_error};

use super::options::Transport;
use super::plaintext;

/// A presigned URL is valid for at most a week, as in S3.
const MAX_PRESIGNED_SECONDS: u64 = 7 * 24 * 3600;

/// The only accepted algorithm, with the space after it.
const ALGORITHM: &str = "AWS4-HMAC-SHA256 ";

/// The members of the `Authorization` header, in their order.
const MEMBERS: [&str; 3] = ["Credential=", "SignedHeaders=", "Signature="];

/// May be unsigned with a presigned URL: it only states whether the body is signed.
pub(super) const PAYLOAD: &str = "x-amz-content-sha256";

/// The header with the time of the signature.
const AMZ_DATE: &str = "x-amz-date";

/// Refuses a signature that does not cover every header that matters, that never expires, or that is ambiguous. A
/// request without a signature passes here; it is refused later, when the library finds no credentials.
///
/// Several signatures are checked in the order of the library.
pub(super) fn check(head: &Parts, transport: Transport) -> S3Result<()> {
    let headers = &head.headers;
    let query: Vec<_> = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()).collect();
    let parameter = |name: &str| query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_ref());
    if parameter("Signature").is_some() {
        return Err(version_2());
    }
    if parameter("X-Amz-Signature").is_some() {
        lives(parameter("X-Amz-Expires"))?;
        let signed = parameter("X-Amz-SignedHeaders").unwrap_or_default();
        return match transport {
            Transport::Loopback => covers(headers, signed, Some(PAYLOAD)),
            Transport::Plaintext => covers(headers, signed, None).and_then(|()| plaintext::check(head, signed)),
        };
    }
    let Some(header) = authorization(headers)? else { return Ok(()) };
    let signed = signed_headers(header)?;
    covers(headers, signed, None)?;
    match transport {
        Transport::Loopback => Ok(()),
        Transport::Plaintext => plaintext::check(head, signed),
    }
}

/// Adds the `x-amz-date` that the library requires to a request signed with a `Date`, which SigV4 allows.
pub(super) fn date(headers: &mut HeaderMap) {
    if headers.contains_key(AMZ_DATE) {
        return;
    }
    // With an unsigned date, an old request could be replayed.
    let signed = authorization(headers).ok().flatten().and_then(|header| signed_headers(header).ok());
    if !signed.is_some_and(|names| names.split(';').any(|name| name == DATE.as_str())) {
        return;
    }
    let mut dates = headers.get_all(DATE).iter();
    if let (Some(date), None) = (dates.next(), dates.next())
        && let Some(date) = date.to_str().ok().and_then(amz_date)
    {
        headers.insert(AMZ_DATE, date);
    }
}

/// `Wed, 18 Nov 2026 02:00:00 GMT` as `20261118T020000Z`.
fn amz_date(text: &str) -> Option<HeaderValue> {
    let time = HttpTime::parse(TimestampFormat::HttpDate, text).ok()?;
    let mut shown = Vec::new();
    time.format(TimestampFormat::DateTime, &mut shown).ok()?;
    let shown = String::from_utf8(shown).ok()?;
    let seconds = shown.split(['.', 'Z']).next()?.replace(['-', ':'], "");
    HeaderValue::try_from(format!("{seconds}Z")).ok()
}

/// The only `Authorization` header, if it is of version 4.
fn authorization(headers: &HeaderMap) -> S3Result<Option<&str>> {
    let mut found = headers.get_all(AUTHORIZATION).iter();
    let header = match (found.next(), found.next()) {
        (None, _) => return Ok(None),
        (Some(header), None) => header.to_str().unwrap_or_default(),
        (Some(_), Some(_)) => return Err(s3_error!(InvalidRequest, "The header Authorization is there twice.")),
    };
    match header.starts_with(ALGORITHM) {
        true => Ok(Some(header)),
        false => Err(version_2()),
    }
}

/// The list of signed headers.
fn signed_headers(header: &str) -> S3Result<&str> {
    let malformed = || {
        s3_error!(
            InvalidRequest,
            "The header Authorization is not `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`, with each \
             of them once."
        )
    };
    let rest = header.strip_prefix(ALGORITHM).ok_or_else(malformed)?;
    let mut values = [""; MEMBERS.len()];
    let mut parts = rest.split(',');
    for (value, member) in values.iter_mut().zip(MEMBERS) {
        let part = parts.next().and_then(|part| part.trim().strip_prefix(member));
        *value = part.filter(|_| header.matches(member).count() == 1).ok_or_else(malformed)?;
    }
    match parts.next() {
        None => Ok(values[1]),
        Some(_) => Err(malformed()),
    }
}

/// The same answer as from S3, so that clients show it.
fn version_2() -> S3Error {
    s3_error!(
        InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256. Signature version \
         2 does not cover the whole request. Sign with version 4 (boto3: Config(signature_version=\"s3v4\"))."
    )
}

/// Checks that every header is signed that determines the operation or the server.
fn covers(headers: &HeaderMap, signed: &str, besides: Option<&str>) -> S3Result<()> {
    let is_signed = |name: &str| signed.split(';').any(|known| known == name);
    if !is_signed("host") {
        return Err(s3_error!(AccessDenied, "The header host is not signed, so any server could be meant. Sign it."));
    }
    for (name, value) in headers {
        let name = name.as_str();
        if !name.starts_with("x-amz-") || besides == Some(name) {
            continue;
        }
        // The library leaves headers that are not text out of the signature.
        if std::str::from_utf8(value.as_bytes()).is_err() {
            return Err(s3_error!(InvalidRequest, "The header {name} is not UTF-8."));
        }
        if !is_signed(name) {
            return Err(s3_error!(
                AccessDenied,
                "The header {name} is not signed. Sign every header that begins with x-amz-."
            ));
        }
    }
    Ok(())
}

fn lives(seconds: Option<&str>) -> S3Result<()> {
    match seconds.and_then(|seconds| seconds.parse::<u64>().ok()) {
        Some(seconds) if seconds > MAX_PRESIGNED_SECONDS => Err(s3_error!(
            AuthorizationQueryParametersError,
            "A presigned URL lives at most {MAX_PRESIGNED_SECONDS} seconds, a week."
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: &str, more: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        for (name, value) in more {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn head(target: &str, headers: HeaderMap) -> Parts {
        let mut head = hyper::Request::builder().uri(target).body(()).unwrap().into_parts().0;
        head.headers = headers;
        head
    }

    fn checked(authorization: &str, more: &[(&'static str, &str)]) -> Result<(), String> {
        let head = head("/bucket/key", headers(authorization, more));
        check(&head, Transport::Loopback).map_err(|error| error.message().unwrap_or_default().to_owned())
    }

    fn url(target: &str) -> S3Result<()> {
        check(&head(target, HeaderMap::new()), Transport::Loopback)
    }

    #[test]
    fn s02_there_is_one_way_to_write_a_signature() {
        let plain = "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host;x-amz-date, Signature=c";
        let added = [("x-amz-copy-source", "/a/b")];
        assert_eq!(checked(plain, &[]), Ok(()));
        assert_eq!(checked("AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host,Signature=c", &[]), Ok(()));
        assert!(checked(plain, &added).unwrap_err().contains("x-amz-copy-source is not signed"));
        for twofold in [
            "AWS4-X,SignedHeaders=host;x-amz-copy-source Credential=a, SignedHeaders=host, Signature=c",
            "AWS4-HMAC-SHA256 SignedHeaders=host;x-amz-copy-source, Credential=a, SignedHeaders=host, Signature=c",
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, SignedHeaders=host;x-amz-copy-source, Signature=c",
            "AWS4-HMAC-SHA256 Credential=SignedHeaders=host;x-amz-copy-source, SignedHeaders=host, Signature=c",
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=c, SignedHeaders=host;x-amz-copy-source",
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=c SignedHeaders=host;x-amz-copy-source",
            "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host",
        ] {
            let why = checked(twofold, &added).unwrap_err();
            assert!(why.contains("with each of them once") || why.contains("not supported"), "{twofold}: {why}");
        }
    }

    #[test]
    fn s17_other_versions_and_algorithms_are_refused() {
        for other in ["AWS key:signature", "AWS4-X Credential=a, SignedHeaders=host, Signature=c", "Bearer x", ""] {
            assert!(checked(other, &[]).unwrap_err().contains("Sign with version 4"), "{other}");
        }
        assert!(url("/bucket/key?AWSAccessKeyId=a&Expires=1&%53ignature=b").is_err());
        let nameless = "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=x-amz-date, Signature=c";
        assert!(checked(nameless, &[]).unwrap_err().contains("host is not signed"));
        assert!(url("/bucket/key?X-Amz-Signature=a&X-Amz-SignedHeaders=x-amz-date").is_err());
        assert!(url("/bucket/key?X-Amz-Signature=a&X-Amz-SignedHeaders=host").is_ok());
    }

    #[test]
    fn a_signed_date_takes_the_place_of_the_other() {
        let dated = |signed: &str| {
            let authorization = format!("AWS4-HMAC-SHA256 Credential=a, SignedHeaders={signed}, Signature=c");
            let mut headers = headers(&authorization, &[("date", "Wed, 18 Nov 2026 02:00:09 GMT")]);
            date(&mut headers);
            headers.get(AMZ_DATE).map(|date| date.to_str().unwrap().to_owned())
        };
        assert_eq!(dated("date;host").as_deref(), Some("20261118T020009Z"));
        assert_eq!(dated("host"), None);
    }
}
