//! An unusable map is reported with its file, the line, and what was expected.

use fencepost_conformance::adapters::http::{Overrides, open};
use fencepost_conformance::manifest::{Equal, High, Kill, Policy, Reads};
use fencepost_conformance::subject::{Around, Subject};
use fencepost_conformance::{Answer, Op, Verb};

use crate::http::scripted::Scripted;
use crate::http::{MapFile, call};

/// Each line can be replaced by its number.
const GOOD: [&str; 37] = [
    "map = 1",                                                                           // 1
    "[resource]",                                                                        // 2
    "base = \"http://127.0.0.1:9\"",                                                     // 3
    "timeout = \"2s\"",                                                                  // 4
    "policy = \"ge\"",                                                                   // 5
    "[write]",                                                                           // 6
    "method = \"PUT\"",                                                                  // 7
    "path = \"/kv/{res}\"",                                                              // 8
    "headers = { Token = \"{token}\" }",                                                 // 9
    "body = \"{value}\"",                                                                // 10
    "ok = [204]",                                                                        // 11
    "stale = [409]",                                                                     // 12
    "error = [\"4xx\"]",                                                                 // 13
    "high = \"header:Fence\"",                                                           // 14
    "[read]",                                                                            // 15
    "method = \"GET\"",                                                                  // 16
    "path = \"/kv/{res}\"",                                                              // 17
    "ok = [200]",                                                                        // 18
    "value = \"body\"",                                                                  // 19
    "[cas]",                                                                             // 20
    "method = \"POST\"",                                                                 // 21
    "path = \"/cas/{res}\"",                                                             // 22
    "json = '{\"t\": \"{token}\", \"e\": \"{expect}\", \"v\": \"{value}\"}'",            // 23
    "ok = [204]",                                                                        // 24
    "stale = [409]",                                                                     // 25
    "mismatch = [412]",                                                                  // 26
    "[batch]",                                                                           // 27
    "method = \"POST\"",                                                                 // 28
    "path = \"/batch\"",                                                                 // 29
    "json = '[\"{each}\", {\"k\": \"{res}\", \"t\": \"{token}\", \"v\": \"{value}\"}]'", // 30
    "ok = [204]",                                                                        // 31
    "stale = [409]",                                                                     // 32
    "[[mutation]]",                                                                      // 33
    "name = \"expire\"",                                                                 // 34
    "method = \"POST\"",                                                                 // 35
    "path = \"/kv/{res}/expire\"",                                                       // 36
    "ok = [204]",                                                                        // 37
];

fn with(line: usize, text: &str) -> String {
    let mut lines = GOOD.map(str::to_owned);
    lines[line - 1] = text.to_owned();
    lines.join("\n")
}

#[track_caller]
fn assert_wrong(line: usize, text: &str, at: usize, expected: &str) {
    let error = MapFile::new(&with(line, text)).error();
    assert!(error.starts_with(&format!("resource.toml:{at}: ")), "`{text}` is said to be wrong elsewhere: {error}");
    assert!(error.contains(expected), "`{text}`: {error}");
}

#[test]
fn the_map_that_the_others_are_made_of_is_good() {
    let service = Scripted::start([]);
    let map = MapFile::new(&with(3, &format!("base = \"{}\"", service.base())));
    let subject = map.open().unwrap();
    assert_eq!(call(&subject, &Op::write("r", 1, "h", "v")), Answer::ok());
    let manifest = subject.manifest();
    assert_eq!(manifest.caps, [Verb::Write, Verb::Read, Verb::Cas, Verb::Batch].into());
    assert!(subject.bypasses().contains(&Around::Request("expire".to_owned())));
}

#[test]
fn unknown_keys_are_named_with_those_there_are() {
    assert_wrong(1, "map = 1\nmaap = 2", 2, "unknown field `maap`, expected one of `map`, `resource`, `write`");
    assert_wrong(5, "polizy = \"ge\"", 5, "unknown field `polizy`, expected one of `base`, `timeout`, `policy`");
    assert_wrong(8, "pth = \"/kv/{res}\"", 8, "unknown field `pth`, expected one of `method`, `path`");
    assert_wrong(34, "nam = \"x\"", 34, "unknown field `nam`");
    assert_wrong(
        37,
        "ok = [204]\n[hooks]\nstrat = \"x\"",
        39,
        "unknown field `strat`, expected one of `start`, `ready`",
    );
    assert_wrong(
        12,
        "stale = [{ status = 409, as = \"x\" }]",
        12,
        "unknown field `as`, expected one of `status`, `at`, `is`",
    );
    assert_wrong(26, "mismatch = [412]\n[cas.when_none]\nok = [1]", 28, "unknown field `ok`");
    assert_wrong(5, "polizy = \"ge\"", 5, "did you mean `policy`?");
    assert_wrong(37, "ok = [204]\n[hooks]\nstrat = \"x\"", 39, "did you mean `start`?");
}

#[test]
fn missing_keys_are_named() {
    assert_wrong(7, "", 6, "missing field `method`");
    assert_wrong(11, "", 6, "missing field `ok`");
    assert_wrong(3, "", 2, "missing field `base`");
    assert_wrong(12, "", 6, "[write] needs `stale`");
    assert_wrong(19, "", 15, "[read] needs `value`");
    assert_wrong(26, "", 20, "[cas] needs `mismatch`");
    assert!(MapFile::new("map = 1").error().contains("missing field `resource`"));
    let error = MapFile::new("").error();
    assert!(error.contains("missing field `map`: a map begins with the version of its format, `map = 1`"), "{error}");
}

#[test]
fn wrong_values_are_named() {
    assert_wrong(1, "map = 2", 1, "a map of version 2; this suite reads version 1");
    assert_wrong(1, "map = \"1\"", 1, "expected u64");
    assert_wrong(3, "base = \"https://127.0.0.1:9\"", 3, "http:// only");
    assert_wrong(3, "base = \"127.0.0.1:{port}\"", 3, "`127.0.0.1:{port}` is no base: http:// is missing");
    assert_wrong(3, "base = []", 3, "`base` is empty");
    assert_wrong(3, "base = 7", 3, "expected a text, or a list of texts");
    assert_wrong(4, "timeout = 5", 4, "expected a string");
    assert_wrong(4, "timeout = \"5 s\"", 4, "`5 s` is not a time: write a number with ms, s or min");
    assert_wrong(5, "policy = \"eq\"", 5, "unknown variant `eq`, expected `ge` or `gt`");
    assert_wrong(5, "token_max = 5", 5, "expected a string");
    assert_wrong(5, "token_max = \"5x\"", 5, "decimal digits, in quotes");
    assert_wrong(7, "method = \"put\"", 7, "`put` is no method");
    assert_wrong(7, "method = 5", 7, "expected a string");
    assert_wrong(8, "path = \"kv/{res}\"", 8, "begins with `/`");
    assert_wrong(9, "headers = { \"a b\" = \"{token}\" }", 9, "no name of a header");
    assert_wrong(9, "headers = { Token = \"{token}\", content-length = \"5\" }", 9, "made by the suite");
    assert_wrong(11, "ok = 204", 11, "expected a sequence");
    assert_wrong(11, "ok = [99]", 11, "from 200 to 599");
    assert_wrong(11, "ok = [\"20x\"]", 11, "`20x` is no class");
    assert_wrong(11, "ok = [\"204\"]", 11, "write the status 204 without quotes");
    assert_wrong(13, "error = [\"5xx\"]", 13, "\"5xx\" is not possible");
    assert_wrong(13, "error = [409]", 13, "two meanings");
    assert_wrong(12, "stale = [{ status = 409, at = \"xml:/a\", is = \"b\" }]", 12, "no place in an answer");
    assert_wrong(14, "high = \"Fence\"", 14, "write \"header:Name\", \"json:/pointer/to/it\" or \"body\"");
    assert_wrong(14, "high = \"json:fence\"", 14, "no place in an answer");
    assert_wrong(10, "body = \"{value}\"\njson = '{}'", 8, "a request has one body");
    assert_wrong(14, "value = \"body\"", 14, "`value` means nothing in [write]: it is for reads and claims");
    assert_wrong(13, "mismatch = [412]", 13, "`mismatch` means nothing in [write]");
    assert_wrong(18, "ok = [200]\nstale = [409]", 19, "`stale` means nothing in [read]");
    assert_wrong(10, "each = \"{value}\"", 10, "`each` means nothing in [write]");
    assert_wrong(2, "[resource", 2, "");
}

#[test]
fn wrong_templates_are_named() {
    assert_wrong(8, "path = \"/kv/{name}\"", 8, "`{name}` is no placeholder: {res} {token}");
    assert_wrong(8, "path = \"/kv/{res\"", 8, "never closed");
    assert_wrong(8, "path = \"/kv/{res:upper}\"", 8, "no way of writing");
    assert_wrong(8, "path = \"/kv/{res}?e={expect}\"", 8, "`{expect}` means nothing here; there is `{res}`, `{token}`");
    assert_wrong(17, "path = \"/kv/{res}?t={token}\"", 17, "`{token}` means nothing here; there is `{res}`");
    assert_wrong(8, "path = \"/kv/all\"", 6, "[write] never says `{res}`");
    assert_wrong(9, "", 6, "[write] never says `{token}`");
    assert_wrong(10, "", 6, "[write] never says `{value}`");
    assert_wrong(5, "equal = \"holder\"", 6, "[write] never says `{holder}`");
    assert_wrong(23, "json = '{\"t\": }'", 23, "expected value at line 1 column 7");
    assert_wrong(23, "json = '{\"t\": \"{token}\", \"v\": \"{value}\"}'", 20, "[cas] never says `{expect}`");
    let inside = "json = '{\"t\": \"{token}\", \"e\": \"was {expect}\", \"v\": \"{value}\"}'";
    assert_wrong(23, inside, 20, "[cas.when_none] is needed");
    assert_wrong(30, "json = '[{\"k\": \"{res}\"}]'", 30, "`{res}` means nothing here; there is none");
    assert_wrong(29, "path = \"/batch/{res}\"", 29, "in a batch only what is repeated says them");
    assert_wrong(30, "json = '[\"{each}\"]'", 30, "stands behind");
    assert_wrong(36, "path = \"/expire\"", 33, "never says `{res}`");
    assert_wrong(37, "ok = [204]\nwait = \"2min\"", 38, "let it happen within a minute");
    assert_wrong(37, "ok = [204]\nwait = \"soon\"", 38, "`soon` is not a time");
    assert_wrong(
        26,
        "mismatch = [412]\n[cas.when_none]\njson = '{\"t\": \"{expect}\"}'",
        28,
        "`{expect}` means nothing here",
    );
    assert_wrong(
        26,
        "mismatch = [412]\n[cas.when_none]\njson = '{\"t\": \"{token}\"}'",
        20,
        "[cas.when_none] never says `{value}`",
    );
}

#[test]
fn wrong_hooks_are_named() {
    let hooks = |text: &str| format!("ok = [204]\n[hooks]\n{text}");
    assert_wrong(37, &hooks("start = \"\""), 38, "the hook `start` is empty");
    assert_wrong(37, &hooks("start = \"a\"\nrestart = \"b\""), 38, "`restart` cannot be given together with `start`");
    assert_wrong(37, &hooks("pause = \"a\""), 38, "`pause` and `resume` belong together");
    assert_wrong(37, &hooks("kill = 5"), 39, "expected a string");
    assert_wrong(37, &hooks("limit = \"forever\""), 39, "is not a time");
    assert_wrong(37, &hooks("limit = \"0s\""), 39, "no time in which anything could happen: write at least \"1ms\"");
    assert_wrong(4, "timeout = \"0s\"", 4, "no time in which anything could happen");
}

#[test]
fn a_service_that_is_not_there_is_an_error_that_says_what_to_do() {
    let map = MapFile::new(&GOOD.join("\n"));
    let error = map.error();
    assert!(error.contains("http://127.0.0.1:9 does not answer"), "{error}");
    assert!(error.contains("start the service first, or give `start` in [hooks]"), "{error}");
    let error = MapFile::new(&with(3, "base = \"http://127.0.0.1:{port}\"")).error();
    assert!(error.contains("`{port}` is a free port for what `start`"), "{error}");
    let missing = open(&map.dir().join("none.toml"), &Overrides::default()).err().unwrap();
    assert!(missing.0.contains("none.toml cannot be read: No such file"), "{missing}");
}

#[test]
fn the_manifest_is_that_of_the_resource_table() {
    let service = Scripted::start([]);
    let promises = "policy = \"gt\"\nreads = \"stale-ok\"\nhigh = \"at_least\"\nmismatch_raises = true\nkill = \"everything\"\n\
                    token_max = \"9223372036854775807\"";
    let map = MapFile::new(&with(5, promises));
    let base = vec![service.base(), service.base()];
    let subject = open(&map.path(), &Overrides { base, ..Overrides::default() }).unwrap();
    let manifest = subject.manifest();
    assert_eq!((manifest.policy, manifest.equal, manifest.reads), (Policy::Gt, Equal::Any, Reads::StaleOk));
    assert_eq!((manifest.high, manifest.mismatch_raises, manifest.kill), (High::AtLeast, true, Kill::Everything));
    assert_eq!((manifest.token_max, manifest.text_tokens), (i64::MAX as u64, true));
    assert_eq!(subject.instances(), 2);
    assert!(subject.describe().contains("resource.toml"));
}
