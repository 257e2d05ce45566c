//! Backups: by the given commands, else by copies of the directory while no process uses it.

use std::fs;

use parking_lot::MutexGuard;
use tempfile::TempDir;

use super::{Hooks, copy};
use crate::adapters::process;
use crate::subject::{BackedUp, Broken, Hook, Restored};

/// Stops or starts the other processes that work in the directory.
pub(super) type Others<'a> = &'a dyn Fn() -> Result<(), Broken>;

impl Hooks {
    /// Whether the suite can back up by copying the directory.
    pub fn can_copy(&self) -> bool {
        let holds_something = || fs::read_dir(self.dir()).is_ok_and(|mut entries| entries.next().is_some());
        self.commands.get(Hook::Backup).is_none() && holds_something()
    }

    /// Takes a backup: by its command, while the resource runs, or by a copy, while no process works in the directory.
    pub fn back_up(&self, stop: Others<'_>, start: Others<'_>) -> Result<BackedUp, Broken> {
        if self.given(Hook::Backup)? {
            self.ready()?;
            return start().map(|()| BackedUp::ByItself);
        }
        self.quiet(stop)?;
        let kept = process::directory()?;
        let copied = copy::contents(self.dir(), kept.path(), self.limit, self.output.path());
        *self.kept() = Some(kept);
        self.serve(start)?;
        Ok(copied.map_or_else(|Broken(why)| BackedUp::Cannot(why), |()| BackedUp::ByCopy))
    }

    /// Restores the last backup. If the resource does not serve with a copy that the suite made, the copy is removed
    /// again.
    pub fn restore(&self, stop: Others<'_>, start: Others<'_>) -> Result<Restored, Broken> {
        self.quiet(stop)?;
        if self.given(Hook::Restore)? {
            return self.serve(start).map(|()| Restored::Serves);
        }
        let kept = self.kept();
        let Some(kept) = &*kept else {
            return Err(Broken("there is no backup to restore; this is a defect of the suite".to_owned()));
        };
        let had = process::directory()?;
        let back = || copy::moved(had.path(), self.dir()).and_then(|()| self.serve(start));
        if let Err(Broken(why)) = copy::moved(self.dir(), had.path()) {
            return back().map(|()| Restored::Cannot(why));
        }
        if let Err(Broken(why)) = copy::contents(kept.path(), self.dir(), self.limit, self.output.path()) {
            copy::empty(self.dir())?;
            return back().map(|()| Restored::Cannot(why));
        }
        let Err(Broken(why)) = self.serve(start) else { return Ok(Restored::Serves) };
        self.quiet(stop)?;
        copy::empty(self.dir())?;
        back().map(|()| Restored::Refuses(why))
    }

    fn quiet(&self, stop: Others<'_>) -> Result<(), Broken> {
        stop().and_then(|()| self.stop())
    }

    fn serve(&self, start: Others<'_>) -> Result<(), Broken> {
        self.start().and_then(|()| self.ready()).and_then(|()| start())
    }

    fn kept(&self) -> MutexGuard<'_, Option<TempDir>> {
        self.kept.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;
    use std::{fs, iter};

    use super::super::{Commands, Hooks};
    use crate::subject::{BackedUp, Restored};

    /// Hooks without programs, whose probe always succeeds.
    fn hooks() -> Hooks {
        Hooks::new(Commands::default(), Path::new("."), vec![1], Box::new(|| Ok(()))).unwrap()
    }

    /// Asks again while a copy is done before the first look at it, as happens on a busy machine.
    fn out_of_time<T>(ask: impl FnMut() -> Option<T>) -> T {
        iter::repeat_with(ask).take(100).flatten().next().expect("none of the copies was ended")
    }

    #[test]
    fn what_cannot_be_copied_in_time_is_no_backup_and_stays_as_it_was() {
        let mut hooks = hooks();
        let (file, patience) = (hooks.dir().join("file"), hooks.limit);
        let said = || fs::read_to_string(&file).unwrap();
        let nobody = || Ok(());
        fs::write(&file, "old").unwrap();
        hooks.limit = Duration::ZERO;
        let why = out_of_time(|| match hooks.back_up(&nobody, &nobody).unwrap() {
            BackedUp::Cannot(why) => Some(why),
            _ => None,
        });
        assert!(why.contains("`limit` in [hooks]"), "{why}");
        hooks.limit = patience;
        assert_eq!(hooks.back_up(&nobody, &nobody), Ok(BackedUp::ByCopy));
        hooks.limit = Duration::ZERO;
        let why = out_of_time(|| {
            fs::write(&file, "new").unwrap();
            match hooks.restore(&nobody, &nobody).unwrap() {
                Restored::Cannot(why) => Some(why),
                _ => None,
            }
        });
        assert!(why.contains("`limit` in [hooks]"), "{why}");
        assert_eq!(said(), "new");
        hooks.limit = patience;
        assert_eq!(hooks.restore(&nobody, &nobody), Ok(Restored::Serves));
        assert_eq!(said(), "old");
    }

    #[test]
    fn without_a_backup_nothing_is_restored() {
        let why = hooks().restore(&|| Ok(()), &|| Ok(())).unwrap_err().0;
        assert!(why.contains("there is no backup to restore"), "{why}");
    }
}
