//! Parses what tests compare in an answer: elements of its XML, the code of an error, the ETag.

use fencepost_harness::http::Answer;

/// The text of the first element with this name.
pub(crate) fn element(xml: &str, name: &str) -> Option<String> {
    elements(xml, name).first().map(|text| (*text).to_owned())
}

/// The text of every element with this name.
pub(crate) fn elements<'x>(xml: &'x str, name: &str) -> Vec<&'x str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    xml.split(&open).skip(1).map(|rest| rest.split(&close).next().unwrap_or_default()).collect()
}

/// Unescapes XML text.
pub(crate) fn plain(text: &str) -> String {
    let named = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    named.replace("&#34;", "\"").replace("&#39;", "'").replace("&amp;", "&")
}

/// The code of an S3 error.
pub(crate) fn code(answer: &Answer) -> String {
    element(&answer.text(), "Code").unwrap_or_else(|| panic!("no code in {answer:?} {}", answer.text()))
}

/// An ETag without its quotes.
pub(crate) fn etag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("no ETag in {answer:?}")).trim_matches('"').to_owned()
}
