//! What is kept for one resource, and who is admitted to it.

use std::cmp::Ordering;

use super::bug::Bug;
use crate::manifest::{Equal, Manifest, Policy};
use crate::op::Verb;

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) high: Option<u64>,
    pub(super) used: bool,
    pub(super) holder: Option<String>,
    pub(super) value: Option<String>,
    /// When it was changed, by the clock of the resource; only bugs look at it.
    pub(super) at: i64,
}

impl Record {
    /// Raises the fence; a token at the fence only fills in a holder that is not known.
    pub(super) fn raise(&mut self, token: u64, holder: &str) {
        if self.high.is_none_or(|high| token > high) {
            self.high = Some(token);
            self.used = false;
            self.holder = Some(holder.to_owned());
        } else if self.holder.is_none() {
            self.holder = Some(holder.to_owned());
        }
    }

    /// The fence becomes the token, wherever it was.
    pub(super) fn force(&mut self, token: u64, holder: &str) {
        self.high = Some(token);
        self.used = false;
        self.holder = Some(holder.to_owned());
    }

    /// The same value behind the fence of another.
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
    /// May this operation go on? Also for claims, which a used token may make.
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

    /// Is this token behind the fence?
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

    /// May the token at the fence write now?
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
