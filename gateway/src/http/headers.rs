//! The headers of a request, decoded.

use fencepost_core::wire::header;
use fencepost_core::{Holder, IdempotencyKey, Issuer, Presented};
use fencepost_store::Condition;
use fencepost_store::engine::Version;
use fencepost_store::record::{LeaseId, MAX_CONTENT_TYPE_BYTES};
use hyper::header::{
    CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HOST, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Version as HttpVersion};

use super::problem::Problem;
use fencepost_core::ProblemKind;

const TOKEN: HeaderName = HeaderName::from_static(header::FENCING_TOKEN);
const HOLDER: HeaderName = HeaderName::from_static(header::FENCING_HOLDER);
const ISSUER: HeaderName = HeaderName::from_static(header::FENCING_ISSUER);
const LEASE: HeaderName = HeaderName::from_static(header::FENCING_LEASE);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static(header::IDEMPOTENCY_KEY);

/// Refuses headers over the limit.
pub(super) fn within(headers: &HeaderMap, limit: usize) -> Result<(), Problem> {
    // Name, colon, space, value, line end.
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes > limit { Err(Problem::headers_too_large(bytes, limit)) } else { Ok(()) }
}

/// HTTP/1.1 requires exactly one `Host`. Otherwise two servers on the path may interpret one request differently.
pub(super) fn one_host(head: &Parts) -> Result<(), Problem> {
    match head.headers.get_all(HOST).iter().count() {
        1 => Ok(()),
        0 if head.version != HttpVersion::HTTP_11 => Ok(()),
        0 => Err(Problem::header("host", "it is missing")),
        _ => Err(Problem::header("host", "it is given more than once")),
    }
}

/// The only value of a header. A repeated header is refused, even if its values are equal.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), rest) = (values.next(), values.next()) else { return Ok(None) };
    if rest.is_some() {
        return Err(Problem::header(name.as_str(), "it is given more than once"));
    }
    // Not `to_str`, which allows ASCII only: holders may be any UTF-8.
    std::str::from_utf8(value.as_bytes()).map(Some).map_err(|_| Problem::header(name.as_str(), "it is not UTF-8"))
}

/// The token, its holder and its issuer.
pub(super) fn presented(headers: &HeaderMap) -> Result<Option<Presented>, Problem> {
    let token = single(headers, &TOKEN)?.map(str::parse).transpose()?;
    let holder = single(headers, &HOLDER)?.map(Holder::new).transpose();
    let holder = holder.map_err(|error| Problem::header(header::FENCING_HOLDER, &error.to_string()))?;
    let issuer = single(headers, &ISSUER)?.map(Issuer::new).transpose();
    let issuer = issuer.map_err(|error| Problem::header(header::FENCING_ISSUER, &error.to_string()))?;
    Ok(token.map(|token| Presented { token, holder, issuer }))
}

/// The lease to renew or release, if a header names it.
pub(super) fn lease(headers: &HeaderMap) -> Result<Option<LeaseId>, Problem> {
    let lease = single(headers, &LEASE)?.map(str::parse::<LeaseId>).transpose();
    lease.map_err(|why: &str| Problem::header(header::FENCING_LEASE, why))
}

/// Refuses a read with a holder or issuer but no token: it looks checked, and is not.
pub(super) fn presented_for_read(headers: &HeaderMap) -> Result<Option<Presented>, Problem> {
    let presented = presented(headers)?;
    for name in [&HOLDER, &ISSUER] {
        if presented.is_none() && headers.contains_key(name) {
            return Err(Problem::header(
                name.as_str(),
                "it needs a fencing-token beside it; without one the read is not checked",
            ));
        }
    }
    Ok(presented)
}

/// The idempotency key, which all retries of a request share. Quotes around it, as an Internet draft asks for, are not
/// part of it.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(text) = single(headers, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let key = IdempotencyKey::new(text);
    key.map(Some).map_err(|error| Problem::header(header::IDEMPOTENCY_KEY, &error.to_string()))
}

/// Whether the request has an idempotency key, so that it may be a retry.
pub(super) fn has_idempotency_key(headers: &HeaderMap) -> bool {
    headers.contains_key(&IDEMPOTENCY_KEY)
}

/// Refuses an idempotency key where no outcome is kept.
pub(super) fn no_idempotency_key(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.contains_key(&IDEMPOTENCY_KEY) {
        let detail = "header idempotency-key: this call keeps no outcome, and needs none: repeat it as it is";
        return Err(Problem::new(ProblemKind::UnsupportedHeader, detail));
    }
    Ok(())
}

/// A request's conditions as they were sent, for its fingerprint.
pub(super) fn raw_conditions(headers: &HeaderMap) -> [&[u8]; 2] {
    [IF_MATCH, IF_NONE_MATCH].map(|name| headers.get(name).map_or(&b""[..], |value| value.as_bytes()))
}

/// Refuses conditions where they would be ignored.
pub(super) fn no_conditions(headers: &HeaderMap, instead: &str) -> Result<(), Problem> {
    refuse(headers, &[IF_MATCH, IF_NONE_MATCH], instead)
}

/// Refuses a token where it would be ignored.
pub(super) fn no_token(headers: &HeaderMap, instead: &str) -> Result<(), Problem> {
    refuse(headers, &[TOKEN, HOLDER, ISSUER], instead)
}

fn refuse(headers: &HeaderMap, names: &[HeaderName], instead: &str) -> Result<(), Problem> {
    match names.iter().find(|name| headers.contains_key(*name)) {
        Some(name) => Err(Problem::new(ProblemKind::UnsupportedHeader, format!("header {name}: {instead}"))),
        None => Ok(()),
    }
}

/// Headers for features that this version does not have. Ignoring one would silently promise the feature.
const UNSUPPORTED: [(HeaderName, &str); 3] = [
    (CONTENT_RANGE, "a value is written whole, never in part"),
    (
        CONTENT_ENCODING,
        "encodings are not kept, so readers could not decode the value; send it plain, or name a content type",
    ),
    (IF_UNMODIFIED_SINCE, "conditions on time are not precise enough; use If-Match"),
];

/// Refuses headers that are not safe to ignore.
pub(super) fn none_unsupported(headers: &HeaderMap) -> Result<(), Problem> {
    match UNSUPPORTED.iter().find(|(name, _)| headers.contains_key(name)) {
        Some((name, why)) => Err(Problem::new(ProblemKind::UnsupportedHeader, format!("header {name}: {why}"))),
        None => Ok(()),
    }
}

const FORM: &str = "application/x-www-form-urlencoded";

/// The type of a value, if the request names one.
pub(super) fn content_type(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    match single(headers, &CONTENT_TYPE)? {
        Some(value) if value.len() > MAX_CONTENT_TYPE_BYTES => {
            Err(Problem::header("content-type", &format!("it is longer than {MAX_CONTENT_TYPE_BYTES} bytes")))
        }
        Some("") | None => Ok(None),
        // The default of `curl -d`, which does not describe the value.
        Some(value) if value.eq_ignore_ascii_case(FORM) => Ok(None),
        Some(value) => Ok(Some(value.to_owned())),
    }
}

/// Entity tags in a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tags {
    Any,
    These(Vec<Tag>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    weak: bool,
    /// `None`: a tag that this gateway never issued; it matches nothing.
    version: Option<Version>,
}

impl Tags {
    /// Whether a value with this version matches by weak comparison, as reads need it.
    pub(super) fn match_weakly(&self, current: Option<Version>) -> bool {
        match self {
            Tags::Any => current.is_some(),
            Tags::These(tags) => current.is_some() && tags.iter().any(|tag| tag.version == current),
        }
    }

    fn strong_versions(tags: Vec<Tag>) -> Vec<Version> {
        tags.into_iter().filter(|tag| !tag.weak).filter_map(|tag| tag.version).collect()
    }
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
    let wrong = || Problem::header(name.as_str(), "write `*`, or versions in double quotes as they came in ETag");
    let Some(text) = single(headers, name)? else { return Ok(None) };
    if text.trim() == "*" {
        return Ok(Some(Tags::Any));
    }
    let tags: Option<Vec<Tag>> = text.split(',').map(|tag| tag_of(tag.trim())).collect();
    tags.map(|tags| Some(Tags::These(tags))).ok_or_else(wrong)
}

/// The version that a transaction's condition asks for, with or without its quotes. `None` matches nothing.
pub(super) fn version_of(etag: &str) -> Option<Version> {
    let tag = tag_of(etag).or_else(|| tag_of(&format!("\"{etag}\"")))?;
    tag.version.filter(|_| !tag.weak)
}

fn tag_of(text: &str) -> Option<Tag> {
    let (weak, quoted) = match text.strip_prefix("W/") {
        Some(quoted) => (true, quoted),
        None => (false, text),
    };
    let opaque = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if opaque.contains('"') {
        return None;
    }
    let version = opaque.parse().ok().filter(|number: &u64| number.to_string() == opaque).map(Version);
    Some(Tag { weak, version })
}

/// The condition of a write: `If-Match`, or `If-None-Match: *`.
pub(super) fn write_condition(headers: &HeaderMap) -> Result<Condition, Problem> {
    match (tags(headers, &IF_MATCH)?, tags(headers, &IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::Always),
        (Some(Tags::Any), None) => Ok(Condition::Exists),
        (Some(Tags::These(tags)), None) => Ok(Condition::AnyOf(Tags::strong_versions(tags))),
        (None, Some(Tags::Any)) => Ok(Condition::Absent),
        (None, Some(Tags::These(_))) => Err(Problem::header("if-none-match", "for a write only `*` is supported")),
        (Some(_), Some(_)) => Err(Problem::header("if-match", "it cannot be combined with If-None-Match")),
    }
}

/// The conditions of a read: `If-Match`, then `If-None-Match`.
pub(super) fn read_conditions(headers: &HeaderMap) -> Result<(Option<Tags>, Option<Tags>), Problem> {
    Ok((tags(headers, &IF_MATCH)?, tags(headers, &IF_NONE_MATCH)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn conditions_of_writes() {
        let condition = |pairs: &[(&'static str, &str)]| write_condition(&headers(pairs)).map_err(|p| p.kind());
        assert_eq!(condition(&[]), Ok(Condition::Always));
        assert_eq!(condition(&[("if-match", "*")]), Ok(Condition::Exists));
        assert_eq!(condition(&[("if-none-match", "*")]), Ok(Condition::Absent));
        assert_eq!(condition(&[("if-match", "\"7\", \"8\"")]), Ok(Condition::AnyOf(vec![Version(7), Version(8)])));
        assert_eq!(condition(&[("if-match", "\"theirs\"")]), Ok(Condition::AnyOf(vec![])));
        assert_eq!(condition(&[("if-match", "W/\"7\"")]), Ok(Condition::AnyOf(vec![])));
        assert_eq!(condition(&[("if-match", "\"07\"")]), Ok(Condition::AnyOf(vec![])));
        for bad in [
            &[("if-match", "7")][..],
            &[("if-match", "")],
            &[("if-match", "\"7")],
            &[("if-none-match", "\"7\"")],
            &[("if-match", "*"), ("if-none-match", "*")],
            &[("if-match", "*"), ("if-match", "*")],
        ] {
            assert_eq!(condition(bad), Err(ProblemKind::MalformedHeader), "{bad:?}");
        }
    }

    #[test]
    fn a_repeated_token_is_refused_even_if_equal() {
        let problem = presented(&headers(&[("fencing-token", "34"), ("fencing-token", "34")]));
        assert_eq!(problem.unwrap_err().kind(), ProblemKind::MalformedHeader);
        let joined = presented(&headers(&[("fencing-token", "34, 35")]));
        assert_eq!(joined.unwrap_err().kind(), ProblemKind::MalformedToken);
    }
}
