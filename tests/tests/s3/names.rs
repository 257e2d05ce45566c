//! Misleading names: a clear refusal, or an object of exactly that name; nothing outside is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use fencepost_harness::bucketed::{Bucketed, tree};
use fencepost_harness::http::Answer;

use crate::parsing::{code, element};
use crate::signing::Signer;
use crate::world::{agreed, until_nothing_is_staged};

/// Everything but the gateway's own data: the buckets, the canary next to them, and the other entries there.
fn surroundings(gateway: &Bucketed) -> (BTreeMap<String, Vec<u8>>, Vec<u8>, BTreeSet<OsString>) {
    let mut found = tree(&gateway.objects());
    found.retain(|name, _| !name.starts_with(".fencepost/"));
    let above = gateway.objects().parent().unwrap().to_owned();
    let beside = std::fs::read_dir(&above).unwrap().map(|entry| entry.unwrap().file_name());
    (found, std::fs::read(above.join("canary")).unwrap(), beside.collect())
}

/// Asserts a client error with a readable message.
pub(crate) fn assert_clear(what: &str, answer: &Answer) {
    assert!((400..500).contains(&answer.status), "{what}: {answer:?} {}", answer.text());
    assert!(!answer.headers.iter().any(|(name, _)| name == "x-evil"), "{what}: {answer:?}");
    if !answer.body.is_empty() {
        let message = element(&answer.text(), "Message").unwrap_or_default();
        assert!(message.contains(' '), "{what}: it says why in words: {}", answer.text());
    }
}

#[test]
fn names_that_cannot_be_objects_are_refused_and_touch_nothing() {
    let gateway = Bucketed::start();
    std::fs::write(gateway.objects().parent().unwrap().join("canary"), b"alive").unwrap();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/there", b"there").status, 200);
    let before = surroundings(&gateway);
    let long = format!("/reports/{}", "n".repeat(2000));
    let just_too_long = format!("/reports/{}", "n/".repeat(508) + "nn");
    let long_part = format!("/reports/{}", "n".repeat(256));
    let long_parent = format!("/reports/{}/x", "n".repeat(256));
    let targets = [
        "/reports/..",
        "/reports/../canary",
        "/reports/../../canary",
        "/reports/a/../../canary",
        "/reports/.",
        "/reports/./a",
        "/reports/a/./b",
        "/reports/a/..",
        "/reports/%2e%2e/canary",
        "/reports/%2E%2E%2Fcanary",
        "/reports/a%2F..%2F..%2Fcanary",
        "/reports%2F..%2F..%2Fcanary",
        "/reports/%00",
        "/reports/there%00",
        "/reports/a%00/b",
        "/reports/a%0Ab",
        "/reports/a%0D%0AX-Evil:%201",
        "/reports/a%1B%5B2J",
        "/reports/%7F",
        "/reports/%C2%85",
        "/reports/a/",
        "/reports/there/",
        "/reports//a",
        "/reports/a//b",
        "/reports/%2Fa",
        "/reports/a%2F",
        "/reports/%2F",
        "/reports/%C0%AE%C0%AE/canary",
        "/reports/%C0%AF..%C0%AFcanary",
        "/reports/%E0%80%AE%E0%80%AE/canary",
        "/reports/%FF",
        "/reports/%ED%A0%80",
        "/.fencepost/lock",
        "/.fencepost/staging/x",
        "/%2Efencepost/x",
        "/reports/../.fencepost/lock",
        "/..",
        "/../canary",
        "/%2e%2e/canary",
        "/./reports/x",
        "/REPORTS/x",
        "/re/x",
        "/nosuchbucket/x",
        "//reports/x",
        "//x",
        &long,
        &just_too_long,
        &long_part,
        &long_parent,
    ];
    for target in targets {
        for (method, body) in [("PUT", &b"evil"[..]), ("DELETE", b""), ("GET", b""), ("HEAD", b"")] {
            let what = format!("{method} {}", &target[..target.len().min(80)]);
            // A name that cannot be stored does not exist, so removing it is no error.
            match signer.request(method, target, &[], body) {
                gone if method == "DELETE" && gone.status == 204 => {}
                answer => assert_clear(&what, &answer),
            }
        }
        let copied = signer.request("PUT", target, &[("x-amz-copy-source", "/reports/there")], b"");
        assert_clear(&format!("copy to {target}"), &copied);
        let begun = signer.request("POST", &format!("{target}?uploads="), &[], b"");
        if begun.status == 200 {
            let upload = element(&begun.text(), "UploadId").unwrap();
            let part = signer.request("PUT", &format!("{target}?partNumber=1&uploadId={upload}"), &[], b"evil");
            let body = format!(
                "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
                part.header("etag").unwrap()
            );
            let completed = signer.request("POST", &format!("{target}?uploadId={upload}"), &[], body.as_bytes());
            assert_clear(&format!("complete {target}"), &completed);
            assert_eq!(signer.request("DELETE", &format!("{target}?uploadId={upload}"), &[], b"").status, 204);
        } else {
            assert_clear(&format!("upload {target}"), &begun);
        }
    }
    assert_eq!(surroundings(&gateway), before);
    assert_eq!(agreed(&signer, "reports").len(), 1);
    until_nothing_is_staged(&gateway.objects());
}

/// The source of a copy, and the keys of DeleteObjects, are names too.
#[test]
fn names_inside_requests_are_checked_like_others() {
    let gateway = Bucketed::start();
    std::fs::write(gateway.objects().parent().unwrap().join("canary"), b"alive").unwrap();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/there", b"there").status, 200);
    let before = surroundings(&gateway);
    for source in ["/reports/../canary", "../canary", "/reports/%2e%2e/canary", "/.fencepost/lock", "", "/", "x", "%00"]
    {
        let answer = signer.request("PUT", "/reports/copy", &[("x-amz-copy-source", source)], b"");
        assert_clear(source, &answer);
    }
    for key in ["a\u{1}", "&#0;"] {
        assert_clear(key, &signer.delete_all("reports", &["there", key]));
    }
    // Names that cannot exist count as removed.
    for key in ["../canary", "../../canary", "there/../there", "/there", "there/", "", ".", "&#10;"] {
        let answer = signer.delete_all("reports", &["none", key]);
        assert_eq!((answer.status, answer.text().contains("<Error>")), (200, false), "{key}: {}", answer.text());
    }
    assert_eq!(surroundings(&gateway), before);
}

#[test]
fn unusual_names_are_what_they_are() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let names = [
        ("%252e%252e", "%2e%2e"),
        ("%252F", "%2F"),
        ("a%5C..%5C..%5Ccanary", "a\\..\\..\\canary"),
        ("...", "..."),
        (".hidden/.x", ".hidden/.x"),
        ("deeper/.fencepost/lock", "deeper/.fencepost/lock"),
        ("a%20b", "a b"),
        ("%20", " "),
        ("a%2Bb", "a+b"),
        ("Case", "Case"),
        ("case", "case"),
        ("%C3%A9", "\u{e9}"),
        ("e%CC%81", "e\u{301}"),
        ("%E2%80%AE", "\u{202e}"),
        ("%F0%9F%94%92", "\u{1f512}"),
        ("%3C%2FKey%3E%3CKey%3Eevil", "</Key><Key>evil"),
        ("%26amp%3B%22%27%3C%3E", "&amp;\"'<>"),
        ("%3C!%5BCDATA%5Bx%5D%5D%3E", "<![CDATA[x]]>"),
        ("%3Fquery%23fragment", "?query#fragment"),
        ("-rf", "-rf"),
        ("~", "~"),
        ("CON", "CON"),
        ("a%3Ab%2A", "a:b*"),
    ];
    for (sent, name) in names {
        let sent = format!("reports/{sent}");
        let answer = signer.put(&sent, name.as_bytes());
        assert_eq!(answer.status, 200, "{name:?}: {}", answer.text());
        assert_eq!(signer.get(&sent).body, name.as_bytes(), "{name:?}");
    }
    let objects = agreed_by_encoded_list(&signer);
    let mut wanted: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
    wanted.sort_unstable();
    assert_eq!(objects, wanted);
    let files: Vec<String> = tree(&gateway.objects().join("reports")).into_keys().collect();
    assert_eq!(files, wanted);
    let listed: Vec<String> = signer.list("reports", 3).into_iter().map(|entry| entry.key).collect();
    assert_eq!(listed, wanted);
    for (sent, name) in names {
        assert_eq!(signer.delete(&format!("reports/{sent}")).status, 204, "{name:?}");
    }
    assert!(tree(&gateway.objects().join("reports")).is_empty());
}

/// The names of a list with `encoding-type=url`.
fn agreed_by_encoded_list(signer: &Signer) -> Vec<String> {
    let answer = signer.request("GET", "/reports?encoding-type=url&list-type=2", &[], b"").text();
    let keys = crate::parsing::elements(&answer, "Key");
    keys.into_iter().map(|key| fencepost_core::percent_decode_name(key).expect("an encoded name").into()).collect()
}

#[test]
fn the_longest_names_there_can_be() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let whole = format!("reports/{}{}", "d/".repeat(380), "n".repeat(255));
    assert_eq!(whole.len(), 1023, "the limit is 1024, and a part has at most 255");
    for name in [whole.as_str(), &format!("reports/{}", "n".repeat(255))] {
        let answer = signer.put(name, b"long");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(signer.get(name).body, b"long");
        assert_eq!(agreed(&signer, "reports").len(), 1);
        assert_eq!(signer.delete(name).status, 204);
        assert!(!gateway.objects().join("reports/d").exists(), "empty directories go");
    }
}

#[test]
fn a_file_is_no_directory_and_a_directory_no_file() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/file", b"file").status, 200);
    assert_eq!(signer.put("reports/dir/in/it", b"in it").status, 200);
    let before = (agreed(&signer, "reports"), gateway.files());
    for name in ["reports/file/below", "reports/file/far/below", "reports/dir", "reports/dir/in"] {
        let answer = signer.put(name, b"evil");
        assert_eq!((answer.status, code(&answer).as_str()), (409, "ObjectNameClash"), "{}", answer.text());
        let upload = signer.begin_upload(name);
        let part = crate::parsing::etag(&signer.put_part(name, &upload, 1, b"evil"));
        assert_eq!(code(&signer.complete(name, &upload, &[part])), "ObjectNameClash");
        assert_eq!(signer.request("DELETE", &format!("/{name}?uploadId={upload}"), &[], b"").status, 204);
        assert_eq!(signer.get(name).status, 404);
        assert_eq!(signer.delete(name).status, 204, "nothing is there to be removed");
        assert_eq!((agreed(&signer, "reports"), gateway.files()), before, "{name}");
    }
    // Once the conflicting object is removed, the name is free.
    assert_eq!(signer.delete("reports/file").status, 204);
    assert_eq!(signer.put("reports/file/below", b"below").status, 200);
    assert_eq!(signer.delete("reports/dir/in/it").status, 204);
    assert_eq!(signer.put("reports/dir", b"dir").status, 200);
    until_nothing_is_staged(&gateway.objects());
}

/// With such a directory in it, a bucket would look like the directory of another gateway, and no gateway would start
/// on it.
#[test]
fn a_bucket_is_not_made_to_look_like_the_directory_of_a_gateway() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for name in ["reports/a/.fencepost/lock", "reports/.fencepost2/lock"] {
        assert_eq!(signer.put(name, b"a name like others").status, 200, "{name}");
    }
    let before = (agreed(&signer, "reports"), gateway.files());
    for name in ["reports/.fencepost", "reports/.fencepost/lock", "reports/.fencepost/staging/x"] {
        let upload = signer.begin_upload(name);
        let part = crate::parsing::etag(&signer.put_part(name, &upload, 1, b"evil"));
        let source = [("x-amz-copy-source", "/reports/a/.fencepost/lock")];
        for (call, answer) in [
            ("PutObject", signer.put(name, b"evil")),
            ("CopyObject", signer.request("PUT", &format!("/{name}"), &source, b"")),
            ("CompleteMultipartUpload", signer.complete(name, &upload, &[part])),
        ] {
            let found = (answer.status, code(&answer));
            assert_eq!(found, (400, "InvalidArgument".to_owned()), "{call} {name}: {}", answer.text());
            assert!(answer.text().contains("choose another name"), "{call} {name}: {}", answer.text());
        }
        assert_eq!(signer.request("DELETE", &format!("/{name}?uploadId={upload}"), &[], b"").status, 204);
    }
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    assert!(!gateway.objects().join("reports/.fencepost").exists());
    until_nothing_is_staged(&gateway.objects());
}
