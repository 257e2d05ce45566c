//! Each failure as a proof: the sentence, the drawn history, the operations in words, and how to reproduce it.

use std::fmt::Write;

use super::excerpt::Excerpt;
use super::{badge, timeline};
use crate::history::Time;
use crate::report::files::history_file;
use crate::report::setting::Setting;
use crate::report::text::{cut, escaped};
use crate::verdict::{CaseResult, Results, Status};
use crate::words;

/// The longest text in a cell of the table.
const LONGEST: usize = 300;

pub(super) fn write(page: &mut String, results: &Results, setting: &Setting) {
    let failed: Vec<&CaseResult> = results.cases.iter().filter(|result| result.status == Status::Fail).collect();
    if failed.is_empty() {
        return;
    }
    page.push_str("<section aria-labelledby=\"failures\">\n<h2 id=\"failures\">Failures</h2>\n");
    page.push_str(timeline::PATTERNS);
    for result in failed {
        failure(page, result, results.seed, setting);
    }
    page.push_str("</section>\n");
}

fn failure(page: &mut String, result: &CaseResult, seed: u64, setting: &Setting) {
    let case = result.case;
    let id = case.id;
    let sentence = result.failure.as_ref().map_or(result.reason.as_str(), |failure| &failure.sentence);
    let _ = write!(
        page,
        "<article class=\"failure\" aria-labelledby=\"failure-{id}\">\n<h3 id=\"failure-{id}\">{} {id} {}</h3>\n<p class=\"proof\">{}</p>\n",
        badge(Status::Fail),
        escaped(case.title),
        escaped(sentence)
    );
    let _ = writeln!(
        page,
        "<dl><div><dt>Rule</dt><dd>{}</dd></div><div><dt>Why</dt><dd>{}</dd></div></dl>",
        escaped(case.rule),
        escaped(case.why)
    );
    let wanted = result.failure.as_ref().map_or(&[][..], |failure| &failure.operations);
    if let Some(history) = result.history.as_ref().filter(|history| !history.operations.is_empty()) {
        let excerpt = Excerpt::of(history, wanted);
        timeline::write(page, id, &excerpt);
        table(page, &excerpt);
    }
    reproduction(page, result, seed, setting);
    page.push_str("</article>\n");
}

fn table(page: &mut String, excerpt: &Excerpt<'_>) {
    let shown: Vec<_> = match excerpt.counterexample.is_empty() {
        true => excerpt.operations.clone(),
        false => excerpt
            .operations
            .iter()
            .filter(|operation| excerpt.counterexample.contains(&operation.id))
            .copied()
            .collect(),
    };
    let what = if excerpt.counterexample.is_empty() { "The operations shown" } else { "The operations that show it" };
    let _ = write!(
        page,
        "<div class=\"scroll\"><table class=\"operations\"><caption>{what}</caption>\n<thead><tr><th scope=\"col\">#</th><th scope=\"col\">client</th><th scope=\"col\">called</th><th scope=\"col\">answered</th><th scope=\"col\">operation</th><th scope=\"col\">answer</th></tr></thead>\n<tbody>\n"
    );
    for operation in shown {
        let answered = match operation.returned {
            Time::MAX => "never".to_owned(),
            returned => excerpt.time(returned),
        };
        let copy = operation.copy_of.map(|of| format!(" (a copy of #{of}, sent by the network)")).unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{answered}</td><td>{}{copy}</td><td>{}</td></tr>",
            operation.id,
            operation.client,
            excerpt.time(operation.called),
            escaped(&cut(&words::operation(&operation.op), LONGEST)),
            escaped(&cut(&words::answer(&operation.answer), LONGEST)),
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn reproduction(page: &mut String, result: &CaseResult, seed: u64, setting: &Setting) {
    let _ = write!(
        page,
        "<h4>See it again</h4>\n<pre><code>{}</code></pre>\n<p class=\"note\">The same seed draws the same tokens, values and delays; the timing of threads and of the resource is its own, so a race may need several runs.</p>\n",
        escaped(&setting.again(result.case.id, seed))
    );
    if let Some(file) = history_file(result) {
        let _ = write!(
            page,
            "<p class=\"note\">The recorded history is judged again, exactly as it was, by</p>\n<pre><code>{}</code></pre>\n",
            escaped(&setting.recheck(&file))
        );
    }
}
