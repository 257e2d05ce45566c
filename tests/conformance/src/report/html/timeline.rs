//! Draws the history.

use std::fmt::Write;

use super::excerpt::Excerpt;
use super::layout::{Bar, LINE, Layout, MARGIN, PAD, STRIP};
use crate::answer::Answer;
use crate::history::{Event, Mark, Time};
use crate::report::text::{cut, escaped, grouped};
use crate::words;

/// A drawing up to this width is scaled down in a narrower window, so that all lanes are visible.
const FITTING: usize = 1120;

/// Patterns, so that answers can be distinguished without colours. Defined once in the page.
pub(super) const PATTERNS: &str = r#"<svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false"><defs>
<pattern id="p-stale" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="ground stale" width="7" height="7"/><line class="hatch stale" x1="0" y1="0" x2="0" y2="7"/></pattern>
<pattern id="p-mismatch" width="8" height="8" patternUnits="userSpaceOnUse"><rect class="ground mismatch" width="8" height="8"/><circle class="dot mismatch" cx="4" cy="4" r="1.2"/></pattern>
<pattern id="p-error" width="8" height="8" patternUnits="userSpaceOnUse"><rect class="ground error" width="8" height="8"/><path class="hatch error" d="M0 0L8 8M8 0L0 8"/></pattern>
<pattern id="p-down" width="10" height="10" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><line class="hatch down" x1="0" y1="0" x2="0" y2="10"/></pattern>
</defs></svg>
<ul class="legend key" aria-label="How to read the timelines">
<li><svg width="34" height="16" aria-hidden="true"><rect class="bar ok" x="1" y="1" width="32" height="14" rx="3"/></svg> accepted</li>
<li><svg width="34" height="16" aria-hidden="true"><rect class="bar stale" x="1" y="1" width="32" height="14" rx="3"/></svg> refused as stale</li>
<li><svg width="34" height="16" aria-hidden="true"><rect class="bar mismatch" x="1" y="1" width="32" height="14" rx="3"/></svg> mismatch</li>
<li><svg width="34" height="16" aria-hidden="true"><rect class="bar error" x="1" y="1" width="32" height="14" rx="3"/></svg> error</li>
<li><svg width="34" height="16" aria-hidden="true"><path class="bar unknown" d="M1 16V1H33V16"/></svg> unknown, mostly without an answer: may happen until the end of the dashed line, or never</li>
<li><svg width="34" height="16" aria-hidden="true"><rect class="bar ok needed" x="2" y="2" width="30" height="12" rx="3"/></svg> ◆ shows what is wrong</li>
</ul>
"#;

pub(super) fn write(page: &mut String, id: &str, excerpt: &Excerpt<'_>) {
    let layout = Layout::of(excerpt);
    let (width, height) = (layout.width, layout.height);
    let (fits, sideways) = match width <= FITTING {
        true => (" fits", ""),
        false => ("", " It is wide: scroll it sideways."),
    };
    let _ = write!(
        page,
        "<figure>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Timeline of {id}\"><svg class=\"timeline{fits}\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"tl-{id}-title tl-{id}-desc\">\n\
         <title id=\"tl-{id}-title\">Timeline of {id}</title>\n<desc id=\"tl-{id}-desc\">{}</desc>\n",
        escaped(&described(excerpt))
    );
    lanes(page, &layout);
    rows(page, excerpt, &layout);
    bands(page, excerpt, &layout);
    for bar in &layout.bars {
        shape(page, excerpt, &layout, bar);
    }
    // Drawn across the bars, below their text.
    marks(page, excerpt, &layout);
    for bar in &layout.bars {
        words_of(page, bar);
    }
    breaks(page, &layout);
    let left_out = escaped(&excerpt.left_out);
    let _ = write!(
        page,
        "</svg></div>\n<figcaption>Time runs down, a lane per client, a bar from call to answer. The order is exact, distances are not to scale.{sideways} {left_out}</figcaption>\n</figure>\n"
    );
}

fn needed(excerpt: &Excerpt<'_>, bar: &Bar<'_>) -> bool {
    excerpt.counterexample.contains(&bar.operation.id)
}

fn described(excerpt: &Excerpt<'_>) -> String {
    let ids: Vec<String> = excerpt.counterexample.iter().map(|id| format!("#{id}")).collect();
    let clients: std::collections::BTreeSet<u32> =
        excerpt.operations.iter().map(|operation| operation.client).collect();
    let shows = if ids.is_empty() { String::new() } else { format!(" Highlighted: {}.", ids.join(", ")) };
    format!(
        "{} operations of {} clients from top to bottom.{shows} The table below says the same in words.",
        excerpt.operations.len(),
        clients.len()
    )
}

fn lanes(page: &mut String, layout: &Layout<'_>) {
    for (index, lane) in layout.lanes.iter().enumerate() {
        let class = if index % 2 == 0 { "lane even" } else { "lane" };
        let _ = writeln!(
            page,
            "<rect class=\"{class}\" x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\"/><text class=\"name\" x=\"{}\" y=\"20\" text-anchor=\"middle\">{}</text>",
            lane.x,
            lane.width,
            layout.height,
            lane.x + lane.width / 2,
            lane.name
        );
    }
}

fn rows(page: &mut String, excerpt: &Excerpt<'_>, layout: &Layout<'_>) {
    let important = |time: Time| {
        let of = |operation: &&crate::history::Operation| {
            excerpt.counterexample.contains(&operation.id) && [operation.called, operation.returned].contains(&time)
        };
        excerpt.operations.iter().any(of) || excerpt.marks.iter().any(|mark| mark.at == time)
    };
    for (time, y) in &layout.rows {
        let class = if important(*time) { "time strong" } else { "time" };
        let _ = writeln!(
            page,
            "<line class=\"row\" x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/><text class=\"{class}\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            layout.left,
            layout.width - MARGIN,
            layout.left - 8,
            y + 4,
            excerpt.time(*time)
        );
    }
}

/// Bands for the times when the process was paused or down.
fn bands(page: &mut String, excerpt: &Excerpt<'_>, layout: &Layout<'_>) {
    for (index, mark) in excerpt.marks.iter().enumerate() {
        if matches!(mark.event, Event::Paused | Event::Killed | Event::Stopped) {
            let over = |event: Event| matches!(event, Event::Resumed | Event::Restarted);
            let end = excerpt.marks[index..].iter().find(|mark| over(mark.event));
            let until = end.map_or(layout.height - LINE, |mark| layout.down(mark.at));
            let y = layout.down(mark.at);
            let left = layout.left;
            let (width, height) = (layout.width - MARGIN - left, until.saturating_sub(y));
            let _ =
                writeln!(page, "<rect class=\"down\" x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>");
        }
    }
}

fn marks(page: &mut String, excerpt: &Excerpt<'_>, layout: &Layout<'_>) {
    let (left, right) = (layout.left, layout.width - MARGIN);
    for mark in &excerpt.marks {
        let y = layout.down(mark.at);
        let (class, word) = match mark.event {
            Event::Paused => ("paused", "‖ paused".to_owned()),
            Event::Resumed => ("resumed", "▷ resumed".to_owned()),
            Event::Killed => ("killed", format!("✕ killed{}", title(mark))),
            Event::Stopped => ("stopped", "□ stopped".to_owned()),
            Event::Restarted => ("restarted", "↻ restarted".to_owned()),
            Event::Clock(shift) => ("clock", format!("◷ clock {shift} s")),
        };
        let _ = writeln!(
            page,
            "<line class=\"mark {class}\" x1=\"{left}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/><text class=\"mark {class}\" x=\"8\" y=\"{}\">{word}</text>",
            y + 4
        );
    }
}

/// A tooltip with what the process was about to do.
fn title(mark: &Mark) -> String {
    mark.before.as_ref().map_or_else(String::new, |step| format!("<title>just before {}</title>", escaped(step)))
}

fn class_of(answer: &Answer) -> &'static str {
    match answer {
        Answer::Ok { .. } => "ok",
        Answer::Stale { .. } => "stale",
        Answer::Mismatch { .. } => "mismatch",
        Answer::Error { definite: true, .. } | Answer::Unsupported => "error",
        Answer::Error { definite: false, .. } | Answer::Unknown { .. } => "unknown",
    }
}

fn shape(page: &mut String, excerpt: &Excerpt<'_>, layout: &Layout<'_>, bar: &Bar<'_>) {
    let operation = bar.operation;
    let (x, top, width) = (bar.x, bar.top, layout.bar_width);
    let height = bar.bottom.saturating_sub(top).max(bar.lines.len() * LINE + PAD);
    let class = class_of(&operation.answer);
    let needed = if needed(excerpt, bar) { " needed" } else { "" };
    let words = format!(
        "#{} by client {}: {}, {}",
        operation.id,
        operation.client,
        words::operation(&operation.op),
        words::answer(&operation.answer)
    );
    let _ = write!(page, "<g class=\"op\" data-id=\"{}\"><title>{}</title>", operation.id, escaped(&cut(&words, 400)));
    if let Some(until) = bar.open_until.filter(|until| *until > top + height) {
        let (left, low) = (x - STRIP + 3, top + height);
        let right = left + 8;
        // Closed by the kill, or two lines that just end.
        let end = match operation.dead_by {
            Some(_) => format!("H{right}"),
            None => format!("M{right} {until}"),
        };
        let _ = write!(page, "<path class=\"open\" d=\"M{x} {low}H{left}V{until}{end}V{low}\"/>");
    }
    if operation.returned == Time::MAX {
        let _ = write!(
            page,
            "<path class=\"bar {class}{needed}\" d=\"M{x} {}V{top}H{}V{}\"/>",
            top + height,
            x + width,
            top + height
        );
    } else {
        let _ = write!(
            page,
            "<rect class=\"bar {class}{needed}\" x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>"
        );
    }
    page.push_str("</g>\n");
}

fn words_of(page: &mut String, bar: &Bar<'_>) {
    let _ = write!(page, "<g class=\"words\" data-of=\"{}\">", bar.operation.id);
    for (index, line) in bar.lines.iter().enumerate() {
        let class = if index == 0 { "label first" } else { "label" };
        let (x, y) = (bar.x + 9, bar.top + LINE * (index + 1) + 1);
        let _ = write!(page, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(line));
    }
    page.push_str("</g>\n");
}

fn breaks(page: &mut String, layout: &Layout<'_>) {
    for (y, missing) in &layout.breaks {
        let (left, right) = (layout.left, layout.width - MARGIN);
        let what = if *missing == 1 { "operation" } else { "operations" };
        let _ = writeln!(
            page,
            "<line class=\"break\" x1=\"{left}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/><text class=\"break\" x=\"{}\" y=\"{}\">⋯ {} {what} not drawn ⋯</text>",
            left + 12,
            y + 4,
            grouped(*missing)
        );
    }
}
