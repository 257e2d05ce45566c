//! Values over HTTP: the answer to each call, header by header.

use fencepost_harness::fresh::Fresh;

#[test]
fn a_write_and_its_reads_carry_every_header() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let headers = [("fencing-token", "34"), ("fencing-holder", "worker-b#9f2c"), ("content-type", "text/plain")];
    let put = client.request("PUT", "/v1/kv/orders/123", &headers, b"paid");
    assert_eq!((put.status, put.body.len(), put.header("fence")), (204, 0, Some("34")));
    let etag = put.header("etag").unwrap().to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "{etag}");
    assert!(put.header("request-id").is_some());
    assert_eq!(put.header("fencing-observed"), None);

    let get = client.get("orders/123");
    assert_eq!((get.status, get.text().as_str()), (200, "paid"));
    let head = client.request("HEAD", "/v1/kv/orders/123", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
    for answer in [&get, &head] {
        assert_eq!(answer.header("etag"), Some(etag.as_str()));
        assert_eq!(answer.header("content-type"), Some("text/plain"));
        assert_eq!(answer.header("content-length"), Some("4"));
        assert_eq!(answer.header("fencing-token"), Some("34"));
        assert_eq!(answer.header("fence"), Some("34"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("fencing-unclaimed"), None);
        assert_eq!(answer.header("fencing-observed"), None);
        assert!(answer.header("request-id").is_some());
    }
}

#[test]
fn a_read_tells_the_token_of_the_write_from_the_fence_of_now() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "old").status, 204);
    assert_eq!(client.claim("k", "40").status, 200);
    let get = client.get("k");
    assert_eq!((get.header("fencing-token"), get.header("fence")), (Some("34"), Some("40")));
}

#[test]
fn every_answer_has_a_request_id_of_its_own() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let token = [("fencing-token", "1")];
    let mut seen = std::collections::HashSet::new();
    for (method, path, headers) in [
        ("PUT", "/v1/kv/a", &token[..]),
        ("PUT", "/v1/kv/a", &[]),
        ("GET", "/v1/kv/a", &[]),
        ("GET", "/v1/kv/absent", &[]),
        ("HEAD", "/v1/kv/absent", &[]),
        ("DELETE", "/v1/kv/a", &token),
        ("GET", "/v1/kv", &[]),
        ("POST", "/v1/claim/a", &token),
        ("GET", "/v1/fences/a", &[]),
        ("GET", "/v1/fences", &[]),
        ("GET", "/healthz", &[]),
        ("GET", "/readyz", &[]),
        ("GET", "/metrics", &[]),
        ("GET", "/nowhere", &[]),
        ("PATCH", "/v1/kv/a", &[]),
        ("PUT", "/v1/kv/a//b", &token),
        ("PUT", "/v1/kv/a", &[("fencing-token", "x")]),
    ] {
        let answer = client.request(method, path, headers, b"");
        let id = answer.header("request-id").unwrap_or_else(|| panic!("{method} {path}: {answer:?}")).to_owned();
        if answer.header("content-type") == Some("application/problem+json") && method != "HEAD" {
            assert_eq!(answer.json()["request_id"], id, "{method} {path}");
        }
        assert!(seen.insert(id), "{method} {path} repeats a request id");
    }
}

#[test]
fn an_absent_key_is_404_and_its_fence_is_still_told() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let never = client.get("k");
    assert_eq!((never.status, never.problem().as_str(), never.header("fence")), (404, "absent", None));
    let head = client.request("HEAD", "/v1/kv/k", &[], b"");
    assert_eq!((head.status, head.header("etag")), (404, None));
    assert_eq!(client.put("k", "34", "v").status, 204);
    assert_eq!(client.delete("k", "34").status, 204);
    let deleted = client.get("k");
    assert_eq!((deleted.status, deleted.problem().as_str(), deleted.header("fence")), (404, "absent", Some("34")));
    assert_eq!(deleted.json()["fence"], "34");
}

#[test]
fn deleting_an_absent_key_is_a_write() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let delete = client.delete("never", "7");
    assert_eq!((delete.status, delete.body.len()), (204, 0));
    assert_eq!((delete.header("fence"), delete.header("etag")), (Some("7"), None));
    let stale = client.put("never", "6", "late");
    assert_eq!((stale.status, stale.problem().as_str()), (409, "stale"));
}

#[test]
fn versions_are_never_reused() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..5 {
        let etag = client.put("k", "1", "the same bytes").header("etag").unwrap().to_owned();
        assert!(seen.insert(etag.clone()), "{etag} again");
        assert_eq!(client.get("k").header("etag"), Some(etag.as_str()));
        assert_eq!(client.delete("k", "1").status, 204);
    }
}

#[test]
fn values_are_bytes_with_a_content_type() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let every_byte: Vec<u8> = (0..=255).collect();
    let large = every_byte.repeat(4096);
    for (key, body) in [("empty", &b""[..]), ("bytes", &every_byte), ("large", &large), ("json", b"{\"a\": [1]}")] {
        let path = format!("/v1/kv/{key}");
        assert_eq!(client.request("PUT", &path, &[("fencing-token", "1")], body).status, 204, "{key}");
        let get = client.request("GET", &path, &[], b"");
        assert_eq!((get.status, get.body.as_slice()), (200, body), "{key}");
        assert_eq!(get.header("content-length"), Some(body.len().to_string().as_str()), "{key}");
        assert_eq!(get.header("content-type"), Some("application/octet-stream"), "{key}");
    }
    for kind in ["text/plain; charset=utf-8", "application/vnd.x+json;a=\"b, c\"", "text/schön"] {
        let headers = [("fencing-token", "1"), ("content-type", kind)];
        assert_eq!(client.request("PUT", "/v1/kv/typed", &headers, b"v").status, 204, "{kind}");
        assert_eq!(client.get("typed").header("content-type"), Some(kind));
    }
    let long = "x".repeat(300);
    let headers = [("fencing-token", "1"), ("content-type", long.as_str())];
    let refused = client.request("PUT", "/v1/kv/typed", &headers, b"v");
    assert_eq!((refused.status, refused.problem().as_str()), (400, "malformed-header"));
}

#[test]
fn lists_are_paged_in_order_of_name() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for key in ["b/1", "a/3", "a/1", "a%20b", "a/2", "ä", "a/10"] {
        assert_eq!(client.put(key, "5", "12345").status, 204);
    }
    let mut page = |query: &str| {
        let answer = client.request("GET", &format!("/v1/kv{query}"), &[], b"");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        let json = answer.json();
        let keys: Vec<_> =
            json["keys"].as_array().unwrap().iter().map(|e| e["key"].as_str().unwrap().to_owned()).collect();
        (keys, json["next"].as_str().map(str::to_owned), json)
    };
    let (all, next, json) = page("");
    assert_eq!(all, ["a b", "a/1", "a/10", "a/2", "a/3", "b/1", "ä"]);
    assert_eq!(next, None);
    assert!(json.get("next").is_none());
    let entry = &json["keys"][1];
    assert_eq!((entry["size"].as_u64(), entry["token"].as_str()), (Some(5), Some("5")));
    assert!(entry["etag"].as_str().unwrap().starts_with('"'));

    let (first, next, _) = page("?prefix=a/&limit=3");
    assert_eq!((first, next.as_deref()), (vec!["a/1".into(), "a/10".into(), "a/2".into()], Some("a/2")));
    let (second, next, _) = page("?prefix=a%2F&limit=3&after=a%2F2");
    assert_eq!((second, next), (vec!["a/3".to_owned()], None));
    assert_eq!(page("?limit=7").1, None, "a page that holds everything has no next");
    assert_eq!(page("?prefix=a+b").0, ["a b"]);
    assert_eq!(page("?prefix=zzz").0, Vec::<String>::new());
    assert_eq!(page("?after=zzz&prefix=a/").0, Vec::<String>::new());
    // `after` before the prefix must not include keys outside of it.
    assert_eq!(page("?after=a&prefix=b").0, ["b/1"]);
    for bad in ["limit=0", "limit=1001", "limit=x", "offset=3", "limit=1&limit=2", "prefix=%FF"] {
        let answer = client.request("GET", &format!("/v1/kv?{bad}"), &[], b"");
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-query"), "{bad}");
    }
}

#[test]
fn checked_reads_judge_the_token_and_raise_nothing() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "34", "v").status, 204);
    let mut read = |method: &str, key: &str, token: &str| {
        client.request(method, &format!("/v1/kv/{key}"), &[("fencing-token", token)], b"")
    };
    let stale = read("GET", "k", "33");
    assert_eq!((stale.status, stale.problem().as_str(), stale.header("fence")), (409, "stale", Some("34")));
    assert_eq!(read("HEAD", "k", "33").status, 409);
    let equal = read("GET", "k", "34");
    assert_eq!((equal.status, equal.header("fencing-unclaimed")), (200, None));
    for method in ["GET", "HEAD"] {
        let above = read(method, "k", "35");
        assert_eq!((above.status, above.header("fencing-unclaimed")), (200, Some("true")));
        assert_eq!(above.header("fence"), Some("34"));
    }
    assert_eq!(read("GET", "never", "35").status, 404);
    assert_eq!(client.fence("k").as_deref(), Some("34"), "GET stays safe");
    assert_eq!(client.fence("never"), None);
    assert_eq!(client.put("k", "34", "still good").status, 204);
}

#[test]
fn fences_are_shown_and_listed_also_if_never_seen() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let never = client.request("GET", "/v1/fences/orders/1", &[], b"");
    assert_eq!((never.status, never.json()["generation"].as_u64()), (200, Some(0)));
    assert!(never.json()["fence"].is_null(), "{}", never.text());
    let headers = [("fencing-token", "34"), ("fencing-holder", "b#1"), ("fencing-issuer", "redis:x")];
    assert_eq!(client.request("PUT", "/v1/kv/orders/1", &headers, b"v").status, 204);
    assert_eq!(client.put("stock/1", "2", "v").status, 204);
    let shown = client.request("GET", "/v1/fences/orders/1", &[], b"").json();
    let fence = &shown["fence"];
    assert_eq!((shown["resource"].as_str(), fence["token"].as_str()), (Some("orders/1"), Some("34")));
    assert_eq!((fence["holder"].as_str(), fence["issuer"].as_str()), (Some("b#1"), Some("redis:x")));
    let raised_at = fence["raised_at"].as_str().unwrap();
    assert!(raised_at.ends_with('Z') && raised_at.contains('T'), "{raised_at}");

    let page = client.request("GET", "/v1/fences?limit=1", &[], b"").json();
    assert_eq!((page["fences"][0]["resource"].as_str(), page["next"].as_str()), (Some("orders/1"), Some("orders/1")));
    let page = client.request("GET", "/v1/fences?limit=1&after=orders/1", &[], b"").json();
    assert_eq!((page["fences"][0]["resource"].as_str(), page.get("next")), (Some("stock/1"), None));
    let page = client.request("GET", "/v1/fences?prefix=sto", &[], b"").json();
    assert_eq!(page["fences"].as_array().unwrap().len(), 1);
}

#[test]
fn head_is_taken_wherever_get_is() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "1", "v").status, 204);
    for path in [
        "/v1/kv/k",
        "/v1/kv",
        "/v1/fences/k",
        "/v1/fences",
        "/v1/locks",
        "/v1/outcomes/k",
        "/healthz",
        "/readyz",
        "/metrics",
    ] {
        let (head, get) = (client.request("HEAD", path, &[], b""), client.request("GET", path, &[], b""));
        assert_eq!((head.status, get.status), (200, 200), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert!(head.body.is_empty() && !get.body.is_empty(), "{path}");
    }
}

#[test]
fn a_read_that_only_looks_checked_is_refused() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    assert_eq!(client.put("k", "1", "v").status, 204);
    for name in ["fencing-holder", "fencing-issuer"] {
        let answer = client.request("GET", "/v1/kv/k", &[(name, "a:1")], b"");
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-header"), "{name}");
    }
}

#[test]
fn what_is_not_safe_to_ignore_is_refused() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    for header in [
        ("content-range", "bytes 0-1/5"),
        ("content-encoding", "gzip"),
        ("if-unmodified-since", "Mon, 16 Nov 2026 00:00:00 GMT"),
    ] {
        for method in ["PUT", "DELETE"] {
            let answer = client.request(method, "/v1/kv/k", &[("fencing-token", "1"), header], b"");
            assert_eq!((answer.status, answer.problem().as_str()), (400, "unsupported-header"), "{method} {header:?}");
        }
    }
    assert_eq!(client.fence("k"), None, "nothing was raised");
}

#[test]
fn an_idempotency_key_is_refused_where_no_outcome_is_kept() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let lease = client.acquire("k", "a#1", 30_000).json()["lease"].as_str().unwrap().to_owned();
    let release = format!("/v1/locks/k?lease={lease}");
    let renew = format!("{{\"lease\": \"{lease}\", \"ttl_ms\": 1000}}");
    for (method, path, body) in
        [("POST", "/v1/claim/k", ""), ("POST", "/v1/locks/k/renew", renew.as_str()), ("DELETE", release.as_str(), "")]
    {
        let answer = client.request(method, path, &[("idempotency-key", "7")], body.as_bytes());
        assert_eq!((answer.status, answer.problem().as_str()), (400, "unsupported-header"), "{method} {path}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("repeat it as it is"), "{}", answer.text());
    }
    assert_eq!(client.fence("k").as_deref(), Some("1"), "nothing was raised");
    assert_eq!(client.request("GET", "/v1/locks/k", &[], b"").json()["ttl_ms"], 30_000, "nothing was renewed");
}
