//! Makes external text safe for a terminal, for markup, and for a shell.

use std::fmt::Write;
use std::time::Duration;

/// The text without anything that a terminal would interpret or markup must not contain: control characters and
/// direction marks become visible symbols. Nothing else changes.
pub fn visible(text: &str) -> String {
    text.chars().map(shown_as).collect()
}

/// The same on one line, even if the text has several.
pub fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    visible(&lines.join(" "))
}

/// The same, with line breaks kept.
pub fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn shown_as(character: char) -> char {
    match character {
        // Unicode has a symbol for each of these.
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + character as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        other => other,
    }
}

/// Escapes a text for XML and HTML, in text and in attributes. Line ends stay.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for character in visible_lines(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// At most `most` characters, the last of them `…` if there were more.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Breaks a text into lines of at most `width` columns: at its own line ends, at spaces, or inside a word that is
/// longer than a line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    text.lines().flat_map(|line| wrapped_line(line, width.max(1))).collect()
}

fn wrapped_line(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in visible(text).split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + columns(&word) > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        } else if used > 0 {
            line.push(' ');
            used += 1;
        }
        while columns(&word) > width {
            let rest = word.split_off(fitting(&word, width));
            lines.push(word.into_iter().collect());
            word = rest;
        }
        used += columns(&word);
        line.extend(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// How many characters fit into `width` columns; at least one.
fn fitting(word: &[char], width: usize) -> usize {
    let mut used = 0;
    let fits = |character: &&char| {
        used += column(**character);
        used <= width
    };
    word.iter().take_while(fits).count().max(1)
}

fn columns(word: &[char]) -> usize {
    word.iter().map(|character| column(*character)).sum()
}

/// The columns of a character: two for East Asian characters and emoji, none for combining marks. An approximation for
/// line breaks.
fn column(character: char) -> usize {
    match character {
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// The number of columns that a text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// `12 ms`, `3.4 s`, `2 min 5 s`.
pub fn duration(time: Duration) -> String {
    match time {
        time if time < Duration::from_secs(1) => format!("{} ms", time.as_millis()),
        time if time < Duration::from_secs(100) => format!("{:.1} s", time.as_secs_f64()),
        time => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// `20000` as `20,000`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Quotes any text as one word of a POSIX shell.
pub fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=,@%+".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut quoted = String::with_capacity(word.len() + 2);
    // Writing to a String cannot fail.
    let _ = write!(quoted, "'{}'", word.replace('\'', r"'\''"));
    quoted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{cut, duration, escaped, grouped, one_line, quoted, visible, width, wrapped};

    #[test]
    fn nothing_from_outside_can_command_a_terminal_or_break_markup() {
        assert_eq!(visible("a\u{1b}[31mred\r\n\u{7f}\u{202e}x\u{9b}"), "a␛[31mred␍␊␡\u{fffd}x\u{fffd}");
        assert_eq!(escaped("<a href=\"x\" title='y'>&\u{0}"), "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;␀");
    }

    #[test]
    fn lines_are_broken_at_spaces_and_never_too_long() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrapped("", 10), [""; 0]);
        for line in wrapped("漢字漢字漢字 and more 漢字", 7) {
            assert!(width(&line) <= 7, "{line}");
        }
    }

    #[test]
    fn lines_stay_lines_or_become_one() {
        let crash = "it ended.\nIts last words:\n  | no database\r\n\n  | here\u{1b}";
        assert_eq!(wrapped(crash, 20), ["it ended.", "Its last words:", "| no database", "| here␛"]);
        assert_eq!(one_line(crash), "it ended. Its last words: | no database | here␛");
        assert_eq!(escaped("a\n<b>"), "a\n&lt;b&gt;");
    }

    #[test]
    fn figures_and_words() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(duration(Duration::from_millis(12)), "12 ms");
        assert_eq!(duration(Duration::from_millis(3440)), "3.4 s");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 5 s");
        assert_eq!([grouped(7), grouped(20000), grouped(1_234_567)], ["7", "20,000", "1,234,567"]);
        assert_eq!(quoted("./adapter.py"), "./adapter.py");
        assert_eq!(quoted("it's; rm -rf"), r"'it'\''s; rm -rf'");
        assert_eq!(quoted(""), "''");
    }
}
