//! The reference of keys in docs/conformance/http-map.md matches the code, and its examples can be copied.

use std::collections::BTreeSet;
use std::path::Path;

use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::{Hook, Shift, Subject};
use fencepost_conformance::verdict::{Level, Outcome, Status};
use fencepost_conformance::{Answer, Op, Write};
use serde_json::{Value, json};

use crate::http::examples::examples;
use crate::http::scripted::Scripted;
use crate::http::{MapFile, call};

fn guide(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn document() -> String {
    guide("http-map.md")
}

/// The code blocks of the document in this language.
fn blocks(language: &str) -> Vec<String> {
    let (text, fence) = (document(), format!("\n```{language}\n"));
    let blocks = text.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap());
    blocks.map(str::to_owned).collect()
}

/// The first words of the rows below a heading: `| `key` | …`.
fn keys_below(heading: &str) -> BTreeSet<String> {
    let text = document();
    let (_, below) = text.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let section = below.split("\n#").next().unwrap();
    let first = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    first.map(str::to_owned).collect()
}

/// The words in backquotes after `expected one of` in the error for a map with these lines.
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
    let service = Scripted::start([]);
    let map = format!(
        "map = 1\n[resource]\nbase = \"{}\"\n[write]\n{REQUEST}headers = {{ T = \"{{token}}\" }}\nbody = \"{{value}}\"\n\
         stale = [409]\n[hooks]\nclock = \"env > seen\"\n",
        service.base()
    );
    let map = MapFile::new(&map);
    let subject = map.open().unwrap();
    // The clock hook has a variable of its own.
    subject.hook(Hook::Clock(Shift::BEHIND)).unwrap();
    let seen = std::fs::read_to_string(map.dir().join("seen")).unwrap();
    assert!(seen.lines().any(|line| line == "CONFORM_CLOCK=-86400"), "{seen}");
    let set: BTreeSet<_> = seen.lines().filter(|line| line.starts_with("CONFORM_")).collect();
    let names: BTreeSet<_> = set.iter().filter_map(|line| line.split('=').next()).map(str::to_owned).collect();
    assert_eq!(keys_below("Variables"), names);
}

/// The service of the document: `PUT` and `GET` of an item, and a `Fence-Token`.
const MY_SERVICE: &str = r#"
import argparse, http.server, re, threading, urllib.parse

options = argparse.ArgumentParser()
options.add_argument("--port", type=int)
options.add_argument("--data")
items, lock = {}, threading.Lock()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def answer(self, status, body=b""):
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def name(self):
        path = re.fullmatch("/items/([^/?;]+)", self.path)
        return path and urllib.parse.unquote(path[1])

    def do_GET(self):
        _, value = items.get(self.name(), (0, None))
        self.answer(404) if value is None else self.answer(200, value)

    def do_PUT(self):
        value = self.rfile.read(int(self.headers["Content-Length"]))
        name, tokens = self.name(), self.headers.get_all("Fence-Token", [])
        if name is None:
            return self.answer(404)
        if len(tokens) != 1 or not re.fullmatch("0|[1-9][0-9]{0,19}", tokens[0], re.ASCII) or int(tokens[0]) >= 2**64:
            return self.answer(400)
        with lock:
            fence, _ = items.get(name, (0, None))
            if int(tokens[0]) < fence:
                return self.answer(409)
            items[name] = (int(tokens[0]), value)
        self.answer(204)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(405)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", options.parse_args().port), Handler).serve_forever()
"#;

/// Completes a part of a map with the first map of the document: a table replaces the one with its name. If the part
/// starts a program, the base is the port chosen by the suite, otherwise the scripted service.
fn completed(part: &str, served: &Scripted) -> MapFile {
    let table = |text: &str| toml::from_str::<toml::Table>(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut whole = table(&blocks("toml")[0]);
    whole.extend(table(part));
    let starts = whole.get("hooks").is_some_and(|hooks| hooks.get("start").is_some());
    let base = if starts { "http://127.0.0.1:{port}".to_owned() } else { served.base() };
    let text = toml::to_string(&whole).unwrap().replace("http://127.0.0.1:8080", &base);
    // Run by its interpreter: a program file that was just written may still be open in a process that another test
    // forked.
    let map = MapFile::new(&text.replace("exec ./my-service ", "exec python3 my-service.py "));
    std::fs::write(map.dir().join("my-service.py"), MY_SERVICE).unwrap();
    std::fs::copy(examples().join("node/service.js"), map.dir().join("service.js")).unwrap();
    map
}

#[test]
fn every_map_of_the_document_is_one() {
    let served = Scripted::start([]);
    let parts = blocks("toml");
    assert!(parts.len() >= 4, "{parts:?}");
    for part in parts {
        let map = completed(&part, &served);
        map.open().unwrap_or_else(|broken| panic!("{broken}\n{part}"));
        // An unknown key is reported, so the part contains none.
        let last = part.trim_end().to_owned() + "\nzzz = 1\n";
        let error = completed(&last, &served).error();
        assert!(error.contains("unknown field `zzz`"), "{error}\n{part}");
    }
}

#[test]
fn the_first_map_of_the_document_and_the_lines_that_start_a_service_come_to_a_verdict() {
    let parts = blocks("toml");
    let start = parts.iter().find(|part| part.contains("./my-service")).expect("it starts a service");
    let map = completed(start, &Scripted::start([]));
    let results = run(&map.open().unwrap(), &Options { level: Level::L1, ..Options::default() }, &mut ());
    let others = results.cases.iter().filter(|result| result.status != Status::Pass);
    let others: Vec<_> = others.map(|result| (result.case.id, result.status.word(), &result.reason)).collect();
    assert_eq!((results.outcome(), results.shown()), (Outcome::Safe, Some(Level::L1)), "{others:#?}");
    assert_eq!(results.warnings, Vec::<String>::new());
}

/// The body that was sent last.
fn sent(served: &Scripted) -> Value {
    let last = served.last();
    serde_json::from_str(last.split("\r\n\r\n").nth(1).unwrap()).unwrap_or_else(|error| panic!("{error}: {last}"))
}

#[test]
fn the_batch_of_the_document_repeats_its_members() {
    let served = Scripted::start([]);
    let shown = blocks("json");
    assert_eq!(shown.len(), 1, "{shown:?}");
    let batch = format!(
        "[batch]\nmethod = \"POST\"\npath = \"/batch\"\njson = '''{}'''\nok = [204]\nstale = [409]\n",
        shown[0]
    );
    let map = completed(&batch, &served);
    let writes = vec![Write::new("a/b", 4, "h", "v-1"), Write::new("c", 5, "h", "v-2")];
    assert_eq!(call(&map.open().unwrap(), &Op::Batch { writes }), Answer::ok());
    let (first, second) = (json!({"put": "a/b", "text": "v-1"}), json!({"put": "c", "text": "v-2"}));
    assert_eq!(sent(&served), json!({"tokens": {"a/b": "4", "c": "5"}, "then": [first, second]}));
}

/// The guide describes what to send to a service that identifies requests by a key.
#[test]
fn the_keys_of_the_guide_are_sent() {
    let (served, guide) = (Scripted::start([]), guide("README.md"));
    let line = guide.split('`').find(|code| code.starts_with("Idempotency-Key = ")).expect("the guide has a key");
    let many = guide.split('`').find(|code| code.starts_with("monday-")).expect("and one for a batch");
    let write = format!(
        "[write]\nmethod = \"PUT\"\npath = \"/items/{{res}}\"\nheaders = {{ T = \"{{token}}\", {line} }}\nbody = \"{{value}}\"\n\
         ok = [204]\nstale = [409]\n"
    );
    let batch = format!(
        "[batch]\nmethod = \"POST\"\npath = \"/batch\"\nheaders = {{ Idempotency-Key = \"{many}\" }}\n\
         each = \"{{res}} {{token}} {{value}}\"\nok = [204]\nstale = [409]\n"
    );
    let map = completed(&format!("{write}{batch}"), &served);
    let subject = map.open().unwrap();
    let key = || {
        let last = served.last();
        let line = last.lines().find_map(|line| line.strip_prefix("Idempotency-Key: "));
        line.unwrap_or_else(|| panic!("{last}")).to_owned()
    };
    assert_eq!(call(&subject, &Op::write("a/ü", 4, "h", "v")), Answer::ok());
    assert_eq!(key(), "612fc3bc-3");
    assert_eq!(call(&subject, &Op::Batch { writes: vec![Write::new("a", 4, "h", "v")] }), Answer::ok());
    assert_eq!(key(), "monday-A01-7-3");
}
