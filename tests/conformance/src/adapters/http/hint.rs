//! Hints added to the TOML parser's messages about a map.

/// The largest edit distance that still counts as a typing error.
const SLIP: usize = 2;

/// The message with a hint, where there is one.
pub(super) fn hinted(message: &str) -> String {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let hint = match quoted.next() {
        Some(field) if message.starts_with("missing field") => missing(field).map(str::to_owned),
        Some(field) if message.starts_with("unknown field") || message.starts_with("unknown variant") => {
            nearest(field, quoted).map(|meant| format!("did you mean `{meant}`?"))
        }
        _ => None,
    };
    match hint {
        Some(hint) => format!("{message}: {hint}"),
        None => message.to_owned(),
    }
}

fn missing(field: &str) -> Option<&'static str> {
    Some(match field {
        "map" => "a map begins with the version of its format, `map = 1`, before all tables",
        "resource" => "a map has a table [resource], with at least `base = \"http://127.0.0.1:8080\"`",
        "base" => "where the service listens, such as \"http://127.0.0.1:8080\"",
        "write" => "a map has a table [write]: every resource can be written",
        "method" => "which method the request has, such as \"PUT\"",
        "path" => "which path the request has, such as \"/items/{res}\"",
        "ok" => "which statuses say that it was done, such as [200, 204]",
        "name" => "what reports call this mutation",
        _ => return None,
    })
}

/// The nearest of the known names, if it is near enough.
fn nearest<'n>(field: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let near = known.map(|known| (distance(field, known), known)).min()?;
    let slip = SLIP.min(field.chars().count() / 2);
    (near.0 <= slip).then_some(near.1)
}

/// The edit distance: insertions, deletions, replacements, and swaps of neighbours.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for i in 0..=one.len() {
        for j in 0..=other.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
                    let swapped = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
                    let best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    if swapped { best.min(rows[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, hinted};

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let unknown =
            |field: &str| hinted(&format!("unknown field `{field}`, expected one of `method`, `path`, `ok`\n"));
        assert!(unknown("pth").ends_with("`ok`: did you mean `path`?"), "{}", unknown("pth"));
        assert!(unknown("mehtod").ends_with("did you mean `method`?"));
        assert!(unknown("headers").ends_with("`ok`"), "{}", unknown("headers"));
        assert!(unknown("x").ends_with("`ok`"), "one letter is near to everything short");
        assert!(hinted("missing field `map`").contains("`map = 1`"));
        assert_eq!(hinted("expected a string"), "expected a string");
        assert_eq!((distance("strat", "start"), distance("abc", ""), distance("ab", "ab")), (1, 3, 0));
    }
}
