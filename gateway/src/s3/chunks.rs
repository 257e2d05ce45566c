//! Splits the chunks of `aws-chunked` bodies, so that they are small enough for the S3 library.
//!
//! The library buffers a whole chunk in memory before it passes on any of it, and some clients send an object as a
//! single chunk. An unsigned chunk is equivalent to many small ones, so it is framed again. A signed chunk cannot be
//! split before its end has arrived, so its size is limited.

use std::collections::VecDeque;
use std::error::Error;

use bytes::{Buf, Bytes, BytesMut};
use hyper::header::HeaderMap;

use super::shares::Room;

/// The largest signed chunk in bytes. Clients send 64 KiB to 1 MiB.
pub(super) const MAX_SIGNED_CHUNK: u64 = 1 << 20;

/// The longest line before a chunk.
const MAX_LINE: usize = 1024;

/// The number of size digits that the library reads.
const MAX_DIGITS: usize = 8;

/// Pieces of a signed chunk are merged up to this size, because the library keeps each piece until the end of the
/// chunk.
const PIECE: usize = 64 << 10;

const MISFRAMED: &str = "its chunks are not framed as `aws-chunked` says";

const LINE_END: Bytes = Bytes::from_static(b"\r\n");

/// Returns whether the body of a request is framed as `aws-chunked`.
pub(super) fn are_used(headers: &HeaderMap) -> bool {
    headers.get_all("x-amz-content-sha256").iter().any(|kind| kind.as_bytes().starts_with(b"STREAMING-"))
}

/// Frames a body again in smaller chunks.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Bytes that have arrived and wait for room.
    input: Bytes,
    /// Pieces to pass on.
    ready: VecDeque<Piece>,
}

/// A piece to pass on.
#[derive(Debug)]
pub(super) enum Piece {
    /// Framing lines, and data that already has room.
    Ready(Bytes),
    /// Data that still needs room in memory.
    Data(Bytes),
}

/// The position in the body.
#[derive(Debug)]
enum At {
    /// In the line before a chunk, with the bytes received so far.
    Line(BytesMut),
    /// In an unsigned chunk, with the number of bytes still to come.
    Plain(u64),
    /// In the end of a line, with the number of bytes still to come.
    End(usize),
    /// After this line, before a signed chunk of this size. The library keeps the whole chunk until its end, so room
    /// for all of it is reserved before any of it is read. Otherwise uploads that each hold half a chunk would wait
    /// for each other.
    Asking(Bytes, u64),
    /// In a signed chunk, with the number of bytes still to come, line end included, and the pieces collected so far.
    Signed(u64, BytesMut, Room),
    /// After the line of the last chunk. The rest is passed on unchanged.
    Rest,
}

impl Default for At {
    fn default() -> At {
        At::Line(BytesMut::new())
    }
}

impl Chunks {
    /// The next piece to pass on.
    pub(super) fn next(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// The room that is needed before more can be read.
    pub(super) fn wants(&self) -> Option<usize> {
        match self.at {
            At::Asking(_, size) => Some(usize::try_from(size).unwrap_or(usize::MAX)),
            _ => None,
        }
    }

    /// Supplies the room.
    pub(super) fn grant(&mut self, room: Room) -> Result<(), Box<dyn Error + Send + Sync>> {
        match std::mem::replace(&mut self.at, At::Rest) {
            At::Asking(line, size) => {
                self.ready.push_back(Piece::Ready(line));
                self.at = At::Signed(size, BytesMut::new(), room);
            }
            other => self.at = other,
        }
        self.advance()
    }

    /// Checks at the end of the body that its last chunk has arrived, because the library does not check that.
    pub(super) fn end(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        match std::mem::replace(&mut self.at, At::Rest) {
            At::Rest => Ok(()),
            _ => Err("it ended before its last chunk".into()),
        }
    }

    /// Reads received bytes. No room may be [wanted](Chunks::wants) at that point.
    pub(super) fn push(&mut self, bytes: Bytes) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.input = bytes;
        self.advance()
    }

    fn advance(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let bytes = &mut self.input;
        while !bytes.is_empty() {
            match &mut self.at {
                At::Line(line) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
                    line.extend_from_slice(&bytes.split_to(end));
                    if line.ends_with(b"\n") || line.len() > MAX_LINE {
                        let line = std::mem::take(line).freeze();
                        self.at = chunk(line, &mut self.ready)?;
                    }
                }
                At::Plain(left) => {
                    let piece = bytes.split_to(bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                    *left -= piece.len() as u64;
                    if *left == 0 {
                        self.at = At::End(LINE_END.len());
                    }
                    let size = Bytes::from(format!("{:x}\r\n", piece.len()));
                    self.ready.extend([Piece::Ready(size), Piece::Data(piece), Piece::Ready(LINE_END)]);
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
                At::Asking(..) => return Ok(()),
                At::Signed(left, pieces, room) => {
                    let piece = bytes.split_to(bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                    *left -= piece.len() as u64;
                    pieces.extend_from_slice(&piece);
                    if *left == 0 || pieces.len() >= PIECE {
                        self.ready.push_back(Piece::Ready(room.part_over(pieces.split().freeze())));
                    }
                    if *left == 0 {
                        self.at = At::default();
                    }
                }
                At::Rest => self.ready.push_back(Piece::Ready(std::mem::take(bytes))),
            }
        }
        Ok(())
    }
}

/// The position after the line before a chunk.
fn chunk(line: Bytes, ready: &mut VecDeque<Piece>) -> Result<At, Box<dyn Error + Send + Sync>> {
    let digits = line.split(|byte| matches!(byte, b';' | b'\r')).next().unwrap_or_default();
    let number = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_hexdigit));
    let size = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match size {
        None => Err(MISFRAMED.into()),
        Some(0) => {
            ready.push_back(Piece::Ready(line));
            Ok(At::Rest)
        }
        Some(size) if line[digits.len()..] == LINE_END => Ok(At::Plain(size)),
        Some(size) if size > MAX_SIGNED_CHUNK => {
            Err(format!("a chunk that is signed has at most {MAX_SIGNED_CHUNK} bytes, not {size}").into())
        }
        Some(_) if digits.len() > MAX_DIGITS => Err(MISFRAMED.into()),
        Some(size) => Ok(At::Asking(line, size + LINE_END.len() as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shares::Shares;
    use super::*;

    /// Reads a piece, with as much room as it wants.
    fn push(chunks: &mut Chunks, piece: &[u8]) -> Result<(), String> {
        let share = Shares::new(64 << 20, 1).of(crate::peer::PeerAddress::Ip([127, 0, 0, 1].into()));
        let mut pushed = chunks.push(Bytes::copy_from_slice(piece));
        while let (Ok(()), Some(size)) = (&pushed, chunks.wants()) {
            pushed = chunks.grant(share.try_take(size).unwrap());
        }
        pushed.map_err(|error| error.to_string())
    }

    /// All pieces to pass on.
    fn ready(chunks: &mut Chunks) -> Vec<Bytes> {
        std::iter::from_fn(|| chunks.next()).map(|(Piece::Ready(bytes) | Piece::Data(bytes))| bytes).collect()
    }

    /// The resulting body, when the input arrives in pieces of `piece` bytes.
    fn framed(body: &[u8], piece: usize) -> Result<Vec<u8>, String> {
        let mut chunks = Chunks::default();
        let mut out = Vec::new();
        for piece in body.chunks(piece) {
            push(&mut chunks, piece)?;
            out.extend(ready(&mut chunks).concat());
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
        assert_eq!(error, "a chunk that is signed has at most 1048576 bytes, not 1048577");
        let mut chunks = Chunks::default();
        push(&mut chunks, b"ffffffffff\r\nab").unwrap();
        assert_eq!(ready(&mut chunks).concat(), b"2\r\nab\r\n");
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        // The library would read the first digits of some of these as a size of 4 GiB.
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
        push(&mut chunks, format!("{size:x};chunk-signature=00\r\n").as_bytes()).unwrap();
        (0..size).for_each(|_| push(&mut chunks, b"x").unwrap());
        assert_eq!(ready(&mut chunks).len(), 4, "the line, and three pieces");
    }

    #[test]
    fn s06_a_signed_chunk_waits_for_its_room() {
        let shares = Shares::new(40, 1);
        let share = shares.of(crate::peer::PeerAddress::Ip([127, 0, 0, 1].into()));
        let mut chunks = Chunks::default();
        chunks.push(Bytes::from_static(b"4;chunk-signature=00\r\nabcd\r\n")).unwrap();
        assert_eq!(chunks.wants(), Some(6));
        assert!(chunks.next().is_none(), "nothing of it goes on");
        chunks.grant(share.try_take(6).unwrap()).unwrap();
        assert_eq!(chunks.wants(), None);
        let pieces = ready(&mut chunks);
        assert_eq!(pieces.concat(), b"4;chunk-signature=00\r\nabcd\r\n");
        assert!(share.try_take(5).is_none(), "the pieces hold it");
        drop(pieces);
        assert!(share.try_take(10).is_some());
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
