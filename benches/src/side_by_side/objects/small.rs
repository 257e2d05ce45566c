//! Many small objects: the requests of one connection.

use fencepost_gateway::bench::{Answered, Protocol};

use super::sign::Signer;
use super::{READ_OBJECTS, SMALL};

/// The number of objects that a connection writes in turn; after the first pass they are overwritten.
const OWN_OBJECTS: u64 = 500;

/// The operation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Writes its own objects.
    Put,
    /// Reads the shared objects.
    Get,
}

/// One connection of the load.
pub(crate) struct Small {
    signer: Signer,
    does: Does,
    number: u64,
    sent: u64,
    body: Vec<u8>,
}

impl Small {
    pub(crate) fn new(signer: Signer, does: Does, number: u64) -> Small {
        Small { signer, does, number, sent: 0, body: content(number) }
    }
}

/// The bytes that this connection, or this thread, writes.
pub(crate) fn content(number: u64) -> Vec<u8> {
    fencepost_gateway::bench::text(number, SMALL).into_bytes()
}

/// The name of the next object.
pub(crate) fn name(does: Does, number: u64, sent: u64) -> String {
    match does {
        Does::Put => format!("put/{number:02}/{:04}", sent % OWN_OBJECTS),
        Does::Get => stocked(fencepost_gateway::bench::spread(number, sent, READ_OBJECTS)),
    }
}

/// The name of a shared object.
pub(crate) fn stocked(object: u64) -> String {
    format!("read/{object:04}")
}

impl Protocol for Small {
    fn request(&mut self, out: &mut Vec<u8>) {
        let path = format!("/bench/{}", name(self.does, self.number, self.sent));
        self.sent += 1;
        match self.does {
            Does::Get => {
                out.extend_from_slice(self.signer.head("GET", &path).as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Does::Put => {
                out.extend_from_slice(self.signer.head("PUT", &path).as_bytes());
                out.extend_from_slice(format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes());
                out.extend_from_slice(&self.body);
            }
        }
    }

    fn answer(&mut self, input: &[u8]) -> Option<Answered> {
        let answer = Answer::read(input)?;
        let expected = if self.does == Does::Get { SMALL } else { answer.length };
        if answer.status != 200 || answer.length != expected {
            return Some(Answered::Senseless(format!("an answer was: {}", String::from_utf8_lossy(input))));
        }
        (input.len() >= answer.head + answer.length).then_some(Answered::Expected)
    }
}

/// The head of a response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The length of the head in bytes.
    pub(crate) head: usize,
    /// The length of the body in bytes.
    pub(crate) length: usize,
}

impl Answer {
    /// Parses a head. `None`: it is incomplete.
    pub(crate) fn read(input: &[u8]) -> Option<Answer> {
        let head = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&input[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1)?.parse().ok()?;
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        Some(Answer { status, head, length: length.and_then(|length| length.trim().parse().ok()).unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_its_head_is_there() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert!(Answer::read(&whole[..30]).is_none());
        let answer = Answer::read(whole).unwrap();
        assert_eq!((answer.status, answer.length, answer.head + answer.length), (200, 3, whole.len()));
    }
}
