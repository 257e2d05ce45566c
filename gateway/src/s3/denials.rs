//! Denied requests: counted by code, and logged with at most one line a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::http::request::Parts;
use parking_lot::Mutex;

use crate::metrics::{Metrics, S3_DENIALS};
use crate::peer::PeerAddress;

/// The least time between two log lines.
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// Longer ids are shortened in the log. No valid access key id is this long.
const MAX_SHOWN: usize = 128;

/// Counts and logs denied requests.
pub(super) struct Denials {
    metrics: Arc<Metrics>,
    last: Mutex<Option<(Instant, u64)>>,
}

impl Denials {
    pub(super) fn new(metrics: Arc<Metrics>) -> Denials {
        Denials { metrics, last: Mutex::new(None) }
    }

    /// Records that a request of this peer was denied with this code. The key id is as sent by the client, and may
    /// not be verified.
    pub(super) fn denied(&self, peer: PeerAddress, key_id: &str, code: &str) {
        self.metrics.s3_denied(code);
        if let Some(unlogged) = self.may_log() {
            tracing::warn!(%peer, key_id, code, unlogged, "an S3 request was not let in");
        }
    }

    /// Returns the number of requests not logged since the last line, if another line is due.
    fn may_log(&self) -> Option<u64> {
        let mut last = self.last.lock();
        match last.as_mut() {
            Some((at, unlogged)) if at.elapsed() < BETWEEN_LINES => {
                *unlogged += 1;
                None
            }
            found => {
                let unlogged = found.map_or(0, |(_, unlogged)| *unlogged);
                *last = Some((Instant::now(), 0));
                Some(unlogged)
            }
        }
    }
}

/// Returns whether this code denies access. After admission, `InvalidRequest` has other causes.
pub(super) fn is_denial(code: &str, is_admitted: bool) -> bool {
    S3_DENIALS.contains(&code) && !(is_admitted && code == "InvalidRequest")
}

/// The access key id named in a request; `-` if there is none.
pub(super) fn key_id(head: &Parts) -> String {
    let header = head.headers.get(hyper::header::AUTHORIZATION).and_then(|header| header.to_str().ok());
    let by_header = header.and_then(|header| header.split_once("Credential=")).map(|(_, rest)| rest.to_owned());
    let query = head.uri.query().unwrap_or_default();
    let by_url = form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "X-Amz-Credential" || name == "AWSAccessKeyId")
        .map(|(_, value)| value.into_owned());
    let credential = by_url.or(by_header).unwrap_or_else(|| "-".to_owned());
    let id = credential.split(['/', ',']).next().unwrap_or_default();
    id.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s18_one_line_a_second() {
        let denials = Denials::new(Arc::new(Metrics::new()));
        assert_eq!(denials.may_log(), Some(0));
        assert_eq!((denials.may_log(), denials.may_log()), (None, None));
        denials.last.lock().as_mut().unwrap().0 -= BETWEEN_LINES;
        assert_eq!(denials.may_log(), Some(2));
    }

    #[test]
    fn s18_every_code_is_counted_and_no_other() {
        let metrics = Arc::new(Metrics::new());
        let denials = Denials::new(metrics.clone());
        S3_DENIALS.iter().for_each(|code| denials.denied(PeerAddress::Ip([192, 0, 2, 1].into()), "READER", code));
        denials.denied(PeerAddress::Ip([192, 0, 2, 1].into()), "READER", "made-up");
        let text = metrics.text();
        for code in S3_DENIALS {
            assert!(text.contains(&format!("fencepost_s3_denied_total{{code=\"{code}\"}} 1")), "{text}");
        }
        assert!(!text.contains("made-up"), "{text}");
    }

    #[test]
    fn s18_the_key_id_is_shown_as_it_was_sent() {
        let head = |target: &str, authorization: &str| {
            let request =
                hyper::Request::builder().uri(target).header("authorization", authorization).body(()).unwrap();
            key_id(&request.into_parts().0)
        };
        assert_eq!(head("/", "AWS4-HMAC-SHA256 Credential=FPAAA/20261118/us-east-1/s3, SignedHeaders="), "FPAAA");
        assert_eq!(head("/?X-Amz-Credential=READER%2F2026", ""), "READER");
        assert_eq!(head("/?X-Amz-Credential=a%0Ab", ""), "a\\nb");
        assert_eq!(head("/", ""), "-");
    }
}
