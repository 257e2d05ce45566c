//! `report.html`: one file that needs no network and no script.

mod cases;
mod excerpt;
mod failures;
mod head;
mod layout;
mod timeline;

use std::fmt::Write;

use super::setting::Setting;
use super::text::escaped;
use crate::verdict::{Results, Status};

const STYLE: &str = include_str!("style.css");

/// The text of `report.html`.
pub fn html(results: &Results, setting: &Setting) -> String {
    let mut page = String::with_capacity(64 * 1024);
    let title = escaped(&format!("{} · {}", results.last_line(), results.subject));
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    // Nothing is fetched, even if external text got past the escaping.
    page.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n",
    );
    let _ = write!(page, "<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n");
    head::write(&mut page, results, setting);
    page.push_str("<main>\n");
    head::levels(&mut page, results);
    head::matrix(&mut page, results);
    failures::write(&mut page, results, setting);
    cases::write(&mut page, results, setting);
    page.push_str("</main>\n");
    let version = escaped(&setting.version);
    let _ = write!(
        page,
        "<footer>fencepost {version} · <code>results.json</code> beside this page has the same for programs.</footer>\n</body>\n</html>\n"
    );
    page
}

/// A symbol for each status, for readers who cannot distinguish the colours.
fn sign(status: Status) -> &'static str {
    match status {
        Status::Pass => "✓",
        Status::Fail => "✗",
        Status::Skip => "–",
        Status::NotApplicable => "∅",
        Status::Unknown => "?",
        Status::Info => "i",
        Status::Error => "!",
    }
}

/// A status as it appears in the page.
fn badge(status: Status) -> String {
    let (name, word) = (status.name(), status.word());
    format!(r#"<span class="badge {name}"><span aria-hidden="true">{}</span> {word}</span>"#, sign(status))
}
