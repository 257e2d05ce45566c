//! The verdict, the levels, and the matrix of cases.

use std::fmt::Write;

use super::{badge, sign};
use crate::cases::GROUPS;
use crate::op::Verb;
use crate::report::setting::Setting;
use crate::report::text::{duration, escaped};
use crate::verdict::{Level, Outcome, Results, Status};

pub(super) fn write(page: &mut String, results: &Results, setting: &Setting) {
    let (class, sign) = match results.outcome() {
        Outcome::Safe | Outcome::Passed => ("pass", "✓"),
        Outcome::NotSafe => ("fail", "✗"),
        Outcome::Unknown => ("unknown", "?"),
        Outcome::Broken => ("error", "!"),
    };
    let _ = write!(
        page,
        "<header>\n<p class=\"kind\">Conformance of a fenced resource</p>\n<h1>{}</h1>\n\
         <p class=\"verdict {class}\"><span class=\"sign\" aria-hidden=\"true\">{sign}</span><span>{}</span></p>\n",
        escaped(&results.subject),
        escaped(&results.last_line())
    );
    page.push_str("<ul class=\"counts\">\n");
    for status in Status::ALL {
        let count = results.ids(status).len();
        if count > 0 {
            let _ = writeln!(page, "<li>{} <strong>{count}</strong></li>", badge(status));
        }
    }
    page.push_str("</ul>\n");
    facts(page, results, setting);
    page.push_str("</header>\n");
}

fn facts(page: &mut String, results: &Results, setting: &Setting) {
    let manifest = &results.manifest;
    let took = results.took(Level::L4);
    let verbs: Vec<&str> = Verb::ALL.into_iter().filter(|verb| manifest.has(*verb)).map(Verb::name).collect();
    // The manifest in the words that files and adapters use.
    let declared = serde_json::to_value(manifest).unwrap_or_default();
    let said = |name: &str| {
        let value = declared.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        format!("{name} = {}", value.unwrap_or_default())
    };
    let promises: Vec<String> =
        ["policy", "equal", "reads", "high", "mismatch_raises", "kill", "token_max"].into_iter().map(said).collect();
    let rounds = setting.rounds.map(|rounds| format!(" · {rounds} rounds")).unwrap_or_default();
    page.push_str("<dl class=\"facts\">\n");
    for (name, value) in [
        ("Run", format!("level {} · seed {}{rounds} · {}", results.level, results.seed, duration(took))),
        ("Verbs", verbs.join(", ")),
        ("Promises", promises.join(" · ")),
        ("Processes", results.instances.to_string()),
    ] {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
    }
    for (id, reason) in &results.excluded {
        let (id, reason) = (escaped(&id.to_uppercase()), escaped(reason));
        let _ = writeln!(page, "<div><dt>Excluded</dt><dd><strong>{id}</strong>: {reason}</dd></div>");
    }
    for warning in &results.warnings {
        let _ = writeln!(page, "<div><dt>Warning</dt><dd>{}</dd></div>", escaped(warning));
    }
    page.push_str("</dl>\n");
}

pub(super) fn levels(page: &mut String, results: &Results) {
    page.push_str("<section aria-labelledby=\"levels\">\n<h2 id=\"levels\">What was shown</h2>\n<div class=\"scroll\"><table class=\"levels\">\n");
    page.push_str("<thead><tr><th scope=\"col\">Level</th><th scope=\"col\">About</th><th scope=\"col\">Shown</th><th scope=\"col\">Cases</th></tr></thead>\n<tbody>\n");
    let (shown, not_shown) = (results.shown(), results.not_shown());
    for level in Level::ALL {
        let (class, state) = if Some(level) <= shown {
            ("pass", "✓ shown")
        } else if level > results.level {
            ("not-applicable", "not asked for")
        } else if results.left_out > 0 {
            ("not-applicable", "not claimed: cases were left out")
        } else if results.cases.iter().any(|result| result.case.level == level && result.status == Status::Fail) {
            ("fail", "✗ a case failed")
        } else if results.any(Status::Fail) && not_shown.contains(&level) {
            ("unknown", "not claimed after a failure")
        } else if not_shown.contains(&level) {
            ("unknown", "not shown")
        } else {
            ("skip", "not tested")
        };
        let counts: Vec<String> = Status::ALL
            .into_iter()
            .map(|status| {
                let with = |result: &&crate::verdict::CaseResult| result.case.level == level && result.status == status;
                (status, results.cases.iter().filter(with).count())
            })
            .filter(|(_, count)| *count > 0)
            .map(|(status, count)| format!("{count} {}", status.counted()))
            .collect();
        let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        let about = level.about();
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{level}</th><td>{about}</td><td><span class=\"state {class}\">{state}</span></td><td>{counts}</td></tr>"
        );
    }
    page.push_str("</tbody>\n</table></div>\n</section>\n");
}

pub(super) fn matrix(page: &mut String, results: &Results) {
    let of = |letter: char| results.cases.iter().filter(move |result| result.case.id.starts_with(letter));
    let columns = GROUPS.iter().map(|group| of(group.letter).count()).max().unwrap_or(0);
    if columns == 0 {
        return;
    }
    page.push_str("<section aria-labelledby=\"matrix\">\n<h2 id=\"matrix\">Cases at a glance</h2>\n<div class=\"scroll\"><table class=\"matrix\">\n<tbody>\n");
    for group in GROUPS.iter().filter(|group| of(group.letter).next().is_some()) {
        let _ = write!(page, "<tr><th scope=\"row\">{} <span>{}</span></th>", group.letter, escaped(group.title));
        for result in of(group.letter) {
            let (id, name, word) = (result.case.id, result.status.name(), result.status.word());
            let title = escaped(&format!("{id} {}: {word}", result.case.title));
            let target = if result.status == Status::Fail { "failure-" } else { "" };
            let _ = write!(
                page,
                "<td class=\"{name}\"><a href=\"#{target}{id}\" title=\"{title}\" aria-label=\"{title}\">{id}<b aria-hidden=\"true\">{}</b></a></td>",
                sign(result.status)
            );
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n<ul class=\"legend\">\n");
    for status in Status::ALL.into_iter().rev() {
        let meaning = match status {
            Status::Pass => "the rule held, and enough was seen",
            Status::NotApplicable => "the resource does not have it",
            Status::Info => "worth knowing, neither right nor wrong",
            Status::Skip => "not run, so the level is not shown",
            Status::Unknown => "too little was seen to say",
            Status::Error => "the harness or the adapter failed",
            Status::Fail => "the rule was broken",
        };
        if results.any(status) {
            let _ = writeln!(page, "<li>{} {meaning}</li>", badge(status));
        }
    }
    page.push_str("</ul>\n</section>\n");
}
