//! The kill matrix, for the terminal and for the documentation.

use std::fmt::Write;

use super::{AGAIN, Budget, ESCAPES, MANY, Report, Row, python};
use crate::cases::{self, GROUPS};
use crate::reference::{Front, MUTANTS, Mutant, SETUPS};
use crate::verdict::{Level, Status};

impl Report {
    /// The text for the terminal: the matrix, and the problems.
    pub fn text(&self) -> String {
        let mut text = self.grid();
        let told = [("reference", &self.reference), ("lazy", &self.lazy)];
        for (title, rows) in told.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            let runs: u64 = rows.values().flat_map(Row::values).map(super::Tally::runs).sum();
            let _ = writeln!(text, "{title}: {runs} runs in {} ways", rows.len());
        }
        text.push_str(&self.slowest());
        for missing in &self.missing {
            let _ = writeln!(text, "NOT RUN {missing}");
        }
        for left in &self.left_out {
            let _ = writeln!(text, "not run: {left}");
        }
        for problem in &self.problems {
            let _ = writeln!(text, "PROBLEM {problem}");
        }
        let word = match self.exit_code() {
            0 => "the suite bites",
            1 => "the suite does not bite",
            _ => "not shown: a part of it could not be run, the rest bites",
        };
        let _ = writeln!(text, "{word}: {} mutants, {} problems", self.mutants.len(), self.problems.len());
        text
    }

    /// The slowest cases, all seeds together.
    fn slowest(&self) -> String {
        let kinds = [("", &self.reference), ("", &self.mutants), (" in Python", &self.python), ("", &self.lazy)];
        let mut runs = Vec::new();
        for (kind, rows) in kinds {
            for (name, row) in rows {
                runs.extend(row.iter().map(|(id, tally)| (tally.took, format!("{id} with {name}{kind}"))));
            }
        }
        runs.sort();
        let slowest = runs.iter().rev().take(8).map(|(took, what)| format!("{what} {:.1} s", took.as_secs_f64()));
        format!("slowest: {}\n", slowest.collect::<Vec<_>>().join(", "))
    }

    /// One line for each mutant, one column for each case.
    pub fn grid(&self) -> String {
        let width = MUTANTS.iter().map(|mutant| mutant.name.len() + 3).max().unwrap_or(0);
        let mut text = String::new();
        for digit in [0, 1, 2] {
            let _ = write!(text, "{:width$}", "");
            for group in groups() {
                text.push(' ');
                text.extend(group.iter().map(|id| id[digit..].chars().next().unwrap_or(' ')));
            }
            text.push('\n');
        }
        let mut line = |name: &str, mutant: &Mutant, row: &Row| {
            let _ = write!(text, "{name:width$}");
            for group in groups() {
                text.push(' ');
                text.extend(group.iter().map(|id| mark(mutant, row, id)));
            }
            text.push('\n');
        };
        for mutant in MUTANTS {
            if let Some(row) = self.mutants.get(mutant.name) {
                line(mutant.name, mutant, row);
            }
        }
        for mutant in MUTANTS {
            if let Some(row) = self.python.get(mutant.name) {
                line(&format!("{} py", mutant.name), mutant, row);
            }
        }
        text.push_str(
            "# failed by its named case   x failed   . not failed   - does not apply   ? unknown, skipped or broken\n",
        );
        text
    }

    /// The document: what each mutant does wrong, which case must find it, and the matrix of this run.
    pub fn markdown(&self) -> String {
        let mut text = preface();
        text.push_str("| Mutant | What it does wrong | Named case | Reached |\n| --- | --- | --- | --- |\n");
        for mutant in MUTANTS {
            let _ = writeln!(text, "{}", row(mutant));
        }
        text.push_str(
            "\n## The matrix\n\n`py` are the same bugs in Python, over exec, against their named case.\n\n```\n",
        );
        text.push_str(&self.grid());
        text.push_str("```\n");
        text
    }
}

/// The row of a mutant in the document.
fn row(mutant: &Mutant) -> String {
    let id = mutant.case();
    let title = cases::find(id).map_or("", |case| case.title);
    let way = match mutant.setup.front {
        Front::Calls => "calls",
        Front::Http => "HTTP",
    };
    format!("| `{}` | {} | {id} {title} | {way} |", mutant.name, mutant.what)
}

fn preface() -> String {
    let (usual, full) = (Budget::default(), Budget::full());
    let head = "# Does the suite bite?

Each mutant is the reference resource with one bug. `fencepost conform selftest` runs them: each must be failed by the
case that is named here, each case must fail at least one mutant, and the reference itself must pass every case. The
test `write_the_document` in tests/tests/selftest/main.rs writes this page.
";
    let mut runs = String::from(
        "
| runs | for every change | at the full budget (`--full`, `FENCEPOST_BUDGET=full`) |
| --- | --- | --- |
",
    );
    for (what, usual, full) in budgets(&usual, &full) {
        let _ = writeln!(runs, "| {what} | {usual} | {full} |");
    }
    let rules = format!(
        "
The setups are {}.
With `stale-ok` half of its reads come from a cache, and with `at_least` half of the fences it reports are too low.
For every change R08 goes on after {} other resources. The runs on one busy CPU are made by the tests, not by the command line: all threads
share one processor with one that never rests. 1,000 seeds would take a day there, and several in Python.

Of 100 runs one may let its mutant go. A mutant that escapes in fewer runs is tried with up to {AGAIN} seeds, and may escape in
{ESCAPES} of them: so a mutant that is failed in 99 of 100 does not stop a change, and one that is failed in every second run does.
The same holds for an UNKNOWN of the reference, on a busy machine. A FAIL of the reference is never excused.

",
        SETUPS.map(|(name, _)| format!("`{name}`")).join(", "),
        MANY * 200
    );
    format!("{head}{runs}{rules}")
}

/// What each budget runs, and how often.
fn budgets(usual: &Budget, full: &Budget) -> [(&'static str, String, String); 8] {
    let both = |what, seeds: fn(&Budget) -> u64| (what, count(seeds(usual)), count(seeds(full)));
    let everywhere = |budget: &Budget| format!("{} in every setup", count(budget.reference_seeds));
    let plain = SETUPS[0].0;
    [
        both("each mutant against its cases of L1", |budget| budget.seeds("A01")),
        both("each mutant against its cases of L2 and L3", |budget| budget.seeds("C01")),
        both("each mutant in Python against its case of L1", |budget| budget.python_seeds("A01")),
        both("each mutant in Python against its case of L2 or L3", |budget| budget.python_seeds("C01")),
        (
            "the reference against every case",
            format!("{} in the setup `{plain}`, 1 in each other", count(usual.reference_seeds)),
            everywhere(full),
        ),
        (
            "the reference in Python against every case",
            format!(
                "{} in the setup `{plain}`, without {}",
                count(usual.python_reference_seeds()),
                python::LONG.join(", ")
            ),
            format!("{} in every setup but `http`", count(full.python_reference_seeds())),
        ),
        (
            "the reference on one busy CPU against every case",
            everywhere(&usual.on_a_busy_cpu()),
            everywhere(&full.on_a_busy_cpu()),
        ),
        ("each adapter that does nothing", "1 seed, the cases of L1".to_owned(), "1 seed, every case".to_owned()),
    ]
}

/// `1 seed`, `3 seeds`
fn count(seeds: u64) -> String {
    format!("{seeds} seed{}", if seeds == 1 { "" } else { "s" })
}

fn groups() -> Vec<Vec<&'static str>> {
    let shown = |case: &&cases::Case| case.level <= Level::L3;
    let ids = GROUPS.iter().map(|group| group.cases.iter().filter(shown).map(|case| case.id).collect());
    ids.filter(|group: &Vec<&str>| !group.is_empty()).collect()
}

fn mark(mutant: &Mutant, row: &Row, id: &str) -> char {
    let Some(tally) = row.get(id) else { return ' ' };
    if tally.count(Status::Fail) > 0 {
        return if mutant.case() == id { '#' } else { 'x' };
    }
    match tally.runs() {
        runs if runs == tally.count(Status::NotApplicable) => '-',
        runs if runs == tally.count(Status::Pass) + tally.count(Status::Info) => '.',
        _ => '?',
    }
}
