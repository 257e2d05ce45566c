//! The data directory of an embedded database: its owner, its format, and how far it was committed.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::EngineOpenError;

const MARKER: &str = "FENCEPOST";
const MARKER_TEXT: &str = "fencepost store, format ";

/// The format of the directory that this version writes, and the newest that it reads. Format 1 had its commits in
/// RocksDB's log, format 2 has them in the journal.
const FORMAT: u32 = 2;

/// A directory that this process owns until it is dropped.
pub(crate) struct DataDir {
    path: PathBuf,
    // Holds the lock. The system releases it when the process ends, even after a crash.
    _lock: File,
    /// The format of the database in it; `None` if there is none yet.
    format: Option<u32>,
}

impl DataDir {
    /// Locks the directory, creating it if needed, and checks its format before anything in it is changed.
    pub(crate) fn take(path: &Path) -> Result<DataDir, EngineOpenError> {
        let failed = |why: std::io::Error| EngineOpenError::Directory { path: shown(path), why: why.to_string() };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let mut lock = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join("LOCK"))
            .map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // The pid only improves the message; the error is reported without it too.
            let _ = lock.read_to_string(&mut pid);
            let pid = pid.trim().parse::<u32>().map(|pid| format!(" (process {pid})")).unwrap_or_default();
            return Err(EngineOpenError::InUse { path: shown(path), pid });
        }
        let format = read_marker(path)?;
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed)?;
        Ok(DataDir { path: path.to_owned(), _lock: lock, format })
    }

    /// Returns whether a database was created here before. If so, a missing one is damage, not a first start.
    pub(crate) fn is_marked(&self) -> bool {
        self.format.is_some()
    }

    /// Returns whether the database here has its commits in RocksDB's log.
    pub(crate) fn is_of_format_1(&self) -> bool {
        self.format == Some(1)
    }

    /// Records durably that a database of the current format exists here.
    pub(crate) fn mark(&self) -> Result<(), EngineOpenError> {
        if self.format == Some(FORMAT) {
            return Ok(());
        }
        self.write_marker().map_err(|why| EngineOpenError::Directory { path: self.shown(), why: why.to_string() })
    }

    fn write_marker(&self) -> std::io::Result<()> {
        let temporary = self.path.join("FENCEPOST.new");
        let mut file = File::create(&temporary)?;
        file.write_all(format!("{MARKER_TEXT}{FORMAT}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, self.path.join(MARKER))?;
        File::open(&self.path)?.sync_all()?;
        // The directory itself may be new as well.
        match self.path.canonicalize()?.parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn shown(&self) -> String {
        shown(&self.path)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn read_marker(path: &Path) -> Result<Option<u32>, EngineOpenError> {
    let text = match fs::read_to_string(path.join(MARKER)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EngineOpenError::Directory { path: shown(path), why: error.to_string() }),
    };
    let format = text.strip_prefix(MARKER_TEXT).and_then(|rest| rest.trim_end().parse::<u32>().ok());
    match format {
        Some(format) if format > FORMAT => {
            Err(EngineOpenError::NewerFormat { path: shown(path), found: format, known: FORMAT })
        }
        Some(format) => Ok(Some(format)),
        None => Err(EngineOpenError::Damaged { path: shown(path), why: format!("its {MARKER} file cannot be read") }),
    }
}

const MARK_MAGIC: &[u8; 8] = b"FPMARK01";
const MARK_BYTES: usize = 24;

/// A lower bound of what was committed, stored beside the database.
///
/// It is written after each commit and not synced, so it costs no fsync. After a crash of the process it is exact,
/// after a power cut it may be too low, and it is never too high. A database that recovers to less than the mark has
/// lost acknowledged writes (a truncated log looks like one that was never written), and must not serve.
pub(crate) struct CommittedMark(File);

impl CommittedMark {
    pub(crate) fn open(dir: &DataDir) -> std::io::Result<CommittedMark> {
        let path = dir.path().join("committed");
        OpenOptions::new().create(true).read(true).write(true).truncate(false).mode(0o600).open(path).map(CommittedMark)
    }

    /// The mark; `None` if it was never set or cannot be read.
    pub(crate) fn get(&self) -> Option<u64> {
        let mut bytes = [0; MARK_BYTES];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        let number = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        (bytes == Self::encode(number)).then_some(number)
    }

    pub(crate) fn set(&self, number: u64) -> std::io::Result<()> {
        self.0.write_all_at(&Self::encode(number), 0)
    }

    fn encode(number: u64) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(MARK_MAGIC);
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..].copy_from_slice(&(!number).to_le_bytes());
        bytes
    }
}
