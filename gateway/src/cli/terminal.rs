//! Escaping of text for a terminal: text that callers chose must not move the cursor, change colours or reverse the
//! direction of writing.

use std::borrow::Cow;
use std::fmt::Write;

use fencepost_core::is_hidden;

/// Text with control characters and hidden ones written as `\u202e`, except for ends of lines and tabs.
///
/// JSON keeps its meaning: such characters occur only in its strings, and this is their escaped form there.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| is_hidden(character) || character.is_control() && !"\n\t".contains(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            // All of them have four digits. Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s23_hidden_characters_are_written_out() {
        assert_eq!(escaped("a\u{202e}b\u{1b}[31m\n\tc"), "a\\u202eb\\u001b[31m\n\tc");
        assert!(matches!(escaped("wörker#1: 作業 👷\n"), Cow::Borrowed(_)));
        let json = serde_json::json!({"name": "a\u{202e}\u{feff}b", "x": "\u{1b}"}).to_string();
        let back: serde_json::Value = serde_json::from_str(&escaped(&json)).unwrap();
        assert_eq!(back.to_string(), json);
        assert!(escaped(&json).is_ascii());
    }
}
