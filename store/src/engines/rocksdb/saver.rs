//! Saves committed records to RocksDB, on a thread of its own.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rocksdb::{ErrorKind, FlushOptions};

use super::Shared;
use crate::engine::{EngineError, Record};
use crate::engines::bodies;
use crate::record::RecordKey;

/// Records are written to RocksDB in batches of about this many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// The thread that saves.
pub(super) struct Saver {
    shared: Arc<Shared>,
    wishes: Arc<Wishes>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is to do next.
#[derive(Default)]
struct Wishes {
    state: Mutex<Wished>,
    changed: Condvar,
}

#[derive(Default)]
struct Wished {
    save: bool,
    /// Also bring it into tables, so that the journal's files can be written over.
    flush: bool,
    end: bool,
}

impl Saver {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Saver> {
        let wishes = Arc::<Wishes>::default();
        let (of_thread, wished) = (shared.clone(), wishes.clone());
        let thread = std::thread::Builder::new().name("fp-saver".into()).spawn(move || run(&of_thread, &wished))?;
        Ok(Saver { shared, wishes, thread: Some(thread) })
    }

    /// Saves soon.
    pub(super) fn wake(&self) {
        self.wish(|wished| wished.save = true);
    }

    /// Saves soon, and brings everything into tables.
    pub(super) fn flush(&self) {
        self.wish(|wished| wished.flush = true);
    }

    fn wish(&self, wish: impl FnOnce(&mut Wished)) {
        wish(&mut self.wishes.state.lock());
        self.wishes.changed.notify_one();
    }
}

impl Drop for Saver {
    /// What is not saved is in the journal. Waits for a batch that is being written, but not for a stall to end.
    fn drop(&mut self) {
        self.shared.tables.close();
        self.wish(|wished| wished.end = true);
        // A panic of the thread was reported by the thread.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Wishes {
    /// Waits for the next wish: whether everything is to be brought into tables. `None`: the thread is to end.
    fn next(&self) -> Option<bool> {
        let mut wished = self.state.lock();
        while !(wished.save || wished.flush || wished.end) {
            self.changed.wait(&mut wished);
        }
        let Wished { flush, end, .. } = std::mem::take(&mut *wished);
        (!end).then_some(flush)
    }
}

fn run(shared: &Shared, wishes: &Wishes) {
    let _unexpected = FailedIfPanicking(shared);
    while let Some(flush) = wishes.next() {
        if shared.save().is_ok() && flush {
            shared.flush_soon();
        }
    }
}

/// Stops commits if the thread panics. Otherwise they would wait for it for ever once the memory for them is full.
pub(super) struct FailedIfPanicking<'s>(pub(super) &'s Shared);

impl Drop for FailedIfPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed_save.lock().get_or_insert("the thread that saves records ended unexpectedly".into());
        }
    }
}

impl Shared {
    /// Has RocksDB bring what it has into tables, in the background. While it is doing that already, it would wait here; then a
    /// flush is wished for again with the journal's next file.
    pub(super) fn flush_soon(&self) {
        if self.tables.is_flushing() || self.tables.is_closing() {
            return;
        }
        let mut flush = FlushOptions::default();
        flush.set_wait(false);
        match self.tables.db.flush_opt(&flush) {
            Ok(()) => {}
            // RocksDB is stalled, so it is flushing or merging already.
            Err(error) if error.kind() == ErrorKind::TryAgain => {}
            // A flush that fails later is a background error, which stops commits.
            Err(error) => self.fail(format!("RocksDB cannot be flushed: {error}")),
        }
    }

    fn fail(&self, why: String) {
        if !self.tables.is_closing() {
            self.failed_save.lock().get_or_insert(why);
        }
    }

    /// Writes to RocksDB what it does not have yet. After a failure, the records stay in memory.
    pub(super) fn save(&self) -> Result<(), EngineError> {
        let _one_at_a_time = self.saving.lock();
        let Some(leaving) = self.recent.leave() else { return Ok(()) };
        let saved = self.write(&leaving.sorted()).and_then(|()| self.tables.reach(leaving.last));
        match &saved {
            Ok(()) => self.recent.left(leaving),
            Err(EngineError(why)) => self.fail(format!("committed records cannot be saved to tables: {why}")),
        }
        saved
    }

    pub(super) fn write(&self, records: &[(&RecordKey, &Option<Record>)]) -> Result<(), EngineError> {
        let mut rest = records;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(key, record)| {
                let before = bytes;
                bytes += key.as_bytes().len() + record.as_ref().map_or(0, |record| record.size);
                before < BATCH_BYTES
            });
            let (batch, later) = rest.split_at(fits.count());
            let changes =
                batch.iter().map(|(key, record)| (*key, record.as_ref().map(|record| (record.version, &record.bytes))));
            let written = bodies::write_batch(changes, |key| self.tables.may_have_body(key));
            self.tables.write(written.batch.data())?;
            rest = later;
        }
        Ok(())
    }
}
