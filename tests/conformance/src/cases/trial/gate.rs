//! Who is in flight: calls go in and out, and whoever ends the process keeps new ones out until it is back.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cases::Ended;
use crate::subject::Broken;

/// Calls and hooks have limits of their own; one that takes longer than this has none.
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
    /// How often it was ended.
    kills: u64,
    inside: u64,
    entered: u64,
    /// How many wait for a change. To wake nobody costs as much as to wake somebody, and calls come and go often.
    waiting: u64,
}

/// Some calls that are in flight.
pub(super) struct Inside<'g> {
    gate: &'g Gate,
    kills: u64,
}

/// Nobody gets in while this lives.
pub(super) struct Closed<'g>(&'g Gate);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `ready`, at most until the deadline.
    fn wait(&self, deadline: Instant, ready: impl Fn(&State) -> bool) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while !ready(&state) {
            let left = deadline.checked_duration_since(Instant::now())?;
            state.waiting += 1;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        Some(state)
    }

    /// Tells those who wait that something is different.
    fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn wait_long(&self, what: &str, ready: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, Ended> {
        let found = self.wait(Instant::now() + LONGEST, ready);
        found.ok_or_else(|| Ended::Broken(Broken(format!("{what} after {} s; give it a limit", LONGEST.as_secs()))))
    }

    /// One call more, as soon as the process is there.
    pub(super) fn enter(&self) -> Result<Inside<'_>, Ended> {
        let mut state = self.open()?;
        Ok(self.admit(&mut state))
    }

    /// So many calls more, all or none.
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

    /// How many calls went in so far.
    pub(super) fn entered(&self) -> u64 {
        self.lock().entered
    }

    /// Waits until so many calls went in and one of them is in flight. `false`: in vain.
    pub(super) fn wait_for_flight(&self, entered: u64, limit: Duration) -> bool {
        self.wait(Instant::now() + limit, |state| state.entered >= entered && state.inside > 0).is_some()
    }

    /// The process is about to be ended: what fails from now on fails because of that.
    pub(super) fn ending(&self) {
        let mut state = self.lock();
        state.kills += 1;
        state.down = true;
    }

    /// Keeps new calls out and waits for those that are inside.
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

    /// The process is back, or nobody will bring it back.
    pub(super) fn settled(&self) {
        let mut state = self.lock();
        state.down = false;
        self.tell(&state);
    }
}

impl Inside<'_> {
    /// Was the process ended since it went in, or before, and is not back?
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
