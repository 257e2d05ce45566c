//! Names of objects: the bucket of a name, and which characters XML can represent.

use fencepost_core::Key;

/// Returns whether XML can represent a text. Names may have characters that it cannot, and one such object would make
/// every listing of its bucket unreadable.
pub fn tellable(text: &str) -> bool {
    !text.chars().any(untellable)
}

/// Returns whether XML cannot represent this character.
pub fn untellable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// The bucket part of an object's name.
pub fn bucket_of(key: &Key) -> &str {
    key.as_str().split('/').next().unwrap_or_default()
}
