//! Horizontal bars as an SVG file: readable in light and dark mode, with a title and description for screen readers.

use std::fmt::Write as _;

use crate::figures::grouped;

/// A chart: groups of bars on one scale.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    pub(crate) groups: Vec<Group>,
}

/// Bars under one heading.
pub(crate) struct Group {
    pub(crate) heading: String,
    pub(crate) bars: Vec<Bar>,
}

/// One bar: a rate in answers per second.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) rate: f64,
    /// A text after the rate.
    pub(crate) note: String,
    pub(crate) look: Look,
}

/// Whether a bar is highlighted as the subject of the chart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Ours,
    Other,
}

const WIDTH: f64 = 860.0;
const MARGIN: f64 = 24.0;
/// Where labels end and bars begin, and the width of the longest bar. The remaining width is for the text after it.
const BARS_AT: f64 = 150.0;
const LONGEST: f64 = 360.0;
const LINE: f64 = 24.0;

const STYLE: &str = "<style>\
    svg { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }\
    .ground { fill: #ffffff; } .text { fill: #1f2328; } .quiet { fill: #59636e; }\
    .ours { fill: #0969da; } .other { fill: #afb8c1; } .axis { stroke: #d1d9e0; }\
    .title { font-size: 17px; font-weight: 600; } .heading { font-weight: 600; }\
    @media (prefers-color-scheme: dark) {\
    .ground { fill: #0d1117; } .text { fill: #f0f6fc; } .quiet { fill: #9198a1; }\
    .ours { fill: #4493f8; } .other { fill: #565d66; } .axis { stroke: #3d444d; } }\
    </style>";

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let height = 84.0 + LINE * bars as f64 + 46.0 * self.groups.len() as f64;
        let most = self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.rate).fold(1.0, f64::max);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" width=\"{WIDTH:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-labelledby=\"title desc\">\n\
             <title id=\"title\">{}</title>\n<desc id=\"desc\">{}</desc>\n{STYLE}\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n",
            escaped(&self.title),
            escaped(&self.described()),
        );
        // Writing to a String cannot fail.
        let mut text = |x: f64, y: f64, class: &str, text: &str, rest: &str| {
            let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{rest}>{}</text>", escaped(text));
        };
        text(MARGIN, 36.0, "text title", &self.title, "");
        text(MARGIN, 58.0, "quiet", &self.subtitle, "");
        let mut shapes = String::new();
        let mut y = 68.0;
        for group in &self.groups {
            y += 30.0;
            text(MARGIN, y, "text heading", &group.heading, "");
            let top = y + 8.0;
            for bar in &group.bars {
                let length = (bar.rate / most * LONGEST).max(1.0);
                let class = if bar.look == Look::Ours { "ours" } else { "other" };
                let _ = writeln!(
                    shapes,
                    "<rect class=\"{class}\" x=\"{BARS_AT}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"16\" rx=\"2\"/>",
                    y + 12.0
                );
                y += LINE;
                text(BARS_AT - 10.0, y + 1.0, "text", &bar.label, " text-anchor=\"end\"");
                let rate = format!("{}/s", grouped(bar.rate));
                let note = format!("{rate}{}{}", if bar.note.is_empty() { "" } else { "  ·  " }, bar.note);
                let class = if bar.look == Look::Ours { "text heading" } else { "text" };
                text(BARS_AT + length + 8.0, y + 1.0, class, &note, "");
            }
            let _ = writeln!(
                shapes,
                "<line class=\"axis\" x1=\"{BARS_AT}\" x2=\"{BARS_AT}\" y1=\"{top:.1}\" y2=\"{:.1}\"/>",
                y + 8.0
            );
            y += 16.0;
        }
        svg.push_str(&shapes);
        svg.push_str("</svg>\n");
        svg
    }

    /// The whole chart as text.
    fn described(&self) -> String {
        let group = |group: &Group| {
            let bars: Vec<_> =
                group.bars.iter().map(|bar| format!("{} {} per second", bar.label, grouped(bar.rate))).collect();
            format!("{}: {}.", group.heading, bars.join(", "))
        };
        let groups: Vec<_> = self.groups.iter().map(group).collect();
        format!("{} {}", self.subtitle, groups.join(" "))
    }
}

/// Text escaped for XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            sign => escaped.push(sign),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(label: &str, rates: &[f64]) -> Chart {
        let bar = |rate: &f64| Bar { label: label.into(), rate: *rate, note: String::new(), look: Look::Other };
        let groups = vec![Group { heading: "put".into(), bars: rates.iter().map(bar).collect() }];
        Chart { title: "rates".into(), subtitle: String::new(), groups }
    }

    #[test]
    fn text_is_escaped() {
        let svg = chart("<a & \"b\">", &[1.0]).svg();
        assert!(svg.contains(">&lt;a &amp; &quot;b&quot;&gt;</text>"), "{svg}");
        assert!(!svg.contains("<a"), "{svg}");
    }

    #[test]
    fn bars_are_as_long_as_their_rates() {
        let svg = chart("x", &[1000.0, 250.0, 0.0]).svg();
        for length in ["width=\"360.0\"", "width=\"90.0\"", "width=\"1.0\""] {
            assert!(svg.contains(length), "{length}: {svg}");
        }
    }
}
