//! What a terminal can show.

use std::io::IsTerminal;

use crate::verdict::Status;

/// The narrowest and the widest that lines are broken to.
const NARROW: usize = 40;
const WIDE: usize = 120;

/// How output looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// With colours.
    pub colour: bool,
    /// With a bar that is drawn over while the run goes on.
    pub bar: bool,
    /// So many columns.
    pub width: usize,
}

impl Default for Look {
    /// Plain lines.
    fn default() -> Look {
        Look { colour: false, bar: false, width: 80 }
    }
}

impl Look {
    /// For this stream: colours and a bar only on a terminal; no colours if `NO_COLOR` is set; `COLUMNS` columns, or 80.
    pub fn of(stream: &impl IsTerminal) -> Look {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        Look::chosen(stream.is_terminal() && !dumb, set("NO_COLOR"), columns)
    }

    fn chosen(terminal: bool, no_colour: bool, columns: Option<usize>) -> Look {
        let width = columns.unwrap_or(Look::default().width).clamp(NARROW, WIDE);
        Look { colour: terminal && !no_colour, bar: terminal, width }
    }

    /// A text in the colour of a status.
    pub(super) fn coloured(self, status: Status, text: &str) -> String {
        let code = match status {
            Status::Pass => "32",
            Status::Fail | Status::Error => "1;31",
            Status::Unknown | Status::Skip => "33",
            Status::Info => "36",
            Status::NotApplicable => "2",
        };
        self.escaped(code, text)
    }

    /// A text that stands out.
    pub(super) fn bold(self, text: &str) -> String {
        self.escaped("1", text)
    }

    /// A text that stands back.
    pub(super) fn faint(self, text: &str) -> String {
        self.escaped("2", text)
    }

    fn escaped(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::Look;

    #[test]
    fn colours_and_a_bar_are_for_terminals() {
        assert_eq!(Look::chosen(true, false, Some(100)), Look { colour: true, bar: true, width: 100 });
        assert_eq!(Look::chosen(true, true, None), Look { colour: false, bar: true, width: 80 });
        assert_eq!(Look::chosen(false, false, Some(7)), Look { colour: false, bar: false, width: 40 });
    }
}
