//! The bugs that can be enabled in the reference. Each is one that real services had or could have.

use crate::manifest::{Equal, High, Policy, Reads};

/// How a mutant is set up: its promises, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Whether a used token may write again.
    pub policy: Policy,
    /// Who may use the token at the fence.
    pub equal: Equal,
    /// How fresh reads are.
    pub reads: Reads,
    /// How exact the reported fence is.
    pub high: High,
    /// How many processes serve its store.
    pub instances: usize,
    /// Whether it is reached over HTTP or by calls in this process.
    pub front: Front,
}

/// How a reference is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// By calls in this process.
    Calls,
    /// Over HTTP on loopback.
    Http,
}

impl Setup {
    /// Its promises, as a manifest spells them.
    pub(crate) fn promises(self) -> [(&'static str, &'static str); 4] {
        let policy = match self.policy {
            Policy::Ge => "ge",
            Policy::Gt => "gt",
        };
        let equal = match self.equal {
            Equal::Any => "any",
            Equal::Holder => "holder",
        };
        let reads = match self.reads {
            Reads::Linearizable => "linearizable",
            Reads::StaleOk => "stale-ok",
        };
        let high = match self.high {
            High::Exact => "exact",
            High::AtLeast => "at_least",
        };
        [("policy", policy), ("equal", equal), ("reads", reads), ("high", high)]
    }
}

const GE: Setup = Setup {
    policy: Policy::Ge,
    equal: Equal::Any,
    reads: Reads::Linearizable,
    high: High::Exact,
    instances: 1,
    front: Front::Calls,
};
const GT: Setup = Setup { policy: Policy::Gt, ..GE };
const HOLDER: Setup = Setup { equal: Equal::Holder, ..GE };
const TWO: Setup = Setup { instances: 2, ..GE };
const HTTP: Setup = Setup { front: Front::Http, ..GE };
const GT_HOLDER: Setup = Setup { equal: Equal::Holder, ..GT };
const STALE_OK: Setup = Setup { reads: Reads::StaleOk, ..GE };
const AT_LEAST: Setup = Setup { high: High::AtLeast, ..GE };

/// The setups in which the reference itself is run: every case applies in at least one. Where a promise is loose, the
/// reference makes use of that.
pub const SETUPS: [(&str, Setup); 8] = [
    ("ge", GE),
    ("gt", GT),
    ("holder", HOLDER),
    ("two instances", TWO),
    ("http", HTTP),
    ("gt holder", GT_HOLDER),
    ("stale-ok", STALE_OK),
    ("at_least", AT_LEAST),
];

/// A bug, and the cases that must find it.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The bug that is enabled.
    pub bug: Bug,
    /// Its name on command lines and in tables.
    pub name: &'static str,
    /// The case that must fail it, followed by cases without a bug of their own that must fail it too.
    cases: &'static str,
    /// How it is set up.
    pub setup: Setup,
    /// What it does wrong, in a sentence.
    pub what: &'static str,
}

macro_rules! bugs {
    ($($bug:ident $name:literal $cases:literal $setup:ident $what:literal)*) => {
        /// An error that the reference can make.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug { $(#[doc = $what] $bug,)* }

        /// All bugs, in the order of the cases that name them.
        pub static MUTANTS: &[Mutant] = &[
            $(Mutant { bug: Bug::$bug, name: $name, cases: $cases, setup: $setup, what: $what },)*
        ];
    };
}

bugs! {
    RejectAll "reject-all" "A01" GE "Everything is refused."
    FirstRefused "first-refused" "A01" GE "A resource that nobody wrote to has no fence, and none is taken for the highest."
    Equality "equality" "A02" GE "A token must be the fence, not at least the fence: the next holder is locked out."
    AcceptAll "accept-all" "A03 Z01 Z03 Z04 Z06 Z08" GE "Tokens are stored and never compared."
    OffByOne "off-by-one" "A04" GE "The token just below the fence is let in."
    RefusedButWritten "refused-but-written" "A05" GE "A stale write is refused, and written."
    NoGaps "no-gaps" "A06" GE "Only the next number may raise the fence."
    TextualOrder "textual-order" "A07" GE "Tokens are compared as text: 9 is above 10."
    FloatingPoint "floating-point" "A08" GE "Tokens are compared as floating point: from 2^53 on, neighbours are equal."
    SignedCast "signed-cast" "A09" GE "Tokens are compared as signed numbers: from 2^63 on they are below zero."
    ShortInteger "short-integer" "A09" GE "Tokens are kept in 32 bits."
    ZeroUnchecked "zero-unchecked" "A10" GE "Token zero is taken for none, and is not compared."
    ReportsPresented "reports-presented" "A11" GE "A refusal reports the token that was presented as the fence."
    RatchetsDown "ratchets-down" "A12" GE "The fence becomes the token of every request, also of a refused one."
    ShedsAsStale "sheds-as-stale" "A13" GE "Under load, one request of thirty-two is called stale though it is not."
    GtForGe "gt-for-ge" "E01 C03 Z07" GE "A token writes only once, though the manifest says that it may write again."
    GeForGt "ge-for-gt" "E02 Z05" GT "A token may write again, though the manifest says once."
    OnceByWrite "once-by-write" "E03" GT "Only write looks whether a token was used; cas, delete and batch let it in again."
    ClaimUses "claim-uses" "E04" GT "A claim uses the token up, so that its holder can never write."
    HolderIgnored "holder-ignored" "E05" HOLDER "Whoever has the token may write, though only its holder may."
    AbsentUnfenced "absent-unfenced" "B01" GE "A request without a token is not checked at all."
    LenientTokens "lenient-tokens" "B02" GE "Tokens are read as far as they are digits, and what is too long is the largest."
    HighestOfTwo "highest-of-two" "B03" GE "Of two tokens in one request the higher one counts."
    UnfencedClaim "unfenced-claim" "B04" GE "Claims are not checked."
    UnfencedCas "unfenced-cas" "B04" GE "Writes on a condition are not checked."
    UnfencedDelete "unfenced-delete" "B04" GE "Deletes are not checked."
    UnfencedBatch "unfenced-batch" "B04" GE "Batches are not checked."
    AliasUnfenced "alias-unfenced" "B05" GE "A name with a slash at its end leads to the same resource, past the check."
    ImportUnfenced "import-unfenced" "B05" GE "The bulk import writes without a check."
    RenameUnfenced "rename-unfenced" "B05" GE "A rename onto a resource takes its place, with the fence of the other."
    ExpiryDropsFence "expiry-drops-fence" "B05" GE "A request to let the value expire is refused as stale, and the fence is gone."
    ExpiredForgotten "expired-forgotten" "B05" GE "When the value expires that its holder let expire, the fence goes with it."
    GlobalFence "global-fence" "B06" GE "There is one fence for all resources."
    FoldsNames "folds-names" "B06" GE "Names that differ in case or in percent signs are one resource."
    DeleteDropsFence "delete-drops-fence" "B07" GE "A delete removes the fence with the value."
    DeleteOfNothing "delete-of-nothing" "B07" GE "A delete of what is not there is accepted, and raises no fence."
    RecreateForgets "recreate-forgets" "B08" GE "A write to a deleted resource is a creation, and a creation is not checked."
    AbsentAdopts "absent-adopts" "B09" GE "A request without a token gets the current one."
    LargeUnfenced "large-unfenced" "B10" GE "Large values take another path, which is not checked."
    LargeCut "large-cut" "B10" GE "Large values are cut at 1 MiB, and accepted."
    LargeFirst "large-first" "B10" GE "A large value takes the place of a large one before its token is checked."
    CheckedReadUnchecked "checked-read-unchecked" "F01" GE "A checked read is not checked."
    CheckedReadCached "checked-read-cached" "F02" GE "A checked read checks the fence, and takes the value from a cache."
    ClaimForgets "claim-forgets" "F03" GE "A claim checks, and does not raise the fence."
    CheckedReadRaises "checked-read-raises" "F04" GE "A checked read raises the fence."
    StaleReads "stale-reads" "F05" GE "Reads come from a cache that is refreshed now and then."
    RefusedVisible "refused-visible" "F06" GE "A value is shown to readers while its token is being checked."
    BatchLosesLast "batch-loses-last" "M01" GE "The last write of a batch is lost."
    PartialBatch "partial-batch" "M02" GE "A batch stops at the first stale write, and what came before stays."
    RefusedBatchRaises "refused-batch-raises" "M03" GE "A refused batch raises the fences of its other resources."
    TornBatch "torn-batch" "M04" GE "Readers can see a batch half done."
    BatchInParts "batch-in-parts" "M05" GE "A batch is stored write by write: a crash leaves a part of it."
    BatchChecksOnce "batch-checks-once" "M06" GE "All writes of a batch are checked before the first is done, also those to one resource."
    LockOrder "lock-order" "M07" GE "A batch locks its resources in the order they are named: two batches wait for each other."
    CheckThenAct "check-then-act" "C01 C02" GE "The fence is read, and the write happens later, without a lock."
    LargeLater "large-later" "C01" GE "A large value is stored after its fence, without a lock."
    UsedTwice "used-twice" "C04" GT "Whether a token was used is looked up before the lock is taken."
    DirtyReads "dirty-reads" "C05" GE "Reads see a value before it is known whether it will be stored."
    ClaimRaces "claim-races" "C06" GE "A claim reads the fence and raises it later, without a lock."
    ProcessCache "process-cache" "C07" TWO "Each process keeps the fences it has seen, and never looks again."
    HashedFences "hashed-fences" "C08" GE "Fences are kept under a short hash of the name, which resources share."
    CasRaces "cas-races" "C09" GE "A cas compares, and writes later, without a lock."
    BusyIsStale "busy-is-stale" "C10" GE "Whoever finds the resource locked is told that the token is stale."
    CheckAtHead "check-at-head" "Z02" HTTP "The token is compared when the head of a request arrives, and the write is done after its body."
    HalfBody "half-body" "Z09" HTTP "A body that ends early is taken for a whole one."
    MemoryOnly "memory-only" "R01" GE "Values are stored, fences are kept in memory."
    AnsweredFirst "answered-first" "R02 R07" GE "A write is answered before it is stored."
    MemoryFirst "memory-first" "R03" GE "The fence in memory refuses before the write that raised it is stored."
    ForgetsUnused "forgets-unused" "R04" GE "A fence raised by a claim is stored with the first write."
    TwoCommits "two-commits" "R05" GE "The value is stored first, the token after it."
    FragileRecovery "fragile-recovery" "R06" GE "Recovery moves the data away while it reads them: a crash meanwhile loses them."
    Eviction "eviction" "R08" GE "Only the fences of the resources used last are kept."
    TombstonesCollected "tombstones-collected" "R08" GE "The fence of a deleted resource is dropped when many others were used since."
    RemovedFirst "removed-first" "R09" GE "What was there is removed just before its successor takes its place."
    ClockExpiry "clock-expiry" "R10" GE "A fence expires half a day after it was raised, by the clock."
    ClockOrder "clock-order" "R10" GE "Of two writes that were both accepted, the one with the later time of the clock stays."
    BackupWithoutFences "backup-without-fences" "R11" GE "A backup holds the values, and not the fences."
    RestoresFencesOnly "restores-fences-only" "R11" GE "A restore puts the fences back, and leaves the newer values."
}

impl Mutant {
    /// The first case that must fail it.
    pub fn case(&self) -> &'static str {
        self.cases().next().unwrap_or_default()
    }

    /// All cases that must fail it.
    pub fn cases(&self) -> impl Iterator<Item = &'static str> {
        self.cases.split_whitespace()
    }
}

impl Bug {
    /// Its row in the list.
    pub fn mutant(self) -> &'static Mutant {
        // The list is made with the enum, in the same order.
        &MUTANTS[self as usize]
    }

    /// The bug with this name.
    pub fn named(name: &str) -> Option<Bug> {
        MUTANTS.iter().find(|mutant| mutant.name == name).map(|mutant| mutant.bug)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bug, MUTANTS};

    #[test]
    fn names_are_unique_and_lead_back() {
        for mutant in MUTANTS {
            assert_eq!(Bug::named(mutant.name), Some(mutant.bug));
            assert_eq!(mutant.bug.mutant().name, mutant.name);
        }
    }
}
