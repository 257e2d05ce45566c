//! The body of an upload: what was promised of it, and its bytes, which must keep coming.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use s3s::TrailingHeaders;
use s3s::dto::StreamingBlob;
use s3s::{S3Result, s3_error};
use tokio::time::Sleep;

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

/// The bytes.
pub(super) fn bytes(body: Option<StreamingBlob>) -> impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin {
    let body = futures_util::stream::iter(body).flatten();
    body.map(|next| next.map_err(|error| unread(&error.to_string())))
}

/// A body that must keep coming: silence for too long is an error, whatever is done with it.
pub(super) struct Coming {
    body: Incoming,
    patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
}

impl Coming {
    pub(super) fn new(body: Incoming, patience: Duration) -> Coming {
        Coming { body, patience, silence: None }
    }
}

impl Body for Coming {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.silence = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let silence = this.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.patience)));
        ready!(silence.as_mut().poll(context));
        Poll::Ready(Some(Err(format!("nothing of it arrived for {} s", this.patience.as_secs()).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
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
