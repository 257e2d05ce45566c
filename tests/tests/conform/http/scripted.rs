//! A scripted service that answers byte by byte, and records what it was sent.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// What the service does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends these bytes, and waits for the next request.
    Send(Vec<u8>),
    /// Sends these bytes, and closes.
    Close(Vec<u8>),
    /// Resets the connection.
    Reset,
    /// Never answers.
    Silent,
}

/// Answers with this status, these headers and this body.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> Act {
    Act::Send(format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

/// The service. It stops at the end of the test.
pub(crate) struct Scripted {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    acts: Mutex<BTreeMap<String, Act>>,
    seen: Mutex<Vec<String>>,
    connections: Mutex<usize>,
    ended: Mutex<usize>,
}

impl Scripted {
    /// Starts the service. The last part of a path selects an act by its name; without one the answer is 204.
    pub(crate) fn start(acts: impl IntoIterator<Item = (&'static str, Act)>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let acts = acts.into_iter().map(|(name, act)| (name.to_owned(), act)).collect();
        let shared = Arc::new(Shared { acts: Mutex::new(acts), ..Shared::default() });
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = accepting.clone();
                thread::spawn(move || {
                    serve(stream, &shared);
                    *shared.ended.lock() += 1;
                });
            }
        });
        Scripted { address, shared }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, head and body, without readiness probes.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.shared.seen.lock().clone()
    }

    pub(crate) fn last(&self) -> String {
        self.seen().last().cloned().expect("a request came")
    }

    /// How many connections have carried a request.
    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.lock()
    }

    /// How many connections it has closed.
    pub(crate) fn ended(&self) -> usize {
        *self.shared.ended.lock()
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = true;
    loop {
        let mut head = String::new();
        let mut length = 0;
        loop {
            let mut line = Vec::new();
            if reader.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = String::from_utf8_lossy(&line).into_owned();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line);
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut stream = &stream;
        if path == "/" {
            let _ = stream.write_all(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n");
            continue;
        }
        shared.seen.lock().push(format!("{head}{}", String::from_utf8_lossy(&body)));
        if std::mem::take(&mut first) {
            *shared.connections.lock() += 1;
        }
        let name = path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let act = shared.acts.lock().get(name).cloned();
        match act.unwrap_or_else(|| Act::Send(b"HTTP/1.1 204 X\r\n\r\n".to_vec())) {
            Act::Send(bytes) => {
                let _ = stream.write_all(&bytes);
            }
            Act::Close(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            Act::Reset => {
                let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
                return;
            }
            Act::Silent => {}
        }
    }
}
