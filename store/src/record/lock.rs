//! Encoding of locks.

use std::fmt;
use std::str::FromStr;

use bytes::{BufMut, Bytes, BytesMut};
use fencepost_core::{Holder, Token};

use super::{RECORD_FORMAT, Reader, Undecodable, put_short};

/// Identifies a lease; known only to its holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(pub [u8; 16]);

impl LeaseId {
    /// A new id that cannot be guessed.
    pub fn random() -> Result<LeaseId, String> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| error.to_string())?;
        Ok(LeaseId(id))
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A reader of the log must not be able to release the lock.
        write!(f, "LeaseId({:02x}…)", self.0[0])
    }
}

impl FromStr for LeaseId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<LeaseId, &'static str> {
        const WRONG: &str = "a lease is 32 hexadecimal digits, as it was granted";
        if text.len() != 32 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(WRONG);
        }
        u128::from_str_radix(text, 16).map(|id| LeaseId(id.to_be_bytes())).map_err(|_| WRONG)
    }
}

/// A lock: the last number it granted, and its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRecord {
    /// The last token it granted.
    pub last: Token,
    /// The current lease; `None` if the lock is free.
    pub lease: Option<Lease>,
}

/// A lease on a lock. Observers decide when it has expired; no time is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The lease's id.
    pub id: LeaseId,
    /// The holder of the lock.
    pub holder: Holder,
    /// The token it was granted with.
    pub token: Token,
    /// How long it lasts, counted from when an observer first sees this version of the record.
    pub ttl_ms: u64,
}

const HAS_LEASE: u8 = 1;

fn put_token(out: &mut BytesMut, token: Token) {
    out.put_u32_le(token.generation());
    out.put_u64_le(token.number().get());
}

fn token(input: &mut Reader) -> Result<Token, Undecodable> {
    Token::new(input.u32()?, input.u64()?).ok_or(Undecodable("a lock has token 0"))
}

impl LockRecord {
    /// Encodes the record.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(96);
        out.put_u8(RECORD_FORMAT);
        out.put_u8(if self.lease.is_some() { HAS_LEASE } else { 0 });
        put_token(&mut out, self.last);
        if let Some(lease) = &self.lease {
            out.put_slice(&lease.id.0);
            put_token(&mut out, lease.token);
            out.put_u64_le(lease.ttl_ms);
            put_short(&mut out, lease.holder.as_str());
        }
        out.freeze()
    }

    /// Decodes a record.
    pub fn decode(bytes: &Bytes) -> Result<LockRecord, Undecodable> {
        let mut input = Reader::new(bytes)?;
        let flags = input.u8()?;
        let last = token(&mut input)?;
        if flags & HAS_LEASE == 0 {
            return Ok(LockRecord { last, lease: None });
        }
        let id = LeaseId(input.array()?);
        let token = token(&mut input)?;
        let ttl_ms = input.u64()?;
        let holder = Holder::stored(&input.short()?).map_err(|_| Undecodable("a lock has a malformed holder"))?;
        Ok(LockRecord { last, lease: Some(Lease { id, holder, token, ttl_ms }) })
    }
}
