//! The clock of the resource, and its backups. Nothing is in flight meanwhile.

use std::sync::atomic::Ordering;

use super::{Ended, Trial};
use crate::answer::Answer;
use crate::history::Event;
use crate::op::Op;
use crate::subject::{Hook, Restored, Route, Shift};

/// Numbers of requests that are not written down begin here.
const NOT_WRITTEN_DOWN: u64 = 1_000_000;

/// The clock of the resource. However a case ends, it is right again when this goes.
pub struct Clock<'t, 'a> {
    trial: &'t Trial<'a>,
    right: bool,
}

impl Clock<'_, '_> {
    /// Sets it while the process runs.
    pub fn set(&mut self, shift: Shift) -> Result<(), Ended> {
        self.trial.go_on()?;
        let _closed = self.trial.gate.close()?;
        // Also a hook that fails may have set it.
        self.right = false;
        self.trial.subject.hook(Hook::Clock(shift))?;
        self.right = shift == Shift::NONE;
        self.trial.mark(self.trial.now(), Event::Clock(shift));
        Ok(())
    }
}

impl Drop for Clock<'_, '_> {
    fn drop(&mut self) {
        if !self.right {
            let subject = self.trial.subject;
            // Some see their clock only when they start. The case has ended already, and says why.
            let _ = subject.hook(Hook::Clock(Shift::NONE)).and_then(|()| subject.hook(Hook::Restart));
        }
    }
}

impl<'a> Trial<'a> {
    /// The clock of the resource, which is right.
    pub fn clock(&self) -> Clock<'_, 'a> {
        Clock { trial: self, right: true }
    }

    /// Takes a backup.
    pub fn back_up(&self) -> Result<(), Ended> {
        self.go_on()?;
        let _closed = self.gate.close()?;
        Ok(self.subject.hook(Hook::Backup)?)
    }

    /// Puts it back. From then on a case must `ask`: the resource went back, and no order of operations explains that.
    pub fn restore(&self) -> Result<Restored, Ended> {
        self.go_on()?;
        let _closed = self.gate.close()?;
        Ok(self.subject.restore()?)
    }

    /// Makes a request that is not written down, and has a number of its own all the same.
    pub fn ask(&self, client: u32, op: &Op) -> Result<Answer, Ended> {
        let _inside = self.enter()?;
        let id = NOT_WRITTEN_DOWN + self.names.fetch_add(1, Ordering::Relaxed);
        let answer = self.subject.call(&self.request(id, client, Route::Direct, op))?;
        self.heard(&answer)?;
        Ok(answer)
    }
}
