//! Just enough HTTP to serve the reference: a head, a body of a stated length, and the operation it requests.

use std::io::{self, BufRead, Read};

use serde::Deserialize;

use crate::op::{Op, Write};
use crate::token::Token;

/// The longest head that is read.
const LONGEST_HEAD: u64 = 64 << 10;

/// The longest body that is read.
const LONGEST_BODY: u64 = 64 << 20;

/// The part of a request that comes before its body.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) method: String,
    path: String,
    tokens: Vec<String>,
    holder: String,
    pub(super) length: u64,
    pub(super) close: bool,
}

impl Head {
    /// Reads a head; `None` at the end of the stream.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Head>> {
        let mut from = from.take(LONGEST_HEAD);
        let Some(first) = line(&mut from)? else { return Ok(None) };
        let mut words = first.split(' ').map(str::to_owned);
        let mut head = Head {
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            ..Head::default()
        };
        loop {
            let text = line(&mut from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if text.is_empty() {
                return Ok(Some(head));
            }
            let (name, value) = text.split_once(':').unwrap_or((&text, ""));
            let value = value.trim_matches([' ', '\t']);
            match name.to_ascii_lowercase().as_str() {
                "fence-token" => head.tokens.push(value.to_owned()),
                "fence-holder" => value.clone_into(&mut head.holder),
                "content-length" => {
                    let length = value.parse().ok().filter(|length| *length <= LONGEST_BODY);
                    head.length = length.ok_or(io::ErrorKind::InvalidData)?;
                }
                "connection" => head.close |= value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
    }

    fn token(&self) -> Token {
        match self.tokens.as_slice() {
            [] => Token::Absent,
            [one] => Token::text(one),
            [first, second, ..] => Token::Both(first.clone(), second.clone()),
        }
    }

    /// The requested operation; `None` if the target does not exist.
    pub(super) fn op(&self, body: &[u8]) -> Option<Op> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Swap {
            expect: Option<String>,
            value: String,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Batch {
            writes: Vec<Write>,
        }
        let (kind, name) = match self.path.strip_prefix('/')?.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (self.path.get(1..)?, None),
        };
        if name.is_some_and(|name| name.is_empty() || name.contains(['/', '?'])) {
            return None;
        }
        let res = name.map(decoded).unwrap_or_default();
        let (token, holder) = (self.token(), self.holder.clone());
        match (self.method.as_str(), kind, name.is_some()) {
            ("PUT", "items", true) => {
                let value = String::from_utf8(body.to_vec()).ok()?;
                Some(Op::Write(Write { res, token, holder, value }))
            }
            ("GET", "items", true) if token.is_absent() => Some(Op::Read { res }),
            ("GET", "items", true) => Some(Op::CheckedRead { res, token }),
            ("DELETE", "items", true) => Some(Op::Delete { res, token, holder }),
            ("POST", "claims", true) => Some(Op::Claim { res, token, holder }),
            ("POST", "swaps", true) => {
                let Swap { expect, value } = serde_json::from_slice(body).ok()?;
                Some(Op::Cas { res, token, holder, expect, value })
            }
            ("POST", "batches", false) => {
                let Batch { writes } = serde_json::from_slice(body).ok()?;
                Some(Op::Batch { writes })
            }
            _ => None,
        }
    }
}

/// One line without its line end; `None` at the end of the stream.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    if from.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let text = bytes.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Some(String::from_utf8_lossy(text).into_owned()))
}

/// Percent-decodes a text.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Head;
    use crate::op::Op;
    use crate::token::Token;

    fn op(text: &str, body: &str) -> Option<Op> {
        Head::read(&mut text.as_bytes()).unwrap().unwrap().op(body.as_bytes())
    }

    #[test]
    fn a_request_is_an_operation() {
        let put = "PUT /items/a%2Fb HTTP/1.1\r\nFence-Token: 5\r\nfence-holder: h\r\n\r\n";
        assert_eq!(op(put, "v"), Some(Op::write("a/b", 5, "h", "v")));
        assert_eq!(op("GET /items/r HTTP/1.1\r\n\r\n", ""), Some(Op::read("r")));
        let both = "DELETE /items/r HTTP/1.1\r\nFence-Token: 5\r\nFence-Token: 9\r\n\r\n";
        assert_eq!(op(both, ""), Some(Op::delete("r", Token::Both("5".into(), "9".into()), "")));
        for other in ["GET //items/r", "PUT /items/r/", "PUT /ITEMS/r", "PUT /items/r?x=1", "GET /"] {
            assert_eq!(op(&format!("{other} HTTP/1.1\r\n\r\n"), "v"), None, "{other}");
        }
    }
}
