//! Messages for errors without one: those that the S3 library finds by itself, before the gateway's own code runs.

use fencepost_objects::untellable;
use http_body_util::BodyExt;
use s3s::{Body, HttpResponse};

/// Codes of errors without a message, and their messages.
const WORDS: &[(&str, &str)] = &[
    (
        "SignatureDoesNotMatch",
        "The signature is not the one that the secret of this access key makes. Check the secret, and whether something \
         on the way changed the request.",
    ),
    ("InvalidURI", "The path is not UTF-8 after it was percent-decoded once, or is not that of a bucket or an object."),
    ("InvalidBucketName", "Names of buckets have 3 to 63 lower-case letters, digits, dots and hyphens."),
    ("KeyTooLongError", "The name of an object has at most 1,024 bytes together with its bucket."),
    ("MalformedXML", "The body is not the XML that this call takes."),
    ("MissingContentLength", "The length of the body must be given."),
    ("InvalidRequest", "The request cannot be understood."),
    ("InternalError", "The gateway could not do it, or the body did not come. The gateway's log may say more."),
    ("MaxMessageLengthExceeded", "Lists of parts have at most 4 MiB, lists of keys 2 MiB."),
    ("NotImplemented", "This is not offered by this gateway."),
];

/// Adds a message, the path and the request id to an error answer. Also returns the code of the error.
pub(super) async fn explained(answer: HttpResponse, path: &str, request_id: &str) -> (HttpResponse, Option<String>) {
    if !(answer.status().is_client_error() || answer.status().is_server_error()) {
        return (answer, None);
    }
    let (mut head, body) = answer.into_parts();
    // Error bodies are short and already in memory.
    let text = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return (HttpResponse::from_parts(head, Body::empty()), None),
    };
    // Errors that repeat text of the client may have characters that XML cannot represent.
    let shown: String = String::from_utf8_lossy(&text).chars().flat_map(tellable).collect();
    let code =
        shown.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code.to_owned());
    let words =
        WORDS.iter().find(|(known, _)| Some(*known) == code.as_deref()).filter(|_| !shown.contains("<Message>"));
    let told = match words {
        None => shown,
        Some((code, words)) => {
            let code = format!("<Code>{code}</Code>");
            shown.replacen(&code, &format!("{code}<Message>{words}</Message>"), 1)
        }
    };
    head.headers.remove(hyper::header::CONTENT_LENGTH);
    (HttpResponse::from_parts(head, Body::from(named(&told, path, request_id))), code)
}

/// Adds the path and the request id to the end of an error.
fn named(text: &str, path: &str, request_id: &str) -> String {
    match text.rsplit_once("</Error>") {
        None => text.to_owned(),
        Some((error, rest)) => {
            let resource = path.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            format!("{error}<Resource>{resource}</Resource><RequestId>{request_id}</RequestId></Error>{rest}")
        }
    }
}

/// A character, or its replacement if XML cannot represent it.
fn tellable(c: char) -> impl Iterator<Item = char> {
    let hidden = untellable(c) && !matches!(c, '\n' | '\t');
    let escaped = hidden.then(|| c.escape_unicode());
    std::iter::once(c).filter(move |_| !hidden).chain(escaped.into_iter().flatten())
}
