//! The accept loop of every listener: public, admin and S3. All connections have the same deadlines (for heads, for
//! answers, while idle), the same limits per peer, and are closed in the same way.

mod activity;
mod admin;
mod answer_deadline;
mod close;
mod connection;
pub(crate) mod files;
mod places;
mod request_body;
mod untaken;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::config::Limits;
use crate::peer::PeerAddress;
use activity::{Activity, Asked, Deadlines};
use answer_deadline::{Answer, Streams, Taking};
use close::{linger, turn_away};
use connection::Connection;
use files::Spare;
use places::{Place, Places};
use request_body::Framing;

pub use admin::{AdminListener, AdminListenerError};
pub(crate) use places::{Bounds, Full};
pub(crate) use request_body::Arriving;

/// Connections that may receive a closing answer at once. More are closed without one.
const MAX_CLOSING_ANSWERS: usize = 64;

/// How long an idle connection may take to end when its place is needed.
const DISMISSAL: Duration = Duration::from_millis(100);

/// How long it may take after the idle timeout: enough for GOAWAY to reach the client.
const IDLE_END: Duration = Duration::from_secs(1);

/// How long clients may take to read the last answers after a shutdown was requested.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How much longer than `write_timeout` a small answer may wait for an HTTP/2 client. Then the connection is closed.
const STUCK: Duration = Duration::from_secs(1);

/// The HTTP/2 receive window in bytes, per connection and per stream.
const WINDOW: u32 = 256 << 10;

/// Bytes of an answer that HTTP/2 buffers for the socket, per stream.
const SEND_BUFFER: usize = 64 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A source of connections.
pub(crate) trait Acceptor: Send + 'static {
    /// The connection's byte stream.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static;

    /// Waits for the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, PeerAddress)>> + Send;
}

impl Acceptor for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, PeerAddress)> {
        let (stream, address) = TcpListener::accept(self).await?;
        // Answers are written whole, so waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        Ok((stream, PeerAddress::of(address)))
    }
}

/// Why a connection is closed with an answer that belongs to no request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closing {
    /// There is no place for the connection.
    Full(Full),
    /// The head of a request did not arrive in time.
    HeadTimeout,
}

/// Answers the requests of a listener.
pub(crate) trait FrontEnd<S>: Send + Sync + 'static {
    /// The caller of a connection's requests.
    type Caller: Send + Sync + 'static;
    /// State shared by all connections of a peer.
    type Share: Clone + Send + Sync + 'static;
    /// The body of an answer.
    type Body: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static;
    /// Why a request got no answer.
    type Error: Into<BoxError> + Send;

    /// Creates the state of a new peer.
    fn share(&self) -> Self::Share;

    /// Creates the caller of a new connection. `None`: the connection is not served.
    fn caller(&self, stream: &S, peer: PeerAddress, share: Self::Share) -> Option<Self::Caller>;

    /// Answers a request.
    fn answer(
        &self,
        request: Request<Arriving>,
        caller: &Self::Caller,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;

    /// Answers a request for which there is no place.
    fn reject(&self, full: Full) -> Response<Self::Body>;

    /// A complete HTTP/1.1 answer, headers included, for a connection that is being closed.
    fn closing_answer(&self, why: Closing) -> String;
}

/// The deadlines and limits of a listener.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) bounds: Bounds,
    /// The most requests under way on one HTTP/2 connection.
    pub(crate) max_streams: u32,
}

/// Accepts and serves connections until a shutdown is requested. Connections being served finish first.
pub(crate) async fn run<A: Acceptor, F: FrontEnd<A::Stream>>(
    listener: A,
    front_end: Arc<F>,
    settings: Settings,
    mut stop: watch::Receiver<bool>,
) {
    let places = Places::new(settings.bounds.clone());
    let limits = &settings.limits;
    let deadlines = Deadlines {
        head: limits.header_timeout,
        idle: limits.idle_timeout,
        // A stream that can be reset is reset before.
        answer: limits.write_timeout + STUCK,
    };
    // Ends with this function, when no connection is left.
    let mut watching = JoinSet::new();
    let watched = places.clone();
    watching.spawn(async move { watched.watch(deadlines).await });
    let closing_answers = Arc::new(Semaphore::new(MAX_CLOSING_ANSWERS));
    let mut spare = Spare::new();
    let mut connections = JoinSet::new();
    let reject = |stream, full| {
        if let Ok(turn) = closing_answers.clone().try_acquire_owned() {
            turn_away(stream, front_end.closing_answer(Closing::Full(full)), turn);
        }
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        while connections.try_join_next().is_some() {}
        spare.refill();
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                if let Some((stream, _)) = spare.lend(|| listener.accept()).await {
                    reject(stream, Full::Descriptors);
                }
                // Accepting again at once would be a busy loop.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let activity = Activity::new();
        match places.take(peer, &activity, || front_end.share()) {
            Err(full) => reject(stream, full),
            Ok(place) => {
                let Some(caller) = front_end.caller(&stream, peer, place.peer.share.clone()) else { continue };
                let served = Served { front_end: front_end.clone(), caller, place, activity };
                connections.spawn(served.run(stream, settings.clone(), stop.clone()));
            }
        }
    }
    drop(listener);
    places.drain();
    while connections.join_next().await.is_some() {}
}

/// A connection being served.
struct Served<S, F: FrontEnd<S>> {
    front_end: Arc<F>,
    caller: F::Caller,
    place: Place<F::Share>,
    activity: Arc<Activity>,
}

/// How a connection ended.
enum Ended {
    /// It ended by itself, or with an error.
    Done(Result<(), BoxError>),
    /// It was idle and was asked to end.
    Dismissed,
}

impl<S, F> Served<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
    F: FrontEnd<S>,
{
    async fn run(self, stream: S, settings: Settings, mut stop: watch::Receiver<bool>) {
        let limits = &settings.limits;
        let activity = self.activity.clone();
        let (connection, left) = Connection::new(stream, activity.clone(), limits.header_timeout, limits.write_timeout);
        let streams = Streams::new(limits.write_timeout);
        let http = http(&settings, streams.clone());
        let served = Arc::new(self);
        let of_service = served.clone();
        let service = service_fn(move |request| of_service.answer(request, &streams));
        let ended = {
            let mut serving = pin!(http.serve_connection(TokioIo::new(connection), service));
            match served_or_asked(serving.as_mut(), &activity).await {
                Ok(done) => Ended::Done(done),
                Err(Asked::Drain) => {
                    let was_busy = activity.is_busy();
                    serving.as_mut().graceful_shutdown();
                    match served_unless_stuck(serving.as_mut(), &activity).await {
                        Some(done) if was_busy => Ended::Done(done),
                        Some(_) | None => Ended::Dismissed,
                    }
                }
                Err(Asked::Stuck) => Ended::Dismissed,
                Err(asked @ (Asked::Leave | Asked::Idle)) => {
                    let leaving = if asked == Asked::Leave { DISMISSAL } else { IDLE_END };
                    serving.as_mut().graceful_shutdown();
                    loop {
                        let served = served_unless_stuck(serving.as_mut(), &activity);
                        if tokio::time::timeout(leaving, served).await.is_ok() || !activity.is_busy() {
                            break;
                        }
                    }
                    Ended::Dismissed
                }
            }
        };
        let (Ended::Done(done), Some(stream)) = (ended, left.take()) else { return };
        let closing_answer = match done {
            Err(error) if timed_out(error.as_ref()) => {
                if !activity.is_waited_for() || activity.is_http2() {
                    return;
                }
                Some(served.front_end.closing_answer(Closing::HeadTimeout))
            }
            _ if activity.may_be_sending() => None,
            _ => return,
        };
        activity.lingers();
        tokio::select! {
            () = linger(stream, closing_answer, limits.body_timeout) => {}
            () = activity.dismissed() => {}
            () = async {
                stopped(&mut stop).await;
                tokio::time::sleep(LAST_WORDS).await;
            } => {}
        }
    }

    /// Answers one request.
    fn answer(
        self: &Arc<Self>,
        request: Request<hyper::body::Incoming>,
        streams: &Streams,
    ) -> impl Future<Output = Result<Response<Answer<F::Body>>, F::Error>> + Send + use<S, F> {
        let (served, in_use) = (self.clone(), self.activity.begin());
        let taking = (request.version() == Version::HTTP_2).then(|| {
            let taking = Arc::<Taking>::default();
            streams.next_is(taking.clone());
            taking
        });
        let framing = Framing::of(request.version(), request.headers());
        let (head, body) = request.into_parts();
        let (body, arrival) = Arriving::new(body);
        async move {
            let (slot, mut answer) = match served.place.request() {
                Ok(slot) => {
                    let request = Request::from_parts(head, body);
                    (Some(slot), served.front_end.answer(request, &served.caller).await?)
                }
                Err(full) => (None, served.front_end.reject(full)),
            };
            if framing.closes(arrival.as_deref()) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            let untaken = served.activity.untaken();
            Ok(answer.map(|body| Answer::new(body, taking.map(|taking| (taking, untaken.clone())), (in_use, slot))))
        }
    }
}

/// Completes when a shutdown is requested.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which counts as a shutdown.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves until the connection has ended, or is asked to end.
async fn served_or_asked<F: Future>(mut serving: Pin<&mut F>, activity: &Activity) -> Result<F::Output, Asked> {
    poll_fn(|cx| match serving.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => activity.poll_asked(cx).map(Err),
    })
    .await
}

/// Serves until the connection has ended. `None`: its client does not take a small answer.
async fn served_unless_stuck<F: Future>(mut serving: Pin<&mut F>, activity: &Activity) -> Option<F::Output> {
    poll_fn(|cx| match serving.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => activity.poll_asked_to(Asked::Stuck, cx).map(|()| None),
    })
    .await
}

/// Configures HTTP/1 and HTTP/2.
fn http(settings: &Settings, streams: Streams) -> Builder<Streams> {
    let headers = settings.limits.headers;
    let mut http = Builder::new(streams);
    // `Connection` enforces the deadline for heads.
    http.http1().header_read_timeout(None).max_buf_size(headers + (64 << 10));
    http.http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_concurrent_streams(settings.max_streams)
        .max_header_list_size(u32::try_from(headers + (16 << 10)).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(20));
    http
}

/// Returns whether a deadline ended the connection.
fn timed_out(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
            || error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        {
            return true;
        }
        cause = error.source();
    }
    false
}
