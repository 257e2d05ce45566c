//! Traps, from outside: each test carries the number of its trap.

use std::process::Command;
use std::time::Duration;

use fencepost_conformance::wait;
use fencepost_harness::fresh::{Fresh, write_config};
use fencepost_harness::process::{GatewayProcess, binary, run};

#[test]
fn t02_an_equal_token_is_accepted_from_its_holder_and_a_collision_from_another() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let mut put = |holder: &[(&str, &str)]| {
        client.request("PUT", "/v1/kv/k", &[&[("fencing-token", "34")], holder].concat(), b"v")
    };
    assert_eq!(put(&[]).status, 204);
    assert_eq!(put(&[("fencing-holder", "a#1")]).status, 204, "the unknown holder becomes known");
    assert_eq!(put(&[("fencing-holder", "a#1")]).status, 204, "a holder's second write");
    assert_eq!(put(&[]).status, 204, "an unknown holder is no contradiction");
    let twice = put(&[("fencing-holder", "b#2")]);
    assert_eq!((twice.status, twice.problem().as_str()), (409, "collision"));
    assert_eq!((&twice.json()["holder"], &twice.json()["presented"]), (&"a#1".into(), &"34".into()));
    let detail = twice.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("`a#1`") && detail.contains("`b#2`"), "both sides are named: {detail}");
}

#[test]
fn t08_a_delete_leaves_the_fence_also_over_a_restart() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    assert_eq!(client.delete("k", "34").status, 204);
    assert_eq!(client.put("k", "33", "zombie").status, 409);
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    let zombie = client.put("k", "33", "zombie");
    assert_eq!((zombie.status, zombie.problem().as_str()), (409, "stale"));
    assert_eq!(client.get("k").status, 404);
    assert_eq!(client.fence("k").as_deref(), Some("34"));
}

#[test]
fn t09_every_mutating_verb_is_fenced() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    for (method, path) in [("PUT", "/v1/kv/k"), ("DELETE", "/v1/kv/k"), ("POST", "/v1/claim/k")] {
        let stale = client.request(method, path, &[("fencing-token", "33")], b"");
        assert_eq!((stale.status, stale.problem().as_str()), (409, "stale"), "{method}");
        let without = client.request(method, path, &[], b"");
        assert_eq!((without.status, without.problem().as_str()), (428, "missing-token"), "{method}");
    }
    for operation in [r#"{"put": "k", "text": "w"}"#, r#"{"delete": "k"}"#, r#"{"add": "k", "by": 1}"#] {
        for (tokens, status, kind) in [(r#"{"k": "33"}"#, 409, "stale"), ("{}", 428, "missing-token")] {
            let body = format!("{{\"tokens\": {tokens}, \"then\": [{operation}]}}");
            let answer = client.request("POST", "/v1/txn", &[], body.as_bytes());
            assert_eq!((answer.status, answer.problem().as_str()), (status, kind), "{body}");
        }
    }
    for method in ["POST", "PATCH", "COPY", "MOVE", "MERGE", "LOCK", "PROPPATCH", "TRACE", "OPTIONS", "BREW"] {
        let answer = client.request(method, "/v1/kv/k", &[("fencing-token", "99")], b"");
        assert_eq!((answer.status, answer.problem().as_str()), (405, "method-not-allowed"), "{method}");
    }
    let get = client.get("k");
    assert_eq!((get.text().as_str(), get.header("fence")), ("v", Some("34")));
}

#[test]
fn t13_the_lock_is_not_reentrant_so_no_holder_fences_its_own_outer_scope() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let outer = client.acquire("k", "a#1", 60_000).json();
    assert_eq!(client.acquire("k", "a#1", 60_000).problem(), "lock-held");
    assert_eq!(client.put("k", outer["token"].as_str().unwrap(), "v").status, 204);
}

#[test]
fn t15_a_missing_token_is_refused_unless_observed() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let answer = client.request("PUT", "/v1/kv/k", &[], b"v");
    assert_eq!((answer.status, answer.problem().as_str()), (428, "missing-token"));
    assert!(answer.json()["advice"].as_str().unwrap().contains("Fencing-Token"));
    // A holder and an issuer do not replace a token.
    let labels = [("fencing-holder", "a#1"), ("fencing-issuer", "etcd:1")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &labels, b"v").status, 428);
    assert_eq!(client.get("k").status, 404);
}

#[test]
fn t21_tokens_above_two_to_the_53_survive_every_json() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let (low, high) = ("18446744073709551614", "18446744073709551615");
    assert_eq!(client.put("k", high, "v").status, 204);
    let stale = client.put("k", low, "w");
    assert_eq!(stale.status, 409);
    assert_eq!((&stale.json()["presented"], &stale.json()["fence"]), (&low.into(), &high.into()));
    assert_eq!(stale.header("fence"), Some(high));
    let claimed = client.claim("k", high).json();
    assert_eq!((&claimed["fence"]["token"], &claimed["values"][0]["token"]), (&high.into(), &high.into()));
    assert_eq!(client.fence("k").as_deref(), Some(high));
    assert_eq!(client.request("GET", "/v1/kv", &[], b"").json()["keys"][0]["token"], high);
    // JavaScript cannot distinguish 2^53 and 2^53 + 1; here they differ.
    assert_eq!(client.put("n", "9007199254740993", "v").status, 204);
    assert_eq!(client.put("n", "9007199254740992", "w").status, 409);
}

#[test]
fn t25_zero_and_absent_are_different_errors() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let zero = client.put("k", "0", "v");
    assert_eq!((zero.status, zero.problem().as_str()), (400, "malformed-token"));
    assert!(zero.json()["detail"].as_str().unwrap().contains("start at 1"), "{}", zero.text());
    let minus = client.put("k", "-1", "v");
    assert_eq!((minus.status, minus.problem().as_str()), (400, "malformed-token"));
    let empty = client.put("k", "", "v");
    assert_eq!(
        (empty.status, empty.problem().as_str()),
        (400, "malformed-token"),
        "an empty header is not an absent one"
    );
    let absent = client.request("PUT", "/v1/kv/k", &[], b"v");
    assert_eq!((absent.status, absent.problem().as_str()), (428, "missing-token"));
    assert_eq!(client.fence("k"), None);
    assert_eq!(client.put("k", "1", "the lowest token is a token").status, 204);
}

#[test]
fn t29_a_quick_refusal_says_the_same_as_a_slow_one() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    let holder = [("fencing-token", "34"), ("fencing-holder", "b#1")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &holder, b"v").status, 204);
    let seen = |answer: fencepost_harness::http::Answer| {
        let json = answer.json();
        let facts = ["type", "presented", "fence", "holder", "generation", "resource", "raised_at", "outcome"];
        facts.map(|name| json[name].clone())
    };
    // The gateway that raised the fence has it in its cache; a restarted one loads it first and then caches it too.
    let cached = seen(client.put("k", "33", "w"));
    // Only `stale` and `retired-generation` may be answered from a cache: the others are judged on records.
    assert_eq!(client.put("k", "1:1", "w").problem(), "unknown-generation");
    assert_eq!(client.put("k", "34", "w").status, 204);
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = GatewayProcess::start(&dir.path().join("data"), &[]);
    let mut client = gateway.client();
    assert_eq!(seen(client.put("k", "33", "w")), cached);
    assert_eq!(seen(client.put("k", "33", "w")), cached);
}

#[test]
fn t32_changed_guards_are_refused_until_remap_and_old_tokens_retire() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let gateway = GatewayProcess::start(&data, &[]);
    assert_eq!(gateway.client().put("orders/7/lines", "34", "v").status, 204);
    gateway.kill();

    let config = write_config(dir.path(), "[[guard]]\nkeys = 'orders/*/**'\nresource = 'orders/*'\n");
    let (config, data_text) = (config.to_str().unwrap(), data.to_str().unwrap());
    let serve = || {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", data_text, "--config", config]);
        GatewayProcess::spawn(command)
    };
    let said = serve().err().expect("another mapping must not serve");
    assert!(said.contains("fencepost remap"), "{said}");
    assert!(said.contains("each key is its own resource") && said.contains("orders/*/** -> orders/*"), "{said}");

    let dry = run(&["remap", "--data", data_text, "--config", config]);
    assert_eq!(dry.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&dry.stderr).contains("--yes"), "{dry:?}");
    assert!(serve().is_err(), "remap without --yes changes nothing");

    let done = run(&["remap", "--yes", "--data", data_text, "--config", config]);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let base: u32 =
        said.trim().rsplit("base generation is now ").next().and_then(|base| base.parse().ok()).expect(&said);
    assert!(base >= 1_700_000_000, "at least the time in seconds, above what any copy of the store ever used: {base}");
    let gateway = serve().unwrap_or_else(|said| panic!("{said}"));
    let mut client = gateway.client();
    // The zombie's key now belongs to a resource without a fence; the zombie is refused nevertheless (G1).
    let zombie = client.put("orders/7/lines", "34", "late");
    assert_eq!((zombie.status, zombie.problem().as_str()), (409, "retired-generation"));
    assert_eq!(client.put("never/seen", "99", "x").problem(), "retired-generation");
    assert_eq!(client.request("GET", "/v1/fences/orders/7", &[], b"").json()["generation"], base);
    assert_eq!(client.put("orders/7/lines", &format!("{}:1", base + 1), "x").problem(), "unknown-generation");
    let first = format!("{base}:1");
    let written = client.put("orders/7/lines", &first, "w");
    assert_eq!((written.status, written.header("fence")), (204, Some(first.as_str())));
    assert_eq!(client.get("orders/7/lines").text(), "w");
    gateway.kill();

    let again = run(&["remap", "--yes", "--data", data_text, "--config", config]);
    assert!(
        String::from_utf8_lossy(&again.stdout).contains("nothing to do"),
        "a retry does not raise twice: {again:?}"
    );
    let back = GatewayProcess::spawn({
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data", data_text]);
        command
    });
    assert!(back.is_err_and(|said| said.contains("fencepost remap")), "the way back is a change, too");
}

#[test]
fn t32_a_changed_policy_is_no_changed_mapping() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = |toml: &str| {
        let config = write_config(dir.path(), toml);
        GatewayProcess::start(&data, &["--config", config.to_str().unwrap()])
    };
    let gateway = serve("[[guard]]\nkeys = 'a/**'\nresource = 'a'\n");
    assert_eq!(gateway.client().put("a/1", "5", "v").status, 204);
    gateway.kill();
    let gateway = serve("[[guard]]\nkeys = 'a/**'\nresource = 'a'\nequal = 'reject'\nmax_jump = 10\n");
    assert_eq!(gateway.client().put("a/1", "5", "v").problem(), "spent");
    assert_eq!(gateway.client().put("a/1", "16", "v").problem(), "implausible");
    assert_eq!(gateway.client().put("a/1", "15", "v").status, 204);
}

#[test]
fn t37_observing_writes_and_reports_but_never_moves_a_fence_it_would_have_refused() {
    let observed = "[[guard]]\nkeys = 'k'\nmode = 'observe'\nmax_jump = 10\n";
    let gateway = Fresh::configured(observed, &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "a").header("fencing-observed"), None);
    let stale = client.put("k", "33", "b");
    assert_eq!(
        (stale.status, stale.header("fencing-observed"), stale.header("fence")),
        (204, Some("stale"), Some("34"))
    );
    let poisoned = client.put("k", "18446744073709551615", "c");
    assert_eq!((poisoned.status, poisoned.header("fencing-observed")), (204, Some("implausible")));
    let without = client.request("PUT", "/v1/kv/k", &[], b"d");
    assert_eq!((without.status, without.header("fencing-observed")), (204, Some("missing-token")));
    let get = client.get("k");
    assert_eq!((get.text().as_str(), get.header("fence"), get.header("fencing-token")), ("d", Some("34"), None));
    let read = client.request("GET", "/v1/kv/k", &[("fencing-token", "33")], b"");
    assert_eq!((read.status, read.header("fencing-observed")), (200, Some("stale")));
    let claim = client.claim("k", "33");
    assert_eq!((claim.status, claim.header("fencing-observed")), (200, Some("stale")));
    assert_eq!(claim.json()["fence"]["token"], "34", "a claim that would be refused is told the real fence");
    let delete = client.delete("k", "33");
    assert_eq!((delete.status, delete.header("fencing-observed")), (204, Some("stale")));
    assert_eq!(client.fence("k").as_deref(), Some("34"));
    assert_eq!(client.put("k", "35", "e").header("fence"), Some("35"), "what would be admitted raises as ever");
    let metrics = client.request("GET", "/metrics", &[], b"").text();
    assert!(metrics.contains("fencepost_refusals_total{reason=\"stale\",mode=\"observe\"} 4"), "{metrics}");
    assert!(metrics.contains("fencepost_refusals_total{reason=\"stale\",mode=\"enforce\"} 0"), "{metrics}");
    // The log names the details.
    let line = wait::until("the log line", Duration::from_secs(10), || {
        gateway.stderr().lines().find(|line| line.contains("would be refused")).map(str::to_owned)
    });
    for fact in ["reason=\"stale\"", "resource=k", "presented=\"33\"", "fence=\"34\""] {
        assert!(line.contains(fact), "{fact} in {line}");
    }
}

#[test]
fn t37_what_was_observed_does_not_lock_anybody_out_when_enforcing_starts() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |mode: &str| {
        let config = write_config(dir.path(), &format!("[[guard]]\nkeys = 'k'\nmode = '{mode}'\nmax_jump = 10\n"));
        GatewayProcess::start(&dir.path().join("data"), &["--config", config.to_str().unwrap()])
    };
    let gateway = serve("observe");
    assert_eq!(gateway.client().put("k", "1", "a").status, 204);
    assert_eq!(gateway.client().put("k", "18446744073709551615", "b").status, 204);
    gateway.kill();
    let gateway = serve("enforce");
    assert_eq!(gateway.client().get("k").text(), "b");
    assert_eq!(gateway.client().put("k", "2", "the rightful holder").status, 204);
}
