//! docs/conformance/exec.md matches the code.

use std::collections::BTreeSet;

use fencepost_conformance::adapters::exec::{Options, PROTO, RESULTS};
use fencepost_conformance::run;
use fencepost_conformance::subject::Hook;
use fencepost_conformance::verdict::{Level, Status};
use fencepost_conformance::{Manifest, Op, Verb, Write};
use serde_json::Value;

use crate::marked::{Marked, judge, patient, root};

fn book() -> String {
    std::fs::read_to_string(root().join("docs/conformance/exec.md")).unwrap()
}

/// The words in backquotes of the second column, by the first column, of the rows below a header.
fn table(book: &str, header: &str) -> Vec<(String, BTreeSet<String>)> {
    let rows = book.split(header).nth(1).unwrap_or_else(|| panic!("there is no table {header}"));
    let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
    let words = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let rows = rows.map(|row| row.split('|').map(str::to_owned).collect::<Vec<_>>());
    rows.map(|cells| (words(&cells[1]).remove(0), words(&cells[2]).into_iter().collect())).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

fn sample(verb: Verb) -> Op {
    match verb {
        Verb::Write => Op::write("r", 1, "h", "v"),
        Verb::Read => Op::read("r"),
        Verb::CheckedRead => Op::checked_read("r", 1),
        Verb::Claim => Op::claim("r", 1, "h"),
        Verb::Cas => Op::cas("r", 1, "h", None, "v"),
        Verb::Delete => Op::delete("r", 1, "h"),
        Verb::Batch => Op::Batch { writes: vec![Write::new("r", 1, "h", "v")] },
    }
}

#[test]
fn every_operation_is_there_with_its_fields() {
    let mut written = table(&book(), "| `op` | fields | what it does |").into_iter();
    assert_eq!(written.next().map(|(op, _)| op).as_deref(), Some("init"));
    let coded = Verb::ALL.into_iter().map(|verb| {
        let op = serde_json::to_value(sample(verb)).unwrap();
        let mut fields = keys(&op);
        fields.remove("op");
        if let Some(writes) = op.get("writes") {
            fields.extend(keys(&writes[0]));
        }
        (verb.name().to_owned(), fields)
    });
    assert_eq!(written.collect::<Vec<_>>(), coded.collect::<Vec<_>>());
}

#[test]
fn every_result_is_there_with_its_fields() {
    let coded = RESULTS.iter().map(|(word, fields)| {
        ((*word).to_owned(), fields.iter().map(|field| (*field).to_owned()).collect::<BTreeSet<_>>())
    });
    assert_eq!(table(&book(), "| `result` | fields | when |"), coded.collect::<Vec<_>>());
}

#[test]
fn every_promise_is_there_with_its_values() {
    let defaults = serde_json::to_value(Manifest::default()).unwrap();
    let book = book();
    let mut written = table(&book, "| field | values | meaning |");
    let proto = written.pop().unwrap();
    assert_eq!(proto, ("proto".to_owned(), BTreeSet::from([PROTO.to_string()])));
    assert_eq!(written.iter().map(|(field, _)| field.clone()).collect::<BTreeSet<_>>(), keys(&defaults));
    for (field, values) in written.iter().filter(|(field, _)| field != "caps") {
        for value in values {
            let value: Value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.clone()));
            let mut manifest = defaults.clone();
            manifest[field] = value;
            serde_json::from_value::<Manifest>(manifest).unwrap_or_else(|error| panic!("{field}: {error}"));
        }
        // The document must mark the default value.
        let default = defaults[field].to_string();
        let shown = default.trim_matches('"');
        let said = [format!("`{shown}` (default)"), format!("default `{default}`")];
        let row = book.lines().find(|line| line.starts_with(&format!("| `{field}` |"))).unwrap();
        assert!(said.iter().any(|said| row.contains(said)), "{row}: the default is {default}");
    }
}

#[test]
fn limits_and_hooks_are_there() {
    let (book, options) = (book(), Options::default());
    for said in [
        format!("{} s to answer `init`", options.ready.as_secs()),
        format!("not answered within {} s", options.timeout.as_secs()),
    ] {
        assert!(book.contains(&said), "{said}");
    }
    for hook in Hook::ALL {
        assert!(book.contains(&format!("`{}`", hook.name())), "{hook:?}");
    }
    for line in book.lines().filter(|line| line.starts_with("> {") || line.starts_with("< {")) {
        serde_json::from_str::<Value>(&line[2..]).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// The hook commands for Redis in a text, by hook.
fn hooks(text: &str) -> Vec<(String, String)> {
    let given = text.split("--hook ").skip(1).filter_map(|rest| {
        let (name, command) = rest.split_once("='")?;
        Some((name.to_owned(), command.split('\'').next()?.to_owned()))
    });
    given.filter(|(_, command)| command.contains("redis")).collect()
}

/// The commands of the example are run in `databases`.
#[test]
fn the_hooks_for_redis_are_those_of_the_example() {
    let readme = std::fs::read_to_string(root().join("examples/conformance/redis/README.md")).unwrap();
    let shown = hooks(&book());
    assert_eq!(shown, hooks(&readme));
    assert_eq!(shown.iter().map(|(hook, _)| hook.as_str()).collect::<Vec<_>>(), ["start", "ready"]);
}

#[test]
fn the_adapter_in_it_is_right_until_it_is_killed() {
    let book = book();
    let code = book.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let adapter = Marked::python(code);
    let right = run::Options { level: Level::L2, ..run::Options::default() };
    let results = judge(&adapter, patient(), &right);
    assert_eq!((results.shown(), results.exit_code()), (Some(Level::L2), 0));
    let not_here = results.ids(Status::NotApplicable);
    assert!(book.contains("**B05 is N/A:**") && book.contains("**Z02 and Z09 are N/A:**"));
    assert!(["B05", "Z02", "Z09"].iter().all(|id| not_here.contains(id)), "{not_here:?}");
    assert!(["Z03", "Z06", "Z07"].iter().all(|id| results.ids(Status::Pass).contains(id)), "{not_here:?}");
    let killed = run::Options { only: vec!["R02".to_owned()], ..run::Options::default() };
    let results = judge(&adapter, patient(), &killed);
    assert_eq!(results.ids(Status::Fail), ["R02"]);
    let quoted = book.split("is told this by case R02:\n").nth(1).unwrap().lines().skip(1);
    let quoted: Vec<&str> = quoted.map_while(|line| line.strip_prefix("> ")).collect();
    assert_eq!(timeless(&quoted.join(" ")), timeless(&results.cases[0].reason), "the sentence in the book");
}

/// A sentence without its durations.
fn timeless(sentence: &str) -> String {
    let word =
        |word: &str| if word.contains('.') && word.parse::<f64>().is_ok() { "…".to_owned() } else { word.to_owned() };
    sentence.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}
