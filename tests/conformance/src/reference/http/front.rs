//! A blocking HTTP server, one thread for each connection.

use std::io::{self, BufReader, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use super::request::Head;
use crate::answer::Answer;
use crate::op::Op;
use crate::reference::{Bug, Service};

pub(super) struct Front {
    service: Service,
    address: SocketAddr,
    connections: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl Front {
    pub(super) fn start(service: Service) -> io::Result<Arc<Front>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let front = Arc::new(Front { service, address, connections: Mutex::default(), ended: AtomicBool::new(false) });
        let accepting = front.clone();
        thread::spawn(move || accepting.accept(&listener));
        Ok(front)
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    /// Breaks all connections, as the end of a process does.
    pub(super) fn cut(&self) {
        for connection in self.connections().drain(..) {
            // The client may have closed it already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Ends the server.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.cut();
        // Wake the listener, which then sees the end.
        let _ = TcpStream::connect(self.address);
    }

    fn connections(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections.lock()
    }

    fn accept(self: &Arc<Front>, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            let Ok(kept) = stream.try_clone() else { continue };
            let client = kept.peer_addr().ok();
            // Bytes read from a connection after its process was killed must not reach the new process.
            let life = self.service.reference().store.life();
            self.connections().push(kept);
            let front = self.clone();
            thread::spawn(move || {
                // The client may be gone.
                let _ = front.serve(&stream, life);
                let _ = stream.shutdown(Shutdown::Both);
                front.connections().retain(|other| other.peer_addr().ok() != client);
            });
        }
    }

    fn serve(&self, stream: &TcpStream, life: u64) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        while let Some(head) = Head::read(&mut reader)? {
            let admitted = self.service.has_bug(Bug::CheckAtHead).then(|| self.looks_admitted(&head));
            let mut body = Vec::new();
            let read = (&mut reader).take(head.length).read_to_end(&mut body);
            if !self.service.has_bug(Bug::HalfBody) && read? as u64 != head.length {
                return Ok(());
            }
            let answer = match (head.op(&body), admitted) {
                (None, _) => Answer::error("not-found"),
                (Some(Op::Write(write)), Some(true)) => self.service.reference().write_unchecked(life, &write),
                (Some(op), _) => self.service.reference().serve_in(life, &op),
            };
            let Some(reply) = reply(&answer) else { return Ok(()) };
            let mut to = stream;
            to.write_all(&reply)?;
            if head.close {
                break;
            }
        }
        Ok(())
    }

    /// Whether a write with this head would be admitted now.
    fn looks_admitted(&self, head: &Head) -> bool {
        match head.op(&[]) {
            Some(Op::Write(write)) => self.service.reference().looks_admitted(&write),
            _ => false,
        }
    }
}

/// The HTTP answer; `None` for an unknown outcome, because a killed process answers nothing.
fn reply(answer: &Answer) -> Option<Vec<u8>> {
    let fence = answer.high().map(|high| high.to_string());
    let (status, body) = match answer {
        Answer::Ok { .. } => ("200 OK", json!({"value": answer.value().flatten(), "fence": fence})),
        Answer::Stale { .. } => ("409 Conflict", json!({"fence": fence})),
        Answer::Mismatch { .. } => ("412 Precondition Failed", json!({"value": answer.value().flatten()})),
        Answer::Error { definite: true, code } => ("400 Bad Request", json!({"error": code})),
        Answer::Unsupported => ("404 Not Found", json!({"error": "not-found"})),
        Answer::Error { definite: false, .. } | Answer::Unknown { .. } => return None,
    };
    let body = body.to_string();
    Some(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}
