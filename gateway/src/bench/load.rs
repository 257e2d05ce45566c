//! The load generator, for any protocol.
//!
//! One task per connection sends its next request when it has read the last answer: a closed loop, like the users of a
//! gateway. Run it on one thread, so that it takes as little as possible of the machine that it measures.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// The requests of one connection, and how it reads the answers.
pub trait Protocol: Send + 'static {
    /// Appends the next request.
    fn request(&mut self, out: &mut Vec<u8>);

    /// Reads what has arrived. `None`: the answer is not complete yet.
    fn answer(&mut self, input: &[u8]) -> Option<Answered>;
}

/// How an answer compares with the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The expected answer.
    Expected,
    /// An expected answer that is only part of what is counted; the next answer belongs to it.
    Part,
    /// Any other answer, which is counted as unexpected.
    Unexpected,
    /// An answer after which the load cannot continue, with the reason.
    Senseless(String),
}

/// Target and duration of a load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The addresses of the gateways, at least one; connections are spread evenly over them.
    pub addresses: Vec<SocketAddr>,
    /// Time before the measurement begins.
    pub warm_up: Duration,
    /// Time that is measured.
    pub duration: Duration,
}

/// Why a load has no result.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A connection cannot be opened.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// A connection broke.
    #[error("a connection broke: {0}")]
    Broken(String),
    /// An answer after which the load cannot continue.
    #[error("{0}")]
    Senseless(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Broken(error.to_string())
    }
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Connections at once.
    pub connections: usize,
    /// Expected answers.
    pub answered: u64,
    /// Unexpected answers.
    pub unexpected: u64,
    /// Duration of the measurement.
    pub seconds: f64,
    /// From sending to the whole answer, in microseconds.
    pub latency: Histogram<u64>,
}

impl Measured {
    /// Expected answers per second.
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// A quantile of the latency in milliseconds.
    pub fn millis(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// Latencies up to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

/// The most connections at once that wait for their first answer.
const OPENING: u32 = 256;

/// Begin and end of the measurement; unset until every connection has had an answer.
type Period = Arc<OnceLock<(Instant, Instant)>>;

/// Opens one connection for each speaker, and runs them all. Each begins at once, because thousands of connections take
/// a while to open, and a server may close one that sends nothing. Only a limited number wait for their first answer at
/// once, so that no server's queue of new connections overflows.
pub async fn run<P: Protocol>(load: Load, speakers: Vec<P>) -> Result<Measured, Trouble> {
    let connections = speakers.len();
    let (period, latency) = (Period::default(), Arc::new(Mutex::new(histogram())));
    let opening = Arc::new(Semaphore::new(OPENING as usize));
    let mut speaking = JoinSet::new();
    let addresses = load.addresses.iter().copied().cycle();
    for (speaker, address) in speakers.into_iter().zip(addresses) {
        let turn = opening.clone().acquire_owned().await.map_err(|error| Trouble::Broken(error.to_string()))?;
        let (period, latency) = (period.clone(), latency.clone());
        speaking.spawn(async move {
            let stream = TcpStream::connect(address).await;
            let stream = stream.map_err(|error| Trouble::Connect(address, error))?;
            stream.set_nodelay(true)?;
            speak(stream, speaker, turn, period, latency).await
        });
    }
    // All permits are back, so all connections are open.
    let all = opening.acquire_many(OPENING).await.map_err(|error| Trouble::Broken(error.to_string()))?;
    drop(all);
    let begin = Instant::now() + load.warm_up;
    // It is set only here.
    let _ = period.set((begin, begin + load.duration));
    let mut unexpected = 0;
    while let Some(ended) = speaking.join_next().await {
        unexpected += ended.map_err(|error| Trouble::Broken(error.to_string()))??;
    }
    let latency = latency.lock().clone();
    let seconds = load.duration.as_secs_f64();
    Ok(Measured { connections, answered: latency.len(), unexpected, seconds, latency })
}

/// Returns the number of unexpected answers. All connections share one histogram: with one each, 4,096 connections
/// would take 0.6 GB.
async fn speak<P: Protocol>(
    mut stream: TcpStream,
    mut speaker: P,
    turn: OwnedSemaphorePermit,
    period: Period,
    latency: Arc<Mutex<Histogram<u64>>>,
) -> Result<u64, Trouble> {
    let (mut unexpected, mut turn) = (0, Some(turn));
    let (mut out, mut input) = (Vec::with_capacity(4096), Vec::with_capacity(4096));
    let mut sent = Instant::now();
    loop {
        out.clear();
        speaker.request(&mut out);
        stream.write_all(&out).await?;
        input.clear();
        let answered = loop {
            if stream.read_buf(&mut input).await? == 0 {
                return Err(Trouble::Broken("the other side closed it".into()));
            }
            if let Some(answered) = speaker.answer(&input) {
                break answered;
            }
        };
        turn.take();
        if answered == Answered::Part {
            continue;
        }
        if let Answered::Senseless(why) = answered {
            return Err(Trouble::Senseless(why));
        }
        let now = Instant::now();
        match period.get() {
            Some((_, end)) if now > *end => return Ok(unexpected),
            Some((begin, _)) if sent >= *begin => match answered {
                Answered::Expected => {
                    let micros = u64::try_from((now - sent).as_micros()).unwrap_or(u64::MAX);
                    latency.lock().saturating_record(micros);
                }
                _ => unexpected += 1,
            },
            _ => {}
        }
        sent = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Sends and expects one byte.
    struct Byte;

    impl Protocol for Byte {
        fn request(&mut self, out: &mut Vec<u8>) {
            out.push(b'x');
        }

        fn answer(&mut self, _: &[u8]) -> Option<Answered> {
            Some(Answered::Expected)
        }
    }

    /// A server that echoes, and counts its connections.
    async fn echo() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        (address, connections)
    }

    #[tokio::test]
    async fn connections_are_spread_evenly_over_the_addresses() {
        let ((a, at_a), (b, at_b)) = (echo().await, echo().await);
        let load = Load { addresses: vec![a, b], warm_up: Duration::ZERO, duration: Duration::from_millis(20) };
        let measured = run(load, (0..6).map(|_| Byte).collect()).await.unwrap();
        assert_eq!((measured.connections, measured.unexpected), (6, 0));
        assert!(measured.answered > 0, "{measured:?}");
        assert_eq!((at_a.load(Ordering::SeqCst), at_b.load(Ordering::SeqCst)), (3, 3));
    }
}
