//! The report page as text.

use fencepost_conformance::report::html;
use fencepost_conformance::verdict::{Level, Results, Status};
use fencepost_harness::cpu::thread_time;

use crate::report::files::python;
use crate::report::made_up::{NASTY, every_status, long_history, rich_history, setting};

/// A run with three failures: a short, a rich and a very long history.
pub(crate) fn failing() -> Results {
    let mut results = every_status();
    let mut rich = crate::report::made_up::result("R03", Level::L3, Status::Fail);
    rich.history = Some(rich_history());
    rich.failure.as_mut().unwrap().operations = vec![4, 8, 10];
    rich.failure.as_mut().unwrap().sentence =
        "write #10 (token 5) was accepted at 1.204 s, but read #4 had returned fence 9 at 0.005 s: token 5 was already \
         fenced."
            .into();
    let mut long = crate::report::made_up::result("C02", Level::L2, Status::Fail);
    long.history = Some(long_history());
    long.failure.as_mut().unwrap().operations = vec![9_000, 9_008, 15_000];
    results.cases.insert(5, long);
    results.cases.push(rich);
    results
}

/// Asserts that tags are closed in order and ids are unique.
fn well_formed(page: &str) {
    const SCRIPT: &str = r##"
import sys, html.parser
VOID = {"meta", "br", "hr", "img", "link", "input"}
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.targets = [], [], []
    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "iframe", "object", "link"), tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("src", "xlink:href"), (tag, name)
            if name == "id": self.ids.append(value)
            if name == "href":
                assert value.startswith("#"), value
                self.targets.append(value[1:])
        if tag not in VOID: self.open.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID: self.open.pop()
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-5:], self.getpos())
        self.open.pop()
page = Page()
page.feed(sys.stdin.read())
page.close()
assert not page.open, page.open
assert len(page.ids) == len(set(page.ids)), sorted(page.ids)
missing = set(page.targets) - set(page.ids)
assert not missing, missing
"##;
    python(SCRIPT, page);
}

#[test]
fn the_page_is_well_formed_with_every_status_and_nasty_texts() {
    let mut results = failing();
    well_formed(&html(&results, &setting()));
    results.subject = NASTY.into();
    results.excluded.insert("Z01".into(), NASTY.into());
    for result in &mut results.cases {
        result.reason = NASTY.into();
        if let Some(failure) = &mut result.failure {
            failure.sentence = NASTY.into();
        }
    }
    let page = html(&results, &setting());
    well_formed(&page);
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\0'));
    for word in ["PASS", "FAIL", "N/A", "INFO", "UNKNOWN", "SKIP", "ERROR"] {
        assert!(page.contains(&format!("{word}</span>")), "{word}");
    }
}

#[test]
fn a_page_without_cases_is_a_page() {
    let mut results = every_status();
    results.cases.clear();
    well_formed(&html(&results, &setting()));
}

#[test]
fn a_long_history_gives_a_small_page_that_says_what_it_leaves_out() {
    let results = failing();
    let began = thread_time();
    let page = html(&results, &setting());
    let took = thread_time() - began;
    assert!(page.len() < 150_000, "{} bytes", page.len());
    assert!(took.as_millis() < 1000, "{took:?}");
    assert!(page.contains("24 of 20,000 operations are drawn"), "what is left out is said");
    assert!(page.contains("10 of 100 marks are drawn"));
    assert!(page.contains("◷ clock +86400 s"), "what was done to it is named");
    assert!(page.contains("operations not drawn ⋯"), "breaks in time are drawn");
    for id in ["9000", "9008", "15000"] {
        assert!(page.contains(&format!("data-id=\"{id}\"")), "#{id} is the point of it");
    }
    let needed = page.matches(" needed\"").count();
    // One in the legend, two in the short history, three in each other history.
    assert_eq!(needed, 1 + 2 + 3 + 3);
}

#[test]
fn a_counterexample_of_which_nothing_is_known_shows_the_end() {
    let mut results = failing();
    for result in &mut results.cases {
        if let Some(failure) = &mut result.failure {
            failure.operations = vec![u64::MAX];
        }
    }
    let page = html(&results, &setting());
    well_formed(&page);
    assert!(page.contains("data-id=\"20000\""));
    for result in &mut results.cases {
        if let Some(failure) = &mut result.failure {
            failure.operations = (1..=500).collect();
        }
    }
    let page = html(&results, &setting());
    well_formed(&page);
    assert!(page.contains("440 more operations belong to the counterexample"), "at most 60 are drawn");
}
