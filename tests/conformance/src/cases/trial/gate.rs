//! Tracks calls in flight, and keeps new ones out while the process is down.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::cases::Ended;
use crate::subject::Broken;

/// Calls and hooks have time limits of their own; one that takes longer than this has none.
const LONGEST: Duration = Duration::from_secs(180);

#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: bool,
    /// The process is being ended, or is not back yet.
    down: bool,
    /// How often the process was ended.
    kills: u64,
    inside: u64,
    entered: u64,
    /// The number of waiting threads. Notifying costs the same if none waits, and calls come and go often.
    waiting: u64,
}

/// A call that is in flight.
pub(super) struct Inside<'g> {
    gate: &'g Gate,
    kills: u64,
}

/// Keeps new calls out while it exists.
pub(super) struct Closed<'g>(&'g Gate);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until `ready`, at most until the deadline.
    fn wait(&self, deadline: Instant, ready: impl Fn(&State) -> bool) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while !ready(&state) {
            let left = deadline.checked_duration_since(Instant::now())?;
            state.waiting += 1;
            self.changed.wait_for(&mut state, left);
            state.waiting -= 1;
        }
        Some(state)
    }

    /// Notifies the waiting threads of a change.
    fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn wait_long(&self, what: &str, ready: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, Ended> {
        let found = self.wait(Instant::now() + LONGEST, ready);
        found.ok_or_else(|| Ended::Broken(Broken(format!("{what} after {} s; give it a limit", LONGEST.as_secs()))))
    }

    /// Admits one call, once the process is up.
    pub(super) fn enter(&self) -> Result<Inside<'_>, Ended> {
        let mut state = self.open()?;
        Ok(self.admit(&mut state))
    }

    /// Admits this many calls, all or none.
    pub(super) fn enter_all(&self, count: usize) -> Result<Vec<Inside<'_>>, Ended> {
        let mut state = self.open()?;
        Ok((0..count).map(|_| self.admit(&mut state)).collect())
    }

    fn open(&self) -> Result<MutexGuard<'_, State>, Ended> {
        self.wait_long("the resource has not been started again", |state| !state.closed)
    }

    fn admit(&self, state: &mut State) -> Inside<'_> {
        state.inside += 1;
        state.entered += 1;
        self.tell(state);
        Inside { gate: self, kills: state.kills }
    }

    /// How many calls were admitted so far.
    pub(super) fn entered(&self) -> u64 {
        self.lock().entered
    }

    /// Waits until this many calls were admitted and one of them is in flight. `false`: the limit passed.
    pub(super) fn wait_for_flight(&self, entered: u64, limit: Duration) -> bool {
        self.wait(Instant::now() + limit, |state| state.entered >= entered && state.inside > 0).is_some()
    }

    /// The process is about to be ended: errors from now on are caused by that.
    pub(super) fn ending(&self) {
        let mut state = self.lock();
        state.kills += 1;
        state.down = true;
    }

    /// Keeps new calls out and waits for those in flight.
    pub(super) fn close(&self) -> Result<Closed<'_>, Ended> {
        self.wait_long("another hook has not come back", |state| !state.closed)?.closed = true;
        let closed = Closed(self);
        drop(self.wait_long("calls have not come back", |state| state.inside == 0)?);
        Ok(closed)
    }

    /// Waits until the process is back.
    pub(super) fn settle(&self) -> Result<(), Ended> {
        self.wait_long("the resource has not been started again", |state| !state.down).map(drop)
    }

    /// The process is back, or will not be brought back.
    pub(super) fn settled(&self) {
        let mut state = self.lock();
        state.down = false;
        self.tell(&state);
    }
}

impl Inside<'_> {
    /// Whether the process was ended after this call was admitted, or is down.
    pub(super) fn was_hit(&self) -> bool {
        let state = self.gate.lock();
        state.down || state.kills != self.kills
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.inside -= 1;
        self.gate.tell(&state);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = false;
        self.0.tell(&state);
    }
}
