//! Names that end in `/`, which many clients use for folders, and other names that cannot exist.

use fencepost_harness::bucketed::Bucketed;

use crate::digests::md5_of;
use crate::parsing::{code, element, elements, etag};
use crate::signing::Signer;
use crate::takeovers::assert_stale;
use crate::world::{World, agreed};

/// The operations of pyarrow, s3fs-fuse and Hadoop on folders.
#[test]
fn b_slash_a_folder_marker_is_written_listed_read_and_removed() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for method in ["GET", "HEAD"] {
        assert_eq!(signer.request(method, "/reports/x/", &[], b"").status, 404, "{method}");
    }
    let described = [("content-type", "application/x-directory"), ("x-amz-meta-mode", "16877")];
    let made = signer.request("PUT", "/reports/x/", &described, b"");
    assert_eq!((made.status, made.header("fence")), (200, Some("33")), "{}", made.text());
    assert_eq!(etag(&made), md5_of(b""));
    let head = signer.request("HEAD", "/reports/x/", &[], b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("0")));
    assert_eq!(head.header("content-type"), Some("application/x-directory"));
    assert_eq!(head.header("x-amz-meta-mode"), Some("16877"));
    assert_eq!(head.header("fencing-token"), Some("33"));
    let get = signer.get("reports/x/");
    assert_eq!((get.status, get.body.len()), (200, 0), "{}", get.text());
    assert_eq!(signer.get("reports/x").status, 404, "a marker is no object of its folder's name");

    assert_eq!(signer.put("reports/x/y", b"y").status, 200);
    assert_eq!(signer.put("reports/x-1", b"1").status, 200);
    let keys = |query: &str, name: &str| {
        let text = signer.request("GET", &format!("/reports?{query}"), &[], b"").text();
        elements(&text, name).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys("list-type=2", "Key"), ["x-1", "x/", "x/y"]);
    assert_eq!(keys("list-type=2&max-keys=2", "Key"), ["x-1", "x/"]);
    assert_eq!(keys("list-type=2&start-after=x%2F", "Key"), ["x/y"]);
    assert_eq!(keys("marker=x%2F", "Key"), ["x/y"]);
    assert_eq!(keys("delimiter=%2F&list-type=2&prefix=x%2F", "Key"), ["x/", "x/y"]);
    assert_eq!(keys("delimiter=%2F&list-type=2", "CommonPrefixes"), ["<Prefix>x/</Prefix>"]);
    assert_eq!(keys("delimiter=%2F&list-type=2", "Key"), ["x-1"]);

    // Its metadata is replaced, as for chmod, and it is copied.
    let again =
        [("x-amz-copy-source", "/reports/x/"), ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-mode", "2")];
    let copied = signer.request("PUT", "/reports/x/", &again, b"");
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert_eq!(signer.request("HEAD", "/reports/x/", &[], b"").header("x-amz-meta-mode"), Some("2"));
    let copied = signer.request("PUT", "/reports/z/", &[("x-amz-copy-source", "/reports/x/")], b"");
    assert_eq!(copied.status, 200, "{}", copied.text());
    let full = signer.request("PUT", "/reports/z/", &[("x-amz-copy-source", "/reports/x/y")], b"");
    assert_eq!((full.status, code(&full).as_str()), (400, "InvalidArgument"), "{}", full.text());

    assert_eq!(signer.delete("reports/x/").status, 204);
    assert_eq!(signer.delete("reports/x/").status, 204, "again");
    assert_eq!(keys("list-type=2", "Key"), ["x-1", "x/y", "z/"], "what is in a folder stays");
    let removed = signer.delete_all("reports", &["x/", "x/y", "z/", "x-1", "never/"]);
    assert_eq!((removed.status, elements(&removed.text(), "Deleted").len()), (200, 5), "{}", removed.text());
    assert!(agreed(&signer, "reports").is_empty() && gateway.files().is_empty());
}

#[test]
fn b_slash_a_folder_marker_has_no_bytes_and_is_no_upload() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let full = signer.put("reports/x/", b"bytes");
    assert_eq!((full.status, code(&full).as_str()), (400, "InvalidArgument"), "{}", full.text());
    assert!(full.text().contains("leave the `/` out"), "{}", full.text());
    let begun = signer.request("POST", "/reports/x/?uploads=", &[], b"");
    assert_eq!((begun.status, code(&begun).as_str()), (400, "InvalidArgument"), "{}", begun.text());
    let wrong = signer.request("PUT", "/reports/x/", &[("x-amz-checksum-crc32", "AAAAAQ==")], b"");
    assert_eq!((wrong.status, code(&wrong).as_str()), (400, "BadDigest"), "{}", wrong.text());
    assert!(agreed(&signer, "reports").is_empty());
    let first = signer.request("PUT", "/reports/x/", &[("if-none-match", "*")], b"");
    assert_eq!(first.status, 200, "{}", first.text());
    let second = signer.request("PUT", "/reports/x/", &[("if-none-match", "*")], b"");
    assert_eq!(second.status, 412, "{}", second.text());
    let absent = signer.request("PUT", "/reports/none/", &[("if-match", "*")], b"");
    assert_eq!((absent.status, code(&absent).as_str()), (404, "NoSuchKey"), "{}", absent.text());
    assert_eq!(code(&signer.put("nosuchbucket/x/", b"")), "NoSuchBucket");
}

/// G2, G6: every verb is judged, also for names that cannot exist; a newer token raises the fence.
#[test]
fn b_slash_every_verb_on_such_names_is_judged() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    assert_eq!(first.put("reports/x/", b"").status, 200);
    let second = Signer::holder(&gateway, "reports", "34");
    let source = [("x-amz-copy-source", "/reports/x/")];
    for name in ["reports/x/", "reports/new/", "reports/a//b", "reports//", "reports/../b", "reports/a%01b"] {
        assert_stale(&first.put(name, b""));
        assert_stale(&first.put(name, b"bytes"));
        assert_stale(&first.delete(name));
        assert_stale(&first.request("PUT", &format!("/{name}"), &source, b""));
        assert_stale(&first.request("POST", &format!("/{name}?uploads="), &[], b""));
    }
    for keys in [&["x/"][..], &["a//b"], &["none", "x/", ".."], &[".."]] {
        assert_stale(&first.delete_all("reports", keys));
    }
    assert_eq!(second.request("HEAD", "/reports/x/", &[], b"").status, 200, "nothing was removed");
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("34"));
    // The holder is admitted; a client without a lease of that name is not.
    assert_eq!(second.delete("reports/a//b").status, 204);
    assert_eq!(code(&second.delete("free/x/")), "AccessDenied");
    assert_eq!(code(&second.delete("free/a//b")), "AccessDenied");
    let reader = Signer::reader(&gateway);
    assert_eq!(code(&reader.put("reports/y/", b"")), "MissingFencingToken");
    assert_eq!(code(&reader.delete("reports/a//b")), "MissingFencingToken");
    // A marker belongs to the resource with its folder's name, and its removal raises the fence.
    let third = Signer::holder(&gateway, "free/folder", "7");
    assert_eq!(third.put("free/folder/", b"").status, 200);
    let answer = third.delete("free/folder//");
    assert_eq!((answer.status, answer.header("fence")), (204, Some("7")), "{}", answer.text());
}

#[test]
fn b_slash_reads_of_names_that_cannot_exist_are_404() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for name in ["a//b", "/a", "a/", ".", "a/../b", "a%01b", "a%EF%BF%BF"] {
        let get = signer.get(&format!("reports/{name}"));
        assert_eq!((get.status, code(&get).as_str()), (404, "NoSuchKey"), "{name}: {}", get.text());
        assert_eq!(signer.request("HEAD", &format!("/reports/{name}"), &[], b"").status, 404, "{name}");
        let other = signer.get(&format!("nosuchbucket/{name}"));
        assert_eq!((other.status, code(&other).as_str()), (404, "NoSuchBucket"), "{name}: {}", other.text());
        assert_eq!(signer.delete(&format!("reports/{name}")).status, 204, "{name}");
        let source = [("x-amz-copy-source", format!("/reports/{name}"))];
        let source: Vec<(&str, &str)> = source.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let copied = signer.request("PUT", "/reports/copy", &source, b"");
        assert_eq!((copied.status, code(&copied).as_str()), (404, "NoSuchKey"), "{name}: {}", copied.text());
    }
    assert_eq!(signer.put("reports/there", b"there").status, 200);
    // Such a name no longer prevents the removal of the others.
    let removed = signer.delete_all("reports", &["there", "a//b", "x/"]);
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(signer.get("reports/there").status, 404);
}

/// A marker outlives the process and the files of its folder, is not reported as a difference to the storage, and keeps
/// its bucket from being removed.
#[test]
fn b_slash_folder_markers_outlive_everything_but_their_removal() {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    assert_eq!(signer.request("PUT", "/made", &[], b"").status, 200);
    for name in ["made/x/", "made/x/deep/", "made/y/"] {
        assert_eq!(signer.put(name, b"").status, 200, "{name}");
    }
    assert_eq!(signer.put("made/x/file", b"file").status, 200);
    assert_eq!(signer.delete("made/x/file").status, 204);
    running.gateway.kill();
    let running = world.start();
    let signer = running.again(&signer);
    let keys: Vec<String> = signer.list("made", 1).into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["x/", "x/deep/", "y/"], "one at a time");
    let (exit, out, _) = world.administer(&["check"]);
    assert_eq!((exit, out.as_str()), (0, "0 objects looked at, 0 differences, 0 repaired\n"));
    let (exit, ..) = world.administer(&["check", "--adopt"]);
    assert_eq!((exit, signer.list("made", 10).len()), (0, 3));
    let kept = signer.request("DELETE", "/made", &[], b"");
    assert_eq!((kept.status, code(&kept).as_str()), (409, "BucketNotEmpty"), "{}", kept.text());
    assert_eq!(signer.delete_all("made", &["x/", "x/deep/", "y/"]).status, 200);
    assert_eq!(signer.request("DELETE", "/made", &[], b"").status, 204);
    assert_eq!(signer.request("PUT", "/made", &[], b"").status, 200);
    assert!(signer.list("made", 10).is_empty(), "a new bucket has no old markers");
    assert!(element(&signer.get("made/x/").text(), "Code").is_some());
}
