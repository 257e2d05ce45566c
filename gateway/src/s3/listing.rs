//! Bodies that are buffered whole: a list of parts or keys in XML. They are checked while they arrive, before the S3
//! library parses them into structures that are many times as large.

use data_encoding::HEXLOWER;
use hyper::Method;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::http::request::Parts;
use s3s::S3ErrorCode;
use sha2::{Digest, Sha256};

/// The S3 library drops text in CDATA sections, so `a<![CDATA[b]]>c` would name the object `ac`.
const CDATA: &[u8] = b"<![CDATA[";

/// The kind of list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// The parts of an upload to complete.
    Parts,
    /// The keys of objects to delete.
    Keys,
    /// The configuration of a new bucket.
    Bucket,
}

impl List {
    /// The list that a request carries, by its method and target. Bodies of other requests are streamed.
    pub(super) fn of(head: &Parts) -> Option<List> {
        let mut names = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        if head.method == Method::POST {
            return Some(if names.any(|(name, _)| name == "delete") { List::Keys } else { List::Parts });
        }
        let path = percent_encoding::percent_decode_str(head.uri.path()).decode_utf8_lossy();
        let is_bucket = path.trim_start_matches('/').split_once('/').is_none_or(|(_, key)| key.is_empty());
        (head.method == Method::PUT && is_bucket).then_some(List::Bucket)
    }

    /// The largest size in bytes. 10,000 parts with a checksum each, and 1,000 keys of the longest names, fit.
    pub(super) const fn bytes(self) -> usize {
        match self {
            List::Parts => 4 << 20,
            List::Keys => 2 << 20,
            List::Bucket => 64 << 10,
        }
    }

    /// The repeated element, and the most repetitions.
    fn element(self) -> (&'static [u8], usize) {
        match self {
            List::Parts => (b"<Part", 10_000),
            List::Keys => (b"<Object", 1_000),
            List::Bucket => (b"<Tag", 50),
        }
    }

    /// Returns an error if a list of this size is too large.
    pub(super) fn check_length(self, bytes: u64) -> Result<(), Fault> {
        match u64::try_from(self.bytes()) {
            Ok(limit) if bytes <= limit => Ok(()),
            _ => Err(Fault {
                code: S3ErrorCode::MaxMessageLengthExceeded,
                why: format!("This list has at most {} bytes.", self.bytes()),
            }),
        }
    }
}

/// An error in a list, as reported to the client.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) code: S3ErrorCode,
    pub(super) why: String,
}

/// Checks a list while it arrives.
pub(super) struct Scan {
    list: List,
    bytes: u64,
    announced: Option<u64>,
    cdata: usize,
    element: usize,
    elements: usize,
    sha256: Option<(Sha256, String)>,
}

impl Scan {
    pub(super) fn new(list: List, headers: &HeaderMap) -> Scan {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let announced = text(CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
        let sha256 = text("x-amz-content-sha256").filter(|sum| sum.len() == 64);
        let sha256 = sha256.map(|sum| (Sha256::new(), sum.to_ascii_lowercase()));
        Scan { list, bytes: 0, announced, cdata: 0, element: 0, elements: 0, sha256 }
    }

    /// Checks the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.bytes += bytes.len() as u64;
        self.list.check_length(self.bytes)?;
        let (element, most) = self.list.element();
        for byte in bytes {
            if self.element == element.len() && matches!(byte, b'>' | b'/' | b' ' | b'\t' | b'\r' | b'\n') {
                self.elements += 1;
            }
            self.element = matched(element, self.element, *byte);
            self.cdata = matched(CDATA, self.cdata, *byte);
            if self.cdata == CDATA.len() {
                return Err(malformed("A list with <![CDATA[ in it is not taken; escape what is special in XML."));
            }
        }
        if self.elements > most {
            return Err(malformed(&format!("A list has at most {most} entries.")));
        }
        if let Some((sum, _)) = &mut self.sha256 {
            sum.update(bytes);
        }
        if self.announced == Some(self.bytes)
            && let Some((sum, wanted)) = self.sha256.take()
            && HEXLOWER.encode(&sum.finalize()) != wanted
        {
            let why = "x-amz-content-sha256 is not the SHA-256 of the body.".to_owned();
            return Err(Fault { code: S3ErrorCode::BadDigest, why });
        }
        Ok(())
    }
}

fn malformed(why: &str) -> Fault {
    Fault { code: S3ErrorCode::MalformedXML, why: why.to_owned() }
}

/// The number of bytes of a word that match after one more byte. `<` occurs only at the start of a word.
fn matched(word: &[u8], before: usize, byte: u8) -> usize {
    match word.get(before) {
        Some(next) if *next == byte => before + 1,
        _ => usize::from(byte == b'<'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(list: List, body: &str, piece: usize) -> Result<(), Fault> {
        let mut scan = Scan::new(list, &HeaderMap::new());
        body.as_bytes().chunks(piece).try_for_each(|piece| scan.feed(piece))
    }

    #[test]
    fn s07_entries_are_counted_as_they_arrive() {
        let parts = |number: usize| "<Part/>".repeat(number);
        for piece in [1, 3, 1 << 20] {
            assert_eq!(fed(List::Parts, &parts(10_000), piece), Ok(()));
            assert!(fed(List::Parts, &parts(10_001), piece).is_err());
        }
        // Other elements whose names have the same beginning.
        assert_eq!(fed(List::Parts, &"<PartNumber>".repeat(20_000), 1000), Ok(()));
        assert!(fed(List::Keys, &"<Object >".repeat(1001), 1000).is_err());
    }

    #[test]
    fn s07_a_list_has_a_limit_of_bytes() {
        assert_eq!(fed(List::Keys, &" ".repeat(2 << 20), 1000), Ok(()));
        let over = fed(List::Keys, &" ".repeat((2 << 20) + 1), 1000).unwrap_err();
        assert_eq!(over.code, S3ErrorCode::MaxMessageLengthExceeded);
    }

    #[test]
    fn s14_cdata_is_found_wherever_it_is_cut() {
        let body = "<Delete><Object><Key>a<<![CDATA[b]]>c</Key></Object></Delete>";
        for piece in 1..body.len() {
            assert_eq!(fed(List::Keys, body, piece).unwrap_err().code, S3ErrorCode::MalformedXML, "{piece}");
        }
        assert_eq!(fed(List::Keys, &body.replace("CDATA", "cdata"), 7), Ok(()));
    }

    #[test]
    fn a_list_is_known_by_its_target() {
        let list = |method: Method, target: &str| {
            let request = hyper::Request::builder().method(method).uri(target).body(()).unwrap();
            List::of(&request.into_parts().0)
        };
        assert_eq!(list(Method::POST, "/b?delete"), Some(List::Keys));
        assert_eq!(list(Method::POST, "/b?%64elete="), Some(List::Keys));
        assert_eq!(list(Method::POST, "/b/k?uploadId=x"), Some(List::Parts));
        assert_eq!(list(Method::PUT, "/b"), Some(List::Bucket));
        assert_eq!(list(Method::PUT, "/b/"), Some(List::Bucket));
        assert_eq!(list(Method::PUT, "/b/k"), None);
        assert_eq!(list(Method::PUT, "/b%2Fk"), None);
    }
}
