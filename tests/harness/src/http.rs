//! A minimal HTTP/1.1 client: it sends exactly the bytes that the test specifies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// The fence that a refusal shows. Another gateway may have raised it since, and then it is named so.
    pub fn fence_shown(&self) -> Option<String> {
        let facts = self.json();
        facts["fence"].as_str().or(facts["fence_at_least"].as_str()).map(str::to_owned)
    }

    /// The last part of the problem's type: `stale`, `absent`, …
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status, "{json}");
        json["type"].as_str().and_then(|uri| uri.strip_prefix("urn:fencepost:problem:")).unwrap_or_default().to_owned()
    }
}

/// One connection. Responses are read in order; nothing is retried.
pub struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects, or panics.
    pub fn connect(address: &str) -> Client {
        Client::try_connect(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// Connects, or returns the error.
    pub fn try_connect(address: &str) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Client::over(stream)
    }

    /// Connects to a Unix socket, or panics.
    pub fn connect_unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // A connected Unix socket can be used through the same stream type.
        Client::over(TcpStream::from(OwnedFd::from(stream))).expect("a connected socket can be used")
    }

    fn over(stream: TcpStream) -> std::io::Result<Client> {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { reader: BufReader::new(stream.try_clone()?), stream })
    }

    /// Sends bytes unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes the sending side.
    pub fn finish_sending(&self) {
        self.stream.shutdown(Shutdown::Write).expect("an open socket can be shut down");
    }

    /// Sets how long to wait for an answer.
    pub fn set_timeout(&self, timeout: Duration) {
        self.stream.set_read_timeout(Some(timeout)).expect("a socket has a timeout");
    }

    /// Waits until the first bytes of an answer arrive.
    pub fn wait_for_answer(&mut self) -> std::io::Result<()> {
        self.reader.fill_buf().map(drop)
    }

    /// Reads one answer. `Err` with `UnexpectedEof`: the connection was closed instead.
    pub fn receive(&mut self) -> std::io::Result<Answer> {
        self.receive_after("GET")
    }

    /// Reads the answer to a request of this method (an answer to HEAD has no body).
    pub fn receive_after(&mut self, method: &str) -> std::io::Result<Answer> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {status_line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("not a header: {line:?}"));
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        if method == "HEAD" || matches!(status, 100..=199 | 204 | 304) {
            return Ok(answer);
        }
        answer.body = match answer.header("transfer-encoding") {
            Some(_) => self.chunks()?,
            None => self.bytes(answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0))?,
        };
        Ok(answer)
    }

    /// Reads a chunked body.
    fn chunks(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(&line, 16);
            let length = length.unwrap_or_else(|_| panic!("not the length of a chunk: {line:?}"));
            body.extend(self.bytes(length)?);
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn bytes(&mut self, length: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        // A line without its end is incomplete: the process may have died while writing it.
        if !line.ends_with('\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Sends a well-formed request and reads its answer.
    pub fn try_request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || matches!(method, "PUT" | "POST") {
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes)?;
        self.receive_after(method)
    }

    /// Like `try_request`, but panics on failure.
    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.try_request(method, path, headers, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Reads answers until the connection is closed, and returns all of them.
    pub fn receive_all(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Ok(answer) = self.receive() {
            answers.push(answer);
        }
        answers
    }

    /// Waits for the next byte or the end; true if the peer closed without sending another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.reader.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Reads any bytes, HTTP or not, until the connection is closed.
    pub fn drain(&mut self) {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
    }

    /// GET /v1/fences: the fence's token, or `None` if the resource has no fence.
    pub fn fence(&mut self, resource: &str) -> Option<String> {
        let answer = self.request("GET", &format!("/v1/fences/{resource}"), &[], b"");
        answer.json()["fence"]["token"].as_str().map(str::to_owned)
    }

    /// PUT with a token.
    pub fn put(&mut self, key: &str, token: &str, body: &str) -> Answer {
        self.request("PUT", &format!("/v1/kv/{key}"), &[("fencing-token", token)], body.as_bytes())
    }

    /// GET without a token.
    pub fn get(&mut self, key: &str) -> Answer {
        self.request("GET", &format!("/v1/kv/{key}"), &[], b"")
    }

    /// DELETE with a token.
    pub fn delete(&mut self, key: &str, token: &str) -> Answer {
        self.request("DELETE", &format!("/v1/kv/{key}"), &[("fencing-token", token)], b"")
    }

    /// POST /v1/claim with a token.
    pub fn claim(&mut self, resource: &str, token: &str) -> Answer {
        self.request("POST", &format!("/v1/claim/{resource}"), &[("fencing-token", token)], b"")
    }

    /// POST with a JSON body.
    pub fn post(&mut self, path: &str, body: &serde_json::Value) -> Answer {
        self.request("POST", path, &[], body.to_string().as_bytes())
    }

    /// POST /v1/locks: acquire, without waiting.
    pub fn acquire(&mut self, lock: &str, holder: &str, ttl_ms: u64) -> Answer {
        let body = serde_json::json!({"holder": holder, "ttl_ms": ttl_ms});
        self.post(&format!("/v1/locks/{lock}"), &body)
    }

    /// POST /v1/locks/…/renew.
    pub fn renew(&mut self, lock: &str, lease: &str, ttl_ms: u64) -> Answer {
        let body = serde_json::json!({"lease": lease, "ttl_ms": ttl_ms});
        self.post(&format!("/v1/locks/{lock}/renew"), &body)
    }

    /// DELETE /v1/locks: release.
    pub fn release(&mut self, lock: &str, lease: &str) -> Answer {
        self.request("DELETE", &format!("/v1/locks/{lock}?lease={lease}"), &[], b"")
    }
}
