//! What the clients of one store were told, kept across crashes, and the check that all of it still holds.
//!
//! Every key has one client that writes its value, so that "older" has a meaning; any client may raise its fence or try
//! a stale write. Tokens above the fence are handed out once, so that a fence tells who raised it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::http::{Answer, Client};

/// How a promise was broken, in words.
pub type Checked<T> = Result<T, String>;

/// The body of writes that must be refused.
pub const NEVER: &str = "never";

const BULKY: &str = "bulky/";

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// No value, since the owner's change of this number.
    Absent(u64),
    /// The value of the owner's change of this number.
    Value {
        /// Which change.
        number: u64,
        /// The token it presented.
        token: u64,
        /// The version it was given.
        etag: String,
    },
}

impl Held {
    /// The number of the change that left this.
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

/// A change that the owner sent and has no answer to.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The change's number.
    pub number: u64,
    /// A put leaves a value, a delete none.
    pub puts: bool,
    /// The token presented.
    pub token: u64,
    /// Nobody else has presented it, and nothing but the fence could keep the change from applying: so fence and data
    /// must show it together, or not at all (G3).
    pub telling: bool,
}

/// What is known of one key, which is its own resource.
#[derive(Debug)]
pub struct KeyRecord {
    /// The key.
    pub name: String,
    /// Every token that was ever presented to be admitted.
    presented: HashSet<u64>,
    highest: u64,
    /// The owner's token, while it may still be good.
    pub own: Option<u64>,
    /// The highest token that an answer has shown to be admitted.
    pub floor: u64,
    /// The highest token that was refused.
    pub refused: Option<u64>,
    /// What the last answered change left.
    pub held: Held,
    /// A change without an answer; settled by the next check.
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

    /// An answer showed this fence.
    pub fn saw_fence(&mut self, fence: u64) -> Checked<()> {
        if !self.presented.contains(&fence) {
            return Err(format!("{}: the fence is {fence}, a token nobody presented", self.name));
        }
        self.floor = self.floor.max(fence);
        Ok(())
    }

    /// A refusal of `token` arrived: it must name a fence that really is higher (G5).
    pub fn saw_refusal(&mut self, token: u64, answer: &Answer) -> Checked<()> {
        let fence = number(answer.json()["fence"].as_str());
        match (answer.status, answer.problem().as_str(), fence) {
            (409, "stale", Some(fence)) if fence > token => {
                self.refused = self.refused.max(Some(token));
                self.saw_fence(fence)
            }
            _ => Err(format!("{}: not a justified refusal of {token}: {answer:?}", self.name)),
        }
    }
}

/// How often what was answered.
#[derive(Debug, Default)]
pub struct Counts {
    /// Puts and deletes that applied.
    pub applied: AtomicU64,
    /// Claims that raised.
    pub claimed: AtomicU64,
    /// Refusals by the fence.
    pub refused: AtomicU64,
    /// Failed conditions.
    pub conditions: AtomicU64,
    /// Reads.
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
    /// For the summary.
    pub counts: Counts,
}

impl Record {
    /// Nothing is known yet of this many keys.
    pub fn new(keys: usize) -> Record {
        Record::of((0..keys).map(|n| format!("crash/{n}")))
    }

    /// The same, with large values: a small write buffer is soon full.
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

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Is there nothing to know?
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What is known of a key.
    pub fn key(&self, at: usize) -> MutexGuard<'_, KeyRecord> {
        self.keys[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A version was shown for a change: it may never be shown for another one (E3).
    pub fn saw_version(&self, etag: &str, key: &str, change: u64) -> Checked<()> {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
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
        // What was refused stays refused.
        for token in key.refused.into_iter().chain(key.floor.checked_sub(1).filter(|below| *below > 0)) {
            let again = client.put(&name, &token.to_string(), NEVER);
            key.saw_refusal(token, &again)?;
        }
        Ok(())
    }

    /// What was found is the last answered change, or the one without an answer, whole.
    fn settle(&self, key: &mut KeyRecord, found: Option<Held>, fence: Option<u64>) -> Checked<()> {
        let name = &key.name;
        let pending = key.pending.take();
        let applied = pending.as_ref().is_some_and(|attempt| match &found {
            Some(Held::Value { number, token, .. }) => {
                attempt.puts && *number == attempt.number && *token == attempt.token
            }
            // A delete of an absent key leaves no trace but the fence.
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

/// A token or fence in generation 0.
pub fn number(text: Option<&str>) -> Option<u64> {
    text.and_then(|text| text.parse().ok())
}

/// The value of a change: mostly short, sometimes over several blocks of the log.
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

/// The change that wrote this value, if every byte of it is right.
pub fn change_of(key: &str, value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let change = text.strip_prefix(key)?.strip_prefix('#')?.split('#').next()?.parse().ok()?;
    (text == value_of(key, change)).then_some(change)
}
