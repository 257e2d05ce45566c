//! Begun by 33 and finished after 34 took over: refused, and nothing changes.

use std::os::unix::fs::MetadataExt;

use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Answer;

use crate::parsing::{code, element, elements, etag};
use crate::signing::Signer;
use crate::world::{agreed, staged, until_nothing_is_staged, until_some_is_staged};

const BODY: usize = 1 << 20;
const PART: usize = 5 << 20;

/// Asserts a refusal because 34 took over.
pub(crate) fn assert_stale(answer: &Answer) {
    assert_eq!((answer.status, code(answer).as_str()), (403, "StaleFencingToken"), "{}", answer.text());
    assert_eq!(answer.header("fence"), Some("34"), "{answer:?}");
    let message = element(&answer.text(), "Message").unwrap_or_default();
    assert!(message.contains("33") && message.contains("34"), "{message}");
}

/// Begins a PUT, runs `meanwhile` in the middle of its body, and finishes it.
fn slow_put(
    gateway: &Bucketed,
    signer: &Signer,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    meanwhile: impl FnOnce(),
) -> Answer {
    let mut slow = signer.begin("PUT", target, headers, body.len());
    let (first, rest) = body.split_at(body.len() / 2);
    slow.send(first).unwrap();
    until_some_is_staged(&gateway.objects());
    meanwhile();
    slow.send(rest).unwrap();
    slow.receive().unwrap()
}

#[test]
fn a_slow_put_begun_by_33_is_refused_after_34_took_over() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    assert_eq!(first.put("reports/daily", b"by 33").status, 200);
    let before = (first.list("reports", 1000), gateway.files());
    let body = vec![b'x'; BODY];
    let answer = slow_put(&gateway, &first, "/reports/daily", &[], &body, || {
        Signer::holder(&gateway, "reports", "34");
    });
    assert_stale(&answer);
    assert_eq!((first.list("reports", 1000), gateway.files()), before);
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("34"));
    until_nothing_is_staged(&gateway.objects());
}

#[test]
fn a_slow_put_of_a_new_name_leaves_not_even_a_directory() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    let body = vec![b'x'; BODY];
    let answer = slow_put(&gateway, &first, "/reports/new/deep/down", &[], &body, || {
        Signer::holder(&gateway, "reports", "34");
    });
    assert_stale(&answer);
    assert_eq!(first.get("reports/new/deep/down").status, 404);
    assert!(first.list("reports", 1000).is_empty() && gateway.files().is_empty());
    until_nothing_is_staged(&gateway.objects());
    assert!(!gateway.objects().join("reports/new").exists(), "directories made for it are gone again");
}

/// Identical bytes have an identical ETag, so a comparison of ETags would admit the delayed write of 33.
#[test]
fn an_object_that_34_only_read_is_not_written_by_33_any_more() {
    for conditional in [false, true] {
        let gateway = Bucketed::start();
        let first = Signer::holder(&gateway, "reports", "33");
        let body = vec![b'x'; BODY];
        let condition = first.put("reports/p/x", &body).header("etag").unwrap().to_owned();
        let headers: &[(&str, &str)] = if conditional { &[("if-match", &condition)] } else { &[] };
        let file = gateway.objects().join("reports/p/x");
        let before = (first.get("reports/p/x"), file.metadata().unwrap().ino());
        let answer = slow_put(&gateway, &first, "/reports/p/x", headers, &body, || {
            let second = Signer::holder(&gateway, "reports", "34");
            assert!(second.get("reports/p/x").body == body);
        });
        assert_stale(&answer);
        let now = first.get("reports/p/x");
        for header in ["etag", "last-modified", "fencing-token"] {
            assert_eq!(now.header(header), before.0.header(header), "{header}");
        }
        assert_eq!(now.header("fencing-token"), Some("33"));
        assert_eq!(file.metadata().unwrap().ino(), before.1, "it is the same file");
        until_nothing_is_staged(&gateway.objects());
    }
}

#[test]
fn a_stale_put_is_refused_before_its_body() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    Signer::holder(&gateway, "reports", "34");
    assert_stale(&first.begin("PUT", "/reports/x", &[], 1 << 30).receive().unwrap());
    assert!(staged(&gateway.objects()).is_empty(), "nothing was ever staged");
}

#[test]
fn an_upload_in_parts_begun_by_33_is_not_completed_after_34_took_over() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    assert_eq!(first.put("reports/large", b"before").status, 200);
    let upload = first.begin_upload("reports/large");
    let etags: Vec<String> = [vec![b'1'; PART], vec![b'2'; 10]]
        .iter()
        .zip(1..)
        .map(|(part, number)| etag(&first.put_part("reports/large", &upload, number, part)))
        .collect();
    let before = (agreed(&first, "reports"), gateway.files());
    // One more part is in flight when 34 takes over.
    let target = format!("/reports/large?partNumber=3&uploadId={upload}");
    let mut slow = first.begin("PUT", &target, &[], BODY);
    slow.send(&vec![b'3'; BODY / 2]).unwrap();
    let second = Signer::holder(&gateway, "reports", "34");
    slow.send(&vec![b'3'; BODY / 2]).unwrap();
    assert_stale(&slow.receive().unwrap());

    assert_stale(&first.complete("reports/large", &upload, &etags));
    assert_stale(&first.put_part("reports/large", &upload, 1, b"other"));
    assert_stale(&first.request("DELETE", &format!("/reports/large?uploadId={upload}"), &[], b""));
    assert_eq!((agreed(&first, "reports"), gateway.files()), before);
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("34"));

    let parts = second.request("GET", &format!("/reports/large?uploadId={upload}"), &[], b"").text();
    let listed: Vec<String> = elements(&parts, "ETag").into_iter().map(crate::parsing::plain).collect();
    assert_eq!(listed, etags.iter().map(|etag| format!("\"{etag}\"")).collect::<Vec<_>>(), "{parts}");
    assert_eq!(second.request("DELETE", &format!("/reports/large?uploadId={upload}"), &[], b"").status, 204);
    until_nothing_is_staged(&gateway.objects());
    assert_eq!(gateway.files(), before.1);
}
