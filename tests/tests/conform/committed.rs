//! The committed reports beside the examples that are wrong on purpose.

use std::path::Path;

use fencepost_conformance::cases;
use fencepost_conformance::run;
use fencepost_conformance::verdict::Results;

/// The content of a committed report, in current terms.
pub(crate) struct Committed {
    /// Id and status of every case, in order.
    cases: Vec<(String, String)>,
    verdict: String,
}

impl Committed {
    /// Reads the report of an example. Each case must still have its name.
    pub(crate) fn of(example: &str) -> Committed {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/conformance");
        let page = std::fs::read_to_string(examples.join(example).join("report.html")).unwrap();
        let between = |text: &str, end: &str| text.split(end).next().unwrap_or_default().to_owned();
        let verdict = page.split("<p class=\"verdict").nth(1).and_then(|rest| rest.split("<span>").nth(1));
        let verdict = between(verdict.expect("the page has a verdict"), "</span>");
        let mut cases = Vec::new();
        // For example: R01 restarted in order: FAIL
        for label in page.split("aria-label=\"").skip(1).map(|rest| between(rest, "\"")) {
            let Some((id, rest)) = label.split_once(' ') else { continue };
            let (Some(case), Some((title, status))) = (cases::find(id), rest.rsplit_once(": ")) else { continue };
            assert_eq!(title, case.title, "{id} has another name now: make the report of {example} anew");
            cases.push((id.to_owned(), status.to_owned()));
        }
        assert!(!cases.is_empty(), "the report of {example} lists no case");
        Committed { cases, verdict }
    }

    /// Options for a run of the same cases.
    pub(crate) fn asked(&self) -> run::Options {
        run::Options { only: self.cases.iter().map(|(id, _)| id.clone()).collect(), ..run::Options::default() }
    }

    /// Asserts that a new run has the same results.
    #[track_caller]
    pub(crate) fn agrees_with(&self, results: &Results) {
        let status = |result: &fencepost_conformance::verdict::CaseResult| {
            (result.case.id.to_owned(), result.status.word().to_owned())
        };
        assert_eq!(results.cases.iter().map(status).collect::<Vec<_>>(), self.cases);
        assert_eq!(results.last_line(), self.verdict);
    }
}
