//! Bodies framed as `aws-chunked`, made small enough for the S3 library.
//!
//! The library takes a chunk into memory whole before it hands out any of it, and some clients send a whole object as
//! one chunk. A chunk that is not signed says the same in many small ones, so it is framed anew. A signed one cannot be
//! taken apart before it has come to its end, so its size has a limit.

use std::collections::VecDeque;
use std::error::Error;

use bytes::{Buf, Bytes, BytesMut};
use hyper::header::HeaderMap;

/// The most bytes of a chunk that is signed. Clients send 64 KiB to 1 MiB.
pub(super) const MAX_SIGNED_CHUNK: u64 = 16 << 20;

/// The line before a chunk is shorter than this.
const MAX_LINE: usize = 1024;

/// So many digits of a size the library looks at.
const MAX_DIGITS: usize = 8;

/// Pieces of a signed chunk go on together if they are smaller: the library keeps each until the chunk has come to its
/// end.
const PIECE: usize = 64 << 10;

const MISFRAMED: &str = "its chunks are not framed as `aws-chunked` says";

const LINE_END: Bytes = Bytes::from_static(b"\r\n");

/// Is the body of a request framed in this way?
pub(super) fn are_used(headers: &HeaderMap) -> bool {
    headers.get_all("x-amz-content-sha256").iter().any(|kind| kind.as_bytes().starts_with(b"STREAMING-"))
}

/// Frames a body anew.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// What is ready to go on.
    ready: VecDeque<Bytes>,
}

/// Where in the body it is.
#[derive(Debug)]
enum At {
    /// In the line before a chunk, of which this has arrived.
    Line(BytesMut),
    /// In a chunk that is not signed, before so many bytes of it.
    Plain(u64),
    /// In the end of a line, before so many bytes of it.
    End(usize),
    /// In a chunk that is signed, before so many bytes of it and of the line's end behind it; with pieces of it.
    Signed(u64, BytesMut),
    /// After the line of the last chunk: the library looks at the rest as it is.
    Rest,
}

impl Default for At {
    fn default() -> At {
        At::Line(BytesMut::new())
    }
}

impl Chunks {
    /// What is ready to go on.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// The body has ended, and its last chunk must have come before: the library does not ask for it.
    pub(super) fn end(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        match std::mem::replace(&mut self.at, At::Rest) {
            At::Rest => Ok(()),
            _ => Err("it ended before its last chunk".into()),
        }
    }

    /// Takes in what has arrived.
    pub(super) fn push(&mut self, mut bytes: Bytes) -> Result<(), Box<dyn Error + Send + Sync>> {
        while !bytes.is_empty() {
            match &mut self.at {
                At::Line(line) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
                    line.extend_from_slice(&bytes.split_to(end));
                    if line.ends_with(b"\n") || line.len() > MAX_LINE {
                        let line = std::mem::take(line).freeze();
                        self.at = self.chunk(line)?;
                    }
                }
                At::Plain(left) => {
                    let piece = bytes.split_to(bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                    *left -= piece.len() as u64;
                    if *left == 0 {
                        self.at = At::End(LINE_END.len());
                    }
                    self.ready.extend([Bytes::from(format!("{:x}\r\n", piece.len())), piece, LINE_END]);
                }
                At::End(left) => {
                    if bytes.get_u8() != LINE_END[LINE_END.len() - *left] {
                        return Err(MISFRAMED.into());
                    }
                    *left -= 1;
                    if *left == 0 {
                        self.at = At::default();
                    }
                }
                At::Signed(left, pieces) => {
                    let piece = bytes.split_to(bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                    *left -= piece.len() as u64;
                    pieces.extend_from_slice(&piece);
                    if *left == 0 || pieces.len() >= PIECE {
                        self.ready.push_back(pieces.split().freeze());
                    }
                    if *left == 0 {
                        self.at = At::default();
                    }
                }
                At::Rest => self.ready.push_back(std::mem::take(&mut bytes)),
            }
        }
        Ok(())
    }

    /// What comes after the line before a chunk.
    fn chunk(&mut self, line: Bytes) -> Result<At, Box<dyn Error + Send + Sync>> {
        let digits = line.split(|byte| matches!(byte, b';' | b'\r')).next().unwrap_or_default();
        let number = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit));
        let size = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match size {
            None => Err(MISFRAMED.into()),
            Some(0) => {
                self.ready.push_back(line);
                Ok(At::Rest)
            }
            Some(size) if line[digits.len()..] == LINE_END => Ok(At::Plain(size)),
            Some(size) if size > MAX_SIGNED_CHUNK => {
                Err(format!("a chunk that is signed has at most {MAX_SIGNED_CHUNK} bytes, not {size}").into())
            }
            Some(_) if digits.len() > MAX_DIGITS => Err(MISFRAMED.into()),
            Some(size) => {
                self.ready.push_back(line);
                Ok(At::Signed(size + LINE_END.len() as u64, BytesMut::new()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body as it goes on, given in pieces of so many bytes.
    fn framed(body: &[u8], piece: usize) -> Result<Vec<u8>, String> {
        let mut chunks = Chunks::default();
        let mut out = Vec::new();
        for piece in body.chunks(piece) {
            chunks.push(Bytes::copy_from_slice(piece)).map_err(|error| error.to_string())?;
            out.extend(std::iter::from_fn(|| chunks.next()).flatten());
        }
        chunks.end().map_err(|error| error.to_string())?;
        Ok(out)
    }

    #[test]
    fn a_chunk_goes_on_in_the_pieces_it_came_in() {
        let body = b"a\r\n0123456789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        let whole = framed(body, body.len()).unwrap();
        assert_eq!(whole, body);
        let small = framed(body, 5).unwrap();
        assert_eq!(small, b"2\r\n01\r\n5\r\n23456\r\n3\r\n789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    }

    #[test]
    fn signed_chunks_go_on_as_they_are() {
        let signature = "0".repeat(64);
        let body = format!("4;chunk-signature={signature}\r\nabcd\r\n0;chunk-signature={signature}\r\n\r\n");
        for piece in 1..body.len() {
            assert_eq!(framed(body.as_bytes(), piece).unwrap(), body.as_bytes());
        }
    }

    #[test]
    fn a_signed_chunk_has_a_limit_and_another_has_none() {
        let size = MAX_SIGNED_CHUNK + 1;
        let error = framed(format!("{size:x};chunk-signature=00\r\n").as_bytes(), 100).unwrap_err();
        assert_eq!(error, "a chunk that is signed has at most 16777216 bytes, not 16777217");
        let mut chunks = Chunks::default();
        chunks.push(Bytes::from_static(b"ffffffffff\r\nab")).unwrap();
        assert_eq!(std::iter::from_fn(|| chunks.next()).flatten().collect::<Vec<u8>>(), b"2\r\nab\r\n");
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        // The library would take the first digits of some of these for a size of 4 GiB.
        let long = "1".repeat(5000);
        let lines = ["zz\r\n", "\r\n", "-1\r\n", "+1\r\n", "10000000000000000\r\n", "ffffffffz\r\n", &long];
        let signed = ["ffffffffz;chunk-signature=00\r\n", "0000000110;chunk-signature=00\r\n"];
        for line in lines.into_iter().chain(signed) {
            assert_eq!(framed(line.as_bytes(), 7).unwrap_err(), MISFRAMED, "{line}");
        }
        assert!(framed(b"2\r\nabc\r\n0\r\n\r\n", 100).is_err(), "a chunk that is longer than it says");
    }

    #[test]
    fn a_signed_chunk_in_tiny_pieces_goes_on_in_larger_ones() {
        let mut chunks = Chunks::default();
        let size = 3 * PIECE;
        chunks.push(Bytes::from(format!("{size:x};chunk-signature=00\r\n"))).unwrap();
        (0..size).for_each(|_| chunks.push(Bytes::from_static(b"x")).unwrap());
        assert_eq!(std::iter::from_fn(|| chunks.next()).count(), 4, "the line, and three pieces");
    }

    #[test]
    fn any_header_that_says_so_counts() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-content-sha256", hyper::header::HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(!are_used(&headers));
        headers.append("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER".parse().unwrap());
        assert!(are_used(&headers));
    }

    #[test]
    fn a_body_that_ends_before_its_last_chunk_is_refused() {
        for body in ["", "5", "a\r\n0123", "4\r\n0123", "4\r\n0123\r\n", "4\r\n0123\r\n0"] {
            assert_eq!(framed(body.as_bytes(), 100).unwrap_err(), "it ended before its last chunk", "{body}");
        }
        let signed = format!("4;chunk-signature={}\r\n0123\r\n", "0".repeat(64));
        for end in [0, 3, signed.len() - 1, signed.len()] {
            assert!(framed(&signed.as_bytes()[..end], 7).is_err(), "{end}");
        }
    }
}
