//! Conditions of the client: 412, and never instead of the 403 of the fence.

use fencepost_harness::bucketed::Bucketed;

use crate::parsing::{code, etag};
use crate::signing::Signer;
use crate::takeovers::assert_stale;
use crate::world::{agreed, until_nothing_is_staged};

#[test]
fn conditional_writes_are_made_or_answered_412() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "34");
    let first = signer.request("PUT", "/reports/x", &[("if-none-match", "*")], b"one");
    assert_eq!(first.status, 200, "{}", first.text());
    let before = (agreed(&signer, "reports"), gateway.files());
    let wrong = "\"00000000000000000000000000000000\"";
    for headers in [[("if-none-match", "*")], [("if-match", wrong)]] {
        let answer = signer.request("PUT", "/reports/x", &headers, b"other");
        assert_eq!((answer.status, code(&answer).as_str()), (412, "PreconditionFailed"), "{}", answer.text());
        assert_eq!(answer.header("fence"), Some("34"), "the token was seen all the same: {answer:?}");
    }
    let answer = signer.request("DELETE", "/reports/x", &[("if-match", wrong)], b"");
    assert_eq!(answer.status, 412, "{}", answer.text());
    let answer = signer.request("PUT", "/reports/none", &[("if-match", wrong)], b"other");
    assert_eq!((answer.status, code(&answer).as_str()), (404, "NoSuchKey"), "{}", answer.text());
    assert_eq!(answer.header("fence"), Some("34"), "the token was seen all the same: {answer:?}");
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    until_nothing_is_staged(&gateway.objects());
    let own = format!("\"{}\"", etag(&first));
    assert_eq!(signer.request("PUT", "/reports/x", &[("if-match", &own)], b"two").status, 200);
    assert_eq!(signer.request("PUT", "/reports/x", &[("if-match", &own)], b"three").status, 412);
    assert_eq!(signer.get("reports/x").body, b"two");
}

/// Completions and copies are writes with conditions too.
#[test]
fn conditions_of_completions_and_copies_hold_or_nothing_is_written() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "34");
    assert_eq!(signer.put("reports/x", b"there").status, 200);
    assert_eq!(signer.put("reports/source", b"source").status, 200);
    let before = (agreed(&signer, "reports"), gateway.files());
    let upload = signer.begin_upload("reports/x");
    let part = etag(&signer.put_part("reports/x", &upload, 1, b"part"));
    let body = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>"
    );
    let target = format!("/reports/x?uploadId={upload}");
    let answer = signer.request("POST", &target, &[("if-none-match", "*")], body.as_bytes());
    assert_eq!(answer.status, 412, "{}", answer.text());
    let source = ("x-amz-copy-source", "/reports/source");
    for condition in [("if-none-match", "*"), ("if-match", "\"00000000000000000000000000000000\"")] {
        let answer = signer.request("PUT", "/reports/x", &[source, condition], b"");
        assert_eq!((answer.status, code(&answer).as_str()), (412, "PreconditionFailed"), "{condition:?}");
    }
    for condition in [("x-amz-copy-source-if-none-match", "*"), ("x-amz-copy-source-if-match", "\"0\"")] {
        let answer = signer.request("PUT", "/reports/x", &[source, condition], b"");
        assert_eq!(answer.status, 412, "{condition:?}: {answer:?} {}", answer.text());
    }
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    assert_eq!(signer.request("POST", &target, &[], body.as_bytes()).status, 200, "the upload is still there");
}

/// For clients 412 means "read again and retry", which a holder that was taken over must not do.
#[test]
fn the_fence_is_asked_before_the_condition() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    assert_eq!(first.put("reports/x", b"one").status, 200);
    Signer::holder(&gateway, "reports", "34");
    assert_stale(&first.request("PUT", "/reports/x", &[("if-none-match", "*")], b"other"));
    assert_stale(&first.request("DELETE", "/reports/x", &[("if-match", "\"0\"")], b""));
}
