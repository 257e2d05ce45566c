//! Every case with its rule and the reason why it matters.

use std::fmt::Write;

use super::badge;
use crate::cases::GROUPS;
use crate::report::setting::Setting;
use crate::report::text::{duration, escaped};
use crate::verdict::{CaseResult, Results, Status};

pub(super) fn write(page: &mut String, results: &Results, setting: &Setting) {
    page.push_str("<section aria-labelledby=\"cases\">\n<h2 id=\"cases\">All cases</h2>\n");
    for group in GROUPS {
        let mut cases = results.cases.iter().filter(|result| result.case.id.starts_with(group.letter)).peekable();
        if cases.peek().is_none() {
            continue;
        }
        let _ = writeln!(page, "<h3>{} · {}</h3>", group.letter, escaped(group.title));
        for result in cases {
            case(page, result, results.seed, setting);
        }
    }
    page.push_str("</section>\n");
}

fn case(page: &mut String, result: &CaseResult, seed: u64, setting: &Setting) {
    let case = result.case;
    let (id, level) = (case.id, case.level);
    let open = if matches!(result.status, Status::Unknown | Status::Error) { " open" } else { "" };
    let _ = write!(
        page,
        "<details class=\"case\"{open}><summary>{}<span class=\"id\">{id}</span><span class=\"title\">{}</span><span class=\"level\">{level}</span><span class=\"took\">{}</span></summary>\n<div class=\"body\" id=\"{id}\">\n",
        badge(result.status),
        escaped(case.title),
        duration(result.took)
    );
    if !result.reason.is_empty() {
        let _ = write!(page, "<p class=\"reason\">{}", escaped(&result.reason));
        if result.status == Status::Fail {
            let _ = write!(page, " <a href=\"#failure-{id}\">See the timeline.</a>");
        }
        page.push_str("</p>\n");
    }
    let required: Vec<String> = case.minima.iter().map(ToString::to_string).collect();
    page.push_str("<dl>\n");
    for (name, value) in [
        ("Rule", case.rule.to_owned()),
        ("Why", case.why.to_owned()),
        ("Seen", seen(result)),
        ("Required", required.join(", ")),
    ] {
        if !value.is_empty() {
            let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
        }
    }
    let _ = writeln!(page, "<div><dt>Again</dt><dd><code>{}</code></dd></div>", escaped(&setting.again(id, seed)));
    page.push_str("</dl>\n</div></details>\n");
}

/// The evidence in words; empty if no request was made.
fn seen(result: &CaseResult) -> String {
    let evidence = &result.evidence;
    if evidence.operations == 0 {
        return String::new();
    }
    let counts = [
        (evidence.operations, "operations"),
        (evidence.accepted, "accepted"),
        (evidence.refused, "refused as stale"),
        (evidence.read, "reads answered"),
        (evidence.unknown, "of unknown outcome"),
        (evidence.overlapping, "overlapping pairs"),
        (evidence.kills_in_flight, "kills with an operation in flight"),
        (evidence.restarts, "restarts"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, what)| format!("{count} {what}"));
    counts.chain(result.note()).collect::<Vec<_>>().join(", ")
}
