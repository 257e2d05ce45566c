//! The engine that the gateways share: versioned records with compare-and-commit (E1–E5), for one resource with one key.

use super::names::{Named, Names};
use super::request::{Fence, Write};

/// Never used again (E3). All changes of a commit get the same one: versions are only compared, each with those of its record.
pub(super) type Version = u8;

/// The id of a lane.
pub(super) type LaneId = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record<T> {
    pub(super) version: Version,
    pub(super) of: T,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Engine {
    /// The store's own record: the base generation.
    pub(super) meta: Record<u8>,
    pub(super) fence: Option<Record<Fence>>,
    pub(super) value: Option<Record<Write>>,
    /// The outcome under the idempotency key.
    pub(super) outcome: Option<Record<()>>,
    /// The number of the last commit of each lane.
    pub(super) lanes: Vec<(LaneId, Record<u8>)>,
    /// An older copy of the records took the place of the newer ones.
    pub(super) is_another_history: bool,
    last: Version,
    /// The writes that were applied.
    applied: u16,
}

/// The versions that a commit compares; the outer `None`: not compared, the inner: absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Compare {
    pub(super) meta: Option<Version>,
    pub(super) fence: Option<Option<Version>>,
    pub(super) value: Option<Option<Version>>,
    pub(super) outcome: Option<Option<Version>>,
    pub(super) lane: Option<Option<Version>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LaneChange {
    Put(u8),
    Remove,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Changes {
    pub(super) base: Option<u8>,
    pub(super) fence: Option<Fence>,
    pub(super) value: Option<Write>,
    pub(super) outcome: bool,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Batch {
    /// The place of the request; `None` if only the lane is committed.
    pub(super) request: Option<u8>,
    pub(super) compare: Compare,
    pub(super) changes: Changes,
    pub(super) lane: LaneId,
    pub(super) lane_change: LaneChange,
    /// It was declared not to be applied, ever.
    pub(super) is_given_up: bool,
}

impl Engine {
    pub(super) fn new() -> Engine {
        Engine {
            meta: Record { version: 0, of: 0 },
            fence: None,
            value: None,
            outcome: None,
            lanes: Vec::new(),
            is_another_history: false,
            last: 0,
            applied: 0,
        }
    }

    pub(super) fn fence_now(&self) -> Fence {
        Fence::under(self.fence.map(|record| record.of), self.meta.of)
    }

    pub(super) fn value_now(&self) -> Option<Write> {
        self.value.map(|record| record.of)
    }

    pub(super) fn has_applied(&self, write: Write) -> bool {
        self.applied & (1 << write.0) != 0
    }

    pub(super) fn lane(&self, id: LaneId) -> Option<Record<u8>> {
        self.lanes.iter().find(|(lane, _)| *lane == id).map(|(_, record)| *record)
    }

    /// Whether all compared versions are the present ones.
    pub(super) fn holds(&self, batch: &Batch) -> bool {
        let Compare { meta, fence, value, outcome, lane } = &batch.compare;
        meta.is_none_or(|wanted| wanted == self.meta.version)
            && fence.is_none_or(|wanted| wanted == self.fence.map(|record| record.version))
            && value.is_none_or(|wanted| wanted == self.value.map(|record| record.version))
            && outcome.is_none_or(|wanted| wanted == self.outcome.map(|record| record.version))
            && lane.is_none_or(|wanted| wanted == self.lane(batch.lane).map(|record| record.version))
    }

    /// Whether a batch can never be applied any more. Only lanes are ever removed, and only if `lanes_go`.
    pub(super) fn is_too_late(&self, batch: &Batch, lanes_go: bool) -> bool {
        let Compare { meta, fence, value, outcome, lane } = &batch.compare;
        let lane_version = self.lane(batch.lane).map(|record| record.version);
        meta.is_some_and(|wanted| wanted != self.meta.version)
            || fence.is_some_and(|wanted| wanted != self.fence.map(|record| record.version))
            || value.is_some_and(|wanted| wanted != self.value.map(|record| record.version))
            || outcome.is_some_and(|wanted| wanted != self.outcome.map(|record| record.version))
            || lane.is_some_and(|wanted| wanted != lane_version && !(wanted.is_none() && lanes_go))
    }

    /// Writes all changes.
    pub(super) fn apply(&mut self, batch: &Batch) -> Version {
        self.last += 1;
        let version = self.last;
        let Changes { base, fence, value, outcome } = &batch.changes;
        if let Some(base) = *base {
            self.meta = Record { version, of: base };
        }
        if let Some(fence) = *fence {
            self.fence = Some(Record { version, of: fence });
        }
        if let Some(write) = *value {
            self.value = Some(Record { version, of: write });
            self.applied |= 1 << write.0;
        }
        if *outcome {
            self.outcome = Some(Record { version, of: () });
        }
        self.lanes.retain(|(lane, _)| *lane != batch.lane);
        if let LaneChange::Put(number) = batch.lane_change {
            self.lanes.push((batch.lane, Record { version, of: number }));
        }
        version
    }

    /// An older copy takes the place of these records. Versions are not used again.
    pub(super) fn replaced_by(&mut self, older: Engine) {
        *self = Engine { is_another_history: true, last: self.last, ..older };
    }

    /// `fencepost restored`: a generation above every one ever used, if it is given.
    pub(super) fn accept_history(&mut self, base: Option<u8>) {
        self.is_another_history = false;
        if let Some(base) = base {
            self.last += 1;
            self.meta = Record { version: self.last, of: base };
        }
    }
}

impl<T> Named for Record<T> {
    fn name(&mut self, names: &mut Names) {
        names.version(&mut self.version);
    }
}

impl Named for Engine {
    fn name(&mut self, names: &mut Names) {
        self.meta.name(names);
        self.fence.name(names);
        self.value.name(names);
        self.outcome.name(names);
        self.lanes.retain(|(lane, _)| names.knows_lane(*lane));
        for (lane, _) in &mut self.lanes {
            names.lane(lane);
        }
        self.lanes.sort_unstable_by_key(|(lane, _)| *lane);
        for (_, record) in &mut self.lanes {
            record.name(names);
        }
        self.last = 0;
    }
}

impl Named for Batch {
    fn name(&mut self, names: &mut Names) {
        names.lane(&mut self.lane);
        let Compare { meta, fence, value, outcome, lane } = &mut self.compare;
        for version in [fence, value, outcome, lane].into_iter().flatten().flatten().chain(meta) {
            names.version(version);
        }
    }
}
