//! Names of objects: the bucket in one, and which can be shown in XML.

use fencepost_core::Key;

/// Can XML carry a text? There are characters that it cannot carry and that names may have, and one such object would
/// make every list of its bucket unreadable.
pub fn tellable(text: &str) -> bool {
    !text.chars().any(untellable)
}

/// Is this a character that XML cannot carry?
pub fn untellable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// The bucket of an object's name.
pub fn bucket_of(key: &Key) -> &str {
    key.as_str().split('/').next().unwrap_or_default()
}
