//! A disk that survives, and processes on it that do not: a crash, a pause and a recovery without a real process.
//!
//! Every step of an operation checks whether its process is still alive. After a kill it is not, so the operation has
//! no further effect and its answer is never sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::record::Record;
use crate::random::Random;
use crate::subject::{Shift, Steps};
use crate::wait;

/// How long an operation waits for a lock or for a paused process before its client gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long two batches wait for each other before both clients give up.
const DEADLOCK: Duration = Duration::from_millis(300);

/// How long a step is held while the steps are watched.
const HELD: Duration = Duration::from_millis(3);

/// The process was killed, or the client gave up waiting; the text states which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone(pub(super) &'static str);

const KILLED: Gone = Gone("the process was killed");

pub(super) struct Store {
    state: Mutex<State>,
    changed: Condvar,
    watched: Arc<Watched>,
    /// When the correct clock was at zero.
    began: Instant,
}

/// Counts the steps of the processes while they are watched.
#[derive(Default)]
struct Watched {
    by: AtomicU64,
    made: AtomicU64,
}

/// A watcher of the steps. Dropping it ends the watch.
pub(super) struct Watching(Arc<Watched>);

impl Steps for Watching {
    fn made(&self) -> u64 {
        self.0.made.load(Ordering::Acquire)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.by.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Default)]
pub(super) struct State {
    /// The number of the process's current life.
    life: u64,
    down: bool,
    paused: bool,
    /// The resources that operations hold locked.
    locked: BTreeSet<String>,
    /// The data that survives a kill.
    pub(super) disk: BTreeMap<String, Record>,
    /// The data that does not survive, by instance.
    pub(super) memory: Vec<BTreeMap<String, Record>>,
    /// The number of waiting threads. Notifying costs a system call even if none waits.
    waiting: u64,
    /// The data that a recovery has moved away from the disk.
    recovering: Option<BTreeMap<String, Record>>,
    /// Names in the order of their use, the latest last.
    pub(super) recent: Vec<String>,
    /// How far the clock is off.
    shift: Shift,
    /// The last backup.
    backup: BTreeMap<String, Record>,
}

impl Store {
    pub(super) fn new(instances: usize) -> Store {
        let state = State { memory: vec![BTreeMap::new(); instances.max(1)], ..State::default() };
        let (changed, watched, began) = (Condvar::new(), Arc::default(), Instant::now());
        Store { state: Mutex::new(state), changed, watched, began }
    }

    /// Watches the steps from now on.
    pub(super) fn watch(&self) -> Watching {
        self.watched.made.store(0, Ordering::Release);
        self.watched.by.fetch_add(1, Ordering::AcqRel);
        Watching(self.watched.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The current life of the process: every end begins another one.
    pub(super) fn life(&self) -> u64 {
        self.state().life
    }

    /// Begins an operation in a process. With `life`, it fails unless that life is the current one.
    pub(super) fn enter(&self, instance: usize, random: Random, life: Option<u64>) -> Result<Visit<'_>, Gone> {
        let mut state = self.state();
        if life.is_some_and(|life| life != state.life) {
            return Err(KILLED);
        }
        state.recovered();
        if state.down {
            return Err(Gone("the process is not running"));
        }
        let instance = instance % state.memory.len();
        Ok(Visit { store: self, life: state.life, instance, random, patience: PATIENCE })
    }

    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.end();
        state.down = true;
        state.recovering = None;
        self.changed.notify_all();
    }

    /// Starts a process that is down. `fragile`: its data is moved away until it has recovered.
    pub(super) fn start(&self, fragile: bool) {
        let mut state = self.state();
        if state.down {
            state.down = false;
            state.recovering = fragile.then(|| std::mem::take(&mut state.disk));
        }
    }

    /// Stops the process gracefully and starts it again. With `flush`, the data in memory is stored first.
    pub(super) fn restart(&self, flush: bool) {
        let mut state = self.state();
        if !state.down && flush {
            let waiting: Vec<_> = state.memory.iter_mut().flat_map(std::mem::take).collect();
            state.disk.extend(waiting);
        }
        state.end();
        state.down = false;
        state.recovered();
        self.changed.notify_all();
    }

    pub(super) fn pause(&self) {
        self.state().paused = true;
    }

    pub(super) fn resume(&self) {
        self.state().paused = false;
        self.changed.notify_all();
    }

    pub(super) fn set_clock(&self, shift: Shift) {
        self.state().shift = shift;
    }

    /// Backs up the disk; `keep` selects what is kept of each record.
    pub(super) fn back_up(&self, keep: impl Fn(&Record) -> Record) {
        let mut state = self.state();
        state.backup = state.disk.iter().map(|(name, record)| (name.clone(), keep(record))).collect();
    }

    /// Restores the backup: `merge` gets the record of the backup and the current one.
    pub(super) fn restore(&self, merge: impl Fn(&Record, &Record) -> Record) {
        let mut state = self.state();
        let none = Record::default();
        let names: BTreeSet<String> = state.backup.keys().chain(state.disk.keys()).cloned().collect();
        let record =
            |name: &String| merge(state.backup.get(name).unwrap_or(&none), state.disk.get(name).unwrap_or(&none));
        let disk = names.iter().map(|name| (name.clone(), record(name))).collect();
        state.end();
        state.disk = disk;
        state.down = false;
        self.changed.notify_all();
    }

    pub(super) fn reset(&self) {
        let mut state = self.state();
        let life = state.life + 1;
        let (instances, waiting) = (state.memory.len(), state.waiting);
        *state = State { life, waiting, memory: vec![BTreeMap::new(); instances], ..State::default() };
        self.changed.notify_all();
    }
}

impl State {
    fn end(&mut self) {
        self.life += 1;
        self.paused = false;
        self.locked.clear();
        self.memory.iter_mut().for_each(BTreeMap::clear);
    }

    fn recovered(&mut self) {
        if let Some(data) = self.recovering.take() {
            self.disk = data;
        }
    }
}

/// One operation in one process.
pub(super) struct Visit<'s> {
    store: &'s Store,
    life: u64,
    instance: usize,
    random: Random,
    patience: Duration,
}

impl<'s> Visit<'s> {
    /// The state, once the process is not paused; an error if it was killed.
    fn state(&self) -> Result<MutexGuard<'s, State>, Gone> {
        self.state_when(|state| !state.paused, "the process did not answer in time")
    }

    fn state_when(
        &self,
        ready: impl Fn(&State) -> bool,
        otherwise: &'static str,
    ) -> Result<MutexGuard<'s, State>, Gone> {
        let deadline = Instant::now() + self.patience;
        let mut state = self.store.state();
        loop {
            if state.life != self.life {
                return Err(KILLED);
            }
            if !state.paused && ready(&state) {
                return Ok(state);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Gone(otherwise));
            }
            state.waiting += 1;
            self.store.changed.wait_for(&mut state, left);
            state.waiting -= 1;
        }
    }

    /// Sometimes lets other threads get ahead, where real code is interrupted.
    pub(super) fn breathe(&mut self) {
        match self.random.below(8) {
            0..=3 => {}
            4..=6 => std::thread::yield_now(),
            _ => wait::pause(Duration::from_micros(20 + self.random.below(150))),
        }
    }

    /// Takes the time of a disk sync: mostly short, sometimes long.
    pub(super) fn sync(&mut self) {
        match self.random.below(8) {
            0..=5 => std::thread::yield_now(),
            6 => wait::pause(Duration::from_micros(100)),
            _ => wait::pause(Duration::from_micros(500 + self.random.below(1000))),
        }
    }

    /// The time of its clock, in seconds.
    pub(super) fn now(&self) -> Result<i64, Gone> {
        let passed = i64::try_from(self.store.began.elapsed().as_secs()).unwrap_or(i64::MAX);
        Ok(passed.saturating_add(self.state()?.shift.0))
    }

    /// True once in `many` on average.
    pub(super) fn one_of(&mut self, many: u64) -> bool {
        self.random.below(many) == 0
    }

    /// Fails if the process is dead. Checked before an answer is sent.
    pub(super) fn alive(&self) -> Result<(), Gone> {
        self.state().map(drop)
    }

    /// Reads or changes the disk and the memory of this process in one step.
    pub(super) fn with<T>(
        &self,
        look: impl FnOnce(&mut BTreeMap<String, Record>, &mut BTreeMap<String, Record>) -> T,
    ) -> Result<T, Gone> {
        let mut state = self.state()?;
        let State { disk, memory, .. } = &mut *state;
        Ok(look(disk, &mut memory[self.instance]))
    }

    /// Counts and holds a step, before an effect that others can see.
    pub(super) fn step(&self) {
        let Watched { by, made } = &*self.store.watched;
        if by.load(Ordering::Acquire) > 0 {
            made.fetch_add(1, Ordering::AcqRel);
            wait::pause(HELD);
        }
    }

    /// Stores records in one step.
    pub(super) fn put(&self, changes: impl IntoIterator<Item = (String, Record)>) -> Result<(), Gone> {
        self.step();
        self.with(|disk, _| disk.extend(changes))
    }

    /// Marks a resource as used last. Drops the oldest fence beyond `most`, if `needless` allows it.
    pub(super) fn evict(&self, res: &str, most: usize, needless: impl Fn(&Record) -> bool) -> Result<(), Gone> {
        let mut state = self.state()?;
        state.recent.retain(|name| name != res);
        state.recent.push(res.to_owned());
        if state.recent.len() > most {
            let oldest = state.recent.remove(0);
            if let Some(record) = state.disk.get_mut(&oldest).filter(|record| needless(record)) {
                *record = Record { value: record.value.take(), ..Record::default() };
            }
        }
        Ok(())
    }

    /// Waits until all of these resources are unlocked, and locks them.
    pub(super) fn lock(&self, names: &BTreeSet<String>) -> Result<Rows<'s>, Gone> {
        let free = |state: &State| state.locked.is_disjoint(names);
        let mut state = self.state_when(free, "the wait for a lock took too long")?;
        state.locked.extend(names.iter().cloned());
        Ok(Rows { store: self.store, life: self.life, names: names.clone() })
    }

    /// Locks a resource if it is unlocked.
    pub(super) fn try_lock(&self, name: &str) -> Result<Option<Rows<'s>>, Gone> {
        let mut state = self.state()?;
        let taken = state.locked.insert(name.to_owned());
        Ok(taken.then(|| Rows { store: self.store, life: self.life, names: BTreeSet::from([name.to_owned()]) }))
    }

    /// Locks resources one after the other, in this order.
    pub(super) fn lock_in_order(&mut self, names: &[String]) -> Result<Vec<Rows<'s>>, Gone> {
        let mut held: Vec<Rows<'s>> = Vec::new();
        self.patience = DEADLOCK;
        for name in names {
            if !held.iter().any(|rows| rows.names.contains(name)) {
                held.push(self.lock(&BTreeSet::from([name.clone()]))?);
                self.breathe();
            }
        }
        self.patience = PATIENCE;
        Ok(held)
    }
}

/// Resources locked by one operation. Dropping it unlocks them.
pub(super) struct Rows<'s> {
    store: &'s Store,
    life: u64,
    names: BTreeSet<String>,
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state();
        // A kill released these locks; any lock held now belongs to another operation.
        if state.life == self.life {
            state.locked.retain(|name| !self.names.contains(name));
            if state.waiting > 0 {
                self.store.changed.notify_all();
            }
        }
    }
}
