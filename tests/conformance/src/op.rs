//! The operations that the suite requests of a resource.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::token::Token;

/// The kinds of operations; a resource declares which it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Writes a value under a token. Every resource has it.
    Write,
    /// Reads without a token.
    Read,
    /// Reads under a token, and is refused if it is stale. Changes nothing.
    CheckedRead,
    /// Raises the fence to the token and reads, in one step.
    Claim,
    /// Writes if the value is what the caller expects.
    Cas,
    /// Removes the value; the fence stays.
    Delete,
    /// Writes to several resources, all or none.
    Batch,
}

impl Verb {
    /// All verbs, in the order of the documentation.
    pub const ALL: [Verb; 7] =
        [Verb::Write, Verb::Read, Verb::CheckedRead, Verb::Claim, Verb::Cas, Verb::Delete, Verb::Batch];

    /// Its name in protocols and documentation.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Write => "write",
            Verb::Read => "read",
            Verb::CheckedRead => "checked_read",
            Verb::Claim => "claim",
            Verb::Cas => "cas",
            Verb::Delete => "delete",
            Verb::Batch => "batch",
        }
    }
}

/// One write, alone or in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The resource's name, opaque to the suite.
    pub res: String,
    /// The token it carries.
    #[serde(default, skip_serializing_if = "Token::is_absent")]
    pub token: Token,
    /// The holder of the lock.
    pub holder: String,
    /// The value to write; every value is written once in a run.
    pub value: String,
}

/// An operation. Its JSON form is what an adapter gets, without the numbers of request and client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are those of `Write`")]
pub enum Op {
    /// See [`Verb::Write`].
    Write(Write),
    /// See [`Verb::Read`].
    Read { res: String },
    /// See [`Verb::CheckedRead`].
    CheckedRead {
        res: String,
        #[serde(default, skip_serializing_if = "Token::is_absent")]
        token: Token,
    },
    /// See [`Verb::Claim`].
    Claim {
        res: String,
        #[serde(default, skip_serializing_if = "Token::is_absent")]
        token: Token,
        holder: String,
    },
    /// See [`Verb::Cas`]. Expecting `None` means that there is no value.
    Cas {
        res: String,
        #[serde(default, skip_serializing_if = "Token::is_absent")]
        token: Token,
        holder: String,
        expect: Option<String>,
        value: String,
    },
    /// See [`Verb::Delete`].
    Delete {
        res: String,
        #[serde(default, skip_serializing_if = "Token::is_absent")]
        token: Token,
        holder: String,
    },
    /// See [`Verb::Batch`].
    Batch { writes: Vec<Write> },
}

impl Op {
    /// A write.
    pub fn write(res: &str, token: impl Into<Token>, holder: &str, value: &str) -> Op {
        Op::Write(Write::new(res, token, holder, value))
    }

    /// A read.
    pub fn read(res: &str) -> Op {
        Op::Read { res: res.to_owned() }
    }

    /// A checked read.
    pub fn checked_read(res: &str, token: impl Into<Token>) -> Op {
        Op::CheckedRead { res: res.to_owned(), token: token.into() }
    }

    /// A claim.
    pub fn claim(res: &str, token: impl Into<Token>, holder: &str) -> Op {
        Op::Claim { res: res.to_owned(), token: token.into(), holder: holder.to_owned() }
    }

    /// A conditional write.
    pub fn cas(res: &str, token: impl Into<Token>, holder: &str, expect: Option<&str>, value: &str) -> Op {
        Op::Cas {
            res: res.to_owned(),
            token: token.into(),
            holder: holder.to_owned(),
            expect: expect.map(str::to_owned),
            value: value.to_owned(),
        }
    }

    /// A delete.
    pub fn delete(res: &str, token: impl Into<Token>, holder: &str) -> Op {
        Op::Delete { res: res.to_owned(), token: token.into(), holder: holder.to_owned() }
    }

    /// Its verb.
    pub fn verb(&self) -> Verb {
        match self {
            Op::Write(_) => Verb::Write,
            Op::Read { .. } => Verb::Read,
            Op::CheckedRead { .. } => Verb::CheckedRead,
            Op::Claim { .. } => Verb::Claim,
            Op::Cas { .. } => Verb::Cas,
            Op::Delete { .. } => Verb::Delete,
            Op::Batch { .. } => Verb::Batch,
        }
    }

    /// The resources it names, each once.
    pub fn resources(&self) -> BTreeSet<&str> {
        match self {
            Op::Write(Write { res, .. })
            | Op::Read { res }
            | Op::CheckedRead { res, .. }
            | Op::Claim { res, .. }
            | Op::Cas { res, .. }
            | Op::Delete { res, .. } => BTreeSet::from([res.as_str()]),
            Op::Batch { writes } => writes.iter().map(|write| write.res.as_str()).collect(),
        }
    }

    /// The tokens it carries: none for a read, one for each write of a batch.
    pub fn tokens(&self) -> Vec<&Token> {
        match self {
            Op::Read { .. } => Vec::new(),
            Op::Write(Write { token, .. })
            | Op::CheckedRead { token, .. }
            | Op::Claim { token, .. }
            | Op::Cas { token, .. }
            | Op::Delete { token, .. } => vec![token],
            Op::Batch { writes } => writes.iter().map(|write| &write.token).collect(),
        }
    }
}

impl Write {
    /// A write.
    pub fn new(res: &str, token: impl Into<Token>, holder: &str, value: &str) -> Write {
        Write { res: res.to_owned(), token: token.into(), holder: holder.to_owned(), value: value.to_owned() }
    }
}
