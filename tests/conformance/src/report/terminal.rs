//! The tree of cases that is printed while the suite runs, and the summary at the end.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::look::Look;
use super::text::{cut, duration, visible, width, wrapped};
use crate::cases::{Case, GROUPS, Group};
use crate::run::Watch;
use crate::verdict::{CaseResult, Outcome, Results, Status};

/// The columns of status and id, and the indent of the text below a case.
const MARGIN: usize = 15;

/// Prints each case when it has ended, below the heading of its group, and a progress bar meanwhile if the look has
/// one.
pub struct Tree<W: Write> {
    out: W,
    look: Look,
    group: Option<char>,
    began: Instant,
    failed: usize,
    /// The running case, and its position.
    running: Option<(&'static Case, usize, usize)>,
}

impl<W: Write> Tree<W> {
    /// Prints to this stream.
    pub fn new(out: W, look: Look) -> Tree<W> {
        Tree { out, look, group: None, began: Instant::now(), failed: 0, running: None }
    }

    /// Returns the stream.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn bar(&mut self, rounds: Option<(u64, u64)>) -> io::Result<()> {
        const LONG: usize = 20;
        let Some((case, place, of)) = self.running else { return Ok(()) };
        let full = (place * LONG).checked_div(of).unwrap_or(0).min(LONG);
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(LONG - full));
        let failed = if self.failed > 0 { format!(" · {} failed", self.failed) } else { String::new() };
        let after = duration(self.began.elapsed());
        let round = rounds.map_or_else(String::new, |(round, of)| format!(" {round}/{of}"));
        let line = format!("{bar} {}/{of} · {after}{failed} · {}{round} {}", place + 1, case.id, case.title);
        write!(self.out, "\r\x1b[2K{}", cut(&line, self.look.width - 1))?;
        self.out.flush()
    }

    fn case(&mut self, result: &CaseResult) -> io::Result<()> {
        if self.look.bar {
            write!(self.out, "\r\x1b[2K")?;
        }
        let group = group_of(result.case);
        if let Some(group) = group.filter(|group| self.group != Some(group.letter)) {
            let gap = if self.group.is_some() { "\n" } else { "" };
            writeln!(self.out, "{gap}{}", self.look.bold(&format!("{}  {}", group.letter, group.title)))?;
            self.group = Some(group.letter);
        }
        let word = self.look.coloured(result.status, &format!("{:<7}", result.status.word()));
        let took = duration(result.took);
        let room = self.look.width.saturating_sub(MARGIN + 2 + width(&took));
        let title = cut(result.case.title, room);
        let space = " ".repeat(room - width(&title).min(room) + 2);
        writeln!(self.out, "  {word} {}  {title}{space}{}", result.case.id, self.look.faint(&took))?;
        self.below(&said(result))?;
        self.out.flush()
    }

    fn below(&mut self, text: &str) -> io::Result<()> {
        for line in wrapped(text, self.look.width - MARGIN) {
            writeln!(self.out, "{:MARGIN$}{line}", "")?;
        }
        Ok(())
    }
}

/// A stream that cannot be written to (a closed pipe) must not end the run: the exit code still counts.
impl<W: Write> Watch for Tree<W> {
    fn begins(&mut self, case: &'static Case, place: usize, of: usize) {
        self.running = Some((case, place, of));
        if self.look.bar {
            let _ = self.bar(None);
        }
    }

    fn goes_on(&mut self, round: u64, of: u64) {
        if self.look.bar {
            let _ = self.bar(Some((round, of)));
        }
    }

    fn ended(&mut self, result: &CaseResult) {
        self.failed += usize::from(result.status == Status::Fail);
        let _ = self.case(result);
    }
}

/// The text below a case that did not simply pass, or whose pass has a note.
fn said(result: &CaseResult) -> String {
    match &result.failure {
        Some(failure) => failure.sentence.clone(),
        None => result.note().unwrap_or_else(|| result.reason.clone()),
    }
}

pub(super) fn group_of(case: &Case) -> Option<&'static Group> {
    GROUPS.iter().find(|group| case.id.starts_with(group.letter))
}

/// Prints the counts, exclusions and failures, and as the last line what was shown and what was not.
pub fn summary(out: &mut dyn Write, results: &Results, look: Look) -> io::Result<()> {
    let took: Duration = results.cases.iter().map(|result| result.took).sum();
    let counts = Status::ALL.into_iter().rev().map(|status| (status, results.ids(status).len()));
    let cases = if results.cases.len() == 1 { "case" } else { "cases" };
    let mut line = format!("{} {cases} in {}:", results.cases.len(), duration(took));
    write!(out, "\n{line}")?;
    for (index, (status, count)) in counts.filter(|(_, count)| *count > 0).enumerate() {
        let count = format!("{count} {}", status.counted());
        let comma = if index > 0 { "," } else { "" };
        let gap = if width(&line) + width(&count) + 3 > look.width { "\n  " } else { " " };
        line = if gap == " " { format!("{line}{comma} {count}") } else { format!("  {count}") };
        write!(out, "{comma}{gap}{}", look.coloured(status, &count))?;
    }
    writeln!(out)?;
    for (id, reason) in &results.excluded {
        paragraph(out, look, &format!("excluded {}: ", id.to_uppercase()), reason)?;
    }
    for result in &results.cases {
        if matches!(result.status, Status::Fail | Status::Error | Status::Unknown) {
            let head = format!("{} {} ", result.status.word(), result.case.id);
            paragraph(out, look, &head, &format!("{}: {}", result.case.title, said(result)))?;
        }
    }
    for warning in &results.warnings {
        paragraph(out, look, "warning: ", warning)?;
    }
    let status = match results.outcome() {
        Outcome::Safe | Outcome::Passed => Status::Pass,
        Outcome::NotSafe => Status::Fail,
        Outcome::Unknown => Status::Unknown,
        Outcome::Broken => Status::Error,
    };
    // Never wrapped, however long: scripts read the last line.
    writeln!(out, "\n{}", look.coloured(status, &visible(&results.last_line())))?;
    out.flush()
}

fn paragraph(out: &mut dyn Write, look: Look, head: &str, text: &str) -> io::Result<()> {
    for (index, line) in wrapped(&format!("{head}{text}"), look.width - 2).iter().enumerate() {
        writeln!(out, "{}{line}", if index == 0 { "" } else { "  " })?;
    }
    Ok(())
}
