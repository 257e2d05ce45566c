//! `If-Match` and `If-None-Match`: 412 is not 409, and a failed condition still records the newer holder.

use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::{Answer, Client};

fn put(client: &mut Client, token: &str, condition: (&str, &str), body: &str) -> Answer {
    client.request("PUT", "/v1/kv/k", &[("fencing-token", token), condition], body.as_bytes())
}

#[test]
fn if_match_takes_the_current_version_only() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let first = client.put("k", "1", "one").header("etag").unwrap().to_owned();
    let second = put(&mut client, "1", ("if-match", &first), "two");
    assert_eq!(second.status, 204);
    let second = second.header("etag").unwrap().to_owned();
    let late = put(&mut client, "1", ("if-match", &first), "three");
    assert_eq!((late.status, late.problem().as_str()), (412, "condition-failed"));
    assert_eq!(late.json()["etag"], second.as_str(), "it says what the version is now");
    assert_eq!(late.json()["outcome"], "not-applied");
    assert_eq!(client.get("k").text(), "two");
    assert_eq!(put(&mut client, "1", ("if-match", &format!("{first}, {second}")), "four").status, 204);
    assert_eq!(put(&mut client, "1", ("if-match", "*"), "five").status, 204);
    let five = client.get("k").header("etag").unwrap().to_owned();
    assert_eq!(put(&mut client, "1", ("if-match", &format!("W/{five}")), "weak").status, 412);
    assert_eq!(put(&mut client, "1", ("if-match", "\"theirs\""), "x").status, 412);
    assert_eq!(client.get("k").text(), "five");
}

#[test]
fn if_none_match_star_creates_only() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(put(&mut client, "1", ("if-none-match", "*"), "one").status, 204);
    let again = put(&mut client, "1", ("if-none-match", "*"), "two");
    assert_eq!((again.status, again.problem().as_str()), (412, "condition-failed"));
    assert_eq!(client.delete("k", "1").status, 204);
    let absent = put(&mut client, "1", ("if-match", "*"), "x");
    assert_eq!(absent.status, 412);
    assert!(absent.json().get("etag").is_none(), "{}", absent.text());
    assert_eq!(put(&mut client, "1", ("if-none-match", "*"), "three").status, 204);
    assert_eq!(client.get("k").text(), "three");
}

#[test]
fn deletes_take_conditions_too() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let etag = client.put("k", "1", "v").header("etag").unwrap().to_owned();
    let mut delete =
        |value: &str| client.request("DELETE", "/v1/kv/k", &[("fencing-token", "1"), ("if-match", value)], b"").status;
    assert_eq!(delete("\"0\""), 412);
    assert_eq!(delete(&etag), 204);
    assert_eq!(delete(&etag), 412, "the version is gone, though the key is absent too");
}

#[test]
fn a_failed_condition_still_raises_the_fence() {
    let gateway = Fresh::rocksdb(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "33", "v").status, 204);
    let failed = put(&mut client, "34", ("if-none-match", "*"), "w");
    assert_eq!((failed.status, failed.header("fence")), (412, Some("34")));
    let zombie = client.put("k", "33", "late");
    assert_eq!((zombie.status, zombie.problem().as_str()), (409, "stale"));
    // Durably: the newer token has raised the fence (G1, G4).
    let (process, dir) = gateway.into_parts();
    process.kill();
    let gateway = fencepost_harness::process::GatewayProcess::start(&dir.path().join("data"), &[]);
    assert_eq!(gateway.client().put("k", "33", "late").status, 409);
    assert_eq!(gateway.client().get("k").text(), "v");
}

#[test]
fn t14_a_refusal_and_a_failed_condition_differ_in_code_and_advice() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    // Both would fail. The fence is checked first, so a zombie is never asked to read again.
    let fenced = put(&mut client, "33", ("if-match", "\"0\""), "w");
    assert_eq!((fenced.status, fenced.problem().as_str()), (409, "stale"));
    let advice = fenced.json()["advice"].as_str().unwrap().to_owned();
    assert!(advice.contains("stop") && advice.contains("Do not retry"), "{advice}");
    assert!(fenced.json().get("etag").is_none(), "a zombie gets nothing to rebase on");
    let failed = put(&mut client, "34", ("if-match", "\"0\""), "w");
    assert_eq!((failed.status, failed.problem().as_str()), (412, "condition-failed"));
    let advice = failed.json()["advice"].as_str().unwrap().to_owned();
    assert!(advice.contains("Read the value again") && advice.contains("retry"), "{advice}");
}

#[test]
fn reads_answer_304_and_412() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let etag = client.put("k", "34", "v").header("etag").unwrap().to_owned();
    let mut read = |method: &str, condition: (&str, &str)| client.request(method, "/v1/kv/k", &[condition], b"");
    for (name, value, status) in [
        ("if-none-match", etag.as_str(), 304),
        ("if-none-match", &format!("W/{etag}"), 304),
        ("if-none-match", &format!("\"x\", {etag}"), 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"x\"", 200),
        ("if-match", &etag, 200),
        ("if-match", "*", 200),
        ("if-match", "\"x\"", 412),
        ("if-match", "nonsense", 400),
    ] {
        let get = read("GET", (name, value));
        assert_eq!(get.status, status, "GET {name}: {value}");
        if status == 304 {
            assert_eq!((get.header("etag"), get.header("fence")), (Some(etag.as_str()), Some("34")));
            assert_eq!(get.header("fencing-token"), Some("34"));
        }
        assert_eq!(read("HEAD", (name, value)).status, status, "HEAD {name}: {value}");
    }
}

#[test]
fn conditions_that_cannot_be_read_change_nothing() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "1", "v").status, 204);
    for condition in [("if-match", "7"), ("if-match", ""), ("if-match", "\"7"), ("if-none-match", "\"7\"")] {
        let answer = put(&mut client, "9", condition, "w");
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-header"), "{condition:?}");
    }
    let both = [("fencing-token", "9"), ("if-match", "*"), ("if-none-match", "*")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &both, b"w").status, 400);
    let twice = [("fencing-token", "9"), ("if-match", "*"), ("if-match", "*")];
    assert_eq!(client.request("PUT", "/v1/kv/k", &twice, b"w").status, 400);
    assert_eq!((client.get("k").text().as_str(), client.fence("k").as_deref()), ("v", Some("1")));
}
