//! The keys in use, all below the prefix in the URL:
//!
//! - `fencepost/incarnation`: a UUID, created once.
//! - `fencepost/lock:orders%2F1/worker-a#9f2c`: one per holder and waiter, in the order of their creation.
//!
//! An escaped name has no `/`, and a prefix has no `:`; so the keys of one lock are never in the range of another, even
//! with another prefix.

use fencepost_core::{Holder, Resource};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'#');

/// The prefix if the URL has no path.
const DEFAULT_PREFIX: &str = "fencepost";

/// The keys below one prefix.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys below the path of a URL. `None`: the path has characters that a prefix cannot have.
    pub(super) fn below(path: &str) -> Option<Keys> {
        let path = path.trim_end_matches('/');
        let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
        let prefix = if path.is_empty() { DEFAULT_PREFIX } else { path };
        plain.then(|| Keys { prefix: prefix.to_owned() })
    }

    pub(super) fn incarnation(&self) -> String {
        format!("{}/incarnation", self.prefix)
    }

    /// The key of one holder or waiter.
    pub(super) fn contender(&self, name: &Resource, holder: &Holder) -> String {
        format!("{}{}", self.contenders(name).0, utf8_percent_encode(holder.as_str(), ESCAPED))
    }

    /// The key range of all holders and waiters of a lock: start and end.
    pub(super) fn contenders(&self, name: &Resource) -> (String, String) {
        let lock = format!("{}/lock:{}", self.prefix, utf8_percent_encode(name.as_str(), ESCAPED));
        // `0` is the character after `/`.
        (format!("{lock}/"), format!("{lock}0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains((from, to): &(String, String), key: &str) -> bool {
        from.as_str() <= key && key < to.as_str()
    }

    #[test]
    fn one_lock_never_sees_the_keys_of_another() {
        let names = ["a", "a/", "a/b", "a0", "a%2Fb", "b", "a:b", "lock:a", "a/lock:a", "ä", "A"].map(Resource::new);
        let names: Vec<_> = names.into_iter().flatten().collect();
        let keys = ["", "x", "x/lock", "x/a", "x/locka"].map(|path| Keys::below(path).unwrap());
        let holder = Holder::new("w/a:b#1").unwrap();
        for (place, own) in keys.iter().flat_map(|keys| names.iter().map(move |name| (keys, name))) {
            for (other, name) in keys.iter().flat_map(|keys| names.iter().map(move |name| (keys, name))) {
                let same = std::ptr::eq(place, other) && own == name;
                assert_eq!(contains(&place.contenders(own), &other.contender(name, &holder)), same, "{own} {name}");
            }
            assert!(keys.iter().all(|keys| !contains(&place.contenders(own), &keys.incarnation())));
        }
        assert!(names.len() > 7);
    }

    #[test]
    fn a_prefix_has_no_colon() {
        assert!(Keys::below("x/lock:a").is_none());
        assert_eq!(Keys::below("team/locks/").unwrap().incarnation(), "team/locks/incarnation");
    }
}
