//! Backups: by the commands that are given, else by copies of the directory while nobody uses it.

use std::fs;
use std::sync::{MutexGuard, PoisonError};

use tempfile::TempDir;

use super::{Hooks, copy};
use crate::adapters::process;
use crate::subject::{Broken, Hook, Restored};

/// Stops or starts who else works in the directory.
pub(super) type Others<'a> = &'a dyn Fn() -> Result<(), Broken>;

impl Hooks {
    /// Is it backed up by a command, and not here?
    pub fn has_backup_command(&self) -> bool {
        self.commands.get(Hook::Backup).is_some()
    }

    /// Is there something that could be copied here?
    pub fn can_copy(&self) -> bool {
        let holds_something = || fs::read_dir(self.dir()).is_ok_and(|mut entries| entries.next().is_some());
        !self.has_backup_command() && holds_something()
    }

    /// Takes a backup. Who else works in the directory was stopped, if it is made here.
    pub(super) fn backup(&self) -> Result<(), Broken> {
        if !self.given(Hook::Backup)? {
            self.stop()?;
            let kept = process::directory()?;
            copy::contents(self.dir(), kept.path())?;
            *self.kept() = Some(kept);
            self.start()?;
        }
        self.ready()
    }

    /// Puts the last backup back. If nobody serves with a copy that was made here, it is taken away again.
    pub fn restore(&self, stop: Others<'_>, start: Others<'_>) -> Result<Restored, Broken> {
        let stop = || stop().and_then(|()| self.stop());
        let serve = || self.start().and_then(|()| self.ready()).and_then(|()| start());
        stop()?;
        if self.given(Hook::Restore)? {
            return serve().map(|()| Restored::Serves);
        }
        let had = process::directory()?;
        copy::moved(self.dir(), had.path())?;
        match &*self.kept() {
            Some(kept) => copy::contents(kept.path(), self.dir())?,
            None => return Err(Broken("there is no backup to restore; this is a defect of the suite".to_owned())),
        }
        let Err(Broken(why)) = serve() else { return Ok(Restored::Serves) };
        stop()?;
        copy::empty(self.dir())?;
        copy::moved(had.path(), self.dir())?;
        serve().map(|()| Restored::Refuses(why))
    }

    fn kept(&self) -> MutexGuard<'_, Option<TempDir>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
