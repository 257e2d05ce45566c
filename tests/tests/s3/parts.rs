//! Parts and uploads: listed in pages, and copied from ranges of objects.

use fencepost_harness::bucketed::Bucketed;

use crate::digests::md5_of;
use crate::parsing::{code, element, elements, plain};
use crate::signing::Signer;
use crate::world::{agreed, staged, until_nothing_is_staged};

const PART: usize = 5 << 20;

/// All pages of a list, each requested with the markers of the one before it.
fn pages(signer: &Signer, target: &str, markers: &[(&str, &str)]) -> Vec<String> {
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let answer = signer.request("GET", &format!("{target}{next}"), &[], b"");
        assert_eq!(answer.status, 200, "{target}{next}: {}", answer.text());
        let page = answer.text();
        let more = element(&page, "IsTruncated").unwrap() == "true";
        next = markers
            .iter()
            .map(|(parameter, name)| {
                format!("&{parameter}={}", element(&page, name).unwrap_or_default().replace('/', "%2F"))
            })
            .collect();
        pages.push(page);
        assert!(pages.len() < 100, "it goes round: {target}{next}");
        if !more {
            return pages;
        }
    }
}

#[test]
fn parts_are_listed_in_pages() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let upload = signer.begin_upload("reports/x");
    let numbers = [1, 2, 3, 7, 100, 9_999, 10_000];
    let body = |number: u16| format!("part {number}").into_bytes();
    // In any order.
    for number in [7, 10_000, 1, 100, 3, 9_999, 2] {
        assert_eq!(signer.put_part("reports/x", &upload, number, &body(number)).status, 200);
    }
    let wanted: Vec<_> = numbers.map(|number| (number, body(number).len(), md5_of(&body(number)))).into();
    for size in [1, 2, 3, 6, 7, 8, 1000] {
        let target = format!("/reports/x?max-parts={size}&uploadId={upload}");
        let pages = pages(&signer, &target, &[("part-number-marker", "NextPartNumberMarker")]);
        assert_eq!(pages.len(), numbers.len().div_ceil(size), "pages of {size}");
        let parts = pages.iter().flat_map(|page| elements(page, "Part"));
        let found: Vec<_> = parts
            .map(|part| {
                let member = |name: &str| plain(&element(part, name).unwrap());
                let etag = member("ETag").trim_matches('"').to_owned();
                (member("PartNumber").parse().unwrap(), member("Size").parse().unwrap(), etag)
            })
            .collect();
        assert_eq!(found, wanted, "pages of {size}");
    }
    let after = |marker: &str| {
        let target = format!("/reports/x?part-number-marker={marker}&uploadId={upload}");
        signer.request("GET", &target, &[], b"")
    };
    assert_eq!(elements(&after("7").text(), "Part").len(), 3, "after it");
    assert_eq!(elements(&after("8").text(), "Part").len(), 3, "it need not be there");
    assert_eq!(elements(&after("10000").text(), "Part").len(), 0);
    assert_eq!(code(&after("-1")), "InvalidArgument");
    for (number, wanted) in [("0", "InvalidArgument"), ("10001", "InvalidArgument"), ("-1", "InvalidArgument")] {
        let target = format!("/reports/x?partNumber={number}&uploadId={upload}");
        let answer = signer.request("PUT", &target, &[], b"x");
        assert_eq!((answer.status, code(&answer).as_str()), (400, wanted), "{number}: {}", answer.text());
    }
}

#[test]
fn uploads_are_listed_in_pages() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let mut wanted: Vec<(String, String)> = ["b/2", "a", "b/1", "a", "c", "b/1", "a"]
        .map(|key| (key.to_owned(), signer.begin_upload(&format!("reports/{key}"))))
        .into();
    wanted.sort();
    let found = |query: &str, size: usize| -> Vec<(String, String)> {
        let target = format!("/reports?max-uploads={size}&{query}uploads=");
        let markers = [("key-marker", "NextKeyMarker"), ("upload-id-marker", "NextUploadIdMarker")];
        let pages = pages(&signer, &target, &markers);
        assert!(pages.iter().all(|page| elements(page, "Upload").len() <= size), "{query} in pages of {size}");
        let uploads = pages.iter().flat_map(|page| elements(page, "Upload"));
        uploads.map(|upload| (element(upload, "Key").unwrap(), element(upload, "UploadId").unwrap())).collect()
    };
    for size in [1, 2, 3, 6, 7, 8, 1000] {
        assert_eq!(found("", size), wanted, "pages of {size}");
        assert_eq!(found("prefix=b%2F&", size), &wanted[3..6], "pages of {size} of a prefix");
    }
    // With a key marker alone, all uploads of that key are skipped.
    assert_eq!(found("key-marker=a&", 1000), &wanted[3..]);
    assert_eq!(found("prefix=none&", 1), []);
}

/// Each part is copied from a range of an object; the result matches the ranges.
#[test]
fn parts_are_copied_from_ranges() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let source: Vec<u8> = (0..2 * PART + 777).map(|at| (at % 251) as u8 ^ (at >> 16) as u8).collect();
    assert_eq!(signer.put("reports/source", &source).status, 200);
    let upload = signer.begin_upload("reports/x");
    let copy = |number: u16, range: Option<&str>| {
        let target = format!("/reports/x?partNumber={number}&uploadId={upload}");
        let headers =
            [Some(("x-amz-copy-source", "/reports/source")), range.map(|range| ("x-amz-copy-source-range", range))];
        signer.request("PUT", &target, &headers.into_iter().flatten().collect::<Vec<_>>(), b"")
    };
    let ranges = [777..777 + PART, 0..PART + 1, 2 * PART + 776..2 * PART + 777, 3..10];
    let mut etags = Vec::new();
    for (number, range) in (1..).zip(&ranges[..3]) {
        let answer = copy(number, Some(&format!("bytes={}-{}", range.start, range.end - 1)));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let etag = plain(&element(&answer.text(), "ETag").unwrap()).trim_matches('"').to_owned();
        assert_eq!(etag, md5_of(&source[range.clone()]), "{range:?}");
        etags.push(etag);
    }
    for range in [format!("bytes={}-", source.len()), format!("bytes={0}-{0}", source.len())] {
        let answer = copy(4, Some(&range));
        assert_eq!((answer.status, code(&answer).as_str()), (400, "InvalidArgument"), "{range}: {}", answer.text());
    }
    for range in ["bytes", "3-10", "bytes=10-3", "bytes=a-b"] {
        let answer = copy(4, Some(range));
        assert_eq!(answer.status, 400, "{range}: {}", answer.text());
    }
    assert_eq!(code(&copy(0, None)), "InvalidArgument");
    crate::world::until_so_many_are_staged(&gateway.objects(), 3);
    let completed = signer.complete("reports/x", &upload, &etags);
    assert_eq!(completed.status, 200, "{}", completed.text());
    let whole: Vec<u8> = ranges[..3].iter().flat_map(|range| source[range.clone()].to_vec()).collect();
    assert!(agreed(&signer, "reports")["x"] == whole, "the bytes are others");
    assert!(gateway.files()["reports/source"] == source, "the source is as it was");
    assert!(staged(&gateway.objects()).len() <= 3);
    until_nothing_is_staged(&gateway.objects());
}
