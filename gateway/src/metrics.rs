//! Counters and histograms in OpenMetrics text.
//!
//! Counters are looked up once, when they are made, so that counting a request is one atomic addition.

use std::sync::atomic::AtomicU64;

use fencepost_core::{ProblemKind, Reason, Refusal};
use fencepost_store::{
    AcquireOutcome, BatchReport, Changed, ClaimOutcome, Health, Observer, ReleaseOutcome, RenewOutcome, Stores,
    TransactOutcome, Verdicts, WriteOutcome,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Error codes by which denied S3 requests are counted.
pub(crate) const S3_DENIALS: &[&str] = &[
    "AccessDenied",
    "AuthorizationQueryParametersError",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidRequest",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
];

pub(crate) const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
    mode: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProblemLabel {
    problem: &'static str,
}

/// The name of an engine, of which a configuration has a bounded number.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EngineLabel {
    engine: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

/// Outcomes of each kind of request, as values of a label.
const WRITES: &[&str] =
    &["applied", "replayed", "refused", "condition-failed", "impossible", "too-large", "key-reused", "abandoned"];
const OBJECTS: &[&str] = &["applied", "refused", "condition-failed"];
const CLAIMS: &[&str] = &["applied", "refused", "too-large"];
const LOCKS: &[&str] = &["granted", "replayed", "released", "held", "lost", "refused", "key-reused", "abandoned"];

/// An outcome as a value of a label.
pub(crate) trait Counted: Verdicts {
    fn word(&self) -> &'static str;
}

impl Counted for WriteOutcome {
    fn word(&self) -> &'static str {
        match self {
            WriteOutcome::Applied(_) => "applied",
            WriteOutcome::Replayed(..) => "replayed",
            WriteOutcome::Refused(_) => "refused",
            WriteOutcome::ConditionFailed(_) => "condition-failed",
            WriteOutcome::KeyReused => "key-reused",
            WriteOutcome::Abandoned => "abandoned",
        }
    }
}

impl Counted for TransactOutcome {
    fn word(&self) -> &'static str {
        match self {
            TransactOutcome::Transacted(_) => "applied",
            TransactOutcome::Replayed(..) => "replayed",
            TransactOutcome::Refused(_) => "refused",
            TransactOutcome::ConditionFailed(_) => "condition-failed",
            TransactOutcome::Impossible(_) => "impossible",
            TransactOutcome::TooLarge(_) => "too-large",
            TransactOutcome::KeyReused => "key-reused",
            TransactOutcome::Abandoned => "abandoned",
        }
    }
}

impl Counted for ClaimOutcome {
    fn word(&self) -> &'static str {
        match self {
            ClaimOutcome::Claimed(_) => "applied",
            ClaimOutcome::Refused(_) => "refused",
            ClaimOutcome::TooLarge(_) => "too-large",
        }
    }
}

impl Counted for AcquireOutcome {
    fn word(&self) -> &'static str {
        match self {
            AcquireOutcome::Granted(_) => "granted",
            AcquireOutcome::Replayed(..) => "replayed",
            AcquireOutcome::Held(_) => "held",
            AcquireOutcome::Refused(_) | AcquireOutcome::Exhausted(_) => "refused",
            AcquireOutcome::KeyReused => "key-reused",
            AcquireOutcome::Abandoned => "abandoned",
        }
    }
}

impl Counted for RenewOutcome {
    fn word(&self) -> &'static str {
        match self {
            RenewOutcome::Renewed(_) => "granted",
            RenewOutcome::Lost(_) => "lost",
        }
    }
}

impl Counted for ReleaseOutcome {
    fn word(&self) -> &'static str {
        match self {
            ReleaseOutcome::Released => "released",
            ReleaseOutcome::Lost(_) => "lost",
        }
    }
}

/// Counters of one kind of request, by outcome.
struct Outcomes(Vec<(&'static str, Counter)>);

impl Outcomes {
    fn new(family: &Family<OutcomeLabel, Counter>, words: &[&'static str]) -> Outcomes {
        let counter = |outcome| family.get_or_create_owned(&OutcomeLabel { outcome });
        Outcomes(words.iter().map(|word| (*word, counter(word))).collect())
    }

    fn count(&self, outcome: &impl Counted) {
        self.count_word(outcome.word());
    }

    fn count_word(&self, word: &str) {
        if let Some((_, counter)) = self.0.iter().find(|(counted, _)| *counted == word) {
            counter.inc();
        }
    }
}

/// One counter per reason, in the order of [`Reason::ALL`].
struct ByReason(Vec<(Reason, Counter)>);

impl ByReason {
    fn new(family: &Family<RefusalLabels, Counter>, mode: &'static str) -> ByReason {
        let counter = |reason: Reason| family.get_or_create_owned(&RefusalLabels { reason: reason.as_str(), mode });
        ByReason(Reason::ALL.map(|reason| (reason, counter(reason))).into())
    }

    fn count(&self, reason: Reason) {
        if let Some((_, counter)) = self.0.iter().find(|(counted, _)| *counted == reason) {
            counter.inc();
        }
    }
}

/// All metrics of a gateway.
pub struct Metrics {
    registry: Registry,
    writes: Outcomes,
    claims: Outcomes,
    transactions: Outcomes,
    locks: Outcomes,
    objects: Outcomes,
    refused: ByReason,
    observed: ByReason,
    problems: Vec<(ProblemKind, Counter)>,
    s3_denied: Vec<(&'static str, Counter)>,
    batch_size: Histogram,
    commit: Histogram,
    fsync: Histogram,
    queue: Gauge<i64, std::sync::atomic::AtomicI64>,
    waiters: Gauge<i64, std::sync::atomic::AtomicI64>,
    ready: Gauge<i64, std::sync::atomic::AtomicI64>,
    /// Of each engine, where guards name some.
    engine_queue: Family<EngineLabel, Gauge>,
    engine_ready: Family<EngineLabel, Gauge>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("fencepost");
        let (writes, claims) = (Family::default(), Family::default());
        let (transactions, locks) = (Family::default(), Family::default());
        let objects = Family::default();
        let (refusals, problems) = (Family::default(), Family::<ProblemLabel, Counter>::default());
        registry.register("writes", "Puts and deletes with a known outcome", writes.clone());
        registry.register("claims", "Claims with a known outcome", claims.clone());
        registry.register("transactions", "Transactions with a known outcome", transactions.clone());
        registry.register("lock_calls", "Acquires, renewals and releases with a known outcome", locks.clone());
        registry.register("object_writes", "Writes and deletes of objects with a known outcome", objects.clone());
        registry.register(
            "refusals",
            "Requests the judge refused, or would have refused in observe mode",
            refusals.clone(),
        );
        registry.register("problems", "Requests answered with a problem", problems.clone());
        let denied = Family::<CodeLabel, Counter>::default();
        registry.register("s3_denied", "S3 requests that were not let in", denied.clone());
        let seconds = || Histogram::new(exponential_buckets(50e-6, 2.0, 17));
        let (batch_size, commit, fsync) = (Histogram::new(exponential_buckets(1.0, 2.0, 11)), seconds(), seconds());
        registry.register("batch_size", "Commands that shared one batch", batch_size.clone());
        registry.register_with_unit("commit", "From taking a batch to its last answer", Unit::Seconds, commit.clone());
        registry.register_with_unit(
            "fsync",
            "One durable write of the engine, fsync included",
            Unit::Seconds,
            fsync.clone(),
        );
        let (queue, waiters, ready) = (Gauge::default(), Gauge::default(), Gauge::default());
        registry.register("lock_waiters", "Requests that wait for a lock", waiters.clone());
        registry.register("queue_depth", "Writes that wait for a commit", queue.clone());
        registry.register("ready", "1 while writes are taken, 0 when they have stopped", ready.clone());
        let (engine_queue, engine_ready) = (Family::default(), Family::default());
        registry.register("engine_queue_depth", "Writes that wait for a commit of this engine", engine_queue.clone());
        registry.register("engine_ready", "1 while writes are taken on this engine", engine_ready.clone());
        Metrics {
            writes: Outcomes::new(&writes, WRITES),
            claims: Outcomes::new(&claims, CLAIMS),
            transactions: Outcomes::new(&transactions, WRITES),
            locks: Outcomes::new(&locks, LOCKS),
            objects: Outcomes::new(&objects, OBJECTS),
            refused: ByReason::new(&refusals, "enforce"),
            observed: ByReason::new(&refusals, "observe"),
            problems: ProblemKind::ALL
                .iter()
                .map(|kind| (*kind, problems.get_or_create_owned(&ProblemLabel { problem: kind.slug() })))
                .collect(),
            s3_denied: S3_DENIALS.iter().map(|code| (*code, denied.get_or_create_owned(&CodeLabel { code }))).collect(),
            registry,
            batch_size,
            commit,
            fsync,
            queue,
            waiters,
            ready,
            engine_queue,
            engine_ready,
        }
    }

    pub(crate) fn write(&self, outcome: &WriteOutcome) {
        self.writes.count(outcome);
        self.judged(outcome);
    }

    pub(crate) fn claim(&self, outcome: &ClaimOutcome) {
        self.claims.count(outcome);
        self.judged(outcome);
    }

    pub(crate) fn transaction(&self, outcome: &TransactOutcome) {
        self.transactions.count(outcome);
        self.judged(outcome);
    }

    pub(crate) fn lock(&self, outcome: &impl Counted) {
        self.locks.count(outcome);
        self.judged(outcome);
    }

    /// A write of an object was applied.
    pub(crate) fn object_applied(&self, changed: &Changed) {
        self.objects.count_word("applied");
        self.object_judged(changed);
    }

    /// A write of an object was refused.
    pub(crate) fn object_refused(&self, refusals: &[Refusal]) {
        self.objects.count_word("refused");
        refusals.iter().for_each(|refusal| self.refused.count(refusal.reason));
    }

    /// The condition of a write of an object does not hold.
    pub(crate) fn object_condition_failed(&self) {
        self.objects.count_word("condition-failed");
    }

    /// A change that prepares an object, and writes none itself, was judged.
    pub(crate) fn object_judged(&self, changed: &Changed) {
        changed.observed.iter().for_each(|(_, reason)| self.observed.count(*reason));
    }

    fn judged(&self, outcome: &impl Verdicts) {
        for refusal in outcome.refusals() {
            self.refused.count(refusal.reason);
        }
        for reason in outcome.observed() {
            self.observed.count(reason);
        }
    }

    pub(crate) fn read_refused(&self, reason: Reason) {
        self.refused.count(reason);
    }

    pub(crate) fn read_observed(&self, reason: Option<Reason>) {
        if let Some(reason) = reason {
            self.observed.count(reason);
        }
    }

    pub(crate) fn problem(&self, kind: ProblemKind) {
        if let Some((_, counter)) = self.problems.iter().find(|(counted, _)| *counted == kind) {
            counter.inc();
        }
    }

    /// An S3 request was denied with this code. Only the codes in [`S3_DENIALS`] are counted.
    pub(crate) fn s3_denied(&self, code: &str) {
        if let Some((_, counter)) = self.s3_denied.iter().find(|(counted, _)| *counted == code) {
            counter.inc();
        }
    }

    pub(crate) fn encode(&self, stores: &Stores) -> String {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.queue.set(number(stores.queue_depth()));
        self.waiters.set(number(stores.waiters()));
        let mut all_ready = true;
        for (engine, store) in stores.each() {
            let is_ready = store.health() == Health::Ready;
            all_ready &= is_ready;
            if !stores.is_one() {
                let label = EngineLabel { engine: engine.to_owned() };
                self.engine_queue.get_or_create(&label).set(number(store.queue_depth()));
                self.engine_ready.get_or_create(&label).set(i64::from(is_ready));
            }
        }
        self.ready.set(i64::from(all_ready));
        self.text()
    }

    /// All metrics as they are now.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Observer for Metrics {
    fn batch(&self, report: BatchReport) {
        self.batch_size.observe(report.commands as f64);
        self.commit.observe(report.total.as_secs_f64());
        if let Some(commit) = report.commit {
            self.fsync.observe(commit.as_secs_f64());
        }
    }
}

/// Counters are `u64`; named here so that a change of the crate's default is noticed.
const _: fn(&Counter) -> &Counter<u64, AtomicU64> = |counter| counter;
