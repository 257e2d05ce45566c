//! The clock of the resource, and its backups. No request is in flight meanwhile.

use super::{Ended, Trial};
use crate::history::Event;
use crate::subject::{BackedUp, Hook, Restored, Shift};

/// The clock of the resource. However a case ends, dropping this corrects the clock.
pub struct Clock<'t, 'a> {
    trial: &'t Trial<'a>,
    /// The clock was never set, or is right and the resource was restarted since: some read their clock only at a
    /// start.
    right: bool,
}

impl Clock<'_, '_> {
    /// Sets the clock while the process runs.
    pub fn set(&mut self, shift: Shift) -> Result<(), Ended> {
        self.trial.go_on()?;
        let _closed = self.trial.gate.close()?;
        // A hook that fails may have set it nevertheless.
        self.right = false;
        self.trial.subject.hook(Hook::Clock(shift))?;
        self.trial.mark(self.trial.now(), Event::Clock(shift));
        Ok(())
    }

    /// Records that the clock was corrected and the resource restarted since.
    pub fn put_right(mut self) {
        self.right = true;
    }
}

impl Drop for Clock<'_, '_> {
    fn drop(&mut self) {
        if !self.right {
            let subject = self.trial.subject;
            if let Err(why) = subject.hook(Hook::Clock(Shift::NONE)) {
                eprintln!(
                    "The clock of the resource was set wrong by {}, and could not be set right again: {why}",
                    self.trial.case.id
                );
            }
            // The case has ended already, and has reported why.
            let _ = subject.hook(Hook::Restart);
        }
    }
}

impl<'a> Trial<'a> {
    /// The clock of the resource, which is right at first.
    pub fn clock(&self) -> Clock<'_, 'a> {
        Clock { trial: self, right: true }
    }

    /// Takes a backup.
    pub fn back_up(&self) -> Result<BackedUp, Ended> {
        self.go_on()?;
        let _closed = self.gate.close()?;
        Ok(self.subject.back_up()?)
    }

    /// Restores the backup. From then on a case must use `ask`: the resource went back, and no order of operations
    /// explains that.
    pub fn restore(&self) -> Result<Restored, Ended> {
        self.go_on()?;
        let _closed = self.gate.close()?;
        Ok(self.subject.restore()?)
    }
}
