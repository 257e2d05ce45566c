//! A record of the answers that the clients of one store got, kept across crashes, and the check that all of them still
//! hold.
//!
//! Every key has one client that writes its value, so that "older" is well defined; any client may raise its fence or
//! try a stale write. Tokens above the fence are handed out once, so that a fence identifies the request that raised
//! it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::http::{Answer, Client};

/// A result whose error describes the broken promise.
pub type Checked<T> = Result<T, String>;

/// The body of writes that must be refused.
pub const NEVER: &str = "never";

const BULKY: &str = "bulky/";

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// No value, since the owner's change with this number.
    Absent(u64),
    /// The value of an owner's change.
    Value {
        /// The number of the change.
        number: u64,
        /// The token that the change presented.
        token: u64,
        /// The version that the change was given.
        etag: String,
    },
}

impl Held {
    /// The number of the change that led to this state.
    pub fn number(&self) -> u64 {
        match self {
            Held::Absent(number) | Held::Value { number, .. } => *number,
        }
    }

    /// The version, if there is a value.
    pub fn etag(&self) -> Option<&str> {
        match self {
            Held::Absent(_) => None,
            Held::Value { etag, .. } => Some(etag),
        }
    }
}

/// A change that the owner sent without getting an answer.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The number of the change.
    pub number: u64,
    /// True for a put, which leaves a value; false for a delete.
    pub puts: bool,
    /// The token that was presented.
    pub token: u64,
    /// No other client has presented this token, and only the fence could keep the change from being applied. So fence
    /// and data must show it together, or not at all (G3).
    pub telling: bool,
}

/// What is known about one key, which is its own resource.
#[derive(Debug)]
pub struct KeyRecord {
    /// The name of the key.
    pub name: String,
    /// Every token that was presented so far, except for stale writes.
    presented: HashSet<u64>,
    highest: u64,
    /// The owner's token, while it may still be admitted.
    pub own: Option<u64>,
    /// The highest token that an answer has shown to be admitted.
    pub floor: u64,
    /// The highest token that was refused.
    pub refused: Option<u64>,
    /// The state after the last answered change.
    pub held: Held,
    /// A change without an answer; the next check settles it.
    pub pending: Option<Attempt>,
    changes: u64,
}

impl KeyRecord {
    /// A token above every other, never handed out before.
    pub fn fresh_token(&mut self, step: u64) -> u64 {
        self.highest += step.max(1);
        self.presented.insert(self.highest);
        self.highest
    }

    /// The number of the owner's next change.
    pub fn next_change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Records a fence that an answer showed.
    pub fn saw_fence(&mut self, fence: u64) -> Checked<()> {
        if !self.presented.contains(&fence) {
            return Err(format!("{}: the fence is {fence}, a token nobody presented", self.name));
        }
        self.floor = self.floor.max(fence);
        Ok(())
    }

    /// Records a refusal of `token`: it must name a fence that really is higher (G5).
    pub fn saw_refusal(&mut self, token: u64, answer: &Answer) -> Checked<()> {
        let fence = number(answer.fence_shown().as_deref());
        match (answer.status, answer.problem().as_str(), fence) {
            (409, "stale", Some(fence)) if fence > token => {
                self.refused = self.refused.max(Some(token));
                self.saw_fence(fence)
            }
            _ => Err(format!("{}: not a justified refusal of {token}: {answer:?}", self.name)),
        }
    }
}

/// Counts of answers by kind.
#[derive(Debug, Default)]
pub struct Counts {
    /// Puts and deletes that applied.
    pub applied: AtomicU64,
    /// Claims that raised a fence.
    pub claimed: AtomicU64,
    /// Refusals by the fence.
    pub refused: AtomicU64,
    /// Writes whose condition failed.
    pub conditions: AtomicU64,
    /// Reads that were answered.
    pub reads: AtomicU64,
    /// Requests without an answer, or with an unknown outcome.
    pub unknown: AtomicU64,
    /// Requests rejected because writes had stopped.
    pub rejected: AtomicU64,
    /// Changes without an answer that turned out to have applied.
    pub unknown_applied: AtomicU64,
}

/// Adds one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What the clients of one store know.
#[derive(Debug)]
pub struct Record {
    keys: Vec<Mutex<KeyRecord>>,
    versions: Mutex<HashMap<String, (String, u64)>>,
    /// Counts for the summary.
    pub counts: Counts,
}

impl Record {
    /// A record of this many keys, of which nothing is known yet.
    pub fn new(keys: usize) -> Record {
        Record::of((0..keys).map(|n| format!("crash/{n}")))
    }

    /// The same with large values, which soon fill a small write buffer.
    pub fn bulky(keys: usize) -> Record {
        Record::of((0..keys).map(|n| format!("{BULKY}{n}")))
    }

    fn of(names: impl Iterator<Item = String>) -> Record {
        let key = |name| KeyRecord {
            name,
            presented: HashSet::new(),
            highest: 0,
            own: None,
            floor: 0,
            refused: None,
            held: Held::Absent(0),
            pending: None,
            changes: 0,
        };
        Record {
            keys: names.map(|name| Mutex::new(key(name))).collect(),
            versions: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Locks the record of a key.
    pub fn key(&self, at: usize) -> MutexGuard<'_, KeyRecord> {
        self.keys[at].lock()
    }

    /// Records the version of a change: it must never be shown for another change (E3).
    pub fn saw_version(&self, etag: &str, key: &str, change: u64) -> Checked<()> {
        let mut versions = self.versions.lock();
        let meant = versions.entry(etag.to_owned()).or_insert_with(|| (key.to_owned(), change));
        if (meant.0.as_str(), meant.1) == (key, change) {
            return Ok(());
        }
        Err(format!("ETag {etag} of change {change} of {key} was already that of change {} of {}", meant.1, meant.0))
    }

    /// Compares every key with what was answered, settles what was unknown, and panics at the first broken promise.
    pub fn check(&self, client: &mut Client) {
        for at in 0..self.len() {
            let mut key = self.key(at);
            let checked = self.check_key(client, &mut key);
            if let Err(broken) = checked {
                panic!("{broken}\nrecord: {key:?}");
            }
        }
    }

    fn check_key(&self, client: &mut Client, key: &mut KeyRecord) -> Checked<()> {
        let name = key.name.clone();
        let (found, fence) = self.read(client, &name)?;
        let fences = client.request("GET", &format!("/v1/fences/{name}"), &[], b"").json();
        if number(fences["fence"]["token"].as_str()) != fence {
            return Err(format!("{name}: read with fence {fence:?}, but its fence is {fences}"));
        }
        if fence.unwrap_or(0) < key.floor {
            return Err(format!("{name}: the fence fell from {} to {fence:?} (G1, G4)", key.floor));
        }
        if let Some(fence) = fence {
            key.saw_fence(fence)?;
        }
        self.settle(key, found, fence)?;
        // A refused token must stay refused.
        for token in key.refused.into_iter().chain(key.floor.checked_sub(1).filter(|below| *below > 0)) {
            let again = client.put(&name, &token.to_string(), NEVER);
            key.saw_refusal(token, &again)?;
        }
        Ok(())
    }

    /// Checks that the state is that of the last answered change, or of the one without an answer, completely.
    fn settle(&self, key: &mut KeyRecord, found: Option<Held>, fence: Option<u64>) -> Checked<()> {
        let name = &key.name;
        let pending = key.pending.take();
        let applied = pending.as_ref().is_some_and(|attempt| match &found {
            Some(Held::Value { number, token, .. }) => {
                attempt.puts && *number == attempt.number && *token == attempt.token
            }
            // A delete of an absent key changes only the fence.
            _ => !attempt.puts && (key.held.etag().is_some() || fence == Some(attempt.token)),
        });
        if let Some(Held::Value { token, .. }) = &found
            && fence.is_none_or(|fence| *token > fence)
        {
            return Err(format!("{name}: a value of token {token} under the fence {fence:?} (G3)"));
        }
        match (&pending, applied) {
            (Some(attempt), true) if fence.is_none_or(|fence| fence < attempt.token) => {
                return Err(format!("{name}: {attempt:?} applied, but the fence is {fence:?} (G3)"));
            }
            (Some(attempt), false) if attempt.telling && fence == Some(attempt.token) => {
                return Err(format!("{name}: {attempt:?} raised the fence and left no data: {found:?} (G3)"));
            }
            (Some(attempt), true) => {
                count(&self.counts.unknown_applied);
                key.held = found.unwrap_or(Held::Absent(attempt.number));
            }
            _ => {
                let same = match (&key.held, &found) {
                    (Held::Absent(_), None) => true,
                    (held, Some(found)) => held == found,
                    _ => false,
                };
                if !same {
                    return Err(format!("{name}: found {found:?} instead of {:?} or {pending:?} (G4)", key.held));
                }
            }
        }
        Ok(())
    }

    /// Reads a key: what it holds, and its fence.
    pub fn read(&self, client: &mut Client, name: &str) -> Checked<(Option<Held>, Option<u64>)> {
        let answer = client.get(name);
        let fence = number(answer.header("fence"));
        match answer.status {
            404 => Ok((None, fence)),
            200 => {
                let number = change_of(name, &answer.body).ok_or_else(|| {
                    format!(
                        "{name}: a value that nobody wrote: {:?}",
                        answer.text().chars().take(80).collect::<String>()
                    )
                })?;
                let (token, etag) = (answer.header("fencing-token"), answer.header("etag").unwrap_or_default());
                self.saw_version(etag, name, number)?;
                let token = token.and_then(|token| token.parse().ok()).ok_or("a value without a token")?;
                Ok((Some(Held::Value { number, token, etag: etag.to_owned() }), fence))
            }
            _ => Err(format!("{name}: cannot be read: {answer:?}")),
        }
    }

    /// One line about what happened.
    pub fn summary(&self) -> String {
        let Counts { applied, claimed, refused, conditions, reads, unknown, rejected, unknown_applied } = &self.counts;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} applied, {} claimed, {} refused, {} conditions failed, {} reads, {} rejected, \
             {} unknown ({} of those changes had applied)",
            of(applied),
            of(claimed),
            of(refused),
            of(conditions),
            of(reads),
            of(rejected),
            of(unknown),
            of(unknown_applied),
        )
    }
}

/// The number of a token or fence in generation 0.
pub fn number(text: Option<&str>) -> Option<u64> {
    text.and_then(|text| text.parse().ok())
}

/// The value of a change: mostly short, sometimes spanning several blocks of the log.
pub fn value_of(key: &str, change: u64) -> String {
    let size = match change % 64 {
        _ if key.starts_with(BULKY) => 60_000,
        63 => 40_000 + 1_000 * (change % 97),
        rest => 7 * rest,
    };
    let mut text = format!("{key}#{change}#");
    text.extend(std::iter::repeat_n('v', usize::try_from(size).unwrap_or(0)));
    text
}

/// The number of the change that wrote this value, if every byte of it is right.
pub fn change_of(key: &str, value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let change = text.strip_prefix(key)?.strip_prefix('#')?.split('#').next()?.parse().ok()?;
    (text == value_of(key, change)).then_some(change)
}
