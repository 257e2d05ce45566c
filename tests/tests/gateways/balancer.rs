//! A balancer in front of several gateways: each request goes to one of them, drawn at random.
//!
//! Bytes are forwarded as they are, also those of half a request, and nothing is sent twice: if the gateway dies meanwhile,
//! the client's connection is closed, and the outcome is unknown to it.

use std::io::{BufRead, BufReader, Error, ErrorKind, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use fencepost_conformance::random::Random;
use parking_lot::Mutex;

/// A running balancer. It ends when it is dropped.
pub(crate) struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    gateways: Vec<Listed>,
    random: Mutex<Random>,
    ended: AtomicBool,
}

/// A gateway, as the balancer sees it.
struct Listed {
    address: Mutex<String>,
    in_hand: AtomicUsize,
    /// With this many requests in hand it gets no others.
    most: AtomicUsize,
    answered: AtomicU64,
}

impl Balancer {
    /// Starts a balancer in front of these addresses.
    pub(crate) fn start(addresses: &[&str], random: Random) -> Balancer {
        let listed = |address: &&str| Listed {
            address: Mutex::new((*address).to_owned()),
            in_hand: AtomicUsize::new(0),
            most: AtomicUsize::new(usize::MAX),
            answered: AtomicU64::new(0),
        };
        let gateways = addresses.iter().map(listed).collect();
        let shared = Arc::new(Shared { gateways, random: Mutex::new(random), ended: AtomicBool::new(false) });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, accepting) = (listener.local_addr().unwrap(), shared.clone());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = accepting.clone();
                // An error is the end of a connection, which the client sees.
                thread::spawn(move || shared.serve(&client).map_err(|_| client.shutdown(Shutdown::Both)));
            }
        });
        Balancer { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A gateway listens somewhere else now.
    pub(crate) fn moved(&self, at: usize, address: &str) {
        address.clone_into(&mut self.shared.gateways[at].address.lock());
    }

    /// A gateway gets no more requests while it has this many in hand.
    pub(crate) fn limit(&self, at: usize, most: usize) {
        self.shared.gateways[at].most.store(most, Ordering::SeqCst);
    }

    /// How many requests were sent to a gateway, at least in part, and are not answered.
    pub(crate) fn in_hand(&self, at: usize) -> usize {
        self.shared.gateways[at].in_hand.load(Ordering::SeqCst)
    }

    /// How many requests each gateway has answered.
    pub(crate) fn answered(&self) -> Vec<u64> {
        self.shared.gateways.iter().map(|listed| listed.answered.load(Ordering::SeqCst)).collect()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // It wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// Serves a client's connection to its end.
    fn serve(&self, client: &TcpStream) -> Result<()> {
        client.set_nodelay(true)?;
        let mut requests = BufReader::new(client.try_clone()?);
        let mut connections: Vec<Option<Connection>> = self.gateways.iter().map(|_| None).collect();
        while let Some(request) = Head::read(&mut requests)? {
            let held = self.pick(&mut connections)?;
            let connection = connections[held.at].as_mut().ok_or(ErrorKind::NotConnected)?;
            let answered = connection.exchange(&request, &mut requests, client)?;
            held.listed.answered.fetch_add(1, Ordering::SeqCst);
            if answered.closes() {
                break;
            }
        }
        client.shutdown(Shutdown::Both)
    }

    /// Draws a gateway that can be reached and has room for another request.
    fn pick(&self, connections: &mut [Option<Connection>]) -> Result<Held<'_>> {
        let count = self.gateways.len();
        let first = usize::try_from(self.random.lock().below(count as u64)).unwrap_or(0);
        for at in (first..first + count).map(|at| at % count) {
            let Some(held) = self.gateways[at].take(at) else { continue };
            let address = held.listed.address.lock().clone();
            connections[at] = connections[at].take().filter(|kept| kept.is_open_to(&address));
            if connections[at].is_none() {
                // Nothing was sent yet, so another gateway may have the request if this one is down.
                connections[at] = Connection::open(address).ok();
            }
            if connections[at].is_some() {
                return Ok(held);
            }
        }
        Err(ErrorKind::NotConnected.into())
    }
}

/// A request that is in the hands of a gateway, until this is dropped.
struct Held<'l> {
    listed: &'l Listed,
    at: usize,
}

impl Listed {
    fn take(&self, at: usize) -> Option<Held<'_>> {
        let most = self.most.load(Ordering::SeqCst);
        let more = |in_hand: usize| (in_hand < most).then_some(in_hand + 1);
        self.in_hand.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Held { listed: self, at })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.listed.in_hand.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A connection to a gateway, for the requests of one client.
struct Connection {
    address: String,
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Connection {
    fn open(address: String) -> Result<Connection> {
        let stream = TcpStream::connect(&address)?;
        stream.set_nodelay(true)?;
        Ok(Connection { address, answers: BufReader::new(stream.try_clone()?), stream })
    }

    /// Whether it leads to this address, and the gateway has not closed it.
    fn is_open_to(&self, address: &str) -> bool {
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let restored = self.stream.set_nonblocking(false);
        let is_quiet = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.address == address && is_quiet && restored.is_ok()
    }

    /// Forwards a request, whose body may come later, and its answer. Returns the head of the answer.
    fn exchange(&mut self, request: &Head, body: &mut BufReader<TcpStream>, client: &TcpStream) -> Result<Head> {
        let length = request.length()?;
        let (stream, answers) = (&self.stream, &mut self.answers);
        let buffered = usize::try_from(length).ok().and_then(|length| body.buffer().get(..length));
        if let Some(whole) = buffered {
            (&self.stream).write_all(&[&request.bytes, whole].concat())?;
            body.consume(whole_length(length));
            return forward_answer(answers, request, client);
        }
        (&self.stream).write_all(&request.bytes)?;
        thread::scope(|scope| {
            // The gateway may answer before the body is complete.
            let sending = scope.spawn(move || {
                let sent = forward(body, stream, length);
                sent.inspect_err(|_| drop(stream.shutdown(Shutdown::Both)))
            });
            let answered = forward_answer(answers, request, client);
            if answered.as_ref().map_or(true, Head::closes) {
                drop(client.shutdown(Shutdown::Read));
            }
            sending.join().map_err(|_| Error::other("a thread panicked"))??;
            answered
        })
    }
}

/// A length that fits into a buffer.
fn whole_length(length: u64) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// Forwards this many bytes, each as soon as it comes.
fn forward(from: &mut impl BufRead, mut to: &TcpStream, length: u64) -> Result<()> {
    let mut left = length;
    while left > 0 {
        let bytes = from.fill_buf()?;
        let some = bytes.len().min(whole_length(left));
        if some == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&bytes[..some])?;
        from.consume(some);
        left -= some as u64;
    }
    Ok(())
}

/// Forwards the answer to a request, and everything that comes before it.
fn forward_answer(answers: &mut BufReader<TcpStream>, request: &Head, mut client: &TcpStream) -> Result<Head> {
    loop {
        let head = Head::read(answers)?.ok_or(ErrorKind::UnexpectedEof)?;
        let status = head.first_line().split(' ').nth(1).unwrap_or_default();
        let (is_final, has_body) = (!status.starts_with('1'), !matches!(status, "204" | "304"));
        let is_head = request.first_line().starts_with("HEAD ");
        client.write_all(&head.bytes)?;
        if is_final && has_body && !is_head {
            forward(answers, client, head.length()?)?;
        }
        if is_final {
            return Ok(head);
        }
    }
}

/// The head of a request or an answer.
struct Head {
    bytes: Vec<u8>,
}

impl Head {
    /// `None`: the connection was closed in between.
    fn read(from: &mut impl BufRead) -> Result<Option<Head>> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            if from.read_until(b'\n', &mut bytes)? == 0 {
                return if bytes.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
        }
        Ok(Some(Head { bytes }))
    }

    fn first_line(&self) -> &str {
        let line = self.bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        std::str::from_utf8(line).unwrap_or_default()
    }

    fn header(&self, wanted: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut headers = text.lines().skip(1).filter_map(|line| line.split_once(':'));
        let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(value.trim().to_owned())
    }

    /// The length of the body.
    fn length(&self) -> Result<u64> {
        if self.header("transfer-encoding").is_some() {
            return Err(Error::new(ErrorKind::Unsupported, "a body without a length"));
        }
        let length = self.header("content-length").map_or(Ok(0), |length| length.parse());
        length.map_err(|_| ErrorKind::InvalidData.into())
    }

    fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}
