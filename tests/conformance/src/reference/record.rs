//! The record of one resource, and the rules of admission.

use std::cmp::Ordering;

use super::bug::Bug;
use crate::manifest::{Equal, Manifest, Policy};
use crate::op::Verb;

/// The stored state of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) high: Option<u64>,
    pub(super) used: bool,
    pub(super) holder: Option<String>,
    pub(super) value: Option<String>,
    /// When it was changed, by the clock of the resource; only bugs use it.
    pub(super) at: i64,
}

impl Record {
    /// Raises the fence; a token at the fence only fills in an unknown holder.
    pub(super) fn raise(&mut self, token: u64, holder: &str) {
        if self.high.is_none_or(|high| token > high) {
            self.high = Some(token);
            self.used = false;
            self.holder = Some(holder.to_owned());
        } else if self.holder.is_none() {
            self.holder = Some(holder.to_owned());
        }
    }

    /// Sets the fence to the token, even if that lowers it.
    pub(super) fn force(&mut self, token: u64, holder: &str) {
        self.high = Some(token);
        self.used = false;
        self.holder = Some(holder.to_owned());
    }

    /// This value with the fence of another record.
    pub(super) fn with_fence_of(self, other: &Record) -> Record {
        Record { value: self.value, ..other.clone() }
    }

    pub(super) fn with_value_of(self, other: &Record) -> Record {
        Record { value: other.value.clone(), ..self }
    }
}

/// The rules of admission, and the bugs in them.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) bug: Option<Bug>,
}

impl Rules<'_> {
    /// Whether this operation is admitted. Covers claims too, for which a used token is allowed.
    pub(super) fn admit(self, record: &Record, verb: Verb, token: u64, holder: &str) -> bool {
        match self.bug {
            Some(Bug::RejectAll) => return false,
            Some(Bug::AcceptAll) => return true,
            Some(Bug::FirstRefused) if record.high.is_none() => return false,
            Some(Bug::RecreateForgets) if record.value.is_none() => return true,
            Some(Bug::ZeroUnchecked) if token == 0 => return true,
            _ => {}
        }
        let Some(high) = record.high else { return true };
        match self.order(token, high) {
            Ordering::Greater => match self.bug {
                Some(Bug::Equality) => false,
                Some(Bug::NoGaps) => token - high == 1,
                _ => true,
            },
            Ordering::Less => false,
            Ordering::Equal => self.same(record, holder) && (verb == Verb::Claim || self.again(record, verb)),
        }
    }

    /// Whether this token is behind the fence.
    pub(super) fn behind(self, record: &Record, token: u64) -> bool {
        record.high.is_some_and(|high| self.order(token, high) == Ordering::Less)
    }

    fn order(self, token: u64, high: u64) -> Ordering {
        match self.bug {
            Some(Bug::TextualOrder) => token.to_string().cmp(&high.to_string()),
            Some(Bug::FloatingPoint) => (token as f64).total_cmp(&(high as f64)),
            Some(Bug::SignedCast) => token.cast_signed().cmp(&high.cast_signed()),
            Some(Bug::ShortInteger) => (token & 0xffff_ffff).cmp(&(high & 0xffff_ffff)),
            Some(Bug::OffByOne) => token.saturating_add(1).cmp(&high),
            _ => token.cmp(&high),
        }
    }

    fn same(self, record: &Record, holder: &str) -> bool {
        self.manifest.equal == Equal::Any
            || self.bug == Some(Bug::HolderIgnored)
            || record.holder.as_deref().is_none_or(|found| found == holder)
    }

    /// Whether the token at the fence may write now.
    fn again(self, record: &Record, verb: Verb) -> bool {
        let once = match self.bug {
            Some(Bug::GtForGe) => true,
            Some(Bug::GeForGt) => false,
            Some(Bug::OnceByWrite) => verb == Verb::Write,
            _ => self.manifest.policy == Policy::Gt,
        };
        !once || !record.used
    }
}
