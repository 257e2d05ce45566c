//! Outcomes whose versions the commit has yet to give.

use fencepost_core::{Reason, Resource, Token};

use crate::engine::Version;
use crate::lock_queue::Sighting;
use crate::outcome::{
    AcquireOutcome, Applied, ChangeOutcome, ClaimOutcome, Claimed, Done, FailedCondition, FinalOutcome,
    ForceReleaseOutcome, Grant, Held, Holding, RecordedGrant, RecordedTransaction, RecordedWrite, ReleaseOutcome,
    RenewOutcome, RotateOutcome, TransactOutcome, Transacted, WriteOutcome,
};
use crate::record::Pending;

/// An outcome before its commit.
pub(crate) trait Unsettled {
    /// The same after it.
    type Settled;

    /// The outcome, once the commit gave its first change this version; `None` if nothing was committed.
    fn settle(self, first: Option<Version>) -> Self::Settled;

    /// Why a resource would have refused, had its guard not merely observed, and the fence as far as it is known.
    fn observed(_: &Self::Settled, _: &Resource) -> Option<(Reason, Option<Token>)> {
        None
    }

    /// What it shows of the lock that the command is about.
    fn sighting(_: &Self::Settled) -> Option<Sighting> {
        None
    }
}

impl Unsettled for WriteOutcome<Pending> {
    type Settled = WriteOutcome;

    fn settle(self, first: Option<Version>) -> WriteOutcome {
        match self {
            WriteOutcome::Applied(applied) => WriteOutcome::Applied(applied.settle(first)),
            WriteOutcome::Refused(refusal) => WriteOutcome::Refused(refusal),
            WriteOutcome::ConditionFailed(failed) => WriteOutcome::ConditionFailed(failed.settle(first)),
            WriteOutcome::Replayed(recorded, fence) => {
                let recorded = match recorded {
                    RecordedWrite::Applied(applied) => RecordedWrite::Applied(applied.settle(first)),
                    RecordedWrite::ConditionFailed(failed) => RecordedWrite::ConditionFailed(failed.settle(first)),
                };
                WriteOutcome::Replayed(recorded, fence)
            }
            WriteOutcome::KeyReused => WriteOutcome::KeyReused,
            WriteOutcome::Abandoned => WriteOutcome::Abandoned,
        }
    }

    fn observed(settled: &WriteOutcome, _: &Resource) -> Option<(Reason, Option<Token>)> {
        match settled {
            WriteOutcome::Applied(applied) => applied.observed.map(|reason| (reason, applied.fence)),
            _ => None,
        }
    }
}

impl Unsettled for TransactOutcome<Pending> {
    type Settled = TransactOutcome;

    fn settle(self, first: Option<Version>) -> TransactOutcome {
        match self {
            TransactOutcome::Transacted(transacted) => TransactOutcome::Transacted(transacted.settle(first)),
            TransactOutcome::Refused(refusals) => TransactOutcome::Refused(refusals),
            TransactOutcome::ConditionFailed(failed) => TransactOutcome::ConditionFailed(failed.settle(first)),
            TransactOutcome::Impossible(addition) => TransactOutcome::Impossible(addition),
            TransactOutcome::TooLarge(too_large) => TransactOutcome::TooLarge(too_large),
            TransactOutcome::Replayed(recorded, fences) => {
                let recorded = match recorded {
                    RecordedTransaction::Transacted(transacted) => {
                        RecordedTransaction::Transacted(transacted.settle(first))
                    }
                    RecordedTransaction::ConditionFailed(failed) => {
                        RecordedTransaction::ConditionFailed(failed.settle(first))
                    }
                    RecordedTransaction::Impossible(addition) => RecordedTransaction::Impossible(addition),
                };
                TransactOutcome::Replayed(recorded, fences)
            }
            TransactOutcome::KeyReused => TransactOutcome::KeyReused,
            TransactOutcome::Abandoned => TransactOutcome::Abandoned,
        }
    }

    fn observed(settled: &TransactOutcome, resource: &Resource) -> Option<(Reason, Option<Token>)> {
        match settled {
            TransactOutcome::Transacted(transacted) => {
                let observed = transacted.observed.iter().find(|(observed, _)| observed == resource);
                observed.map(|(_, reason)| (*reason, transacted.fence))
            }
            _ => None,
        }
    }
}

impl Unsettled for ClaimOutcome<Pending> {
    type Settled = ClaimOutcome;

    fn settle(self, first: Option<Version>) -> ClaimOutcome {
        match self {
            ClaimOutcome::Claimed(claimed) => {
                let Claimed { state, values, observed } = *claimed;
                let values = values
                    .into_iter()
                    .map(|(key, slot)| (key, slot.map(|(version, value)| (version.settle(first), value))));
                ClaimOutcome::Claimed(Box::new(Claimed { state, values: values.collect(), observed }))
            }
            ClaimOutcome::Refused(refusal) => ClaimOutcome::Refused(refusal),
            ClaimOutcome::TooLarge(too_large) => ClaimOutcome::TooLarge(too_large),
        }
    }

    fn observed(settled: &ClaimOutcome, _: &Resource) -> Option<(Reason, Option<Token>)> {
        match settled {
            ClaimOutcome::Claimed(claimed) => claimed.observed.map(|reason| (reason, claimed.state.token())),
            _ => None,
        }
    }
}

impl Unsettled for AcquireOutcome<Pending> {
    type Settled = AcquireOutcome;

    fn settle(self, first: Option<Version>) -> AcquireOutcome {
        match self {
            AcquireOutcome::Granted(grant) => AcquireOutcome::Granted(grant.settle(first)),
            AcquireOutcome::Held(holding) => {
                let Holding { by, remaining_ms, waiting } = *holding;
                let by = by.map(|Held { holder, token, ttl_ms, version }| Held {
                    holder,
                    token,
                    ttl_ms,
                    version: version.settle(first),
                });
                AcquireOutcome::Held(Box::new(Holding { by, remaining_ms, waiting }))
            }
            AcquireOutcome::Refused(refusal) => AcquireOutcome::Refused(refusal),
            AcquireOutcome::Exhausted(exhausted) => AcquireOutcome::Exhausted(exhausted),
            AcquireOutcome::Replayed(RecordedGrant::Granted(grant), fence) => {
                AcquireOutcome::Replayed(RecordedGrant::Granted(grant.settle(first)), fence)
            }
            AcquireOutcome::Replayed(RecordedGrant::Lost(lost), fence) => {
                AcquireOutcome::Replayed(RecordedGrant::Lost(lost), fence)
            }
            AcquireOutcome::KeyReused => AcquireOutcome::KeyReused,
            AcquireOutcome::Abandoned => AcquireOutcome::Abandoned,
        }
    }

    fn observed(settled: &AcquireOutcome, _: &Resource) -> Option<(Reason, Option<Token>)> {
        match settled {
            AcquireOutcome::Granted(grant) => grant.observed.map(|reason| (reason, None)),
            _ => None,
        }
    }

    fn sighting(settled: &AcquireOutcome) -> Option<Sighting> {
        match settled {
            AcquireOutcome::Granted(grant) => Some(Sighting::of(grant)),
            AcquireOutcome::Held(holding) => Some(match &holding.by {
                Some(Held { version, token, ttl_ms, .. }) => {
                    Sighting::Lease { version: *version, token: *token, ttl_ms: *ttl_ms }
                }
                None => Sighting::Free,
            }),
            _ => None,
        }
    }
}

impl Unsettled for RenewOutcome<Pending> {
    type Settled = RenewOutcome;

    fn settle(self, first: Option<Version>) -> RenewOutcome {
        match self {
            RenewOutcome::Renewed(grant) => RenewOutcome::Renewed(grant.settle(first)),
            RenewOutcome::Lost(lost) => RenewOutcome::Lost(lost),
        }
    }

    fn observed(settled: &RenewOutcome, _: &Resource) -> Option<(Reason, Option<Token>)> {
        match settled {
            RenewOutcome::Renewed(grant) => grant.observed.map(|reason| (reason, None)),
            RenewOutcome::Lost(_) => None,
        }
    }

    fn sighting(settled: &RenewOutcome) -> Option<Sighting> {
        match settled {
            RenewOutcome::Renewed(grant) => Some(Sighting::of(grant)),
            RenewOutcome::Lost(_) => None,
        }
    }
}

impl Unsettled for ReleaseOutcome {
    type Settled = ReleaseOutcome;

    fn settle(self, _: Option<Version>) -> ReleaseOutcome {
        self
    }

    fn sighting(settled: &ReleaseOutcome) -> Option<Sighting> {
        match settled {
            ReleaseOutcome::Released => Some(Sighting::Free),
            ReleaseOutcome::Lost(_) => None,
        }
    }
}

impl Unsettled for ForceReleaseOutcome {
    type Settled = ForceReleaseOutcome;

    fn settle(self, _: Option<Version>) -> ForceReleaseOutcome {
        self
    }

    fn sighting(settled: &ForceReleaseOutcome) -> Option<Sighting> {
        match settled {
            ForceReleaseOutcome::Released { .. } | ForceReleaseOutcome::NotHeld => Some(Sighting::Free),
            ForceReleaseOutcome::Refused(_) | ForceReleaseOutcome::Exhausted(_) => None,
        }
    }
}

impl Unsettled for RotateOutcome {
    type Settled = RotateOutcome;

    fn settle(self, _: Option<Version>) -> RotateOutcome {
        self
    }
}

impl Unsettled for ChangeOutcome {
    type Settled = ChangeOutcome;

    fn settle(self, _: Option<Version>) -> ChangeOutcome {
        self
    }

    fn observed(settled: &ChangeOutcome, resource: &Resource) -> Option<(Reason, Option<Token>)> {
        match settled {
            ChangeOutcome::Changed(changed) => {
                let observed = changed.observed.iter().find(|(observed, _)| observed == resource);
                observed.map(|(_, reason)| (*reason, changed.fence))
            }
            _ => None,
        }
    }
}

/// Old outcomes are forgotten.
impl Unsettled for () {
    type Settled = ();

    fn settle(self, _: Option<Version>) {}
}

impl Unsettled for FinalOutcome<Pending> {
    type Settled = FinalOutcome;

    fn settle(self, first: Option<Version>) -> FinalOutcome {
        match self {
            FinalOutcome::Transacted(transacted) => FinalOutcome::Transacted(transacted.settle(first)),
            FinalOutcome::ConditionFailed(failed) => FinalOutcome::ConditionFailed(failed.settle(first)),
            FinalOutcome::Impossible(addition) => FinalOutcome::Impossible(addition),
            FinalOutcome::Granted(grant) => FinalOutcome::Granted(grant.settle(first)),
            FinalOutcome::Abandoned => FinalOutcome::Abandoned,
        }
    }
}

impl Applied<Pending> {
    fn settle(self, first: Option<Version>) -> Applied {
        let Applied { version, fence, observed } = self;
        Applied { version: version.map(|version| version.settle(first)), fence, observed }
    }
}

impl FailedCondition<Pending> {
    fn settle(self, first: Option<Version>) -> FailedCondition {
        let FailedCondition { at, key, current, fence } = self;
        FailedCondition { at, key, current: current.map(|version| version.settle(first)), fence }
    }
}

impl Transacted<Pending> {
    fn settle(self, first: Option<Version>) -> Box<Transacted> {
        let Transacted { results, fence, observed } = self;
        let results = results.into_iter().map(|(key, done)| (key, done.settle(first))).collect();
        Box::new(Transacted { results, fence, observed })
    }
}

impl Done<Pending> {
    fn settle(self, first: Option<Version>) -> Done {
        match self {
            Done::Put(version) => Done::Put(version.settle(first)),
            Done::Absent => Done::Absent,
            Done::Sum(version, sum) => Done::Sum(version.settle(first), sum),
            Done::Read(version, value) => Done::Read(version.settle(first), value),
        }
    }
}

impl Grant<Pending> {
    fn settle(self, first: Option<Version>) -> Box<Grant> {
        let Grant { lease, token, holder, issuer, ttl_ms, observed, version } = self;
        Box::new(Grant { lease, token, holder, issuer, ttl_ms, observed, version: version.settle(first) })
    }
}
