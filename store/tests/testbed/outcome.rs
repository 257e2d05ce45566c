//! Outcomes of all commands in one type, for tests that send commands of every kind.

use fencepost_core::{Holder, Key, Refusal, Token};
use fencepost_store::engine::Version;
use fencepost_store::{
    AcquireOutcome, Applied, ClaimOutcome, Claimed, Exhausted, FailedCondition, FinalOutcome, ForceReleaseOutcome,
    Grant, Holding, Impossible, ImpossibleAddition, LeaseLost, RecordedGrant, RecordedTransaction, RecordedWrite,
    ReleaseOutcome, RenewOutcome, RotateOutcome, TooLarge, TransactOutcome, Transacted, WriteOutcome,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Applied(Applied),
    Transacted(Box<Transacted>),
    Claimed(Box<Claimed>),
    Refused(Vec<Refusal>),
    ConditionFailed { at: usize, key: Key, current: Option<Version>, fence: Option<Token> },
    Impossible { at: usize, key: Key, why: Impossible },
    TooLarge { bytes: usize, limit: usize },
    Granted(Box<Grant>),
    Held(Box<Holding>),
    LeaseLost { holder: Option<Holder>, fence: Option<Token> },
    Released,
    ForceReleased { holder: Holder, token: Token, fence: Option<Token> },
    NotHeld,
    Exhausted { fence: Option<Token>, generation: u32 },
    Rotated { generation: u32 },
    OtherGeneration { found: u32 },
    Replayed(Box<Outcome>),
    KeyReused,
    Abandoned,
}

impl From<FailedCondition> for Outcome {
    fn from(failed: FailedCondition) -> Outcome {
        let FailedCondition { at, key, current, fence } = failed;
        Outcome::ConditionFailed { at, key, current, fence }
    }
}

impl From<ImpossibleAddition> for Outcome {
    fn from(addition: ImpossibleAddition) -> Outcome {
        let ImpossibleAddition { at, key, why } = addition;
        Outcome::Impossible { at, key, why }
    }
}

impl From<TooLarge> for Outcome {
    fn from(TooLarge { bytes, limit }: TooLarge) -> Outcome {
        Outcome::TooLarge { bytes, limit }
    }
}

impl From<Exhausted> for Outcome {
    fn from(Exhausted { fence, generation }: Exhausted) -> Outcome {
        Outcome::Exhausted { fence, generation }
    }
}

impl From<LeaseLost> for Outcome {
    fn from(LeaseLost { holder, fence }: LeaseLost) -> Outcome {
        Outcome::LeaseLost { holder, fence }
    }
}

fn refused(refusal: Refusal) -> Outcome {
    Outcome::Refused(vec![refusal])
}

fn replayed(outcome: Outcome) -> Outcome {
    Outcome::Replayed(Box::new(outcome))
}

impl From<WriteOutcome> for Outcome {
    fn from(outcome: WriteOutcome) -> Outcome {
        match outcome {
            WriteOutcome::Applied(applied) => Outcome::Applied(applied),
            WriteOutcome::Refused(refusal) => refused(*refusal),
            WriteOutcome::ConditionFailed(failed) => failed.into(),
            WriteOutcome::Replayed(RecordedWrite::Applied(applied), _) => replayed(Outcome::Applied(applied)),
            WriteOutcome::Replayed(RecordedWrite::ConditionFailed(failed), _) => replayed(failed.into()),
            WriteOutcome::KeyReused => Outcome::KeyReused,
            WriteOutcome::Abandoned => Outcome::Abandoned,
        }
    }
}

impl From<TransactOutcome> for Outcome {
    fn from(outcome: TransactOutcome) -> Outcome {
        match outcome {
            TransactOutcome::Transacted(transacted) => Outcome::Transacted(transacted),
            TransactOutcome::Refused(refusals) => Outcome::Refused(refusals),
            TransactOutcome::ConditionFailed(failed) => failed.into(),
            TransactOutcome::Impossible(addition) => addition.into(),
            TransactOutcome::TooLarge(too_large) => too_large.into(),
            TransactOutcome::Replayed(recorded, _) => replayed(match recorded {
                RecordedTransaction::Transacted(transacted) => Outcome::Transacted(transacted),
                RecordedTransaction::ConditionFailed(failed) => failed.into(),
                RecordedTransaction::Impossible(addition) => addition.into(),
            }),
            TransactOutcome::KeyReused => Outcome::KeyReused,
            TransactOutcome::Abandoned => Outcome::Abandoned,
        }
    }
}

impl From<ClaimOutcome> for Outcome {
    fn from(outcome: ClaimOutcome) -> Outcome {
        match outcome {
            ClaimOutcome::Claimed(claimed) => Outcome::Claimed(claimed),
            ClaimOutcome::Refused(refusal) => refused(*refusal),
            ClaimOutcome::TooLarge(too_large) => too_large.into(),
        }
    }
}

impl From<AcquireOutcome> for Outcome {
    fn from(outcome: AcquireOutcome) -> Outcome {
        match outcome {
            AcquireOutcome::Granted(grant) => Outcome::Granted(grant),
            AcquireOutcome::Held(holding) => Outcome::Held(holding),
            AcquireOutcome::Refused(refusal) => refused(*refusal),
            AcquireOutcome::Exhausted(exhausted) => exhausted.into(),
            AcquireOutcome::Replayed(RecordedGrant::Granted(grant), _) => replayed(Outcome::Granted(grant)),
            AcquireOutcome::Replayed(RecordedGrant::Lost(lost), _) => replayed(lost.into()),
            AcquireOutcome::KeyReused => Outcome::KeyReused,
            AcquireOutcome::Abandoned => Outcome::Abandoned,
        }
    }
}

impl From<RenewOutcome> for Outcome {
    fn from(outcome: RenewOutcome) -> Outcome {
        match outcome {
            RenewOutcome::Renewed(grant) => Outcome::Granted(grant),
            RenewOutcome::Lost(lost) => lost.into(),
        }
    }
}

impl From<ReleaseOutcome> for Outcome {
    fn from(outcome: ReleaseOutcome) -> Outcome {
        match outcome {
            ReleaseOutcome::Released => Outcome::Released,
            ReleaseOutcome::Lost(lost) => lost.into(),
        }
    }
}

impl From<ForceReleaseOutcome> for Outcome {
    fn from(outcome: ForceReleaseOutcome) -> Outcome {
        match outcome {
            ForceReleaseOutcome::Released { holder, token, fence } => Outcome::ForceReleased { holder, token, fence },
            ForceReleaseOutcome::NotHeld => Outcome::NotHeld,
            ForceReleaseOutcome::Refused(refusal) => refused(*refusal),
            ForceReleaseOutcome::Exhausted(exhausted) => exhausted.into(),
        }
    }
}

impl From<RotateOutcome> for Outcome {
    fn from(outcome: RotateOutcome) -> Outcome {
        match outcome {
            RotateOutcome::Rotated { generation } => Outcome::Rotated { generation },
            RotateOutcome::OtherGeneration { found } => Outcome::OtherGeneration { found },
            RotateOutcome::Exhausted(exhausted) => exhausted.into(),
        }
    }
}

impl From<FinalOutcome> for Outcome {
    fn from(outcome: FinalOutcome) -> Outcome {
        match outcome {
            FinalOutcome::Transacted(transacted) => Outcome::Transacted(transacted),
            FinalOutcome::ConditionFailed(failed) => failed.into(),
            FinalOutcome::Impossible(addition) => addition.into(),
            FinalOutcome::Granted(grant) => Outcome::Granted(grant),
            FinalOutcome::Abandoned => Outcome::Abandoned,
        }
    }
}
