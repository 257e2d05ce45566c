//! One unary call of gRPC: a message each way, and a status at the end.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::Reason;
use h2::client::{ResponseFuture, SendRequest};
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Request, StatusCode};
use percent_encoding::percent_decode;
use prost::Message;
use tokio::time::{Instant, timeout_at};

use super::Trouble;

/// Before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

const GRPC: &str = "application/grpc";

/// A request, with the path of its method and the type of the answer.
pub trait Rpc: Message {
    /// The path of the method.
    const PATH: &'static str;
    /// The answer.
    type Answer: Message + Default;
}

/// The body of a request.
pub(super) fn framed(message: &impl Message) -> Result<Bytes, Trouble> {
    let size = message.encoded_len();
    let length = u32::try_from(size).map_err(|_| Trouble::NotSent(format!("a request of {size} bytes")))?;
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + size);
    framed.put_u8(0);
    framed.put_u32(length);
    message.encode(&mut framed).map_err(|error| Trouble::NotSent(error.to_string()))?;
    Ok(framed.freeze())
}

/// The message in the body of an answer.
fn unframed(mut body: Bytes) -> Result<Bytes, Trouble> {
    let nonsense = |why: &str| Trouble::Unknown(format!("its answer makes no sense: {why}"));
    if body.len() < PREFIX_BYTES {
        return Err(nonsense("it has no message"));
    }
    let (compressed, length) = (body.get_u8(), body.get_u32());
    match usize::try_from(length) {
        _ if compressed != 0 => Err(nonsense("it is compressed")),
        Ok(length) if length == body.len() => Ok(body),
        _ => Err(nonsense("its length is wrong")),
    }
}

/// The head of a request.
pub(super) fn head(origin: &str, path: &str, limit: Duration) -> http::request::Builder {
    Request::post(format!("{origin}{path}"))
        .header(CONTENT_TYPE, GRPC)
        .header("te", "trailers")
        .header("grpc-timeout", format!("{}m", limit.as_millis().clamp(1, 99_999_999)))
        .header("user-agent", concat!("fencepost/", env!("CARGO_PKG_VERSION")))
}

/// Sends a request, and returns the message of the answer, which has at most this many bytes.
pub(super) async fn unary(
    sender: &SendRequest<Bytes>,
    head: Request<()>,
    body: Bytes,
    limit: Duration,
    most: usize,
) -> Result<Bytes, Trouble> {
    let deadline = Instant::now() + limit;
    let late = || format!("no answer within {} s", limit.as_secs_f64());
    let not_sent = |error: h2::Error| Trouble::NotSent(error.to_string());
    let ready = timeout_at(deadline, sender.clone().ready()).await;
    let mut sender = ready.map_err(|_| Trouble::NotSent(late()))?.map_err(not_sent)?;
    let (response, mut stream) = sender.send_request(head, false).map_err(not_sent)?;
    // Without its message, a request is not executed.
    stream.send_data(body, true).map_err(not_sent)?;
    let answer = timeout_at(deadline, answer(response, most)).await;
    answer.unwrap_or_else(|_| Err(Trouble::Unknown(late())))
}

async fn answer(response: ResponseFuture, most: usize) -> Result<Bytes, Trouble> {
    let (head, mut body) = response.await.map_err(|error| lost(&error))?.into_parts();
    if head.status != StatusCode::OK || !is_grpc(&head.headers) {
        let why = format!("it answers HTTP {} and no gRPC; is it the client port of etcd?", head.status.as_u16());
        return Err(Trouble::Unknown(why));
    }
    // An answer without a message has its status here.
    status(&head.headers).unwrap_or(Ok(()))?;
    let mut received = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(|error| lost(&error))?;
        if received.len() + part.len() > most.saturating_add(PREFIX_BYTES) {
            return Err(Trouble::Oversized { limit: most });
        }
        body.flow_control().release_capacity(part.len()).map_err(|error| lost(&error))?;
        received.extend_from_slice(&part);
    }
    let trailers = body.trailers().await.map_err(|error| lost(&error))?;
    let status = trailers.as_ref().and_then(status);
    status.unwrap_or_else(|| Err(Trouble::Unknown("its answer ended without a status".to_owned())))?;
    unframed(received.freeze())
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(GRPC.as_bytes()))
}

/// The status of a call, if these headers have it.
fn status(headers: &HeaderMap) -> Option<Result<(), Trouble>> {
    let code = headers.get("grpc-status")?;
    let code = code.to_str().ok().and_then(|code| code.parse::<u32>().ok());
    let message = headers.get("grpc-message").map_or(&b""[..], |message| message.as_bytes());
    let message = percent_decode(message).decode_utf8_lossy().into_owned();
    Some(match code {
        Some(0) => Ok(()),
        Some(code) => Err(Trouble::of_status(code, message)),
        None => Err(Trouble::Unknown(format!("its answer has no readable status: {message}"))),
    })
}

/// A call that lost its connection or stream.
fn lost(error: &h2::Error) -> Trouble {
    match error.reason() {
        // HTTP/2 promises that nothing of such a request was executed.
        Some(Reason::REFUSED_STREAM) if error.is_remote() => Trouble::NotSent(error.to_string()),
        _ => Trouble::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::etcd::messages::{AuthenticateRequest, StatusRequest};

    #[test]
    fn a_message_comes_back_from_its_frame() {
        let message = AuthenticateRequest { name: "bob".to_owned(), password: "secret".to_owned() };
        let framed = framed(&message).unwrap();
        assert_eq!(framed[..5], [0, 0, 0, 0, 13]);
        let found = AuthenticateRequest::decode(unframed(framed).unwrap()).unwrap();
        assert_eq!(found, message);
    }

    #[test]
    fn an_empty_message_has_a_frame() {
        assert_eq!(framed(&StatusRequest {}).unwrap()[..], [0; 5]);
    }

    #[test]
    fn a_broken_frame_is_no_message() {
        for body in [&b""[..], &[0, 0, 0, 0], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 7]] {
            let trouble = unframed(Bytes::from_static(body)).unwrap_err();
            assert!(matches!(trouble, Trouble::Unknown(_)), "{body:?}: {trouble:?}");
        }
    }

    #[test]
    fn a_status_is_read_with_its_message() {
        let mut headers = HeaderMap::new();
        assert_eq!(status(&headers), None);
        headers.insert("grpc-status", HeaderValue::from_static("0"));
        assert_eq!(status(&headers), Some(Ok(())));
        headers.insert("grpc-status", HeaderValue::from_static("14"));
        headers.insert("grpc-message", HeaderValue::from_static("no%20leader"));
        assert_eq!(status(&headers), Some(Err(Trouble::Unknown("no leader (gRPC status 14)".to_owned()))));
        headers.insert("grpc-status", HeaderValue::from_static("x"));
        assert!(matches!(status(&headers), Some(Err(Trouble::Unknown(_)))));
    }

    #[test]
    fn a_head_says_how_long_the_caller_waits() {
        let head = head("http://a:2379", "/etcdserverpb.KV/Txn", Duration::from_secs(10)).body(()).unwrap();
        assert_eq!(head.headers()["grpc-timeout"], "10000m");
        assert_eq!((head.uri().path(), head.uri().authority().unwrap().as_str()), ("/etcdserverpb.KV/Txn", "a:2379"));
    }
}
