//! Reads HTTP/1.1 answers.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Instant;

use crate::adapters::patience::Patience;

/// The largest head of an answer, in bytes.
const HEAD: usize = 64 << 10;

/// The largest body, in bytes.
const BODY: usize = 64 << 20;

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    /// `None`: the answer gives no length, so it may be incomplete.
    pub(super) body: Option<Vec<u8>>,
    /// Whether the connection may be reused.
    pub(super) keeps: bool,
}

impl Reply {
    /// The value of a header, whose name is given in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub(super) fn text(&self) -> Result<&str, String> {
        let body = self.body.as_ref().ok_or("its body has neither a length nor chunks, so it may be cut short")?;
        std::str::from_utf8(body).map_err(|_| "its body is not UTF-8".to_owned())
    }
}

/// The reason why no answer was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost(pub(super) String);

/// Reads from a connection until the deadline.
pub(super) struct Reader<'a> {
    stream: &'a TcpStream,
    patience: Patience,
    buffer: Vec<u8>,
    /// How many bytes of the buffer were consumed.
    used: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(stream: &'a TcpStream, deadline: Instant) -> Reader<'a> {
        Reader { stream, patience: Patience::until(deadline), buffer: Vec::new(), used: 0 }
    }

    /// Reads one answer. With `empty` it has no body whatever its headers claim, as with HEAD.
    pub(super) fn reply(mut self, empty: bool) -> Result<Reply, Lost> {
        loop {
            let (version, status) = self.status()?;
            let headers = self.headers()?;
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let reply = Reply { status, headers, body: Some(Vec::new()), keeps: false };
            let body = if empty || status == 204 || status == 304 { Some(Vec::new()) } else { self.body(&reply)? };
            let closes = reply.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
            // Extra bytes would be taken for the next answer.
            let keeps = version == "HTTP/1.1" && !closes && body.is_some() && self.used == self.buffer.len();
            return Ok(Reply { body, keeps, ..reply });
        }
    }

    fn status(&mut self) -> Result<(String, u16), Lost> {
        let line = self.line()?;
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next().map(str::parse::<u16>)) {
            (Some(version @ ("HTTP/1.1" | "HTTP/1.0")), Some(Ok(status))) if (100..600).contains(&status) => {
                Ok((version.to_owned(), status))
            }
            _ => Err(Lost(format!("the answer is not HTTP/1.1: `{}`", line.chars().take(80).collect::<String>()))),
        }
    }

    fn headers(&mut self) -> Result<Vec<(String, String)>, Lost> {
        let mut headers = Vec::new();
        let mut size = 0;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(headers);
            }
            size += line.len();
            if size > HEAD {
                return Err(Lost(format!("the head of the answer is longer than {HEAD} bytes")));
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| Lost(format!("`{line}` in the answer is no header")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn body(&mut self, reply: &Reply) -> Result<Option<Vec<u8>>, Lost> {
        let chunked = match reply.header("transfer-encoding") {
            None => false,
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => true,
            Some(other) => return Err(Lost(format!("the answer is encoded as `{other}`, which was not asked for"))),
        };
        match reply.header("content-length") {
            Some(_) if chunked => Err(Lost("the answer has both a length and chunks".to_owned())),
            None if chunked => self.chunks().map(Some),
            None => Ok(None),
            Some(length) => {
                let length = length.parse().ok().filter(|length| *length <= BODY);
                let length = length.ok_or_else(|| {
                    Lost(format!("the answer's length is not a number of at most {BODY} bytes: that is the limit"))
                })?;
                self.exactly(length).map(Some)
            }
        }
    }

    fn chunks(&mut self) -> Result<Vec<u8>, Lost> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16)
                .map_err(|_| Lost(format!("`{line}` in the answer is no size of a chunk")))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            if size > BODY - body.len() {
                return Err(Lost(format!("the answer is longer than {BODY} bytes: that is the limit")));
            }
            body.extend(self.exactly(size)?);
            if !self.line()?.is_empty() {
                return Err(Lost("a chunk of the answer is longer than it says".to_owned()));
            }
        }
    }

    /// Reads a line, without its line end.
    fn line(&mut self) -> Result<String, Lost> {
        loop {
            let rest = &self.buffer[self.used..];
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&rest[..end]).trim_end_matches('\r').to_owned();
                self.used += end + 1;
                return Ok(line);
            }
            if rest.len() > HEAD {
                return Err(Lost(format!("a line of the answer is longer than {HEAD} bytes")));
            }
            self.more()?;
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Lost> {
        while self.buffer.len() - self.used < length {
            self.more()?;
        }
        let bytes = self.buffer[self.used..self.used + length].to_vec();
        self.used += length;
        Ok(bytes)
    }

    fn more(&mut self) -> Result<(), Lost> {
        let mut bytes = [0; 16 << 10];
        let mut stream = self.stream;
        loop {
            let read = |slice| stream.set_read_timeout(Some(slice)).and_then(|()| stream.read(&mut bytes));
            match self.patience.wait(read) {
                Ok(0) if self.buffer.is_empty() => {
                    return Err(Lost("the connection was closed before an answer".to_owned()));
                }
                Ok(0) => return Err(Lost("the connection was closed in the middle of the answer".to_owned())),
                Ok(read) => {
                    self.buffer.drain(..self.used);
                    self.used = 0;
                    self.buffer.extend_from_slice(&bytes[..read]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) && !self.patience.is_over() => {}
                Err(error) if is_timeout(&error) => return Err(Lost("no answer in time".to_owned())),
                Err(error) => return Err(Lost(format!("the connection broke: {error}"))),
            }
        }
    }
}

/// Whether a socket operation timed out.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
