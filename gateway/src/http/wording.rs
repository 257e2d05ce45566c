//! Texts of error answers, cut to a bounded length. They quote the caller's input, which may have any length.

/// Bytes of a text in an error answer, as JSON writes them.
pub(super) const MAX_TEXT: usize = 400;

/// Bytes of a name inside such a text.
const MAX_NAME: usize = 100;

/// Stands for the part that was left out.
const LEFT_OUT: char = '…';

/// Cuts names in backquotes, then the whole text, each in the middle: the beginning names the error, the end the next
/// step.
pub(super) fn shorten(text: &mut String, limit: usize) {
    if written(text) <= limit {
        return;
    }
    // Bounds the work of the steps below.
    cut(text, 16 * limit);
    let mut parts: Vec<String> = text.split('`').map(str::to_owned).collect();
    for name in parts.iter_mut().skip(1).step_by(2) {
        cut(name, MAX_NAME.min(limit));
    }
    *text = parts.join("`");
    cut(text, limit);
}

/// Leaves out the middle of a text that is too long.
fn cut(text: &mut String, limit: usize) {
    if written(text) <= limit {
        return;
    }
    let room = limit.saturating_sub(LEFT_OUT.len_utf8());
    let head: String = within(text.chars(), room.div_ceil(2)).collect();
    let tail: Vec<char> = within(text.chars().rev(), room / 2).collect();
    *text = head.chars().chain([LEFT_OUT]).chain(tail.into_iter().rev()).collect();
}

/// As many characters as fit.
fn within(characters: impl Iterator<Item = char>, room: usize) -> impl Iterator<Item = char> {
    characters
        .scan(0, |used, character| {
            *used += width(character);
            Some((*used, character))
        })
        .take_while(move |(used, _)| *used <= room)
        .map(|(_, character)| character)
}

/// By bytes, because every error answer is measured; no byte of a longer character looks like one of these.
fn written(text: &str) -> usize {
    let escape = |byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..=0x1f => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(escape).sum::<usize>()
}

/// Bytes of a character in a JSON string.
fn width(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        '\0'..='\x1f' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortened(text: &str) -> String {
        let mut text = text.to_owned();
        shorten(&mut text, MAX_TEXT);
        text
    }

    #[test]
    fn what_fits_stays_as_it_is() {
        for text in ["", "token 33 is stale", &"x".repeat(MAX_TEXT)] {
            assert_eq!(shortened(text), text);
        }
    }

    #[test]
    fn names_are_cut_before_what_is_said_about_them() {
        let name = format!("begin{}end", "x".repeat(1024));
        let text = shortened(&format!("token 33 is stale for `{name}`: the fence is 34, raised by `{name}` 12 s ago."));
        assert!(text.starts_with("token 33 is stale for `beginx") && text.contains("…"), "{text}");
        assert!(
            text.contains("xend`: the fence is 34, raised by `beginx") && text.ends_with("xend` 12 s ago."),
            "{text}"
        );
    }

    #[test]
    fn a_text_has_the_width_of_its_characters() {
        let text = "a\"\\\n\r\t\0\u{1}\u{1f} é…\u{1f600}";
        assert_eq!(written(text), text.chars().map(width).sum::<usize>());
        assert_eq!(written(text), serde_json::to_string(text).unwrap().len() - 2);
    }

    #[test]
    fn no_text_is_longer_than_the_limit() {
        for piece in ["x", "é", "\u{1f600}", "\"", "\\", "\u{1}", "`", "`a", "a\n", "…"] {
            for count in [399, 400, 401, 5_000, 100_000] {
                let text = shortened(&piece.repeat(count));
                let json = serde_json::to_string(&text).unwrap();
                assert!(json.len() <= MAX_TEXT + 2, "{piece:?} × {count}: {}", json.len());
                assert!(json.len() > MAX_TEXT / 4, "{piece:?} × {count}: {json}");
            }
        }
    }
}
