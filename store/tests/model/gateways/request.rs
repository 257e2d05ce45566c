//! What clients ask of the gateways, and what they are answered.

use std::fmt::{self, Display, Formatter};

/// A token, in the order in which tokens count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token {
    pub(super) generation: u8,
    pub(super) number: u8,
}

/// The fence of the one resource, under the base generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fence {
    pub(super) generation: u8,
    pub(super) high: Option<u8>,
    pub(super) spent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Stale,
    RetiredGeneration,
    UnknownGeneration,
}

impl Fence {
    pub(super) fn unseen(generation: u8) -> Fence {
        Fence { generation, high: None, spent: false }
    }

    /// The stored fence as it counts under a base generation.
    pub(super) fn under(stored: Option<Fence>, base: u8) -> Fence {
        stored.filter(|fence| fence.generation >= base).unwrap_or(Fence::unseen(base))
    }

    /// The fence after the token is admitted.
    pub(super) fn admit(self, token: Token) -> Result<Fence, Reason> {
        match (token.generation.cmp(&self.generation), Some(token.number).cmp(&self.high)) {
            (std::cmp::Ordering::Less, _) => Err(Reason::RetiredGeneration),
            (std::cmp::Ordering::Greater, _) => Err(Reason::UnknownGeneration),
            (std::cmp::Ordering::Equal, std::cmp::Ordering::Less) => Err(Reason::Stale),
            (std::cmp::Ordering::Equal, std::cmp::Ordering::Equal) => Ok(self),
            (std::cmp::Ordering::Equal, std::cmp::Ordering::Greater) => {
                Ok(Fence { high: Some(token.number), spent: false, ..self })
            }
        }
    }

    /// What never goes down (G1).
    pub(super) fn height(self) -> (u8, Option<u8>) {
        (self.generation, self.high)
    }
}

/// The identity of a write: a request and its retry are one write. Values are named after the write that made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Write(pub(super) u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Write(Write, Token),
    /// A write with an idempotency key.
    Once(Write, Token),
    Claim(Token),
    /// An operator raises the base generation, if it is 0.
    RotateAll,
}

impl Kind {
    pub(super) fn token(self) -> Option<Token> {
        match self {
            Kind::Write(_, token) | Kind::Once(_, token) | Kind::Claim(token) => Some(token),
            Kind::RotateAll => None,
        }
    }

    pub(super) fn write(self) -> Option<Write> {
        match self {
            Kind::Write(write, _) | Kind::Once(write, _) => Some(write),
            Kind::Claim(_) | Kind::RotateAll => None,
        }
    }
}

/// A request that is sent at most once, to either gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    /// The place of a request that is sent before.
    pub(super) after: Option<u8>,
}

const fn token(generation: u8, number: u8) -> Token {
    Token { generation, number }
}

const fn first(kind: Kind) -> Request {
    Request { kind, after: None }
}

/// Two holders, one with two writes and one that is retried, the other with a write and two claims; a rotation and its retry; and
/// a holder of the generation after it.
pub(super) const REQUESTS: [Request; 10] = [
    first(Kind::Write(Write(0), token(0, 1))),
    Request { kind: Kind::Write(Write(1), token(0, 1)), after: Some(0) },
    first(Kind::Once(Write(2), token(0, 1))),
    Request { kind: Kind::Once(Write(2), token(0, 1)), after: Some(2) },
    first(Kind::Write(Write(3), token(0, 2))),
    first(Kind::Claim(token(0, 2))),
    Request { kind: Kind::Claim(token(0, 2)), after: Some(5) },
    first(Kind::RotateAll),
    Request { kind: Kind::RotateAll, after: Some(7) },
    first(Kind::Write(Write(4), token(1, 1))),
];

/// The tokens of checked reads, which change nothing, and are tried in every state.
pub(super) const READS: [Token; 3] = [token(0, 1), token(0, 2), token(1, 1)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Applied,
    Replayed,
    /// The value of the key, as the write that made it.
    Claimed(Option<Write>),
    Refused(Reason),
    Rotated(u8),
    OtherGeneration,
    /// Surely not applied.
    Rejected,
    /// The outcome is unknown.
    Unknown,
}

impl Display for Token {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.generation, self.number)
    }
}

impl Display for Fence {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.high {
            Some(number) => Token { generation: self.generation, number }.fmt(f),
            None => write!(f, "{}:none", self.generation),
        }
    }
}

impl Display for Write {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = char::from(b'a' + self.0);
        write!(f, "`{name}`")
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Write(write, token) => write!(f, "write {write} with token {token}"),
            Kind::Once(write, token) => write!(f, "write {write} with token {token} and an idempotency key"),
            Kind::Claim(token) => write!(f, "claim with token {token}"),
            Kind::RotateAll => write!(f, "rotate all from generation 0"),
        }
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<Write>| value.map_or("nothing".to_owned(), |write| write.to_string());
        match self {
            Answer::Applied => write!(f, "applied"),
            Answer::Replayed => write!(f, "applied (replayed)"),
            Answer::Claimed(found) => write!(f, "claimed, the value is {}", value(found)),
            Answer::Refused(Reason::Stale) => write!(f, "refused: stale"),
            Answer::Refused(Reason::RetiredGeneration) => write!(f, "refused: retired generation"),
            Answer::Refused(Reason::UnknownGeneration) => write!(f, "refused: unknown generation"),
            Answer::Rotated(base) => write!(f, "rotated, the base generation is {base}"),
            Answer::OtherGeneration => write!(f, "not rotated: another generation"),
            Answer::Rejected => write!(f, "rejected, surely not applied"),
            Answer::Unknown => write!(f, "the outcome is unknown"),
        }
    }
}
