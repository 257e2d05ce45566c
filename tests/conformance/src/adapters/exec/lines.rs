//! Lines of a program that may print anything: bounded, numbered, and shortened in messages.

use std::collections::VecDeque;
use std::io::{BufRead, ErrorKind};

/// The longest line that is read, in bytes.
pub(super) const LONGEST: usize = 16 << 20;

/// How many characters of a line a message shows.
const SHOWN: usize = 300;

/// What was read from a pipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A whole line, without its line end.
    Whole(Vec<u8>),
    /// The pipe ended in the middle of a line.
    Half(Vec<u8>),
    /// The line is longer than allowed; this is its beginning.
    TooLong(Vec<u8>),
    /// The pipe has ended.
    End,
}

/// Reads the next line, of at most `longest` bytes.
pub(super) fn next(pipe: &mut impl BufRead, longest: usize) -> Line {
    let mut line = Vec::new();
    loop {
        let chunk = match pipe.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A pipe that cannot be read any more has ended.
            Err(_) => &[],
        };
        if chunk.is_empty() {
            return if line.is_empty() { Line::End } else { Line::Half(line) };
        }
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        line.extend_from_slice(part);
        let used = part.len() + usize::from(end.is_some());
        pipe.consume(used);
        if line.len() > longest {
            return Line::TooLong(line);
        }
        if end.is_some() {
            return Line::Whole(line);
        }
    }
}

/// A line as a message shows it: verbatim, and cut if it is long.
pub(super) fn shown(line: &[u8]) -> String {
    let start = String::from_utf8_lossy(&line[..line.len().min(SHOWN * 4)]);
    let mut text: String = start.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if start.chars().count() > SHOWN || line.len() > SHOWN * 4 {
        text.push_str(&format!("… ({} bytes)", line.len()));
    }
    text
}

/// The last lines of a program's standard error.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<String>,
}

impl Tail {
    /// How many lines are kept.
    const KEPT: usize = 20;

    /// Adds a line.
    pub(super) fn push(&mut self, line: &[u8]) {
        if self.lines.len() == Tail::KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(shown(line));
    }

    /// The lines, as the end of a message.
    pub(super) fn words(&self) -> String {
        if self.lines.is_empty() {
            return "\nIts standard error is empty.".to_owned();
        }
        let lines: String = self.lines.iter().map(|line| format!("\n  | {line}")).collect();
        format!("\nThe end of its standard error:{lines}")
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::{Line, Tail, next, shown};

    #[test]
    fn lines_are_bounded() {
        let mut pipe = BufReader::with_capacity(4, &b"one\n\ntoo long a line\nrest"[..]);
        assert_eq!(next(&mut pipe, 8), Line::Whole(b"one".to_vec()));
        assert_eq!(next(&mut pipe, 8), Line::Whole(Vec::new()));
        assert!(matches!(next(&mut pipe, 8), Line::TooLong(start) if start.len() <= 12));
        let mut pipe = BufReader::with_capacity(4, &b"12345678\nrest"[..]);
        assert_eq!(next(&mut pipe, 8), Line::Whole(b"12345678".to_vec()), "exactly the limit");
        assert_eq!(next(&mut pipe, 8), Line::Half(b"rest".to_vec()));
        assert_eq!(next(&mut pipe, 8), Line::End);
    }

    #[test]
    fn a_message_shows_a_part_of_a_long_line() {
        assert_eq!(shown(b"{\"id\":1}"), "{\"id\":1}");
        let long = shown(&vec![b'x'; 5_000]);
        assert!(long.ends_with("… (5000 bytes)") && long.chars().count() < 330, "{long}");
        assert_eq!(shown(b"\x1b[31m\xff"), "\u{fffd}[31m\u{fffd}");
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut tail = Tail::default();
        assert!(tail.words().contains("empty"));
        for number in 0..30 {
            tail.push(format!("line {number}").as_bytes());
        }
        let words = tail.words();
        assert!(!words.contains("line 9\n") && words.contains("line 10\n") && words.ends_with("line 29"), "{words}");
    }
}
