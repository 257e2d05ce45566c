//! How much one batch may hold.

use crate::command::Command;
use crate::engine::Limits;

/// The bounds of every batch. Its first command is taken however large it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Commands that share a commit.
    pub(crate) commands: usize,
    /// No further command is taken once the bodies have this many bytes.
    pub(crate) bytes: usize,
    /// No further command is taken once there are this many values to read.
    pub(crate) reads: usize,
    /// What the engine takes in one commit.
    pub(crate) limits: Limits,
}

/// What a batch holds so far.
#[derive(Default)]
pub(crate) struct BatchSize {
    commands: usize,
    bytes: usize,
    reads: usize,
    records: usize,
}

impl BatchSize {
    pub(crate) fn has_room_for(&self, next: &Command, bounds: &Bounds) -> bool {
        let has_room = self.commands < bounds.commands && self.bytes < bounds.bytes && self.reads < bounds.reads;
        let fits = || bounds.limits.hold(self.records + next.records(), self.bytes + next.bytes());
        has_room && (!bounds.limits.are_any() || self.commands == 0 || fits())
    }

    pub(crate) fn add(&mut self, command: &Command, bounds: &Bounds) {
        self.commands += 1;
        self.bytes += command.bytes();
        self.reads += command.reads().count();
        if bounds.limits.are_any() {
            self.records += command.records();
        }
    }
}
