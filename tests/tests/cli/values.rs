//! `fencepost kv`, `claim` and `fence`: their output, and one exit code for each case that a script handles
//! differently.

use std::process::Command;

use fencepost_harness::command_line::{Said, command, run, run_with_input};
use fencepost_harness::fresh::Fresh;
use fencepost_harness::process::{GatewayProcess, binary};
use serde_json::Value;

#[test]
fn put_get_list_and_delete() {
    let gateway = Fresh::memory(&[]);
    let put = run(&gateway, "kv put orders/123 paid --token 34 --content-type text/plain");
    assert_eq!(put.code, 0, "{put:?}");
    assert!(put.text().starts_with("wrote orders/123, version \"") && put.text().ends_with(", fence 34\n"), "{put:?}");
    assert_eq!(gateway.client().get("orders/123").header("content-type"), Some("text/plain"));
    let get = run(&gateway, "kv get orders/123");
    assert_eq!((get.code, get.text().as_str(), get.err.as_str()), (0, "paid", ""), "the value and nothing else");
    let list = run(&gateway, "kv list");
    let line = list.text();
    assert!(line.starts_with("orders/123\t4 bytes\tversion \"") && line.ends_with("\ttoken 34\n"), "{list:?}");
    assert_eq!(run(&gateway, "kv list stock/").text(), "");
    let delete = run(&gateway, "kv delete orders/123 --token 34");
    assert_eq!((delete.code, delete.text().as_str()), (0, "deleted orders/123, fence 34\n"));
    run(&gateway, "kv get orders/123").assert_failed(5, &["`orders/123` has no value"]);
}

#[test]
fn json_for_scripts() {
    let gateway = Fresh::memory(&[]);
    let put = run(&gateway, "kv put k paid --token 34 --json").json();
    assert_eq!((&put["key"], &put["fence"], &put["observed"]), (&"k".into(), &"34".into(), &Value::Null));
    let etag = put["etag"].as_str().unwrap();
    let get = run(&gateway, "kv get k --json").json();
    assert_eq!((&get["text"], &get["etag"], &get["token"]), (&"paid".into(), &etag.into(), &"34".into()));
    assert_eq!((&get["content_type"], &get["unclaimed"]), (&"application/octet-stream".into(), &false.into()));
    assert_eq!(run_with_input(&gateway, "kv put b --token 1 --json", &[0xff, 0]).code, 0);
    let get = run(&gateway, "kv get b --json").json();
    assert_eq!((&get["base64"], get.get("text")), (&"/wA=".into(), None));
    let list = run(&gateway, "kv list --json --limit 1").json();
    assert_eq!((&list["keys"][0]["key"], &list["next"]), (&"b".into(), &"b".into()));
    let claim = run(&gateway, "claim k --token 35 --holder me#1 --json").json();
    assert_eq!((&claim["fence"]["token"], &claim["values"][0]["text"]), (&"35".into(), &"paid".into()));
    let fence = run(&gateway, "fence show k --json").json();
    assert_eq!((&fence["generation"], &fence["fence"]["holder"]), (&0.into(), &"me#1".into()));
    let never = run(&gateway, "fence show never --json").json();
    assert_eq!(never["fence"], Value::Null);
    let fences = run(&gateway, "fence list --json").json();
    assert_eq!(fences["fences"].as_array().unwrap().len(), 2);
    let delete = run(&gateway, "kv delete k --token 35 --json").json();
    assert_eq!((&delete["etag"], &delete["fence"]), (&Value::Null, &"35".into()));
}

#[test]
fn values_come_from_arguments_files_and_standard_input_byte_by_byte() {
    let gateway = Fresh::memory(&[]);
    let bytes: Vec<u8> = (0..=255).collect();
    for line in ["kv put in --token 1", "kv put in - --token 1"] {
        assert_eq!(run_with_input(&gateway, line, &bytes).code, 0);
        assert_eq!(run(&gateway, "kv get in").out, bytes, "{line}");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("value");
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(run(&gateway, &format!("kv put file --token 1 --file {}", path.display())).code, 0);
    assert_eq!(run(&gateway, "kv get file").out, bytes);
    run(&gateway, "kv put file --token 1 --file /does/not/exist").assert_failed(2, &["/does/not/exist"]);
    run(&gateway, "kv put file value --token 1 --file x").assert_failed(2, &["cannot be used with"]);
    assert_eq!(run_with_input(&gateway, "kv put empty --token 1", b"").code, 0);
    assert_eq!(run(&gateway, "kv get empty").out, b"");
    assert_eq!(run(&gateway, "kv put minus --token 1 -- -5").code, 0);
    assert_eq!(run(&gateway, "kv get minus").text(), "-5");
}

#[test]
fn the_token_may_come_from_the_environment() {
    let gateway = Fresh::memory(&[]);
    let environment = [("FENCEPOST_TOKEN", "34"), ("FENCEPOST_HOLDER", "me#1"), ("FENCEPOST_ISSUER", "etcd:7")];
    let put: Said = command(&gateway, &["kv", "put", "k", "v"]).envs(environment).output().unwrap().into();
    assert_eq!(put.code, 0, "{put:?}");
    let fence = run(&gateway, "fence show k");
    assert!(fence.text().starts_with("k: fence 34, raised by me#1 at 2"), "{fence:?}");
    assert!(fence.text().ends_with(", numbered by etcd:7, generation 0\n"), "{fence:?}");
    let flag: Said = command(&gateway, &["claim", "k", "--token", "35"]).envs(environment).output().unwrap().into();
    assert!(flag.text().contains("fence 35"), "a flag wins: {flag:?}");
    // An empty variable is a mistake, not an absent token.
    let empty: Said = command(&gateway, &["kv", "put", "k", "v"]).env("FENCEPOST_TOKEN", "").output().unwrap().into();
    assert_eq!(empty.code, 2, "{empty:?}");
}

#[test]
fn e3_refused_by_the_fence() {
    let gateway = Fresh::memory(&[]);
    assert_eq!(run(&gateway, "kv put k v --token 34 --holder b#1").code, 0);
    let words = ["token 33 is stale for `k`", "the fence is 34, raised by `b#1`", "Do not retry"];
    run(&gateway, "kv put k w --token 33").assert_failed(3, &words);
    run(&gateway, "kv delete k --token 33").assert_failed(3, &words);
    run(&gateway, "kv get k --token 33").assert_failed(3, &words);
    run(&gateway, "claim k --token 33").assert_failed(3, &words);
    run(&gateway, "kv put k w --token 34 --holder a#2").assert_failed(3, &["`a#2`", "`b#1`"]);
    run(&gateway, "kv put k w").assert_failed(3, &["needs a fencing token"]);
    assert_eq!(run(&gateway, "kv get k").text(), "v");
}

#[test]
fn e4_a_condition_failed() {
    let gateway = Fresh::memory(&[]);
    assert_eq!(run(&gateway, "kv put k v --token 1 --if-absent").code, 0);
    run(&gateway, "kv put k w --token 1 --if-absent").assert_failed(4, &["version is now", "Read the value again"]);
    let etag = run(&gateway, "kv get k --json").json()["etag"].as_str().unwrap().to_owned();
    let bare = etag.trim_matches('"');
    run(&gateway, &format!("kv delete k --token 1 --if-match {bare}9")).assert_failed(4, &[]);
    assert_eq!(run(&gateway, &format!("kv put k w --token 1 --if-match {etag}")).code, 0);
    let now = run(&gateway, "kv get k --json").json()["etag"].as_str().unwrap().trim_matches('"').to_owned();
    assert_eq!(run(&gateway, &format!("kv delete k --token 1 --if-match {now}")).code, 0, "quotes may be lost");
    run(&gateway, "kv put k w --token 1 --if-match 1 --if-absent").assert_failed(2, &["cannot be used with"]);
}

#[test]
fn e6_unreachable_or_surely_not_applied() {
    let gateway = Fresh::memory(&[]);
    let url = gateway.url().to_owned();
    drop(gateway);
    let gone: Said =
        Command::new(binary()).args(["kv", "put", "k", "v", "--token", "1", "--url", &url]).output().unwrap().into();
    gone.assert_failed(6, &[&url, "fencepost serve"]);
    let (process, dir) = Fresh::rocksdb(&[]).into_parts();
    process.kill();
    let full = GatewayProcess::start(&dir.path().join("data"), &["--free-space-floor", "8388608GiB"]);
    run(&full, "kv put k v --token 1").assert_failed(6, &["must stay free", "not applied"]);
}

#[test]
fn e7_an_answer_that_does_not_come_is_an_unknown_outcome_for_a_write_only() {
    // A server that accepts the request and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let run = |line: &str| -> Said {
        let line: Vec<_> = line.split_whitespace().collect();
        Command::new(binary()).args(line).args(["--url", &url, "--timeout", "300ms"]).output().unwrap().into()
    };
    run("kv put k v --token 1").assert_failed(7, &["outcome is unknown", "0.3 s", "read the key"]);
    run("kv delete k --token 1").assert_failed(7, &["outcome is unknown"]);
    run("claim k --token 1").assert_failed(7, &["outcome is unknown"]);
    run("kv get k").assert_failed(1, &["no answer within 0.3 s"]);
    run("fence show k").assert_failed(1, &["no answer within 0.3 s"]);
}

#[test]
fn e2_the_command_line_is_wrong() {
    let gateway = Fresh::memory(&[]);
    run(&gateway, "kv put k v --token 0").assert_failed(2, &["numbers start at 1"]);
    run(&gateway, "kv put k v --token 01").assert_failed(2, &["leading zeros"]);
    run(&gateway, "kv put a//b v --token 1").assert_failed(2, &["empty segment"]);
    run(&gateway, "claim k").assert_failed(2, &["--token", "FENCEPOST_TOKEN"]);
    run(&gateway, "kv frobnicate").assert_failed(2, &["frobnicate"]);
    run(&gateway, "kv get k --url https://x").assert_failed(2, &["https://x", "only http"]);
    run(&gateway, "kv get k --url localhost:3362").assert_failed(2, &["not a gateway URL"]);
    run(&gateway, "kv get k --timeout 30").assert_failed(2, &["`30` is not a duration"]);
    run(&gateway, "kv put k v --token 1 --holder").assert_failed(2, &["--holder"]);
    run(&gateway, "kv list --limit 0").assert_failed(2, &["--limit", "1..=1000"]);
    assert_eq!(gateway.client().get("k").status, 404);
}

#[test]
fn claims_read_several_keys_and_fences_are_listed() {
    let gateway = Fresh::configured("[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\n", &[]);
    assert_eq!(run(&gateway, "kv put orders/7/total 12 --token 33").code, 0);
    assert_eq!(run_with_input(&gateway, "kv put orders/7/raw --token 33", &[0xff]).code, 0);
    let claim = run(&gateway, "claim orders/7 --token 34 --key orders/7/total --key orders/7/raw --key orders/7/none");
    let lines: Vec<String> = claim.text().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "claimed orders/7, fence 34");
    assert!(lines[1].starts_with("orders/7/total (version \"") && lines[1].ends_with("): 12"), "{lines:?}");
    assert!(lines[2].ends_with(", base64): /w=="), "{lines:?}");
    assert_eq!(lines[3], "orders/7/none: no value");
    run(&gateway, "claim orders/7/total --token 34").assert_failed(1, &["it is protected by `orders/7`"]);
    assert_eq!(run(&gateway, "kv put stock v --token 2").code, 0);
    let list = run(&gateway, "fence list");
    assert_eq!(list.text().lines().count(), 2, "{list:?}");
    assert!(
        list.text().starts_with("orders/7: fence 34, raised at 2") || list.text().contains("orders/7: fence 34 at 2"),
        "{list:?}"
    );
    assert_eq!(run(&gateway, "fence list st").text().lines().count(), 1);
    let first = run(&gateway, "fence list --limit 1");
    assert!(first.err.contains("--after 'orders/7'"), "{first:?}");
    assert!(run(&gateway, "fence list --limit 1 --after orders/7").text().starts_with("stock: fence 2"));
    let never = run(&gateway, "fence show never");
    assert_eq!(never.text(), "never: no token seen in generation 0\n");
}

#[test]
fn a_checked_read_above_the_fence_warns_on_standard_error() {
    let gateway = Fresh::memory(&[]);
    assert_eq!(run(&gateway, "kv put k v --token 1").code, 0);
    let read = run(&gateway, "kv get k --token 2");
    assert_eq!((read.code, read.text().as_str()), (0, "v"));
    assert!(read.err.contains("claim the resource"), "{read:?}");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let gateway = Fresh::memory(&[]);
    assert_eq!(gateway.client().put("large", "1", &"x".repeat(1 << 20)).status, 204);
    let script = format!("{} kv get large --url {} | head -c 1", binary().display(), gateway.url());
    let piped: Said = Command::new("sh").args(["-c", &script]).output().unwrap().into();
    assert_eq!((piped.text().as_str(), piped.err.as_str()), ("x", ""));
}

#[test]
fn names_travel_whole() {
    let gateway = Fresh::memory(&[]);
    for key in ["a b", "ä/ß", "100%", "a?b#c", "a+b&c=d", "%2F", "🔒"] {
        let put: Said = command(&gateway, &["kv", "put", key, "v", "--token", "1"]).output().unwrap().into();
        assert_eq!(put.code, 0, "{key}: {put:?}");
        let get: Said = command(&gateway, &["kv", "get", key]).output().unwrap().into();
        assert_eq!(get.text(), "v", "{key}");
        let list: Said = command(&gateway, &["kv", "list", key]).output().unwrap().into();
        assert!(list.text().starts_with(&format!("{key}\t")), "{key}: {list:?}");
    }
    assert_eq!(run(&gateway, "kv list").text().lines().count(), 7);
}
