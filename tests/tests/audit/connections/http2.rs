//! Hand-written HTTP/2: windows that stay closed, and access to every received frame.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fencepost_conformance::wait::{self, PATIENCE};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;

#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// A connection that never enlarges its initial window, and answers pings and settings.
pub(super) struct Http2 {
    stream: TcpStream,
    unread: Vec<u8>,
    frames: Vec<Frame>,
    closed: bool,
}

impl Http2 {
    /// Connects with this window for each stream.
    pub(super) fn connect(address: &str, window: u32) -> Http2 {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut connection = Http2 { stream, unread: Vec::new(), frames: Vec::new(), closed: false };
        connection.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        // SETTINGS_INITIAL_WINDOW_SIZE
        connection.send(SETTINGS, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat());
        connection
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        // The other side may have closed.
        let _ = self.stream.write_all(&[&head, payload].concat());
    }

    /// A request without a body.
    pub(super) fn request(&mut self, stream: u32, method: &str, path: &str, authority: &str) {
        self.request_with(stream, method, path, authority, b"");
    }

    /// A request with a body.
    pub(super) fn request_with(&mut self, stream: u32, method: &str, path: &str, authority: &str, body: &[u8]) {
        let mut block = Vec::new();
        for (name, value) in [(":method", method), (":scheme", "http"), (":authority", authority), (":path", path)] {
            // A literal header field without indexing, with a new name.
            block.push(0);
            for text in [name, value] {
                length(text.len(), &mut block);
                block.extend_from_slice(text.as_bytes());
            }
        }
        // END_HEADERS, and END_STREAM if there is no body.
        self.send(HEADERS, if body.is_empty() { 5 } else { 4 }, stream, &block);
        if !body.is_empty() {
            self.send(DATA, 1, stream, body);
        }
    }

    /// Reads what has arrived, and answers pings and settings.
    fn poll(&mut self) {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(bytes) => self.unread.extend_from_slice(&buffer[..bytes]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => self.closed = true,
        }
        while let Some(length) =
            self.unread.first_chunk::<3>().map(|l| usize::from_be_bytes([0, 0, 0, 0, 0, l[0], l[1], l[2]]))
        {
            if self.unread.len() < 9 + length {
                break;
            }
            let frame: Vec<u8> = self.unread.drain(..9 + length).collect();
            let stream = u32::from_be_bytes(frame[5..9].try_into().unwrap());
            let frame = Frame { kind: frame[3], flags: frame[4], stream, payload: frame[9..].to_vec() };
            match (frame.kind, frame.flags & 1) {
                (SETTINGS, 0) => self.send(SETTINGS, 1, 0, &[]),
                (PING, 0) => self.send(PING, 1, 0, &frame.payload),
                _ => {}
            }
            self.frames.push(frame);
        }
    }

    /// Every frame received so far.
    pub(super) fn frames(&mut self) -> impl Iterator<Item = &Frame> {
        self.poll();
        self.frames.iter()
    }

    /// Has the peer closed the connection?
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Has the answer to this request begun?
    pub(super) fn has_headers(&mut self, stream: u32) -> bool {
        self.frames().any(|frame| frame.kind == HEADERS && frame.stream == stream)
    }

    /// Statuses that arrived as text, which is all but the most common.
    pub(super) fn statuses(&mut self) -> String {
        let heads = self.frames().filter(|frame| frame.kind == HEADERS);
        heads.map(|frame| decoded(&frame.payload)).collect::<Vec<_>>().join(" ")
    }

    /// Every frame until the peer closes.
    pub(super) fn frames_until_closed(&mut self) -> Vec<Frame> {
        wait::until("the connection to be closed", PATIENCE, || {
            self.poll();
            self.closed.then_some(())
        });
        self.frames.clone()
    }
}

/// Appends a length with a seven-bit prefix.
fn length(length: usize, block: &mut Vec<u8>) {
    match length {
        0..127 => block.push(length as u8),
        _ => {
            block.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
}

/// The status that a header block begins with: an entry of the static table, or the first 503, Huffman-coded. Later
/// ones are entries of the dynamic table.
fn decoded(block: &[u8]) -> String {
    match block {
        [0x88, ..] => "200".to_owned(),
        [0x48, 0x83, 0x6c, 0x0c, 0xff, ..] => "503".to_owned(),
        [first, ..] => format!("{first:02x}"),
        [] => String::new(),
    }
}
