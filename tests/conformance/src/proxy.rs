//! A TCP proxy on loopback that disturbs the traffic through it.
//!
//! It works on bytes, not messages: a chunk is the result of one read, which on a quiet connection is one request or
//! one answer. Rules apply per direction to all connections, existing and future, and also to the end of a stream. A
//! chunk on which a rule is waiting is judged by the rule set next: held chunks can be released or dropped.

#![expect(clippy::expect_used, reason = "a proxy that cannot work ends the run that asked for it")]

mod request_lines;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::net::sockopt::set_socket_linger;

use self::request_lines::RequestLines;
use crate::wait;

/// How long to wait for a connection to the server.
const CONNECT: Duration = Duration::from_secs(5);

/// How often a blocked write checks whether its connection was cut.
const LOOK: Duration = Duration::from_millis(50);

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server: requests.
    Up,
    /// From the server to the client: answers.
    Down,
}

/// What happens to bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Forwarded at once.
    Pass,
    /// Forwarded after this time, one chunk after the other: many small chunks add up.
    Delay(Duration),
    /// Held until another rule is set, together with everything behind them: a partition that may heal.
    Hold,
    /// Dropped. The connection stays open, and the receiver keeps waiting.
    Drop,
    /// This many chunks are forwarded, then all are dropped.
    DropAfter(u64),
    /// Each chunk is sent twice. TCP never does that: it simulates a middlebox that repeats a whole message, or garbles
    /// the stream.
    Duplicate,
    /// Every two chunks swap places; a single one waits for its partner. As with `Duplicate`, the network below TCP
    /// cannot do this to a stream. The other end must see an error or a meaningful answer, never half of each.
    Reorder,
}

/// The traffic in one direction since the start, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Bytes that arrived at the proxy, including dropped ones.
    pub bytes: u64,
    /// Chunks that arrived at the proxy.
    pub chunks: u64,
    /// Bytes that were dropped.
    pub dropped: u64,
}

/// A running proxy. Dropping it cuts its connections and ends it.
pub struct Proxy {
    address: SocketAddr,
    /// Its listening addresses for the other servers.
    others: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    up: Way,
    down: Way,
    refusing: bool,
    ended: bool,
    connections: Vec<Arc<Connection>>,
    next: u64,
    /// Every HTTP request that arrived, if they are recorded.
    requests: Option<Vec<String>>,
}

#[derive(Clone, Copy)]
struct Way {
    rule: Rule,
    count: Count,
}

struct Connection {
    number: u64,
    client: TcpStream,
    server: TcpStream,
    /// Set under the state's lock, so that no waiting thread misses it.
    cut: AtomicBool,
}

impl Proxy {
    /// Starts a proxy in front of this server, which need not run yet. Everything passes.
    pub fn start(server: SocketAddr) -> Proxy {
        Proxy::noting(server, None)
    }

    /// The same, and it records the HTTP/1.1 requests that arrive.
    pub fn noting_requests(server: SocketAddr) -> Proxy {
        Proxy::noting(server, Some(Vec::new()))
    }

    fn noting(server: SocketAddr, requests: Option<Vec<String>>) -> Proxy {
        let way = Way { rule: Rule::Pass, count: Count::default() };
        let connections = Vec::new();
        let state = State { up: way, down: way, refusing: false, ended: false, connections, next: 0, requests };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        Proxy { address: listen(server, &shared), others: Vec::new(), shared }
    }

    /// Adds another server of the same service: rules and counts are shared. Returns the listening address for that
    /// server.
    pub fn also(&mut self, server: SocketAddr) -> SocketAddr {
        let address = listen(server, &self.shared);
        self.others.push(address);
        address
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the rule of one direction.
    pub fn set(&self, direction: Direction, rule: Rule) {
        self.shared.lock().way(direction).rule = rule;
        self.shared.changed.notify_all();
    }

    /// Lets everything pass again, in both directions and on new connections; held chunks are released.
    pub fn pass(&self) {
        self.shared.lock().refusing = false;
        self.set(Direction::Up, Rule::Pass);
        self.set(Direction::Down, Rule::Pass);
    }

    /// Holds everything, in both directions, until `pass`: a partition. New connections are accepted, and silent.
    pub fn hold(&self) {
        self.set(Direction::Up, Rule::Hold);
        self.set(Direction::Down, Rule::Hold);
    }

    /// Resets all connections; held chunks are lost. New connections are not affected.
    pub fn cut(&self) {
        let mut state = self.shared.lock();
        state.connections.drain(..).for_each(|connection| connection.cut());
        self.shared.changed.notify_all();
    }

    /// Resets new connections at once, until `pass`. Existing ones stay.
    pub fn refuse(&self) {
        self.shared.lock().refusing = true;
    }

    /// Blocks all traffic: existing and new connections are reset, until `pass`.
    pub fn shut(&self) {
        self.refuse();
        self.cut();
    }

    /// The traffic in one direction so far.
    pub fn count(&self, direction: Direction) -> Count {
        self.shared.lock().way(direction).count
    }

    /// The requests that arrived since the last call, as `PUT /bucket/key?query`.
    pub fn take_requests(&self) -> Vec<String> {
        let mut state = self.shared.lock();
        std::mem::take(state.requests.as_mut().expect("the proxy was started to note requests"))
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.cut();
        // Wake the listeners, which then see the end.
        for address in self.others.iter().chain([&self.address]) {
            let _ = TcpStream::connect_timeout(address, CONNECT);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn cut(&self, connection: &Connection) {
        let _state = self.lock();
        connection.cut();
        self.changed.notify_all();
    }

    /// Waits until the chunk may proceed, and returns how.
    fn judge(&self, connection: &Connection, direction: Direction, bytes: usize) -> Verdict {
        let mut state = self.lock();
        loop {
            if connection.is_cut() {
                return Verdict::Cut;
            }
            let way = state.way(direction);
            match way.rule {
                Rule::Hold => {}
                Rule::Pass => return Verdict::Forward,
                Rule::Delay(time) => return Verdict::Later(time),
                Rule::Drop | Rule::DropAfter(0) => {
                    way.count.dropped += bytes as u64;
                    return Verdict::Swallow;
                }
                Rule::DropAfter(left) => {
                    way.rule = Rule::DropAfter(left - 1);
                    return Verdict::Forward;
                }
                Rule::Duplicate => return Verdict::Twice,
                Rule::Reorder => return Verdict::Swap,
            }
            self.changed.wait(&mut state);
        }
    }
}

impl State {
    fn way(&mut self, direction: Direction) -> &mut Way {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

enum Verdict {
    Forward,
    Later(Duration),
    Swallow,
    Twice,
    Swap,
    Cut,
}

impl Connection {
    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Resets both ends as soon as the two pumps have released the sockets.
    fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        for end in [&self.client, &self.server] {
            // If this fails, the end is gone already.
            let _ = set_socket_linger(end, Some(Duration::ZERO));
            // This sends nothing; it wakes the pump that reads.
            let _ = end.shutdown(Shutdown::Read);
        }
    }
}

/// Listens for connections to this server.
fn listen(server: SocketAddr, shared: &Arc<Shared>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("a bound listener has an address");
    let accepting = shared.clone();
    thread::spawn(move || accept(&listener, server, &accepting));
    address
}

fn accept(listener: &TcpListener, server: SocketAddr, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept() {
        let (refusing, ended) = {
            let state = shared.lock();
            (state.refusing, state.ended)
        };
        if ended {
            return;
        }
        let shared = shared.clone();
        // A server that does not answer must not block others.
        thread::spawn(move || match TcpStream::connect_timeout(&server, CONNECT) {
            Ok(server) if !refusing => serve(&shared, client, server),
            _ => drop(set_socket_linger(&client, Some(Duration::ZERO))),
        });
    }
}

fn serve(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) {
    for end in [&client, &server] {
        let _ = end.set_nodelay(true);
        let _ = end.set_write_timeout(Some(LOOK));
    }
    let connection = {
        let mut state = shared.lock();
        state.next += 1;
        let connection = Arc::new(Connection { number: state.next, client, server, cut: AtomicBool::new(false) });
        if state.ended || state.refusing {
            return connection.cut();
        }
        state.connections.push(connection.clone());
        connection
    };
    let (answers, answering) = (connection.clone(), shared.clone());
    let down = thread::spawn(move || pump(&answering, &answers, Direction::Down));
    pump(shared, &connection, Direction::Up);
    // A pump that panicked has printed its message.
    let _ = down.join();
    shared.lock().connections.retain(|known| known.number != connection.number);
}

/// Forwards bytes in one direction until the stream ends or the connection is cut.
fn pump(shared: &Shared, connection: &Connection, direction: Direction) {
    let (mut from, to) = match direction {
        Direction::Up => (&connection.client, &connection.server),
        Direction::Down => (&connection.server, &connection.client),
    };
    let mut buffer = vec![0; 64 << 10];
    let mut waiting: Option<Vec<u8>> = None;
    let mut lines = RequestLines::default();
    loop {
        let read = match from.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // One end sent a reset, so the other one gets a reset too.
            Err(_) => return shared.cut(connection),
        };
        if connection.is_cut() {
            return;
        }
        let chunk = &buffer[..read];
        if read > 0 {
            let mut state = shared.lock();
            let count = &mut state.way(direction).count;
            count.bytes += read as u64;
            count.chunks += 1;
            if let (Direction::Up, Some(requests)) = (direction, &mut state.requests) {
                requests.extend(lines.read(chunk));
            }
        }
        let verdict = shared.judge(connection, direction, read);
        let partner = waiting.take().unwrap_or_default();
        let written = match verdict {
            Verdict::Cut => return,
            Verdict::Swallow if read == 0 => return,
            Verdict::Swallow => true,
            Verdict::Forward => send(connection, to, &partner) && send(connection, to, chunk),
            Verdict::Later(time) => {
                wait::pause(time);
                send(connection, to, &partner) && send(connection, to, chunk)
            }
            Verdict::Twice => [&partner, chunk, chunk].iter().all(|bytes| send(connection, to, bytes)),
            Verdict::Swap if partner.is_empty() && read > 0 => {
                waiting = Some(chunk.to_vec());
                true
            }
            Verdict::Swap => send(connection, to, chunk) && send(connection, to, &partner),
        };
        if !written {
            return shared.cut(connection);
        }
        if read == 0 {
            // The other direction may continue.
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}

/// Writes everything, unless the connection is cut or broken.
fn send(connection: &Connection, mut to: &TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        if connection.is_cut() {
            return false;
        }
        match to.write(bytes) {
            Ok(0) => return false,
            Ok(written) => bytes = &bytes[written..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;
