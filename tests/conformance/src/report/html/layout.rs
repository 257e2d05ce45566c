//! The layout of a timeline: time runs down, with a lane per client.
//!
//! Distances are not to scale, because a case has microseconds and minutes; the order of all calls, answers and marks
//! is exact. Each moment gets a row, and each bar is tall enough for its text.

use std::collections::BTreeMap;

use super::excerpt::Excerpt;
use crate::answer::Answer;
use crate::history::{Operation, Time};
use crate::op::{Op, Write};
use crate::report::text::{cut, one_line};

/// The width for times on the left, and for marks beside them if there are any.
const TIMES: usize = 104;
const MARKS: usize = 92;
pub(super) const MARGIN: usize = 8;
pub(super) const TOP: usize = 34;
pub(super) const LINE: usize = 15;
/// The strip on the left of a lane, for outcomes that stay unknown.
pub(super) const STRIP: usize = 14;
pub(super) const PAD: usize = 10;
const ROW: usize = 16;
const BREAK: usize = 34;
const WIDEST: usize = 340;
const NARROWEST: usize = 132;
const ROOM: usize = 880;
/// The width of a character, in tenths of a pixel: 12 pixels monospaced, with some margin.
const CHARACTER: usize = 74;

/// The bar of one operation.
pub(super) struct Bar<'a> {
    pub operation: &'a Operation,
    pub x: usize,
    pub top: usize,
    /// The position of the answer, or the end of the drawing.
    pub bottom: usize,
    /// The position until which an unknown outcome may take effect.
    pub open_until: Option<usize>,
    pub lines: Vec<String>,
}

/// A lane with its name.
pub(super) struct Lane {
    pub x: usize,
    pub width: usize,
    pub name: String,
}

/// The whole drawing.
pub(super) struct Layout<'a> {
    /// Where the lanes begin.
    pub left: usize,
    pub width: usize,
    pub height: usize,
    pub bar_width: usize,
    pub lanes: Vec<Lane>,
    pub bars: Vec<Bar<'a>>,
    /// The rows: each moment and its vertical position.
    pub rows: Vec<(Time, usize)>,
    /// Where operations were left out while no drawn operation was in flight, and how many.
    pub breaks: Vec<(usize, usize)>,
}

impl<'a> Layout<'a> {
    pub(super) fn of(excerpt: &Excerpt<'a>) -> Layout<'a> {
        let columns = columns(&excerpt.operations);
        let count = columns.values().map(|tracks| tracks.count).sum::<usize>().max(1);
        let column = (ROOM / count).clamp(NARROWEST, WIDEST);
        let bar_width = column - STRIP - 6;
        let fits = (bar_width - 2 * PAD) * 10 / CHARACTER;
        let several = {
            let mut all = excerpt.operations.iter().flat_map(|operation| operation.op.resources());
            let first = all.next();
            all.any(|name| Some(name) != first)
        };
        let lines: Vec<Vec<String>> =
            excerpt.operations.iter().map(|operation| label(operation, fits, several, excerpt)).collect();
        let (rows, breaks, height) = rows(excerpt, &lines);
        let down = |time: Time| rows.iter().find(|(at, _)| *at >= time).map_or(height - LINE, |(_, y)| *y);
        let mut lanes = Vec::new();
        let mut starts = BTreeMap::new();
        let left = if excerpt.marks.is_empty() { TIMES } else { TIMES + MARKS };
        let mut x = left;
        let needed = |client: u32| {
            let shows =
                |operation: &&Operation| operation.client == client && excerpt.counterexample.contains(&operation.id);
            excerpt.operations.iter().any(shows)
        };
        let mut order: Vec<(&u32, &Tracks)> = columns.iter().collect();
        // Lanes of the counterexample come first, where they are visible without scrolling.
        order.sort_by_key(|(client, _)| (!needed(**client), **client));
        for (client, Tracks { count: tracks, .. }) in order {
            starts.insert(*client, x);
            lanes.push(Lane { x, width: tracks * column, name: format!("client {client}") });
            x += tracks * column;
        }
        let bars = excerpt.operations.iter().zip(lines).map(|(operation, lines)| {
            let track = columns.get(&operation.client).and_then(|tracks| tracks.placed.get(&operation.id)).copied();
            let start = starts.get(&operation.client).copied().unwrap_or(left);
            let open = operation.answer.is_unknown();
            Bar {
                operation,
                x: start + track.unwrap_or(0) * column + STRIP,
                top: down(operation.called),
                bottom: down(operation.returned),
                open_until: open.then(|| operation.dead_by.map_or(height - LINE, down)),
                lines,
            }
        });
        Layout { left, width: x + MARGIN, height, bar_width, lanes, bars: bars.collect(), rows: rows.clone(), breaks }
    }

    /// The vertical position of a moment.
    pub(super) fn down(&self, time: Time) -> usize {
        self.rows.iter().find(|(at, _)| *at >= time).map_or(self.height - LINE, |(_, y)| *y)
    }
}

/// The tracks of one client: more than one only if the network sent copies.
#[derive(Default)]
struct Tracks {
    /// The track of each operation.
    placed: BTreeMap<u64, usize>,
    count: usize,
}

fn columns(operations: &[&Operation]) -> BTreeMap<u32, Tracks> {
    let mut columns: BTreeMap<u32, Tracks> = BTreeMap::new();
    let mut ends: BTreeMap<(u32, usize), Time> = BTreeMap::new();
    for operation in operations {
        let client = operation.client;
        let tracks = columns.entry(client).or_default();
        let free = |track: &usize| ends.get(&(client, *track)).is_none_or(|end| *end <= operation.called);
        let track = (0..tracks.count).find(free).unwrap_or(tracks.count);
        ends.insert((client, track), operation.returned);
        tracks.placed.insert(operation.id, track);
        tracks.count = tracks.count.max(track + 1);
    }
    columns
}

type Rows = (Vec<(Time, usize)>, Vec<(usize, usize)>, usize);

/// Assigns each moment a row, below the one before and far enough down that every bar that ends there holds its text.
fn rows(excerpt: &Excerpt<'_>, lines: &[Vec<String>]) -> Rows {
    let mut times: Vec<Time> = excerpt
        .operations
        .iter()
        .flat_map(|operation| [operation.called, operation.returned])
        .chain(excerpt.marks.iter().map(|mark| mark.at))
        .filter(|time| *time != Time::MAX)
        .collect();
    times.sort_unstable();
    times.dedup();
    let tall = |lines: &[String]| lines.len() * LINE + PAD;
    let mut rows: Vec<(Time, usize)> = Vec::with_capacity(times.len());
    let mut breaks = Vec::new();
    let mut lowest = 0;
    for time in times {
        let last = rows.last().copied();
        let mut y = last.map_or(TOP + ROW, |(_, y)| y + ROW);
        for (operation, lines) in excerpt.operations.iter().zip(lines) {
            // An operation that took no time needs its room before the next moment.
            if operation.called < time && (operation.returned == time || operation.returned <= operation.called) {
                let called = rows.iter().find(|(at, _)| *at == operation.called).map_or(TOP, |(_, y)| *y);
                y = y.max(called + tall(lines));
            }
        }
        let from = last.map_or(0, |(at, _)| at);
        let missing = excerpt.hidden.iter().filter(|called| (from..time).contains(*called)).count();
        let quiet = !excerpt.operations.iter().any(|operation| operation.called < time && from < operation.returned);
        if missing > 0 && quiet {
            let above = last.map_or(TOP, |(_, y)| y);
            y = y.max(above + BREAK);
            breaks.push(((above + y) / 2, missing));
        }
        rows.push((time, y));
        lowest = lowest.max(y);
    }
    // Operations that were never answered, or took no time, need room below.
    for (operation, lines) in excerpt.operations.iter().zip(lines) {
        if operation.returned == Time::MAX || operation.returned <= operation.called {
            let called = rows.iter().find(|(at, _)| *at == operation.called).map_or(TOP, |(_, y)| *y);
            lowest = lowest.max(called + tall(lines));
        }
    }
    let end = rows.last().map_or(0, |(at, _)| *at);
    let missing = excerpt.hidden.iter().filter(|called| **called >= end).count();
    if missing > 0 {
        lowest += BREAK;
        breaks.push((lowest - BREAK / 2, missing));
    }
    (rows, breaks, lowest + 2 * LINE)
}

/// The text of a bar: the request, its token, and the answer.
fn label(operation: &Operation, fits: usize, several: bool, excerpt: &Excerpt<'_>) -> Vec<String> {
    let sign = if excerpt.counterexample.contains(&operation.id) { "◆ " } else { "" };
    let verb = operation.op.verb().name().replace('_', " ");
    let value = match &operation.op {
        Op::Write(Write { value, .. }) => value.clone(),
        Op::Cas { expect, value, .. } => format!("{}→{value}", expect.as_deref().unwrap_or("none")),
        Op::Batch { writes } => format!("of {}", writes.len()),
        Op::Read { .. } | Op::CheckedRead { .. } | Op::Claim { .. } | Op::Delete { .. } => String::new(),
    };
    let mut asked = vec![format!("{sign}#{} {verb}", operation.id)];
    match asked.first_mut() {
        Some(first) if first.chars().count() + 1 + value.chars().count() <= fits && !value.is_empty() => {
            first.push(' ');
            first.push_str(&value);
        }
        _ if value.is_empty() => {}
        _ => asked.push(value),
    }
    if let Some(of) = operation.copy_of {
        asked.push(format!("copy of #{of}"));
    }
    let tokens = operation.op.tokens();
    asked.extend(tokens.iter().take(2).map(ToString::to_string));
    if tokens.len() > 2 {
        asked.push(format!("and {} more", tokens.len() - 2));
    }
    if several {
        let names: Vec<&str> = operation.op.resources().into_iter().collect();
        asked.push(match names[..] {
            [name] => format!("on {}", end_of(name, fits.saturating_sub(3))),
            _ => format!("on {} resources", names.len()),
        });
    }
    let mut lines: Vec<String> = Vec::new();
    for part in asked {
        join(&mut lines, &part, fits);
    }
    let mut answered = answer(&operation.answer).into_iter();
    lines.extend(answered.next().map(|first| format!("→ {first}")));
    for part in answered {
        join(&mut lines, &part, fits);
    }
    lines.iter().map(|line| cut(&one_line(line), fits)).collect()
}

/// Appends a part to the last line if it fits, else adds a line.
fn join(lines: &mut Vec<String>, part: &str, fits: usize) {
    match lines.last_mut() {
        Some(line) if line.chars().count() + 2 + part.chars().count() <= fits => {
            line.push_str(", ");
            line.push_str(part);
        }
        _ => lines.push(part.to_owned()),
    }
}

/// An answer in a few short parts.
fn answer(answer: &Answer) -> Vec<String> {
    let fence = answer.high().map(|high| format!("fence {high}"));
    let value = answer.value().map(|value| value.unwrap_or("no value").to_owned());
    let first = match answer {
        Answer::Ok { .. } => "accepted".to_owned(),
        Answer::Stale { .. } => "stale".to_owned(),
        Answer::Mismatch { .. } => "mismatch".to_owned(),
        Answer::Error { definite: true, code } => return vec!["error".to_owned(), code.clone()],
        Answer::Error { definite: false, .. } | Answer::Unknown { .. } => "unknown".to_owned(),
        Answer::Unsupported => "unsupported".to_owned(),
    };
    [Some(first), value, fence].into_iter().flatten().collect()
}

/// The end of a name, which distinguishes the names of one run.
fn end_of(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - most.saturating_sub(1)).collect();
    format!("…{end}")
}
