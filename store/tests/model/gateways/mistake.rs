//! Mistakes that can be seeded into the protocol. The search must find each of them.

use super::promise::Broken;
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// Trap 33.
    UnchangedFenceNotCompared,
    KnownRecordsNotCompared,
    /// Traps 29 and 44.
    CacheRefusesRetries,
    KnownRecordsRefuseRetries,
    SettledByALook,
    /// Trap 29.
    CacheRefusesUnknownGenerations,
    KnownRecordsRefuseUnknownGenerations,
    ClaimAnsweredFromKnownRecords,
    MetaNotCompared,
    LaneUsedAgain,
    LaneNotCompared,
    OutcomeNotCompared,
    /// Trap 10.
    FenceCachedBeforeItsCommit,
    /// Trap 44.
    UnknownReportedAsNotApplied,
    BumpTakesTheNumberOfTheCommit,
    /// A gateway that stops removes its lane, although a commit may be late that compares it as absent. `Lane::leave` does so.
    LaneRemovedInDoubt,
    /// Trap 46. After a lane was given up, nothing asks for what it had confirmed. `Sequencer::commit_in_lane` does not.
    FormerLaneForgotten,
    /// Trap 46.
    LaneTakenAsFound,
    /// What proves a loss counts as the next commit of the lane, and is taken for it if its answer is lost.
    ProofOfALossTakesANewNumber,
    LoadTakenForProof,
    /// A server that was replaced says that the lane is behind. `Lane::check` and `Lane::settle` believe it.
    UnprovedLookTakenForProof,
    /// Documented: plain and checked reads are not proved.
    UnprovedReadTakenForProof,
    /// A checked read is refused for more than a token below the fence, where its load proves nothing. `Store::read` does so.
    UnprovedReadRefusesUnknownGenerations,
    ReadUnderKnownBase,
    /// Trap 46.
    HistoryNotNamed,
    /// Trap 46.
    HistoryAcceptedInOldGeneration,
}

/// A mistake, and what it breaks in which world.
pub(super) struct Seeded {
    pub(super) breaks: Broken,
    pub(super) world: World,
}

pub(super) const SEEDED: &[Seeded] = {
    use Mistake::*;
    const fn seeded(world: World, mistakes: &'static [Mistake], breaks: Broken) -> Seeded {
        Seeded { breaks, world: World { mistakes, ..world } }
    }
    const PROVED: World = World::PROVED;
    const UNPROVED: World = World::UNPROVED;
    const STOPS: World = World::STOPS;
    const FAILOVER: World = World::FAILOVER;
    const LANES_ALONE: World = World::LANES_ALONE;
    &[
        seeded(PROVED, &[UnchangedFenceNotCompared], Broken::StaleWriteApplied),
        seeded(PROVED, &[KnownRecordsNotCompared], Broken::StaleWriteApplied),
        seeded(PROVED, &[CacheRefusesRetries], Broken::AppliedWriteRefused),
        seeded(PROVED, &[KnownRecordsRefuseRetries], Broken::AppliedWriteRefused),
        seeded(PROVED, &[SettledByALook], Broken::AppliedAfterAll),
        seeded(PROVED, &[CacheRefusesUnknownGenerations], Broken::UnjustifiedRefusal),
        seeded(PROVED, &[KnownRecordsRefuseUnknownGenerations], Broken::UnjustifiedRefusal),
        seeded(PROVED, &[ClaimAnsweredFromKnownRecords], Broken::OldValue),
        seeded(PROVED, &[MetaNotCompared], Broken::StaleWriteApplied),
        seeded(PROVED, &[LaneUsedAgain], Broken::StoppedForNothing),
        seeded(PROVED, &[LaneNotCompared], Broken::AppliedAfterAll),
        seeded(PROVED, &[OutcomeNotCompared], Broken::AppliedTwice),
        seeded(PROVED, &[FenceCachedBeforeItsCommit], Broken::UnjustifiedRefusal),
        seeded(PROVED, &[UnknownReportedAsNotApplied], Broken::AppliedAfterAll),
        seeded(PROVED, &[BumpTakesTheNumberOfTheCommit], Broken::NotInHistory),
        seeded(STOPS, &[LaneRemovedInDoubt], Broken::AppliedAfterAll),
        seeded(UNPROVED, &[LoadTakenForProof], Broken::UnjustifiedRefusal),
        seeded(UNPROVED, &[UnprovedLookTakenForProof], Broken::StoppedForNothing),
        seeded(UNPROVED, &[UnprovedReadTakenForProof], Broken::OldValue),
        seeded(UNPROVED, &[UnprovedReadRefusesUnknownGenerations], Broken::UnjustifiedRefusal),
        seeded(PROVED, &[ReadUnderKnownBase], Broken::OldValue),
        seeded(FAILOVER, &[HistoryNotNamed], Broken::FenceFell),
        seeded(LANES_ALONE, &[LaneTakenAsFound], Broken::WentOnWithoutItsCommits),
        seeded(LANES_ALONE, &[FormerLaneForgotten], Broken::WentOnWithoutItsCommits),
        seeded(
            World { requests: 2, losses: 2, ..LANES_ALONE },
            &[ProofOfALossTakesANewNumber],
            Broken::WentOnWithoutItsCommits,
        ),
        seeded(FAILOVER, &[HistoryAcceptedInOldGeneration], Broken::FenceFell),
    ]
};
