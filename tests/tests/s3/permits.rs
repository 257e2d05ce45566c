//! Permission to write: only with the token of the object's own resource.

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::http::Client;

use crate::parsing::code;
use crate::signing::Signer;
use crate::takeovers::assert_stale;
use crate::world::{World, until_nothing_is_staged};

#[test]
fn t15_without_a_signature_nothing_is_done() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"x").status, 200);
    let before = gateway.files();
    for (method, target) in [
        ("PUT", "/reports/x"),
        ("DELETE", "/reports/x"),
        ("POST", "/reports?delete="),
        ("GET", "/reports/x"),
        ("GET", "/"),
    ] {
        let mut client = Client::connect(&gateway.s3().to_string());
        let answer = client.request(method, target, &[("fencing-token", "99")], b"");
        assert_eq!((answer.status, code(&answer).as_str()), (403, "AccessDenied"), "{method} {target}");
    }
    assert_eq!(gateway.files(), before);
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("33"));
}

#[test]
fn t15_a_key_without_a_token_reads_and_does_not_write() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"x").status, 200);
    let upload = signer.begin_upload("reports/x");
    let reader = Signer::reader(&gateway);
    assert_eq!(reader.get("reports/x").body, b"x");
    assert_eq!(reader.list("reports", 10).len(), 1);
    let before = gateway.files();
    // A header does not count as a token here: most clients could not send or sign one.
    let claims = [("fencing-token", "99")];
    for answer in [
        reader.put("reports/x", b"evil"),
        reader.request("PUT", "/reports/x", &claims, b"evil"),
        reader.put("free/x", b"evil"),
        reader.delete("reports/x"),
        reader.delete_all("reports", &["x"]),
        reader.request("PUT", "/reports/y", &[("x-amz-copy-source", "/reports/x")], b""),
        reader.request("POST", "/reports/x?uploads=", &[], b""),
        reader.put_part("reports/x", &upload, 1, b"evil"),
        reader.request("DELETE", &format!("/reports/x?uploadId={upload}"), &[], b""),
    ] {
        assert_eq!((answer.status, code(&answer).as_str()), (403, "MissingFencingToken"), "{}", answer.text());
    }
    assert_eq!(gateway.files(), before);
    until_nothing_is_staged(&gateway.objects());
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("33"));
}

#[test]
fn t15_where_a_guard_observes_the_write_is_made_and_counted() {
    let gateway = Bucketed::start();
    let reader = Signer::reader(&gateway);
    let counted = || {
        let metrics = gateway.client().request("GET", "/metrics", &[], b"").text();
        let line = metrics.lines().find(|line| {
            line.starts_with("fencepost_refusals") && line.contains("missing-token") && line.contains("observe")
        });
        let line = line.unwrap_or_else(|| panic!("no such counter in {metrics}"));
        line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a counter is a number")
    };
    let before = counted();
    assert_eq!(reader.put("watched/x", b"seen").status, 200);
    assert_eq!(counted(), before + 1);
    assert_eq!(reader.delete("watched/x").status, 204);
    assert_eq!(counted(), before + 2);
    assert_eq!(gateway.client().fence("watched"), None, "observing raises nothing");
}

#[test]
fn signatures_and_keys_that_are_not_right_are_refused() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let forged = |id: &str, secret: &str| Signer {
        address: gateway.s3(),
        credentials: Credentials { access_key_id: id.to_owned(), secret_access_key: secret.to_owned() },
    };
    let Credentials { access_key_id: id, secret_access_key: secret } = &signer.credentials;
    let answer = forged(id, "another secret of this length").put("reports/x", b"evil");
    assert_eq!((answer.status, code(&answer).as_str()), (403, "SignatureDoesNotMatch"));
    assert_eq!(code(&forged("READER", secret).put("reports/x", b"evil")), "SignatureDoesNotMatch");
    // Every character of an access key id matters: each one is changed in turn.
    for at in 0..id.len() {
        let other = if &id[at..=at] == "A" { "B" } else { "A" };
        let changed = format!("{}{other}{}", &id[..at], &id[at + 1..]);
        let answer = forged(&changed, secret).put("reports/x", b"evil");
        assert_eq!((answer.status, code(&answer).as_str()), (403, "InvalidAccessKeyId"), "{at}: {}", answer.text());
    }
    for id in ["FP", "", "FPAAAA", &"A".repeat(5000), "nobody", "../READER", "FP\u{7f}"] {
        let sent = forged(id, secret).try_request("PUT", "/reports/x", &[], b"evil");
        if let Ok(answer) = sent {
            assert!((400..500).contains(&answer.status), "{id}: {answer:?}");
        }
    }
    assert!(gateway.files().is_empty());
}

#[test]
fn t09_a_presigned_url_is_fenced_like_its_maker() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    let (put, get) = (first.presigned("PUT", "/reports/x", 600), first.presigned("GET", "/reports/x", 600));
    let ask = |method: &str, target: &str, body: &[u8]| {
        let host = gateway.s3().to_string();
        let mut client = Client::connect(&host);
        let head = format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n\r\n", body.len());
        client.send(head.as_bytes()).and_then(|()| client.send(body)).unwrap();
        client.receive().unwrap()
    };
    let answer = ask("PUT", &put, b"by url");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(ask("GET", &get, b"").body, b"by url");
    let tampered = put.replace("/reports/x?", "/reports/y?");
    assert_eq!(code(&ask("PUT", &tampered, b"evil")), "SignatureDoesNotMatch");
    Signer::holder(&gateway, "reports", "34");
    assert_stale(&ask("PUT", &put, b"late"));
    assert_eq!(ask("GET", &get, b"").body, b"by url", "reading goes on");
    assert_eq!(gateway.files().len(), 1);
}

/// A header that turns a write into a copy decides what is done, so it must be signed like the rest.
#[test]
fn a_header_that_was_added_after_the_signature_is_refused() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/secret", b"secret").status, 200);
    let presigned = signer.presigned("PUT", "/reports/x", 600);
    let by_url = format!("PUT {presigned} HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.s3());
    let by_header = signer.head("PUT", "/reports/x", &[("content-length", "0")]);
    // A presigned URL takes precedence, however its names are encoded, and whatever other signature is present.
    let claimed = "authorization: AWS4-HMAC-SHA256 Credential=x, SignedHeaders=x-amz-copy-source, Signature=x";
    let beside = format!("{}\r\n{claimed}\r\n\r\n", by_url.trim_end());
    let hidden = beside.replace("X-Amz-Sign", "X%2DAmz%2DSign");
    for head in [by_url, by_header, beside, hidden] {
        let added = "x-amz-copy-source: /reports/secret\r\n\r\n";
        let head = format!("{}\r\n{added}", head.trim_end());
        let mut client = Client::connect(&gateway.s3().to_string());
        client.send(head.as_bytes()).unwrap();
        let answer = client.receive().unwrap();
        assert_eq!((answer.status, code(&answer).as_str()), (403, "AccessDenied"), "{head}: {}", answer.text());
        assert!(answer.text().contains("x-amz-copy-source is not signed"), "{}", answer.text());
    }
    assert_eq!(gateway.files().len(), 1);
}

#[test]
fn a_presigned_url_lives_a_week_at_the_most() {
    let gateway = Bucketed::start();
    let reader = Signer::reader(&gateway);
    for (seconds, wanted) in [(604_800, "NoSuchKey"), (604_801, "AuthorizationQueryParametersError")] {
        let target = reader.presigned("GET", "/reports/x", seconds);
        let mut client = Client::connect(&gateway.s3().to_string());
        client.send(format!("GET {target} HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.s3()).as_bytes()).unwrap();
        assert_eq!(code(&client.receive().unwrap()), wanted, "{seconds}");
    }
}

/// The claim that issued the credentials named its issuer. A holder that was taken over is refused as stale, not for a
/// missing issuer.
#[test]
fn where_an_issuer_is_required_a_stale_lease_is_stale() {
    let world = World::configured("[[guard]]\nkeys = 'reports/**'\nresource = 'reports'\nissuer = 'required'\n");
    let running = world.start();
    let issuer = [("fencing-issuer", "etcd:7")];
    let first = running.holder_by("33", &issuer);
    assert_eq!(first.put("reports/x", b"by 33").status, 200);
    let upload = first.begin_upload("reports/x");
    let second = running.holder_by("34", &issuer);
    assert_stale(&first.put("reports/x", b"late"));
    assert_stale(&first.delete("reports/x"));
    assert_stale(&first.delete_all("reports", &["x"]));
    assert_stale(&first.request("PUT", "/reports/y", &[("x-amz-copy-source", "/reports/x")], b""));
    assert_stale(&first.request("POST", "/reports/x?uploads=", &[], b""));
    assert_stale(&first.put_part("reports/x", &upload, 1, b"late"));
    assert_stale(&first.request("DELETE", &format!("/reports/x?uploadId={upload}"), &[], b""));
    assert_eq!(second.put("reports/x", b"by 34").status, 200);
    assert_eq!(world.seen(&second)["x"], b"by 34");
    // Without a token there is nothing that an issuer could have numbered.
    let body = br#"{"resource": "reports"}"#;
    let nameless = running.client().request("POST", "/v1/s3/credentials", &[("fencing-token", "35")], body);
    assert_eq!((nameless.status, nameless.problem().as_str()), (428, "missing-issuer"), "{}", nameless.text());
}

/// A misspelled bucket name is not a question of locks.
#[test]
fn a_bucket_that_is_not_there_is_said_to_be_missing_whatever_the_lease() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(code(&signer.put("reprots/x", b"x")), "NoSuchBucket");
    let other = signer.put("shared/daily/x", b"x");
    assert_eq!(code(&other), "AccessDenied");
    assert!(other.text().contains("Take the lock of `shared/daily`"), "{}", other.text());
}

#[test]
fn credentials_that_have_expired_say_so_and_move_no_fence() {
    let gateway = Bucketed::start();
    let short = Signer { address: gateway.s3(), credentials: gateway.credentials_for("reports", "33", 1) };
    let answer = wait::until("the credentials to expire", PATIENCE, || {
        let answer = short.put("reports/x", b"x");
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(code(&answer), "ExpiredToken", "{}", answer.text());
    assert_eq!(code(&short.get("reports/x")), "ExpiredToken");
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("33"));
    assert_eq!(Signer::holder(&gateway, "reports", "33").put("reports/x", b"again").status, 200, "the lease goes on");
}

#[test]
fn credentials_of_one_resource_write_nothing_of_another() {
    let gateway = Bucketed::start();
    let mine = Signer::holder(&gateway, "shared/mine", "33");
    let theirs = Signer::holder(&gateway, "shared/theirs", "33");
    assert_eq!(mine.put("shared/mine/x", b"mine").status, 200);
    assert_eq!(theirs.put("shared/theirs/x", b"theirs").status, 200);
    let before = gateway.files();
    for answer in [
        mine.put("shared/theirs/x", b"evil"),
        mine.put("shared/theirs/new", b"evil"),
        mine.put("free/x", b"evil"),
        mine.delete("shared/theirs/x"),
        mine.delete_all("shared", &["mine/x", "theirs/x"]),
        mine.request("PUT", "/shared/theirs/y", &[("x-amz-copy-source", "/shared/mine/x")], b""),
        mine.request("POST", "/shared/theirs/x?uploads=", &[], b""),
    ] {
        assert_eq!((answer.status, code(&answer).as_str()), (403, "AccessDenied"), "{}", answer.text());
    }
    assert_eq!(gateway.files(), before, "refused whole");
    let upload = theirs.begin_upload("shared/theirs/x");
    // The id of an upload gives no right to it, not even under another name.
    assert_eq!(code(&mine.put_part("shared/theirs/x", &upload, 1, b"evil")), "AccessDenied");
    assert_eq!(code(&mine.put_part("shared/mine/x", &upload, 1, b"evil")), "NoSuchUpload");
    let abort = format!("/shared/mine/x?uploadId={upload}");
    assert_eq!(code(&mine.request("DELETE", &abort, &[], b"")), "NoSuchUpload");
    assert_eq!(code(&mine.complete("shared/mine/x", &upload, &["0".repeat(32)])), "NoSuchUpload");
    // Reading the source of a copy needs no lease on it.
    assert_eq!(mine.request("PUT", "/shared/mine/y", &[("x-amz-copy-source", "/shared/theirs/x")], b"").status, 200);
    assert_eq!(mine.get("shared/mine/y").body, b"theirs");
    assert_eq!(gateway.client().fence("shared/theirs").as_deref(), Some("33"));
}
