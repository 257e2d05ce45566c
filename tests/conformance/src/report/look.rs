//! What a terminal can display.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use crate::verdict::Status;

/// The narrowest and the widest line width.
const NARROW: usize = 40;
const WIDE: usize = 120;

/// The style of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// With colours.
    pub colour: bool,
    /// With a progress bar that is redrawn during the run.
    pub bar: bool,
    /// The number of columns.
    pub width: usize,
}

impl Default for Look {
    /// Plain lines, without colours or a bar.
    fn default() -> Look {
        Look { colour: false, bar: false, width: 80 }
    }
}

impl Look {
    /// The style for this stream: colours and a bar only on a terminal; no colours if `NO_COLOR` is set; as many
    /// columns as the terminal has, else `COLUMNS`, else 80.
    pub fn of(stream: &(impl IsTerminal + AsFd)) -> Look {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let said = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let columns = columns(stream).or_else(said);
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

    /// A highlighted text.
    pub(super) fn bold(self, text: &str) -> String {
        self.escaped("1", text)
    }

    /// A dimmed text.
    pub(super) fn faint(self, text: &str) -> String {
        self.escaped("2", text)
    }

    fn escaped(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The width that the terminal reports, if it knows it.
fn columns(stream: &impl AsFd) -> Option<usize> {
    tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use rustix::pty::{OpenptFlags, openpt};
    use rustix::termios::{Winsize, tcsetwinsize};

    use super::{Look, columns};

    #[test]
    fn a_terminal_says_how_wide_it_is() {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        assert_eq!(columns(&terminal), None, "nobody has said it");
        tcsetwinsize(&terminal, Winsize { ws_row: 40, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        assert_eq!(columns(&terminal), Some(101));
        assert_eq!(Look::of(&std::fs::File::from(terminal)).width, 101, "whatever COLUMNS says");
        assert_eq!(columns(&std::fs::File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn colours_and_a_bar_are_for_terminals() {
        assert_eq!(Look::chosen(true, false, Some(100)), Look { colour: true, bar: true, width: 100 });
        assert_eq!(Look::chosen(true, true, None), Look { colour: false, bar: true, width: 80 });
        assert_eq!(Look::chosen(false, false, Some(7)), Look { colour: false, bar: false, width: 40 });
    }
}
