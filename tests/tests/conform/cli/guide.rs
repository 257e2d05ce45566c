//! The verdicts in the guide, docs/conformance/README.md, match those of the code.

use std::path::Path;

use fencepost_conformance::cases;

/// The entries in the first column of its table of verdicts.
fn verdicts() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance/README.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let table = guide.split("| last line | exit code |\n").nth(1).expect("the guide has a table of last lines");
    let rows = table.lines().skip(1).map_while(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

/// `2 of 71 cases failed (C01, R03)`: the two numbers, and the ids.
fn counted(verdict: &str) -> Option<(usize, usize, Vec<&str>)> {
    let words: Vec<&str> = verdict.split_whitespace().collect();
    let (some, all) = words.windows(4).find_map(|words| match words {
        [some, "of", all, "case" | "cases"] => Some((some.parse().ok()?, all.parse().ok()?)),
        _ => None,
    })?;
    let ids = verdict.split('(').nth(1)?.split(')').next()?;
    Some((some, all, ids.split(", ").collect()))
}

#[test]
fn the_verdicts_of_the_guide_count_the_cases_that_there_are() {
    let all = cases::all().count();
    let (verdicts, mut of_all) = (verdicts(), 0);
    for verdict in &verdicts {
        let Some((some, of, ids)) = counted(verdict) else { continue };
        assert_eq!(some, ids.len(), "{verdict}");
        assert!(ids.iter().all(|id| cases::find(id).is_some()), "{verdict}");
        match verdict.split("no level is claimed: ").nth(1) {
            Some(left_out) => assert_eq!(left_out, format!("{} cases not selected", all - of), "{verdict}"),
            None => {
                assert_eq!(of, all, "{verdict}");
                of_all += 1;
            }
        }
    }
    assert!(of_all >= 3 && of_all < verdicts.len(), "the table says little: {verdicts:?}");
}
