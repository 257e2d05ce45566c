//! The body of an upload: what was promised of it, and its bytes, which must keep coming.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use hyper::header::HeaderMap;
use s3s::TrailingHeaders;
use s3s::dto::StreamingBlob;
use s3s::{S3Result, s3_error};

use crate::objects::{Algorithm, ObjectError, Promised};

/// The largest object that comes in one piece, and the largest part, as S3 has it.
pub(super) const MAX_PIECE_BYTES: u64 = 5 << 30;

/// Checksums as a request gives them.
pub(super) fn checksums(given: [Option<String>; 5]) -> Vec<(Algorithm, String)> {
    Algorithm::ALL.into_iter().zip(given).filter_map(|(algorithm, sum)| Some((algorithm, sum?))).collect()
}

/// What a request promises of its body.
pub(super) fn promised(
    headers: &HeaderMap,
    length: Option<i64>,
    md5: Option<String>,
    checksums: Vec<(Algorithm, String)>,
) -> S3Result<Promised> {
    let mut announced = Vec::new();
    for trailer in headers.get_all("x-amz-trailer") {
        for name in trailer.to_str().unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase()) {
            match Algorithm::ALL.into_iter().find(|algorithm| algorithm.header() == name) {
                Some(algorithm) => announced.push(algorithm),
                None => return Err(s3_error!(InvalidRequest, "The trailer `{name}` is not known here.")),
            }
        }
    }
    let length = length.map(u64::try_from).transpose().map_err(|_| s3_error!(InvalidArgument))?;
    if length.is_some_and(|length| length > MAX_PIECE_BYTES) {
        return Err(s3_error!(
            EntityTooLarge,
            "An object in one piece has at most {MAX_PIECE_BYTES} bytes; upload it in parts."
        ));
    }
    Ok(Promised { length, md5, checksums, announced, limit: MAX_PIECE_BYTES })
}

/// The bytes; silence for too long is an error.
pub(super) fn bytes(
    body: Option<StreamingBlob>,
    patience: Duration,
) -> impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin {
    let body = futures_util::stream::iter(body).flatten();
    Box::pin(futures_util::stream::unfold(body, move |mut body| async move {
        let next = match tokio::time::timeout(patience, body.next()).await {
            Ok(next) => next?.map_err(|error| unread(&error.to_string())),
            Err(_) => Err(ObjectError::Body(format!("nothing of it arrived for {} s", patience.as_secs()))),
        };
        Some((next, body))
    }))
}

/// What the S3 library found wrong with a body. Its errors are known by their names only.
fn unread(error: &str) -> ObjectError {
    let name = error.rsplit(": ").next().unwrap_or(error);
    match name {
        "Sha256Mismatch" => ObjectError::BadDigest("x-amz-content-sha256 is not the SHA-256 of the body".to_owned()),
        "SignatureMismatch" => {
            ObjectError::BadDigest("a chunk of the body does not have the signature it came with".to_owned())
        }
        "FormatError" => ObjectError::Body("its chunks are not framed as `aws-chunked` says".to_owned()),
        "Incomplete" => ObjectError::Body("it ended early".to_owned()),
        "LengthMismatch" => ObjectError::Body("it is longer than was announced".to_owned()),
        _ => ObjectError::Body(error.to_owned()),
    }
}

/// What comes after the body.
pub(super) fn trailer(headers: Option<TrailingHeaders>) -> impl FnOnce() -> Vec<(Algorithm, String)> + Send {
    move || {
        let found = headers.and_then(|headers| headers.take()).unwrap_or_default();
        let sums = Algorithm::ALL.into_iter().filter_map(|algorithm| {
            let value = found.get(algorithm.header())?.to_str().ok()?;
            Some((algorithm, value.to_owned()))
        });
        sums.collect()
    }
}
