//! Names of versions and lanes that do not depend on how a state was reached: states that differ only in them are one.

/// The new name of each version and each lane, in the order in which they are met.
pub(super) struct Names {
    versions: [Option<u8>; 256],
    lanes: [Option<u8>; 256],
    next_version: u8,
    next_lane: u8,
}

/// Something that contains versions or lanes.
pub(super) trait Named {
    fn name(&mut self, names: &mut Names);
}

impl Names {
    pub(super) fn new() -> Names {
        Names { versions: [None; 256], lanes: [None; 256], next_version: 0, next_lane: 0 }
    }

    pub(super) fn version(&mut self, version: &mut u8) {
        *version = named(&mut self.versions[usize::from(*version)], &mut self.next_version);
    }

    pub(super) fn lane(&mut self, lane: &mut u8) {
        *lane = named(&mut self.lanes[usize::from(*lane)], &mut self.next_lane);
    }

    /// Whether the lane was met. One that is not used any more makes no difference.
    pub(super) fn knows_lane(&self, lane: u8) -> bool {
        self.lanes[usize::from(lane)].is_some()
    }
}

fn named(name: &mut Option<u8>, next: &mut u8) -> u8 {
    *name.get_or_insert_with(|| {
        *next += 1;
        *next - 1
    })
}

impl<T: Named> Named for Option<T> {
    fn name(&mut self, names: &mut Names) {
        if let Some(named) = self {
            named.name(names);
        }
    }
}
