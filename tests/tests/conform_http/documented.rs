//! The reference of keys in docs/conformance/http-map.md is that of the code.

use std::collections::BTreeSet;
use std::path::Path;

use fencepost_conformance::subject::{Hook, Shift, Subject};

use crate::MapFile;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance/http-map.md");
    std::fs::read_to_string(path).unwrap()
}

/// The first words of the rows below a heading: `| `key` | …`.
fn keys_below(heading: &str) -> BTreeSet<String> {
    let text = document();
    let (_, below) = text.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let section = below.split("\n#").next().unwrap();
    let first = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    first.map(str::to_owned).collect()
}

/// The words in backquotes behind `expected one of` in the error for a map with these lines.
fn keys_expected(text: &str) -> BTreeSet<String> {
    let error = MapFile::new(text).error();
    let (_, list) = error.split_once("expected one of ").unwrap_or_else(|| panic!("{error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

const RESOURCE: &str = "map = 1\n[resource]\nbase = \"http://127.0.0.1:1\"\n";
const REQUEST: &str = "method = \"PUT\"\npath = \"/{res}\"\nok = [200]\n";

#[test]
fn every_key_is_in_the_reference_and_no_other() {
    let mutation = format!("{RESOURCE}[write]\n{REQUEST}[[mutation]]\nname = \"x\"\n{REQUEST}");
    for (heading, map) in [
        ("The file", "zzz = 1".to_owned()),
        ("`[resource]`", "[resource]\nzzz = 1".to_owned()),
        ("`[write]` and the other verbs", "[write]\nzzz = 1".to_owned()),
        ("`[cas.when_none]`", format!("{RESOURCE}[write]\n{REQUEST}[cas]\n{REQUEST}[cas.when_none]\nzzz = 1")),
        ("`[[mutation]]`", format!("{RESOURCE}[write]\n{REQUEST}[[mutation]]\nzzz = 1")),
        ("`[mutation.before]`", format!("{mutation}[mutation.before]\nzzz = 1")),
        ("`[hooks]`", format!("{RESOURCE}[write]\n{REQUEST}[hooks]\nzzz = 1")),
    ] {
        assert_eq!(keys_below(heading), keys_expected(&map), "{heading}");
    }
}

#[test]
fn every_placeholder_and_filter_is_in_the_reference() {
    let map = |path: &str| format!("{RESOURCE}[write]\nmethod = \"PUT\"\npath = \"{path}\"\nok = [200]\n");
    let error = MapFile::new(&map("/{zzz}")).error();
    let (_, list) = error.split_once("is no placeholder: ").unwrap();
    let known: BTreeSet<_> = list.split(';').next().unwrap().split(' ').map(str::to_owned).collect();
    assert_eq!(keys_below("Placeholders"), known);
    let error = MapFile::new(&map("/{res:zzz}")).error();
    let (_, list) = error.split_once("is no way of writing: ").unwrap();
    let known: BTreeSet<_> = list.split(", ").map(|name| format!(":{name}")).collect();
    assert_eq!(keys_below("Ways of writing"), known);
}

#[test]
fn every_variable_of_a_hook_is_in_the_reference() {
    let service = crate::scripted::Scripted::start([]);
    let map = format!(
        "map = 1\n[resource]\nbase = \"{}\"\n[write]\n{REQUEST}headers = {{ T = \"{{token}}\" }}\nbody = \"{{value}}\"\n\
         stale = [409]\n[hooks]\nclock = \"env > seen\"\n",
        service.base()
    );
    let map = MapFile::new(&map);
    let subject = map.open().unwrap();
    // It is the one with a variable of its own.
    subject.hook(Hook::Clock(Shift::BEHIND)).unwrap();
    let seen = std::fs::read_to_string(map.dir().join("seen")).unwrap();
    assert!(seen.lines().any(|line| line == "CONFORM_CLOCK=-86400"), "{seen}");
    let set: BTreeSet<_> = seen.lines().filter(|line| line.starts_with("CONFORM_")).collect();
    let names: BTreeSet<_> = set.iter().filter_map(|line| line.split('=').next()).map(str::to_owned).collect();
    assert_eq!(keys_below("Variables"), names);
}

#[test]
fn the_first_map_of_the_document_is_one() {
    let text = document();
    let map = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let service = crate::scripted::Scripted::start([]);
    let map = map.replace("http://127.0.0.1:8080", &service.base());
    assert!(map.contains(&service.base()));
    MapFile::new(&map).open().unwrap();
}
