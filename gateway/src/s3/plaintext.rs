//! What a signature must cover where requests cross a network without encryption, because an attacker on the path can
//! change everything else.

use hyper::Method;
use hyper::http::request::Parts;
use s3s::{S3Result, s3_error};

use super::signed::PAYLOAD;

/// Headers that affect nothing, or that proxies add. The length of a body is implied by its hash.
const MAY_BE_UNSIGNED: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "authorization",
    "connection",
    "content-length",
    "date",
    "expect",
    "forwarded",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "user-agent",
    "via",
    "x-amzn-trace-id",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Bodies whose chunks are signed one by one.
const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";

/// Refuses a request whose body or headers could be changed in transit. `signed` is its list of signed headers.
pub(super) fn check(head: &Parts, signed: &str) -> S3Result<()> {
    let is_signed = |name: &str| signed.split(';').any(|known| known == name);
    let unsigned = head.headers.keys().map(|name| name.as_str());
    if let Some(name) = unsigned.into_iter().find(|name| !MAY_BE_UNSIGNED.contains(name) && !is_signed(name)) {
        return Err(s3_error!(
            AccessDenied,
            "The header {name} is not signed, and this connection is not encrypted. Sign it, or connect through TLS or a \
             tunnel to the gateway's loopback address."
        ));
    }
    if !has_a_body(&head.method) || (is_signed(PAYLOAD) && head.headers.get_all(PAYLOAD).iter().all(is_a_hash)) {
        return Ok(());
    }
    Err(s3_error!(
        AccessDenied,
        "The body is not signed, and this connection is not encrypted. Sign the payload (x-amz-content-sha256), or \
         connect through TLS or a tunnel to the gateway's loopback address. A presigned URL that writes cannot be used here."
    ))
}

/// Returns whether a request of this method has a body. The bodies of other requests are ignored.
fn has_a_body(method: &Method) -> bool {
    *method == Method::PUT || *method == Method::POST
}

fn is_a_hash(value: &hyper::header::HeaderValue) -> bool {
    let value = value.as_bytes();
    value.starts_with(SIGNED_CHUNKS.as_bytes()) || (value.len() == 64 && value.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: Method, signed: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        let mut request = hyper::Request::builder().method(method).uri("/bucket/key");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let head = request.body(()).unwrap().into_parts().0;
        check(&head, signed).map_err(|error| error.message().unwrap_or_default().to_owned())
    }

    #[test]
    fn s09_a_body_must_be_signed() {
        let hash = "0".repeat(64);
        let put = |payload: &str| checked(Method::PUT, "host;x-amz-content-sha256", &[(PAYLOAD, payload)]);
        assert_eq!(put(&hash), Ok(()));
        assert_eq!(put("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"), Ok(()));
        assert!(put("UNSIGNED-PAYLOAD").unwrap_err().contains("body is not signed"));
        assert!(put("STREAMING-UNSIGNED-PAYLOAD-TRAILER").is_err());
        assert!(checked(Method::PUT, "host", &[]).is_err(), "as of a presigned URL");
        assert_eq!(checked(Method::GET, "host", &[]), Ok(()));
    }

    #[test]
    fn s09_a_header_must_be_signed() {
        let get = |signed: &str| checked(Method::GET, signed, &[("range", "bytes=0-1"), ("user-agent", "x")]);
        assert_eq!(get("host;range"), Ok(()));
        assert!(get("host").unwrap_err().contains("range is not signed"));
    }
}
