//! A minimal gRPC client, for one request at a time on one connection: HTTP/2 frames with stateless headers, and the
//! wire format of protocol buffers. It runs in the same load generator as the other peers, so it costs no more than
//! they do.

/// The start of a connection: the preface, our settings (no header table, no push, large streams) and a large window.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\x12\x04\0\0\0\0\0\0\x01\0\0\0\0\0\x02\0\0\0\0\0\x04\x40\0\0\0\
    \0\0\x04\x08\0\0\0\0\0\x3f\0\0\0";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// One connection.
#[derive(Default)]
pub(crate) struct Grpc {
    stream: u32,
    /// Received bytes that are not a complete frame yet, and how much of the load's buffer has been copied into it.
    input: Vec<u8>,
    taken: usize,
    /// Acknowledgements to be sent with the next request.
    owed: Vec<u8>,
    message: Vec<u8>,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// With this message.
    Answered(Vec<u8>),
    /// Without a message: gRPC reports the reason in trailers, which are not read here.
    Failed(&'static str),
}

impl Grpc {
    /// Appends a call of a method with a message, which must fit into one frame of 16 KiB.
    pub(crate) fn call(&mut self, method: &str, message: &[u8], out: &mut Vec<u8>) {
        if self.stream == 0 {
            out.extend_from_slice(GREETING);
        }
        out.append(&mut self.owed);
        self.taken = 0;
        self.message.clear();
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        // `:method: POST` and `:scheme: http` from the static table, then literals that are not indexed.
        let mut headers = vec![0x83, 0x86, 0x04];
        put_text(&mut headers, method);
        headers.push(0x01);
        put_text(&mut headers, "bench");
        headers.extend_from_slice(&[0x0f, 0x10]);
        put_text(&mut headers, "application/grpc");
        headers.push(0x00);
        put_text(&mut headers, "te");
        put_text(&mut headers, "trailers");
        frame(out, HEADERS, END_HEADERS, self.stream, &headers);
        let mut data = vec![0];
        data.extend_from_slice(&(message.len() as u32).to_be_bytes());
        data.extend_from_slice(message);
        frame(out, DATA, END_STREAM, self.stream, &data);
    }

    /// Processes everything received since the call. `None`: the call has not ended yet.
    pub(crate) fn answer(&mut self, input: &[u8]) -> Option<Call> {
        self.input.extend_from_slice(input.get(self.taken..).unwrap_or_default());
        self.taken = input.len();
        let mut ended = None;
        let mut at = 0;
        while let Some(head) = self.input.get(at..at + 9) {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let (kind, flags) = (head[3], head[4]);
            let Some(payload) = self.input.get(at + 9..at + 9 + length) else { break };
            at += 9 + length;
            match kind {
                SETTINGS if flags & ACK == 0 => frame(&mut self.owed, SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => frame(&mut self.owed, PING, ACK, 0, payload),
                DATA if flags & PADDED != 0 => ended = Some(Call::Failed("a padded frame")),
                DATA => self.message.extend_from_slice(payload),
                RST_STREAM => ended = Some(Call::Failed("the call was reset")),
                GOAWAY => ended = Some(Call::Failed("the server says goodbye")),
                _ => {}
            }
            if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 && ended.is_none() {
                // A message starts with one byte for "not compressed", and four bytes for its length.
                ended = Some(match self.message.split_at_checked(5) {
                    Some(([0, ..], message)) => Call::Answered(message.to_vec()),
                    _ => Call::Failed("no message"),
                });
            }
        }
        self.input.drain(..at);
        ended
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends the text of a header, which must not be longer than 126 bytes.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a length-delimited field: bytes, text or a message.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a number field.
pub(crate) fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// One field of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message with their numbers, in order. `None`: it is malformed.
pub(crate) fn fields(mut message: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Field::Bytes(bytes)
            }
            _ => return None,
        };
        fields.push((tag >> 3, field));
    }
    Some(fields)
}

fn varint(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were_put() {
        let mut message = Vec::new();
        put_number(&mut message, 2, 300);
        put_bytes(&mut message, 20, b"value");
        assert_eq!(fields(&message), Some(vec![(2, Field::Number(300)), (20, Field::Bytes(b"value"))]));
        assert_eq!(fields(&message[..message.len() - 1]), None, "cut off");
        assert_eq!(fields(&[0xff; 12]), None, "a number without an end");
    }

    fn server_says(message: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        frame(&mut bytes, HEADERS, END_HEADERS, 1, b"status");
        let mut data = vec![0, 0, 0, 0, message.len() as u8];
        data.extend_from_slice(message);
        frame(&mut bytes, DATA, 0, 1, &data);
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, 1, b"trailers");
        bytes
    }

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there_and_what_follows_belongs_to_the_next() {
        let mut whole = server_says(b"hello");
        let end = whole.len();
        frame(&mut whole, PING, 0, 0, b"12345678");
        let mut grpc = Grpc::default();
        grpc.call("/kv", b"", &mut Vec::new());
        for at in 0..end {
            assert_eq!(grpc.answer(&whole[..at]), None, "{at}");
        }
        // Half of the ping arrives with the answer.
        assert_eq!(grpc.answer(&whole[..end + 10]), Some(Call::Answered(b"hello".to_vec())));
        let mut second = Vec::new();
        grpc.call("/kv", b"", &mut second);
        assert!(second.starts_with(b"\0\0\0\x04\x01\0\0\0\0"), "the settings are acknowledged: {second:?}");
        assert_eq!(grpc.answer(&whole[end + 10..]), None);
        let mut third = Vec::new();
        grpc.call("/kv", b"", &mut third);
        assert!(third.starts_with(b"\0\0\x08\x06\x01\0\0\0\x0012345678"), "and so is the ping: {third:?}");
    }

    #[test]
    fn a_call_without_a_message_failed() {
        let mut grpc = Grpc::default();
        grpc.call("/kv", b"", &mut Vec::new());
        let mut bytes = Vec::new();
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, 1, b"trailers");
        assert_eq!(grpc.answer(&bytes), Some(Call::Failed("no message")));
    }
}
