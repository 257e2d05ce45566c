//! Encoding of recorded outcomes, and of the index by which old outcomes are found for removal.
//!
//! Versions are assigned by the commit that also writes the record. So a version from the same commit is stored as its
//! distance from the record's own version.

use bytes::{BufMut, Bytes, BytesMut};
use fencepost_core::{Holder, Issuer, Key, Reason, Resource, Timestamp, Token};

use super::{LeaseId, OutcomeKey, RECORD_FORMAT, Reader, Undecodable, Value, put_long, put_short};
use crate::engine::Version;
use crate::outcome::{Done, FailedCondition, FinalOutcome, Grant, Impossible, ImpossibleAddition, Transacted};

/// A version that is stored, or that the commit of this batch will assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Stored(Version),
    Change(usize),
}

impl Pending {
    /// The final version, once the first version of the commit is known.
    pub(crate) fn settle(self, first: Option<Version>) -> Version {
        match self {
            Pending::Stored(version) => version,
            Pending::Change(at) => Version(first.map_or(0, |first| first.0 + at as u64)),
        }
    }
}

/// The recorded outcome of a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// The fingerprint of the request.
    pub(crate) fingerprint: [u8; 32],
    /// When it was recorded; for people, and for removal after the retention.
    pub(crate) at: Timestamp,
    pub(crate) outcome: FinalOutcome<Pending>,
}

const TRANSACTED: u8 = 1;
const CONDITION_FAILED: u8 = 2;
const NOT_A_NUMBER: u8 = 3;
const OUT_OF_BOUNDS: u8 = 4;
const GRANTED: u8 = 5;
const ABANDONED: u8 = 6;

const PUT: u8 = 1;
const ABSENT: u8 = 2;
const SUM: u8 = 3;
const READ: u8 = 4;

impl Recorded {
    /// To bytes, as the `own`-th change of its commit.
    pub(crate) fn encode(&self, own: usize) -> Bytes {
        let mut out = Encoder { out: BytesMut::with_capacity(128), own };
        out.out.put_u8(RECORD_FORMAT);
        out.out.put_slice(&self.fingerprint);
        out.out.put_u64_le(self.at.0);
        match &self.outcome {
            FinalOutcome::Transacted(transacted) => out.transacted(transacted),
            FinalOutcome::ConditionFailed(FailedCondition { at, key, current, fence }) => {
                out.place(CONDITION_FAILED, *at, key);
                out.version(*current);
                out.token(*fence);
            }
            FinalOutcome::Impossible(ImpossibleAddition { at, key, why: Impossible::NotANumber }) => {
                out.place(NOT_A_NUMBER, *at, key);
            }
            FinalOutcome::Impossible(ImpossibleAddition {
                at,
                key,
                why: Impossible::OutOfBounds { value, by, min, max },
            }) => {
                out.place(OUT_OF_BOUNDS, *at, key);
                for number in [value, by, min, max] {
                    out.out.put_i64_le(*number);
                }
            }
            FinalOutcome::Granted(grant) => out.granted(grant),
            FinalOutcome::Abandoned => out.out.put_u8(ABANDONED),
        }
        out.out.freeze()
    }

    /// Decodes a record that has the version `own`.
    pub(crate) fn decode(bytes: &Bytes, own: Version) -> Result<Recorded, Undecodable> {
        let mut input = Decoder { input: Reader::new(bytes)?, own };
        let fingerprint = input.input.array()?;
        let at = Timestamp(input.input.u64()?);
        let outcome = match input.input.u8()? {
            TRANSACTED => FinalOutcome::Transacted(Box::new(input.transacted()?)),
            CONDITION_FAILED => {
                let (at, key) = input.place()?;
                let (current, fence) = (input.version()?, input.token()?);
                FinalOutcome::ConditionFailed(FailedCondition { at, key, current, fence })
            }
            NOT_A_NUMBER => {
                let (at, key) = input.place()?;
                FinalOutcome::Impossible(ImpossibleAddition { at, key, why: Impossible::NotANumber })
            }
            OUT_OF_BOUNDS => {
                let (at, key) = input.place()?;
                let (value, by) = (input.input.i64()?, input.input.i64()?);
                let (min, max) = (input.input.i64()?, input.input.i64()?);
                let why = Impossible::OutOfBounds { value, by, min, max };
                FinalOutcome::Impossible(ImpossibleAddition { at, key, why })
            }
            GRANTED => FinalOutcome::Granted(Box::new(input.granted()?)),
            ABANDONED => FinalOutcome::Abandoned,
            _ => return Err(Undecodable("an outcome is of an unknown kind")),
        };
        Ok(Recorded { fingerprint, at, outcome })
    }
}

struct Encoder {
    out: BytesMut,
    own: usize,
}

impl Encoder {
    fn place(&mut self, kind: u8, at: usize, key: &Key) {
        self.out.put_u8(kind);
        self.out.put_u32_le(u32::try_from(at).unwrap_or(u32::MAX));
        put_short(&mut self.out, key.as_str());
    }

    /// 0: none; 1: stored; 2: from this commit, as the distance to this record's change.
    fn version(&mut self, version: Option<Pending>) {
        match version {
            None => self.out.put_u8(0),
            Some(Pending::Stored(version)) => {
                self.out.put_u8(1);
                self.out.put_u64_le(version.0);
            }
            Some(Pending::Change(at)) => {
                self.out.put_u8(2);
                self.out.put_u64_le(self.own.saturating_sub(at) as u64);
            }
        }
    }

    fn token(&mut self, token: Option<Token>) {
        self.out.put_u32_le(token.map_or(0, Token::generation));
        self.out.put_u64_le(token.map_or(0, |token| token.number().get()));
    }

    fn reason(&mut self, reason: Option<Reason>) {
        let place = reason.and_then(|reason| Reason::ALL.iter().position(|known| *known == reason));
        self.out.put_u8(place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0));
    }

    fn transacted(&mut self, transacted: &Transacted<Pending>) {
        self.out.put_u8(TRANSACTED);
        self.token(transacted.fence);
        self.out.put_u32_le(u32::try_from(transacted.observed.len()).unwrap_or(0));
        for (resource, reason) in &transacted.observed {
            put_short(&mut self.out, resource.as_str());
            self.reason(Some(*reason));
        }
        self.out.put_u32_le(u32::try_from(transacted.results.len()).unwrap_or(0));
        for (key, done) in &transacted.results {
            put_short(&mut self.out, key.as_str());
            match done {
                Done::Put(version) => {
                    self.out.put_u8(PUT);
                    self.version(Some(*version));
                }
                Done::Absent => self.out.put_u8(ABSENT),
                Done::Sum(version, sum) => {
                    self.out.put_u8(SUM);
                    self.version(Some(*version));
                    self.out.put_i64_le(*sum);
                }
                Done::Read(version, value) => {
                    self.out.put_u8(READ);
                    self.version(Some(*version));
                    put_long(&mut self.out, &value.encode());
                }
            }
        }
    }

    fn granted(&mut self, grant: &Grant<Pending>) {
        self.out.put_u8(GRANTED);
        self.out.put_slice(&grant.lease.0);
        self.token(Some(grant.token));
        put_short(&mut self.out, grant.holder.as_str());
        put_short(&mut self.out, grant.issuer.as_str());
        self.out.put_u64_le(grant.ttl_ms);
        self.reason(grant.observed);
        self.version(Some(grant.version));
    }
}

struct Decoder {
    input: Reader,
    own: Version,
}

impl Decoder {
    fn key(&mut self) -> Result<Key, Undecodable> {
        Key::new(&self.input.short()?).map_err(|_| Undecodable("an outcome has a malformed key"))
    }

    fn place(&mut self) -> Result<(usize, Key), Undecodable> {
        Ok((self.input.u32()? as usize, self.key()?))
    }

    fn version(&mut self) -> Result<Option<Pending>, Undecodable> {
        Ok(match self.input.u8()? {
            0 => None,
            1 => Some(Pending::Stored(Version(self.input.u64()?))),
            2 => {
                let distance = self.input.u64()?;
                let version =
                    self.own.0.checked_sub(distance).ok_or(Undecodable("an outcome has a version before 0"))?;
                Some(Pending::Stored(Version(version)))
            }
            _ => return Err(Undecodable("an outcome has a version of an unknown kind")),
        })
    }

    fn some_version(&mut self) -> Result<Pending, Undecodable> {
        self.version()?.ok_or(Undecodable("an outcome lacks a version"))
    }

    fn token(&mut self) -> Result<Option<Token>, Undecodable> {
        Ok(Token::new(self.input.u32()?, self.input.u64()?))
    }

    fn reason(&mut self) -> Result<Option<Reason>, Undecodable> {
        match self.input.u8()? {
            0 => Ok(None),
            place => {
                let reason = Reason::ALL.get(usize::from(place) - 1);
                reason.copied().map(Some).ok_or(Undecodable("an outcome has an unknown reason"))
            }
        }
    }

    fn transacted(&mut self) -> Result<Transacted<Pending>, Undecodable> {
        let fence = self.token()?;
        let mut observed = Vec::new();
        for _ in 0..self.input.u32()? {
            let resource = Resource::new(&self.input.short()?);
            let resource = resource.map_err(|_| Undecodable("an outcome has a malformed resource"))?;
            observed.push((resource, self.reason()?.ok_or(Undecodable("an outcome lacks a reason"))?));
        }
        let mut results = Vec::new();
        for _ in 0..self.input.u32()? {
            let key = self.key()?;
            let done = match self.input.u8()? {
                PUT => Done::Put(self.some_version()?),
                ABSENT => Done::Absent,
                SUM => Done::Sum(self.some_version()?, self.input.i64()?),
                READ => {
                    let version = self.some_version()?;
                    Done::Read(version, Value::decode(&self.input.bytes()?)?)
                }
                _ => return Err(Undecodable("an outcome has a result of an unknown kind")),
            };
            results.push((key, done));
        }
        Ok(Transacted { results, fence, observed })
    }

    fn granted(&mut self) -> Result<Grant<Pending>, Undecodable> {
        let lease = LeaseId(self.input.array()?);
        let token = self.token()?.ok_or(Undecodable("a recorded grant has token 0"))?;
        let holder = Holder::stored(&self.input.short()?).map_err(|_| Undecodable("a grant has a malformed holder"))?;
        let issuer = Issuer::stored(&self.input.short()?).map_err(|_| Undecodable("a grant has a malformed issuer"))?;
        let (ttl_ms, observed) = (self.input.u64()?, self.reason()?);
        Ok(Grant { lease, token, holder, issuer, ttl_ms, observed, version: self.some_version()? })
    }
}

/// Encodes the list of outcomes that one commit recorded.
pub(crate) fn encode_index(outcomes: &[OutcomeKey]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + 64 * outcomes.len());
    out.put_u8(RECORD_FORMAT);
    out.put_u32_le(u32::try_from(outcomes.len()).unwrap_or(0));
    for outcome in outcomes {
        put_short(&mut out, &outcome.0);
    }
    out.freeze()
}

pub(crate) fn decode_index(bytes: &Bytes) -> Result<Vec<OutcomeKey>, Undecodable> {
    let mut input = Reader::new(bytes)?;
    (0..input.u32()?).map(|_| Ok(OutcomeKey(input.short()?.into()))).collect()
}
