//! A small blocking HTTP/1.1 client. It sends exactly the bytes it is given, once.
//!
//! A connection that the server closed while it was idle is replaced before anything is sent on it. After the first
//! byte nothing is ever sent again: the caller gets an unknown outcome.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::reply::{Lost, Reader, Reply, is_timeout};
use crate::adapters::patience::Patience;

/// How long to wait for a connection, at most.
const CONNECT: Duration = Duration::from_secs(5);

/// How many idle connections are kept.
const IDLE: usize = 64;

/// How many bytes are sent before checking for an early answer.
const PIECE: usize = 64 << 10;

/// The address of a service, with idle connections to it.
pub(super) struct Endpoint {
    address: SocketAddr,
    idle: Mutex<Vec<Connection>>,
}

impl Endpoint {
    pub(super) fn new(address: SocketAddr) -> Endpoint {
        Endpoint { address, idle: Mutex::default() }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens a new connection.
    pub(super) fn connect(&self, deadline: Instant) -> Result<Connection, Lost> {
        let left = deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), CONNECT);
        let stream = TcpStream::connect_timeout(&self.address, left).and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        let stream = stream.map_err(|error| Lost(format!("no connection to {}: {error}", self.address)))?;
        Ok(Connection { stream })
    }

    /// Sends a request, perhaps on an idle connection, and waits for the answer.
    pub(super) fn exchange(&self, bytes: &[u8], head: bool, deadline: Instant) -> Result<Reply, Lost> {
        let idle = self.take_idle();
        let connection = idle.map_or_else(|| self.connect(deadline), Ok)?;
        let sent = connection.send(bytes, deadline)?;
        let reply = connection.receive(head, deadline)?;
        // After an early answer, the unsent rest of the request would be taken for the next one.
        if reply.keeps && sent == Sent::Whole {
            let mut kept = self.idle();
            if kept.len() < IDLE {
                kept.push(connection);
            }
        }
        Ok(reply)
    }

    /// Closes idle connections.
    pub(super) fn forget(&self) {
        self.idle().clear();
    }

    fn take_idle(&self) -> Option<Connection> {
        loop {
            let connection = self.idle().pop()?;
            if connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock()
    }
}

/// How much of a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    /// The answer came, or the connection broke, before the end of the request.
    InPart,
}

/// One connection.
pub(super) struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Sends bytes as they are. If an answer arrives before all are sent, the rest stays unsent.
    pub(super) fn send(&self, bytes: &[u8], deadline: Instant) -> Result<Sent, Lost> {
        let mut patience = Patience::until(deadline);
        let mut rest = bytes;
        while !rest.is_empty() {
            if rest.len() < bytes.len() && !self.is_quiet() {
                return Ok(Sent::InPart);
            }
            let piece = &rest[..rest.len().min(PIECE)];
            let write = |slice| self.stream.set_write_timeout(Some(slice)).and_then(|()| (&self.stream).write(piece));
            match patience.wait(write) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) && !patience.is_over() => {}
                Err(error) if is_timeout(&error) => return Err(Lost("the request was not taken in time".to_owned())),
                // The service may have answered before it stopped reading.
                Err(_) if rest.len() < bytes.len() => return Ok(Sent::InPart),
                Err(error) => return Err(Lost(format!("the connection broke: {error}"))),
            }
        }
        Ok(Sent::Whole)
    }

    /// Waits for an answer. With `head` it has no body.
    pub(super) fn receive(&self, head: bool, deadline: Instant) -> Result<Reply, Lost> {
        Reader::new(&self.stream, deadline).reply(head)
    }

    /// Closes the connection with a reset.
    pub(super) fn reset(self) {
        // If this fails, the connection is gone already.
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    /// Whether it is open and no unexpected bytes have arrived.
    fn is_quiet(&self) -> bool {
        let look = || -> io::Result<usize> {
            self.stream.set_nonblocking(true)?;
            let peeked = self.stream.peek(&mut [0]);
            self.stream.set_nonblocking(false)?;
            peeked
        };
        look().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::Endpoint;

    /// Answers as soon as the head of a request has arrived, and then discards the rest.
    fn answer_early(mut stream: TcpStream) {
        let mut seen = Vec::new();
        let mut bytes = [0; 4096];
        while !seen.windows(4).any(|four| four == b"\r\n\r\n") {
            match stream.read(&mut bytes) {
                Ok(read @ 1..) => seen.extend_from_slice(&bytes[..read]),
                _ => return,
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n");
        while let Ok(1..) = stream.read(&mut bytes) {}
        let _ = stream.shutdown(Shutdown::Both);
    }

    #[test]
    fn a_connection_with_half_a_request_on_it_is_not_used_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::new(listener.local_addr().unwrap());
        thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| drop(thread::spawn(|| answer_early(stream))))
        });
        let mut large = b"PUT / HTTP/1.1\r\nContent-Length: 67108864\r\n\r\n".to_vec();
        large.resize(large.len() + (64 << 20), b'x');
        let send = |bytes: &[u8]| endpoint.exchange(bytes, false, Instant::now() + Duration::from_secs(20));
        for round in 0..3 {
            assert_eq!(send(&large).map(|reply| (reply.status, reply.keeps)), Ok((413, true)), "round {round}");
            assert_eq!(endpoint.idle().len(), 0, "the service still waits for the rest of that one");
        }
        assert_eq!(send(b"GET / HTTP/1.1\r\n\r\n").map(|reply| reply.status), Ok(413));
        assert_eq!(endpoint.idle().len(), 1, "one that was sent as a whole is kept");
    }
}
