//! The body of an upload: what was promised of it, and its bytes, which must keep coming.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::HeaderMap;
use s3s::TrailingHeaders;
use s3s::dto::StreamingBlob;
use s3s::{S3Request, S3Result, s3_error};
use tokio::time::Sleep;

use super::chunks::{self, Chunks};
use crate::listener::Arriving;
use crate::objects::{Algorithm, Measure, ObjectError, Promised};

type BoxError = Box<dyn Error + Send + Sync>;

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
    // Of a body in chunks, the library compares what comes only with a length that is not in chunks.
    let decoded = headers.get("x-amz-decoded-content-length").filter(|_| chunks::are_used(headers));
    let decoded = decoded.and_then(|length| length.to_str().ok()?.trim().parse::<i64>().ok());
    let length = decoded.or(length).map(u64::try_from).transpose().map_err(|_| s3_error!(InvalidArgument))?;
    if length.is_some_and(|length| length > MAX_PIECE_BYTES) {
        return Err(s3_error!(
            EntityTooLarge,
            "An object in one piece has at most {MAX_PIECE_BYTES} bytes; upload it in parts."
        ));
    }
    Ok(Promised { length, md5, checksums, announced, limit: MAX_PIECE_BYTES })
}

/// Is the body of a request, which was taken whole, what its headers promise?
pub(super) fn arrived_whole<T>(request: &S3Request<T>) -> S3Result<Result<(), ObjectError>> {
    let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let checksums = checksums(Algorithm::ALL.map(|algorithm| header(algorithm.header())));
    let promised = promised(&request.headers, None, header("content-md5"), checksums)?;
    if promised.md5.is_none() && promised.checksums.is_empty() && promised.announced.is_empty() {
        return Ok(Ok(()));
    }
    let measuring = request.extensions.get::<Measuring>().filter(|_| promised.announced.is_empty());
    let Some(Measuring(measure)) = measuring else {
        return Err(s3_error!(NotImplemented, "A list comes with its checksum in a header, and not in chunks."));
    };
    let mut measure = measure.lock().unwrap_or_else(PoisonError::into_inner);
    let measured = std::mem::replace(&mut *measure, Measure::new(std::iter::empty())).finish();
    Ok(measured.keeps(&promised))
}

/// The bytes.
pub(super) fn bytes(body: Option<StreamingBlob>) -> impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin {
    let body = futures_util::stream::iter(body).flatten();
    body.map(|next| next.map_err(|error| unread(&error.to_string())))
}

/// A body that must keep coming: silence for too long is an error, whatever is done with it. Large chunks in it come as
/// small ones.
pub(super) struct Coming {
    body: Arriving,
    patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    chunks: Option<Chunks>,
    measuring: Option<Measuring>,
}

/// What is taken whole before the S3 library hands it on is measured as it arrives.
#[derive(Clone)]
pub(super) struct Measuring(Arc<Mutex<Measure>>);

impl Coming {
    pub(super) fn new(headers: &HeaderMap, body: Arriving, patience: Duration) -> Coming {
        let chunks = chunks::are_used(headers).then(Chunks::default);
        Coming { body, patience, silence: None, chunks, measuring: None }
    }

    /// Measures it as it arrives, by what the request promises of it. `None`: it arrives in chunks.
    pub(super) fn measured(&mut self, headers: &HeaderMap) -> Option<Measuring> {
        if self.chunks.is_none() {
            let given = Algorithm::ALL.into_iter().filter(|algorithm| headers.contains_key(algorithm.header()));
            self.measuring = Some(Measuring(Arc::new(Mutex::new(Measure::new(given)))));
        }
        self.measuring.clone()
    }

    /// As it arrives.
    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.silence = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
        ready!(silence.as_mut().poll(context));
        Poll::Ready(Some(Err(format!("nothing of it arrived for {} s", self.patience.as_secs()).into())))
    }
}

impl Body for Coming {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if let Some(bytes) = self.chunks.as_mut().and_then(Chunks::next) {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let arrived = ready!(self.poll_arrived(context));
            let Some(chunks) = &mut self.chunks else {
                if let (Some(Measuring(measure)), Some(Ok(frame))) = (&self.measuring, &arrived)
                    && let Some(bytes) = frame.data_ref()
                {
                    measure.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
                }
                return Poll::Ready(arrived);
            };
            match arrived.transpose()? {
                None => {
                    chunks.end()?;
                    return Poll::Ready(None);
                }
                Some(frame) => match frame.into_data() {
                    Ok(bytes) => chunks.push(bytes)?,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.chunks {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

/// What the S3 library found wrong with a body. Its errors are known by their names only.
fn unread(error: &str) -> ObjectError {
    // What it only passed on.
    let error = error.rsplit("Underlying: ").next().unwrap_or(error);
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
