//! The position of the store, noted outside of its data directory. If an older copy of that directory is put back, its
//! position is behind the note, and it must not serve with its old fences (traps 27 and 40).
//!
//! The note is a lower bound, written at the start, at intervals, and at the end. It only names what was durable when
//! it was written, so a crash never makes a store look older than it is.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fencepost_store::engine::Engine;
use fencepost_store::engines::Place;
use fencepost_store::{OpenError, Position, Store};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::config::without_secrets;

/// The interval at which the note is updated.
const EVERY: Duration = Duration::from_secs(10);

const FIRST_LINE: &str = "fencepost position 1";

/// The directory in which positions are noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateDir {
    /// `fencepost` in `$XDG_STATE_HOME`, or in `~/.local/state`. Nothing is noted where that cannot be written.
    #[default]
    User,
    /// This directory, which must be writable.
    At(PathBuf),
    /// No directory: positions are not noted.
    Off,
}

impl FromStr for StateDir {
    type Err = String;

    fn from_str(text: &str) -> Result<StateDir, String> {
        match text {
            "" => Err("it is empty: write a directory, `user` or `off`".to_owned()),
            "user" => Ok(StateDir::User),
            "off" => Ok(StateDir::Off),
            path => Ok(StateDir::At(path.into())),
        }
    }
}

impl fmt::Display for StateDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateDir::User => f.write_str("user"),
            StateDir::At(path) => write!(f, "{}", path.display()),
            StateDir::Off => f.write_str("off"),
        }
    }
}

impl StateDir {
    fn path(&self) -> Option<PathBuf> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match self {
            StateDir::At(path) => Some(path.clone()),
            StateDir::Off => None,
            StateDir::User => variable("XDG_STATE_HOME")
                .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
                .map(|state| state.join("fencepost")),
        }
    }
}

/// An older copy of a store was put back.
#[derive(Debug, thiserror::Error)]
#[error(
    "the store {store} is behind: it is at write {} of base generation {}, and {note} says that it was at write {} of \
     base generation {}. An older copy of the {kind} was put back, so its fences are too low, and lock holders of the \
     time since would be admitted. Run `fencepost restored --yes {option}`: it starts a generation above every one that \
     was ever used, and drops all leases. Or put the newest {kind} back",
    found.sequence, found.base_generation, noted.sequence, noted.base_generation
)]
pub struct Behind {
    /// The place of the store: `in DIRECTORY` or `on URL`.
    store: String,
    /// The kind of that place.
    kind: &'static str,
    /// The option of a command that names it.
    option: String,
    /// The note's file.
    note: String,
    /// The position of the store.
    found: Position,
    /// The position in the note.
    noted: Position,
}

/// Why a store is not served.
#[derive(Debug, thiserror::Error)]
pub enum PositionError {
    /// The store is behind its note.
    #[error(transparent)]
    Behind(Box<Behind>),
    /// The configured directory cannot be used.
    #[error(
        "the position of the store cannot be noted in {path}: {why}. Make it writable, or choose another --state-dir"
    )]
    NotWritable {
        /// The directory.
        path: String,
        /// The error of the system.
        why: String,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// The note of one store.
#[derive(Debug)]
pub struct PositionFile {
    path: PathBuf,
    /// The position in the file.
    noted: Mutex<Option<Position>>,
}

impl PositionFile {
    /// Compares the store in an engine with its note, and updates the note. `None`: nothing is noted.
    pub async fn check(
        engine: &dyn Engine,
        state_dir: &StateDir,
        place: &Place,
    ) -> Result<Option<PositionFile>, PositionError> {
        match fencepost_store::position(engine).await? {
            Some(found) => PositionFile::check_position(found, state_dir, place),
            None => Ok(None),
        }
    }

    /// Like [`PositionFile::check`], for an open store: a store that was just created had no position before.
    pub fn of_store(store: &Store, state_dir: &StateDir, place: &Place) -> Result<Option<PositionFile>, PositionError> {
        match store.position() {
            Some(found) => PositionFile::check_position(found, state_dir, place),
            None => Ok(None),
        }
    }

    fn check_position(
        found: Position,
        state_dir: &StateDir,
        place: &Place,
    ) -> Result<Option<PositionFile>, PositionError> {
        let Some(dir) = state_dir.path() else { return Ok(None) };
        let path = dir.join(format!("{}.position", hexadecimal(&found.store_id)));
        let noted = read(&path, &found.store_id);
        if let Some(noted) = noted.filter(|noted| found.is_behind(noted)) {
            let (store, option) = match place {
                Place::Directory(data) => (format!("in {}", data.display()), format!("--data {}", data.display())),
                Place::Server(url) => {
                    (format!("on {}", without_secrets(url)), format!("--engine {}", without_secrets(url)))
                }
            };
            let note = path.display().to_string();
            let behind = Behind { store, kind: kind(place), option, note, found, noted };
            return Err(PositionError::Behind(Box::new(behind)));
        }
        let file = PositionFile { path, noted: Mutex::new(noted) };
        match (file.note(found), state_dir) {
            (Ok(()), _) => Ok(Some(file)),
            (Err(error), StateDir::At(_)) => {
                Err(PositionError::NotWritable { path: dir.display().to_string(), why: error.to_string() })
            }
            (Err(error), StateDir::User | StateDir::Off) => {
                let (path, kind) = (dir.display(), kind(place));
                tracing::warn!(%path, %error, "an older copy of the {kind} would not be noticed: choose a --state-dir");
                Ok(None)
            }
        }
    }

    /// Updates the note, which never goes back. Several gateways of one store may share it.
    pub fn note(&self, position: Position) -> std::io::Result<()> {
        let mut noted = self.noted.lock();
        if noted.is_none_or(|noted| noted.is_behind(&position)) {
            let in_file = read(&self.path, &position.store_id);
            *noted = match in_file.filter(|in_file| !in_file.is_behind(&position)) {
                Some(further) => Some(further),
                None => {
                    write(&self.path, &position)?;
                    Some(position)
                }
            };
        }
        Ok(())
    }
}

/// The kind of a store's place, for messages.
fn kind(place: &Place) -> &'static str {
    match place {
        Place::Directory(_) => "data directory",
        Place::Server(_) => "database",
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The position of a store in a file. An unreadable file counts as missing and is written anew: the note is an aid, and
/// no reason to stop.
fn read(path: &Path, store_id: &[u8; 16]) -> Option<Position> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the position of the store that was noted cannot be read");
            return None;
        }
    };
    let parsed = parse(&text, store_id);
    if parsed.is_none() {
        tracing::warn!(path = %path.display(), "the position of the store that was noted makes no sense");
    }
    parsed
}

fn parse(text: &str, store_id: &[u8; 16]) -> Option<Position> {
    let mut lines = text.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
    if value("fencepost")? != "position 1" || value("store")? != hexadecimal(store_id) {
        return None;
    }
    let base_generation = value("base-generation")?.parse().ok()?;
    Some(Position { store_id: *store_id, base_generation, sequence: value("sequence")?.parse().ok()? })
}

fn write(path: &Path, position: &Position) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let Position { store_id, base_generation, sequence } = position;
    let store = hexadecimal(store_id);
    let text = format!("{FIRST_LINE}\nstore {store}\nbase-generation {base_generation}\nsequence {sequence}\n");
    let temporary = path.with_extension(format!("position.{}", std::process::id()));
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(dir)?.sync_all()
}

/// Keeps the note of an open store up to date.
pub struct PositionKeeper {
    file: Arc<PositionFile>,
    store: Weak<Store>,
    task: JoinHandle<()>,
}

impl PositionKeeper {
    /// Starts to update the note at intervals.
    pub fn start(file: PositionFile, store: &Arc<Store>) -> PositionKeeper {
        let (file, store) = (Arc::new(file), Arc::downgrade(store));
        let task = tokio::spawn(keep(file.clone(), store.clone()));
        PositionKeeper { file, store, task }
    }

    /// Stops, and notes the store's position for the last time.
    pub async fn stop(self) {
        self.task.abort();
        note(&self.file, &self.store).await;
    }
}

async fn keep(file: Arc<PositionFile>, store: Weak<Store>) {
    loop {
        tokio::time::sleep(EVERY).await;
        if note(&file, &store).await.is_none() {
            return;
        }
    }
}

/// `None`: the store is closed.
async fn note(file: &Arc<PositionFile>, store: &Weak<Store>) -> Option<()> {
    // It is unknown while the base generation changes: then the next time will do.
    let Some(position) = store.upgrade()?.position() else { return Some(()) };
    let writer = file.clone();
    match tokio::task::spawn_blocking(move || writer.note(position)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(path = %file.path.display(), %error, "the position of the store cannot be noted");
        }
        Err(error) => tracing::warn!(%error, "the position of the store was not noted"),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use fencepost_remote::ServerUrl;

    use super::*;

    fn at(base_generation: u32, sequence: u64) -> Position {
        Position { store_id: [7; 16], base_generation, sequence }
    }

    fn in_directory() -> Place {
        Place::Directory("data".into())
    }

    #[test]
    fn a_note_says_what_was_written_and_never_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::At(dir.path().join("state"));
        let check = |position| PositionFile::check_position(position, &state, &in_directory());
        let file = check(at(0, 5)).unwrap().unwrap();
        assert_eq!(read(&file.path, &[7; 16]), Some(at(0, 5)));
        file.note(at(0, 9)).unwrap();
        file.note(at(0, 6)).unwrap();
        assert_eq!(read(&file.path, &[7; 16]), Some(at(0, 9)));
        assert!(check(at(0, 9)).is_ok(), "as far as it was");
        let said = check(at(0, 8)).unwrap_err().to_string();
        assert!(said.contains("fencepost restored --yes --data data") && said.contains("write 8"), "{said}");
        assert!(check(at(3, 2)).is_ok(), "a restore is ahead of whatever was before");
        assert!(matches!(check(at(0, 99)), Err(PositionError::Behind(_))), "and that is behind from then on");
    }

    #[test]
    fn a_store_on_a_server_is_named_without_its_password() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::At(dir.path().to_owned());
        let url = ServerUrl::parse("postgres://bob:hunter2@db/app?schema=orders&password=hunter2").unwrap();
        let check = |position| PositionFile::check_position(position, &state, &Place::Server(url.clone()));
        check(at(0, 5)).unwrap();
        let said = check(at(0, 4)).unwrap_err().to_string();
        let store = "postgres://bob:…@db/app?schema=orders";
        assert!(said.contains(&format!("the store on {store} is behind")), "{said}");
        assert!(said.contains(&format!("fencepost restored --yes --engine {store}`")), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn a_note_that_cannot_be_read_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::At(dir.path().to_owned());
        let path = dir.path().join(format!("{}.position", hexadecimal(&[7; 16])));
        for text in ["", "fencepost position 2\n", "fencepost position 1\nstore 00\nbase-generation 0\nsequence 9\n"] {
            fs::write(&path, text).unwrap();
            assert!(PositionFile::check_position(at(0, 5), &state, &in_directory()).unwrap().is_some());
            assert_eq!(read(&path, &[7; 16]), Some(at(0, 5)), "{text:?}");
        }
    }

    #[test]
    fn a_directory_that_was_asked_for_must_be_writable() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let state = StateDir::At(dir.path().join("file"));
        let error = PositionFile::check_position(at(0, 5), &state, &in_directory()).unwrap_err();
        assert!(matches!(error, PositionError::NotWritable { .. }), "{error}");
        assert!(PositionFile::check_position(at(0, 5), &StateDir::Off, &in_directory()).unwrap().is_none());
    }

    #[test]
    fn settings() {
        for (text, parsed) in
            [("user", StateDir::User), ("off", StateDir::Off), ("/x/off", StateDir::At("/x/off".into()))]
        {
            assert_eq!(text.parse(), Ok(parsed.clone()));
            assert_eq!(parsed.to_string(), text);
        }
        assert!("".parse::<StateDir>().is_err());
    }
}
