//! Backups of the reference. Its fences are kept apart from its values, and a restore never lowers one.

use super::record::Record;
use super::{Bug, Reference};

impl Reference {
    pub(super) fn back_up(&self) {
        self.store.back_up(|record| match self.bug {
            Some(Bug::BackupWithoutFences) => Record::default().with_value_of(record),
            _ => record.clone(),
        });
    }

    pub(super) fn restore(&self) {
        self.store.restore(|kept, had| match self.bug {
            Some(Bug::BackupWithoutFences) => kept.clone(),
            Some(Bug::RestoresFencesOnly) => had.clone().with_fence_of(kept),
            _ => kept.clone().with_fence_of(had),
        });
    }
}
