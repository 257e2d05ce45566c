//! The body of an upload: what the request promises about it, and its bytes, which must keep arriving.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fencepost_objects::{Algorithm, Measure, ObjectError, Promised, Trailer};
use futures_util::{Stream, StreamExt};
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use parking_lot::Mutex;
use s3s::TrailingHeaders;
use s3s::dto::{PutObjectInput, StreamingBlob};
use s3s::{S3ErrorCode, S3Result, s3_error};

use super::chunks::{self, Chunks, Piece};
use super::listing::{Fault, List, Scan};
use super::pace::Pace;
use super::permit::Call;
use super::refuse;
use super::shares::{Room, Share};
use crate::listener::Arriving;

type BoxError = Box<dyn Error + Send + Sync>;

/// The largest object written in one piece, and the largest part, as in S3.
pub(super) const MAX_PIECE_BYTES: u64 = 5 << 30;

/// The checksums given in a request.
pub(super) fn checksums(given: [Option<String>; 5]) -> Vec<(Algorithm, String)> {
    Algorithm::ALL.into_iter().zip(given).filter_map(|(algorithm, sum)| Some((algorithm, sum?))).collect()
}

/// What a request promises about its body.
pub(super) fn promised(
    headers: &HeaderMap,
    length: Option<i64>,
    md5: Option<String>,
    checksums: Vec<(Algorithm, String)>,
) -> S3Result<Promised> {
    refuse::digests(headers)?;
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

/// Like [`promised`], for a write in one piece.
pub(super) fn promised_of_put(headers: &HeaderMap, input: &mut PutObjectInput) -> S3Result<Promised> {
    let checksums = checksums([
        input.checksum_crc32.take(),
        input.checksum_crc32c.take(),
        input.checksum_crc64nvme.take(),
        input.checksum_sha1.take(),
        input.checksum_sha256.take(),
    ]);
    promised(headers, input.content_length, input.content_md5.take(), checksums)
}

/// Checks a body that was buffered whole against what its headers promise.
pub(super) fn arrived_whole<T>(call: &Call<T>) -> S3Result<Result<(), ObjectError>> {
    let header = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let checksums = checksums(Algorithm::ALL.map(|algorithm| header(algorithm.header())));
    let promised = promised(&call.headers, None, header("content-md5"), checksums)?;
    if promised.md5.is_none() && promised.checksums.is_empty() && promised.announced.is_empty() {
        return Ok(Ok(()));
    }
    let measuring = call.measuring.as_ref().filter(|_| promised.announced.is_empty());
    let Some(Measuring(measure)) = measuring else {
        return Err(s3_error!(NotImplemented, "A list comes with its checksum in a header, and not in chunks."));
    };
    let mut measure = measure.lock();
    let measured = std::mem::replace(&mut *measure, Measure::new(std::iter::empty())).finish();
    Ok(measured.keeps(&promised))
}

/// The stream of bytes of a body.
pub(super) fn bytes(body: Option<StreamingBlob>) -> impl Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin {
    let body = futures_util::stream::iter(body).flatten();
    body.map(|next| next.map_err(|error| unread(&error.to_string())))
}

/// A body that must keep arriving, and takes room in memory as it does. Large chunks in it are split into small ones.
pub(super) struct Coming {
    body: Arriving,
    pace: Pace,
    share: Share,
    waiting: Option<Waiting>,
    chunks: Option<Chunks>,
    /// Set for a body that is buffered whole.
    scan: Option<Scan>,
    fault: FaultFound,
    measuring: Option<Measuring>,
}

/// What waits for room, and the future that gets the room.
type Waiting = (Needs, Pin<Box<dyn Future<Output = Option<Room>> + Send>>);

enum Needs {
    /// Bytes that are passed on once there is room.
    Bytes(Bytes),
    /// A chunk that is read once there is room.
    Chunk,
}

/// Measures a body while it arrives that the S3 library buffers whole before passing it on.
#[derive(Clone)]
pub(super) struct Measuring(Arc<Mutex<Measure>>);

/// The error found in a body that is buffered whole. The S3 library reports all of these as internal errors.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultFound(Arc<OnceLock<Fault>>);

impl FaultFound {
    pub(super) fn get(&self) -> Option<&Fault> {
        self.0.get()
    }
}

impl Coming {
    pub(super) fn new(head: &Parts, body: Arriving, patience: Duration, share: Share) -> Coming {
        let chunks = chunks::are_used(&head.headers).then(Chunks::default);
        let scan = List::of(head).map(|list| Scan::new(list, &head.headers));
        let (pace, fault) = (Pace::new(patience), FaultFound::default());
        Coming { body, pace, share, waiting: None, chunks, scan, fault, measuring: None }
    }

    /// Measures the body as it arrives, by what the request promises. `None`: it is chunked.
    pub(super) fn measured(&mut self, headers: &HeaderMap) -> Option<Measuring> {
        if self.chunks.is_none() {
            let given = Algorithm::ALL.into_iter().filter(|algorithm| headers.contains_key(algorithm.header()));
            self.measuring = Some(Measuring(Arc::new(Mutex::new(Measure::new(given)))));
        }
        self.measuring.clone()
    }

    /// The error, once one is found.
    pub(super) fn fault(&self) -> FaultFound {
        self.fault.clone()
    }

    /// Polls for the next bytes from the client, and checks their pace.
    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Poll::Ready(arrived) = Pin::new(&mut self.body).poll_frame(context) else {
            let silence = ready!(self.pace.poll_silence(context));
            return Poll::Ready(Some(Err(silence.into())));
        };
        let Some(frame) = arrived else { return Poll::Ready(None) };
        let frame = frame?;
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        // The last bytes may be few.
        match self.pace.arrived(bytes) {
            Err(slow) if !self.body.is_end_stream() => Poll::Ready(Some(Err(slow.into()))),
            _ => Poll::Ready(Some(Ok(frame))),
        }
    }

    /// Returns bytes once there is room for them. `None`: they wait.
    fn with_room(&mut self, bytes: Bytes) -> Option<Bytes> {
        match self.share.try_take(bytes.len()) {
            Some(room) => Some(room.over(bytes)),
            None => {
                let room = self.share.clone().take(bytes.len());
                self.waiting = Some((Needs::Bytes(bytes), Box::pin(room)));
                None
            }
        }
    }

    /// Polls for the next frame of a streamed body. No more is read from the client before there is room for what
    /// was.
    fn poll_streamed(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some((_, room)) = &mut self.waiting {
                let room = ready!(room.as_mut().poll(context)).ok_or("the gateway stops")?;
                match (self.waiting.take(), &mut self.chunks) {
                    (Some((Needs::Bytes(bytes), _)), _) => return Poll::Ready(Some(Ok(Frame::data(room.over(bytes))))),
                    (Some((Needs::Chunk, _)), Some(chunks)) => chunks.grant(room)?,
                    (Some((Needs::Chunk, _)), None) | (None, _) => {}
                }
            }
            match self.chunks.as_mut().and_then(Chunks::next) {
                Some(Piece::Ready(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Piece::Data(bytes)) => match self.with_room(bytes) {
                    Some(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    None => continue,
                },
                None => {}
            }
            if let Some(size) = self.chunks.as_ref().and_then(Chunks::wants) {
                self.waiting = Some((Needs::Chunk, Box::pin(self.share.clone().take(size))));
                continue;
            }
            let arrived = ready!(self.poll_arrived(context)).transpose()?;
            match (arrived.map(Frame::into_data), &mut self.chunks) {
                (None, chunks) => {
                    chunks.as_mut().map_or(Ok(()), Chunks::end)?;
                    return Poll::Ready(None);
                }
                (Some(Ok(bytes)), Some(chunks)) => chunks.push(bytes)?,
                (Some(Ok(bytes)), None) => match self.with_room(bytes) {
                    Some(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    None => continue,
                },
                (Some(Err(trailers)), _) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    /// Polls for the next frame of a body that is buffered whole. Its memory is reserved already.
    fn poll_whole(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let arrived = ready!(self.poll_arrived(context));
        let bytes = match &arrived {
            Some(Ok(frame)) => frame.data_ref(),
            Some(Err(error)) => {
                let why = format!("The body could not be read: {error}.");
                let _ = self.fault.0.set(Fault { code: S3ErrorCode::IncompleteBody, why });
                None
            }
            None => None,
        };
        if let Some(bytes) = bytes {
            if let Some(Measuring(measure)) = &self.measuring {
                measure.lock().update(bytes);
            }
            if let Some(Err(fault)) = self.scan.as_mut().map(|scan| scan.feed(bytes)) {
                let why = fault.why.clone();
                let _ = self.fault.0.set(fault);
                return Poll::Ready(Some(Err(why.into())));
            }
        }
        Poll::Ready(arrived)
    }
}

impl Body for Coming {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.scan {
            Some(_) => self.poll_whole(context),
            None => self.poll_streamed(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_none() && self.waiting.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.chunks, &self.waiting) {
            (None, None) => self.body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

/// Converts an error of the S3 library about a body. These errors can be identified only by their names.
fn unread(error: &str) -> ObjectError {
    // Remove the prefix of errors that the library only passed on.
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

/// The checksums that follow the body.
pub(super) fn trailer(headers: Option<TrailingHeaders>) -> Trailer {
    Box::new(move || {
        let found = headers.and_then(|headers| headers.take()).unwrap_or_default();
        let sums = Algorithm::ALL.into_iter().filter_map(|algorithm| {
            let value = found.get(algorithm.header())?.to_str().ok()?;
            Some((algorithm, value.to_owned()))
        });
        sums.collect()
    })
}
