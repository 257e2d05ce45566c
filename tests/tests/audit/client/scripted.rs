//! A gateway that lets claims pass and handles each write as the test scripts it.

use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// What happens to a write.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Answers it with this problem.
    Problem { status: u16, kind: &'static str, outcome: &'static str },
    /// Reads it and closes the connection without an answer.
    Swallow,
    /// The gateway is gone from now on: connections are refused.
    Leave,
}

/// The scripted gateway. The last act is repeated.
pub(super) struct ScriptedGateway {
    url: String,
    keys: Arc<Mutex<Vec<String>>>,
}

struct Request {
    line: String,
    key: Option<String>,
}

impl ScriptedGateway {
    pub(super) fn start(acts: Vec<Act>) -> ScriptedGateway {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(Vec::new()));
        let seen = keys.clone();
        std::thread::spawn(move || serve(listener, acts, &seen));
        ScriptedGateway { url, keys }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The idempotency keys of the writes that arrived.
    pub(super) fn keys(&self) -> Vec<String> {
        self.keys.lock().clone()
    }
}

/// One connection at a time, one request on each.
fn serve(listener: TcpListener, acts: Vec<Act>, keys: &Mutex<Vec<String>>) {
    let mut acts = acts.into_iter().peekable();
    let mut last = None;
    while let Ok((mut stream, _)) = listener.accept() {
        let Some(request) = read(&stream) else { continue };
        if request.line.starts_with("GET /v1/fences/") {
            answer(&mut stream, 200, "application/json", r#"{"resource": "orders/1", "generation": 0, "fence": null}"#);
        } else if request.line.starts_with("POST /v1/claim/") {
            answer(&mut stream, 200, "application/json", r#"{"resource": "orders/1", "fence": null, "values": []}"#);
        } else {
            keys.lock().extend(request.key);
            last = acts.next().or(last);
            match &last {
                Some(Act::Problem { status, kind, outcome }) => {
                    let body = format!(
                        r#"{{"type": "urn:fencepost:problem:{kind}", "title": "t", "status": {status}, "detail": "scripted", "outcome": "{outcome}"}}"#
                    );
                    answer(&mut stream, *status, "application/problem+json", &body);
                }
                Some(Act::Swallow) => {}
                Some(Act::Leave) | None => return,
            }
            // Before the next attempt can connect.
            if matches!(acts.peek(), Some(Act::Leave)) {
                return;
            }
        }
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (mut key, mut length) = (None, 0);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = Some(value.to_owned()),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some(Request { line, key })
}

fn answer(stream: &mut TcpStream, status: u16, kind: &str, body: &str) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // The client may be gone.
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}
