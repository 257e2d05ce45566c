//! The scripts, their keys, and their answers.

use std::num::NonZeroU64;
use std::time::Duration;

use fencepost_core::Resource;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use redis::ScriptInvocation;

/// Characters that would end a hash tag too early, or leave it empty.
const ESCAPED: &AsciiSet = &AsciiSet::EMPTY.add(b'{').add(b'}').add(b'%');

/// The keys of one lock. Their common hash tag keeps them in one slot.
pub(super) struct Keys {
    /// A hash: `number`, the counter, and `incarnation`, the issuer of its numbers.
    pub(super) state: String,
    /// `number holder`, with the lease's ttl.
    lock: String,
    /// A list of holders, in order of arrival.
    queue: String,
}

impl Keys {
    pub(super) fn of(name: &Resource) -> Keys {
        let state = format!("fencepost:{{{}}}", utf8_percent_encode(name.as_str(), ESCAPED));
        Keys { lock: format!("{state}:lock"), queue: format!("{state}:queue"), state }
    }

    /// The list that this waiter blocks on.
    pub(super) fn turn(&self, holder: &str) -> String {
        format!("{}:turn:{holder}", self.state)
    }
}

/// A Lua script, which runs atomically.
pub(super) struct Script(redis::Script);

impl Script {
    /// Invokes it on the keys of one lock; the holder is the first argument of every script.
    pub(super) fn on(&self, keys: &Keys, arguments: &[&str]) -> ScriptInvocation<'_> {
        let mut call = self.0.prepare_invoke();
        call.key(&keys.state).key(&keys.lock).key(&keys.queue);
        for argument in arguments {
            call.arg(*argument);
        }
        call
    }
}

pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) verify: Script,
    pub(super) renew: Script,
    pub(super) lift: Script,
    pub(super) release: Script,
}

impl Scripts {
    pub(super) fn new() -> Scripts {
        let script = |step: &str| Script(redis::Script::new(&[include_str!("lua/shared.lua"), step].concat()));
        Scripts {
            acquire: script(include_str!("lua/acquire.lua")),
            verify: script(include_str!("lua/verify.lua")),
            renew: script(include_str!("lua/renew.lua")),
            lift: script(include_str!("lua/lift.lua")),
            release: script(include_str!("lua/release.lua")),
        }
    }
}

/// The answer of a script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The lock is granted, with this number.
    Granted { number: NonZeroU64, incarnation: String },
    /// Another holder has the lock, or a waiter came first.
    Busy,
    /// We have a place in the queue. The first in the queue also learns when the lock expires.
    Queued { ends_in: Option<Duration> },
    /// The queue has no place left.
    Full,
    /// The lock is no longer ours.
    Lost,
    /// There is no number above the floor.
    Exhausted,
}

impl Answer {
    pub(super) fn read(words: &[String]) -> Option<Answer> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["granted", number, incarnation] => {
                Some(Answer::Granted { number: number.parse().ok()?, incarnation: (*incarnation).to_owned() })
            }
            ["busy"] => Some(Answer::Busy),
            // A lock key without a ttl (changed by hand) does not expire.
            ["queued", ends_in] => Some(Answer::Queued { ends_in: ends_in.parse().ok().map(Duration::from_millis) }),
            ["full"] => Some(Answer::Full),
            ["lost"] => Some(Answer::Lost),
            ["exhausted"] => Some(Answer::Exhausted),
            _ => None,
        }
    }
}

/// In milliseconds, rounded up, so that the service never ends a lease early.
pub(super) fn millis(time: Duration) -> String {
    time.as_nanos().div_ceil(1_000_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(key: &str) -> &str {
        let rest = &key[key.find('{').unwrap() + 1..];
        &rest[..rest.find('}').unwrap()]
    }

    #[test]
    fn all_keys_of_a_lock_have_one_hash_tag() {
        for name in ["orders/1", "}", "{}", "a}b{c", "%7D", "ä"] {
            let keys = Keys::of(&Resource::new(name).unwrap());
            let tags = [&keys.state, &keys.lock, &keys.queue, &keys.turn("}x#1")].map(|key| tag(key).to_owned());
            assert!(!tags[0].is_empty() && tags.iter().all(|tag| *tag == tags[0]), "{name}: {tags:?}");
        }
        assert_ne!(Keys::of(&Resource::new("}").unwrap()).state, Keys::of(&Resource::new("%7D").unwrap()).state);
    }

    #[test]
    fn answers() {
        let read = |words: &[&str]| Answer::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let number = NonZeroU64::new(9_007_199_254_740_993).unwrap();
        let granted = Answer::Granted { number, incarnation: "x".into() };
        assert_eq!(read(&["granted", "9007199254740993", "x"]), Some(granted));
        assert_eq!(read(&["granted", "0", "x"]), None);
        assert_eq!(read(&["queued", ""]), Some(Answer::Queued { ends_in: None }));
        assert_eq!(read(&["queued", "12"]), Some(Answer::Queued { ends_in: Some(Duration::from_millis(12)) }));
        assert_eq!(read(&["nonsense"]), None);
    }

    #[test]
    fn a_ttl_is_never_cut_short() {
        assert_eq!(millis(Duration::from_millis(5)), "5");
        assert_eq!(millis(Duration::from_micros(5_001)), "6");
    }
}
