//! Acknowledged writes to a store in a directory, and a check that none of them is lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use fencepost_store::Store;
use fencepost_store::engines::{EngineOpenError, EngineOptions};
use tempfile::TempDir;

use super::directory::{self, NotOpened};
use super::{applied, body, delete, held, journal_format, key, put};

/// What the store acknowledged: the fence and value of each key (`None`: deleted).
#[derive(Clone, Default)]
pub(crate) struct History {
    answered: BTreeMap<String, (u64, Option<String>)>,
    token: u64,
}

/// The result of examining a damaged directory. Anything worse is a panic.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It did not open, for this reason.
    Refused(String),
    /// Every acknowledged fence and value is there.
    Intact,
    /// It opened. Some reads fail with an error, and the rest is correct.
    ReadErrors(usize),
}

impl History {
    /// Writes under growing tokens. Every other key is new in each round, so that losing any round shows, and every
    /// seventh is deleted.
    pub(crate) async fn write(&mut self, store: &Store, keys: usize, bytes: usize) {
        for n in 0..keys {
            self.token += 1;
            let name = if n % 2 == 0 { format!("orders/{n}") } else { format!("orders/{n}/{}", self.token) };
            let token = held(&self.token.to_string(), &format!("worker#{}", self.token));
            let text = (n % 7 != 6).then(|| format!("{}:{}", self.token, "v".repeat(bytes)));
            match &text {
                Some(text) => applied(put(store, &name, token, text).await),
                None => applied(delete(store, &name, token).await),
            };
            self.answered.insert(name, (self.token, text));
        }
    }

    /// The key of the last write, and its token.
    pub(crate) fn newest(&self) -> (&str, u64) {
        let (name, (token, _)) = self.answered.iter().max_by_key(|(_, (token, _))| *token).unwrap();
        (name, *token)
    }

    /// Compares everything that was acknowledged. An error describes a broken promise.
    pub(crate) async fn compare(&self, store: &Store) -> Result<Seen, String> {
        let mut errors = 0;
        for (name, (token, text)) in &self.answered {
            let Ok(read) = store.read(&key(name), None).await else {
                errors += 1;
                continue;
            };
            let read = read.unwrap();
            let found = read.state.token().map(|token| token.to_string());
            if found != Some(token.to_string()) {
                return Err(format!("the fence of {name} is {found:?}, but {token} was answered"));
            }
            let value = read.value.map(|(_, value)| body(&value));
            if value != *text {
                return Err(format!("{name} holds {value:?}, but {text:?} was answered"));
            }
        }
        self.compare_list(store).await?;
        self.compare_stale_writes(store).await?;
        Ok(if errors == 0 { Seen::Intact } else { Seen::ReadErrors(errors) })
    }

    /// A list is complete, or an error.
    async fn compare_list(&self, store: &Store) -> Result<(), String> {
        let Ok(page) = store.fences("", None, usize::MAX).await else { return Ok(()) };
        let listed: Vec<&str> = page.entries.iter().map(|(resource, _)| resource.as_str()).collect();
        let missing = self.answered.keys().find(|name| !listed.contains(&name.as_str()));
        missing.map_or(Ok(()), |name| Err(format!("the fence of {name} is missing in the list")))
    }

    /// Unreadable is not treated as absent: token 1 is stale for all but the very first key.
    async fn compare_stale_writes(&self, store: &Store) -> Result<(), String> {
        for (name, (token, _)) in self.answered.iter().filter(|(_, (token, _))| *token > 1) {
            if let Ok(super::Outcome::Applied(_)) = put(store, name, super::token("1"), "from a zombie").await {
                return Err(format!("token 1 was applied to {name}, whose fence is {token}"));
            }
        }
        Ok(())
    }

    /// Opens a directory and compares. Panics if a promise was broken.
    #[track_caller]
    pub(crate) fn look(&self, dir: &Path, options: &EngineOptions) -> impl Future<Output = Seen> {
        let called_from = std::panic::Location::caller();
        async move { self.try_look(dir, options).await.unwrap_or_else(|broken| panic!("{broken} ({called_from})")) }
    }

    pub(crate) async fn try_look(&self, dir: &Path, options: &EngineOptions) -> Result<Seen, String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match directory::try_open(dir, options).await {
                // Another test of this program has just started a process, which has copies of all open files, and so of the
                // lock, until it runs its own program.
                Err(NotOpened::Engine(EngineOpenError::InUse { .. })) if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                opened => return self.seen(opened).await,
            }
        }
    }

    async fn seen(&self, opened: Result<Store, NotOpened>) -> Result<Seen, String> {
        match opened {
            Err(NotOpened::Store(why)) => Ok(Seen::Refused(why)),
            Err(NotOpened::Engine(error)) => Ok(Seen::Refused(error.to_string())),
            Ok(store) => {
                let seen = self.compare(&store).await;
                store.close().await;
                seen
            }
        }
    }
}

/// A closed store in a directory, and what it acknowledged. RocksDB does not flush when it closes, so the files are
/// those that a kill would leave.
pub(crate) struct Written {
    pub(crate) dir: TempDir,
    pub(crate) history: History,
    pub(crate) options: EngineOptions,
}

impl Written {
    pub(crate) async fn with(options: EngineOptions, rounds: usize, keys: usize, bytes: usize) -> Written {
        let dir = TempDir::new().unwrap();
        let mut history = History::default();
        let store = directory::open(dir.path(), &options).await;
        for _ in 0..rounds {
            history.write(&store, keys, bytes).await;
        }
        store.close().await;
        Written { dir, history, options }
    }

    /// All writes are in the journal, none in a table.
    pub(crate) async fn in_the_journal() -> Written {
        Written::with(directory::roomy(), 4, 30, 200).await
    }

    /// Tables, a manifest with several flushes, and a journal with the newest writes.
    pub(crate) async fn in_tables_and_journal() -> Written {
        let mut written = Written::with(directory::small(), 10, 30, 400).await;
        // How much is in the journal depends on timing, so this repeats until there is enough.
        for _ in 0..20 {
            let newest = std::fs::read(directory::journal(written.dir.path())).unwrap();
            let entries = journal_format::entries(&newest).len();
            if entries > 10 && directory::tables(written.dir.path()).len() > 1 {
                return written;
            }
            let store = directory::open(written.dir.path(), &written.options).await;
            written.history.write(&store, 30, 400).await;
            store.close().await;
        }
        panic!("no tables beside a journal")
    }

    /// A copy to damage.
    pub(crate) fn copy(&self) -> TempDir {
        let copy = TempDir::new().unwrap();
        directory::copy(self.dir.path(), copy.path());
        copy
    }

    /// Damages a copy and examines it.
    pub(crate) async fn damaged(&self, damage: impl FnOnce(&Path)) -> Result<Seen, String> {
        let copy = self.copy();
        damage(copy.path());
        self.history.try_look(copy.path(), &self.options).await
    }
}
