//! Lists stay well-formed, whatever names and queries contain.

use fencepost_harness::bucketed::Bucketed;

use crate::parsing::{elements, plain};
use crate::signing::Signer;

/// Asserts that this is one well-formed element, of characters that XML allows.
fn assert_well_formed(what: &str, xml: &str) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    if let Some(bad) = xml.chars().find(|c| !allowed(*c)) {
        panic!("{what}: XML has no {bad:?}: {xml:?}");
    }
    for (at, _) in xml.match_indices('&') {
        let reference = xml[at + 1..].split(';').next().unwrap_or_default();
        let number = reference.strip_prefix('#').map(|digits| match digits.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        });
        let known = match number {
            Some(number) => number.and_then(char::from_u32).is_some_and(allowed),
            None => ["lt", "gt", "amp", "quot", "apos"].contains(&reference),
        };
        assert!(known, "{what}: &{reference}; in {xml:?}");
    }
    let body = xml.split_once("?>").map_or(xml, |(_, body)| body);
    let mut open = Vec::new();
    for piece in body.split('<').skip(1) {
        let tag = piece.split_once('>').unwrap_or_else(|| panic!("{what}: a tag without its end: {xml:?}")).0;
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{what}: {xml:?}"),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().unwrap_or_default()),
        }
    }
    assert!(open.is_empty(), "{what}: {open:?} is not closed: {xml:?}");
}

/// Names with characters that XML cannot represent are refused; otherwise one object would break every list of the
/// bucket.
#[test]
fn names_that_xml_cannot_carry_break_no_list() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for (sent, name) in [("a%EF%BF%BE", "a\u{fffe}"), ("a%EF%BF%BF", "a\u{ffff}"), ("a%C2%9F", "a\u{9f}")] {
        let status = signer.put(&format!("reports/{sent}"), b"x").status;
        assert!(status == 200 || status == 400, "{name:?}: {status}");
    }
    for query in ["list-type=2", "", "versions=", "uploads="] {
        let answer = signer.request("GET", &format!("/reports?{query}"), &[], b"");
        assert_well_formed(query, &answer.text());
    }
}

#[test]
fn questions_with_anything_in_them_are_answered_well_formed() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for name in ["reports/a%3Cb%3E%26/1", "reports/a%3Cb%3E%26/2", "reports/b"] {
        assert_eq!(signer.put(name, b"x").status, 200);
    }
    let evil =
        ["%3C%2FPrefix%3E%3CKey%3Eevil", "%26%23x0%3B", "%01", "%00", "%0D%0AX-Evil%3A%201", "%EF%BF%BF", "%5D%5D%3E"];
    for text in evil {
        for query in [
            format!("list-type=2&prefix={text}"),
            format!("delimiter={text}&list-type=2"),
            format!("list-type=2&start-after={text}"),
            format!("continuation-token={text}&list-type=2"),
            format!("encoding-type=url&list-type=2&prefix={text}"),
            format!("prefix={text}"),
            format!("marker={text}"),
            format!("prefix={text}&uploads="),
            format!("key-marker={text}&uploads="),
        ] {
            let answer = signer.request("GET", &format!("/reports?{query}"), &[], b"");
            assert!(answer.status == 200 || answer.status == 400, "{query}: {answer:?}");
            assert_well_formed(&query, &answer.text());
            assert!(answer.header("x-evil").is_none(), "{query}: {answer:?}");
        }
    }
    for query in
        ["list-type=2&max-keys=-1", "list-type=2&max-keys=99999999999999999999", "continuation-token=&list-type=2"]
    {
        let answer = signer.request("GET", &format!("/reports?{query}"), &[], b"");
        assert!(answer.status == 200 || answer.status == 400, "{query}: {answer:?}");
        assert_well_formed(query, &answer.text());
    }
}

/// An error that repeats the request is valid XML.
#[test]
fn errors_that_repeat_the_question_are_well_formed() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for text in ["%3C", "%01", "%00", "%EF%BF%BF"] {
        for query in [format!("encoding-type={text}&list-type=2"), format!("list-type=2&max-keys={text}")] {
            let answer = signer.request("GET", &format!("/reports?{query}"), &[], b"");
            assert_eq!(answer.status, 400, "{query}: {answer:?}");
            assert_well_formed(&query, &answer.text());
        }
    }
}

/// Pages of any size add up to the whole list, in both versions, with and without groups.
#[test]
fn pages_put_together_are_the_whole() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let keys =
        ["a", "a-b", "a/1", "a/2", "a/b/1", "a0", "b/1", "b/2", "c", "c%20d", "d/e/f/1", "d/e/f/2", "%C3%A9/1", "z"];
    for key in keys {
        // A name and names below it cannot exist at the same time.
        if key != "a" {
            assert_eq!(signer.put(&format!("reports/{key}"), b"x").status, 200, "{key}");
        }
    }
    for delimiter in ["", "delimiter=%2F&"] {
        for prefix in ["", "prefix=a&", "prefix=d%2F&"] {
            let whole = page(&signer, &format!("{delimiter}list-type=2&{prefix}"), 1000).0;
            for size in 1..5 {
                for version in ["list-type=2&", ""] {
                    let (mut found, mut next) = (Vec::new(), String::new());
                    loop {
                        let query = format!("{delimiter}{next}{version}{prefix}");
                        let (entries, more) = page(&signer, &query, size);
                        assert!(entries.len() <= size, "{query}: {entries:?}");
                        found.extend(entries);
                        assert!(found.len() <= whole.len(), "{query} goes round: {found:?}");
                        let Some(more) = more else { break };
                        next = match version {
                            "" => format!("marker={}&", fencepost_core::percent_encode_name(&more).replace('/', "%2F")),
                            _ => format!("continuation-token={more}&"),
                        };
                    }
                    assert_eq!(found, whole, "{delimiter}{prefix}{version} by {size}");
                }
            }
        }
    }
}

/// The entries of a page, in order, and where the next one begins.
fn page(signer: &Signer, query: &str, size: usize) -> (Vec<String>, Option<String>) {
    // A signature requires sorted query names.
    let mut parts: Vec<String> = query.split('&').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    parts.push(format!("max-keys={size}"));
    parts.sort();
    let answer = signer.request("GET", &format!("/reports?{}", parts.join("&")), &[], b"");
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let text = answer.text();
    assert_well_formed(query, &text);
    let keys = elements(&text, "Contents").into_iter().flat_map(|entry| elements(entry, "Key"));
    let groups = elements(&text, "CommonPrefixes").into_iter().flat_map(|entry| elements(entry, "Prefix"));
    let mut entries: Vec<String> = keys.chain(groups).map(plain).collect();
    entries.sort();
    let more = elements(&text, "IsTruncated") == ["true"];
    let next = ["NextContinuationToken", "NextMarker"].iter().find_map(|name| crate::parsing::element(&text, name));
    assert_eq!(more, next.is_some(), "{query}: {text}");
    (entries, next.map(|next| plain(&next)))
}
