//! The cases for every client, and for the gateway behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use fencepost_conformance::proxy::Proxy;
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::{Bucketed, Credentials, tree};
use tempfile::TempDir;

use crate::client::{S3Client, Said};

/// Generates a test for each case, for one client.
#[macro_export]
macro_rules! suite {
    ($client:ty) => {
        mod suite {
            $crate::suite!(
                $client: puts_and_gets, sends_a_large_file_in_parts, copies, deletes_one_and_many, lists_folders,
                lists_more_than_a_thousand, keeps_type_and_metadata, carries_a_tree_there_and_back,
                is_refused_when_stale, is_told_that_credentials_expired, is_kept_to_its_resource,
                is_refused_with_a_wrong_secret, reads_but_does_not_write_without_a_lease
            );
        }
    };
    ($client:ty: $($case:ident),*) => {
        $(#[test] fn $case() { $crate::suite::$case::<$client>(); })*
    };
}

/// The words that a stale holder must see.
const STALE: [&str; 3] = ["StaleFencingToken", "33", "34"];

/// A gateway, and a directory for files.
struct Bench {
    gateway: Bucketed,
    dir: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { gateway: Bucketed::start(), dir: TempDir::new().unwrap() }
    }

    /// The holder of `reports` with this token.
    fn holder<C: S3Client>(&self, token: &str) -> C {
        self.at(self.gateway.s3(), &self.gateway.credentials("reports", token))
    }

    fn at<C: S3Client>(&self, address: SocketAddr, credentials: &Credentials) -> C {
        C::new(&format!("http://{address}"), credentials)
    }

    /// A file of this many bytes, which depend on its name.
    fn file(&self, name: &str, size: usize) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes(name, size)).unwrap();
        path
    }
}

/// Bytes with a long period that contain no text.
fn bytes(name: &str, size: usize) -> Vec<u8> {
    let mut state = name.bytes().fold(0x9e37_79b9_7f4a_7c15_u64, |state, byte| (state ^ u64::from(byte)) << 1 | 1);
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&(state | 0x8080_8080_8080_8080).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

pub(crate) fn puts_and_gets<C: S3Client>() {
    let bench = Bench::new();
    let client: C = bench.holder("34");
    for (name, size) in [("empty", 0), ("byte", 1), ("text.txt", 5_000), ("folder/some.bin", 300_000)] {
        let (file, object, back) = (bench.file(name, size), format!("reports/{name}"), bench.dir.path().join("back"));
        client.put(&file, &object).expect_ok(name);
        assert_eq!(bench.gateway.files()[&object], bytes(name, size), "{name} on disk");
        client.get(&object, &back).expect_ok(name);
        assert_eq!(std::fs::read(&back).unwrap(), bytes(name, size), "{name} read back");
        assert_eq!(client.describe(&object).unwrap().size, size as u64, "{name}");
    }
    // Replaces an existing object.
    let file = bench.file("other", 77);
    client.put(&file, "reports/text.txt").expect_ok("writing over");
    assert_eq!(bench.gateway.files()["reports/text.txt"], bytes("other", 77));
    // rclone takes the name for an empty folder, and does nothing.
    let missing = bench.dir.path().join("missing");
    client.get("reports/missing", &missing);
    assert!(!missing.exists());
}

pub(crate) fn sends_a_large_file_in_parts<C: S3Client>() {
    let bench = Bench::new();
    let proxy = Proxy::noting_requests(bench.gateway.s3());
    let client: C = bench.at(proxy.address(), &bench.gateway.credentials("reports", "34"));
    let size = (17 << 20) + 1;
    let (file, back) = (bench.file("large", size), bench.dir.path().join("back"));
    client.put_in_parts(&file, "reports/in/large.bin").expect_ok("a large file");
    let requests = proxy.take_requests();
    // Which parts, not how often: a client may send one again.
    let puts = requests.iter().filter(|line| line.starts_with("PUT"));
    let number = |line: &String| Some(line.split_once("partNumber=")?.1.split(['&', ' ']).next()?.to_owned());
    let parts: BTreeSet<String> = puts.filter_map(number).collect();
    assert!((3..=4).contains(&parts.len()), "{requests:?}");
    assert!(bench.gateway.files()["reports/in/large.bin"] == bytes("large", size), "the file on disk differs");
    client.get("reports/in/large.bin", &back).expect_ok("a large file");
    assert!(std::fs::read(&back).unwrap() == bytes("large", size), "the file that came back differs");
    // Nothing of the parts is left in the bucket.
    assert_eq!(client.list("reports").unwrap(), ["in/large.bin"]);
}

pub(crate) fn copies<C: S3Client>() {
    let bench = Bench::new();
    let client: C = bench.holder("34");
    let file = bench.file("a", 70_000);
    client.put_described(&file, "reports/a b+ü.bin", "application/x-a", ("origin", "here")).expect_ok("put");
    client.copy("reports/a b+ü.bin", "reports/copies/b.bin").expect_ok("copy");
    let files = bench.gateway.files();
    assert_eq!(files["reports/copies/b.bin"], bytes("a", 70_000));
    assert_eq!(files["reports/a b+ü.bin"], bytes("a", 70_000));
    let described = client.describe("reports/copies/b.bin").unwrap();
    assert_eq!(described.content_type, "application/x-a");
    assert_eq!(described.metadata.get("origin").map(String::as_str), Some("here"), "{described:?}");
}

pub(crate) fn deletes_one_and_many<C: S3Client>() {
    let bench = Bench::new();
    let client: C = bench.holder("34");
    let (file, names) = (bench.file("x", 10), ["a", "b c", "ü&<x>", "d"]);
    for name in names {
        client.put(&file, &format!("reports/many/{name}")).expect_ok(name);
    }
    client.put(&file, "reports/one").expect_ok("put");
    client.delete("reports/one").expect_ok("delete");
    assert_eq!(client.list("reports").unwrap().len(), names.len());
    client.delete_many("reports/many", &names[..3]).expect_ok("delete many");
    assert_eq!(client.list("reports").unwrap(), ["many/d"]);
    assert_eq!(bench.gateway.files().keys().collect::<Vec<_>>(), ["reports/many/d"]);
}

pub(crate) fn lists_folders<C: S3Client>() {
    let names = ["a.txt", "b/1", "b/2", "b/deep/er/3", "b0", "c d/4", "ä/5"];
    let gateway = Bucketed::filled(|objects| names.iter().for_each(|name| place(objects, &format!("reports/{name}"))));
    let client = C::new(&format!("http://{}", gateway.s3()), &gateway.credentials("reports", "34"));
    assert_eq!(client.list("reports").unwrap(), names);
    assert_eq!(client.look("reports").unwrap(), ["a.txt", "b/", "b0", "c d/", "ä/"]);
    assert_eq!(client.list("reports/b").unwrap(), ["1", "2", "deep/er/3"]);
    assert_eq!(client.look("reports/b").unwrap(), ["1", "2", "deep/"]);
    assert_eq!(client.look("reports/b/deep").unwrap(), ["er/"]);
}

pub(crate) fn lists_more_than_a_thousand<C: S3Client>() {
    let names: Vec<String> = (0..1_203).map(|number| format!("n{number:04}")).collect();
    let gateway = Bucketed::filled(|objects| {
        names.iter().for_each(|name| place(objects, &format!("reports/many/{name}")));
        place(objects, "reports/many/z/last");
    });
    let client = C::new(&format!("http://{}", gateway.s3()), &gateway.credentials("reports", "34"));
    let all = [&names[..], &["z/last".to_owned()]].concat();
    assert_eq!(client.list("reports/many").unwrap(), all);
}

fn place(objects: &Path, name: &str) {
    let path = objects.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, name).unwrap();
}

pub(crate) fn keeps_type_and_metadata<C: S3Client>() {
    let bench = Bench::new();
    let client: C = bench.holder("34");
    let file = bench.file("page", 123);
    let put = client.put_described(&file, "reports/page", "text/x-page; charset=utf-8", ("made-by", "night shift"));
    put.expect_ok("put");
    let described = client.describe("reports/page").unwrap();
    assert_eq!((described.size, described.content_type.as_str()), (123, "text/x-page; charset=utf-8"));
    assert_eq!(described.metadata.get("made-by").map(String::as_str), Some("night shift"), "{described:?}");
}

/// Names that clients, shells, URLs and XML each encode differently.
const ODD: [&str; 20] = [
    "with space",
    " leading",
    "trailing ",
    "two  spaces",
    "plus+plus",
    "100%",
    "percent%20twenty",
    "%2e%2e",
    "single'quote",
    "double\"quote",
    "back`tick",
    "equal=sign",
    "and&or|not",
    "ümläut",
    "日本語",
    "hash#tag",
    "what?",
    "a;b,c:d@e",
    "[x]{y}(z)!$~",
    "<tag>",
];

fn odd_tree(bench: &Bench) -> PathBuf {
    for number in 0..200 {
        let odd = ODD[number % ODD.len()];
        bench.file(&format!("tree/{number:03} {odd}/{odd}.{number}"), number * 97 % 5_000);
    }
    bench.dir.path().join("tree")
}

pub(crate) fn carries_a_tree_there_and_back<C: S3Client>() {
    let bench = Bench::new();
    let client: C = bench.holder("34");
    let (directory, back) = (odd_tree(&bench), bench.dir.path().join("back"));
    std::fs::create_dir(&back).unwrap();
    client.upload_tree(&directory, "reports/tree").expect_ok("upload");
    let sent = tree(&directory);
    assert_eq!(sent.len(), 200);
    same(&sent, &tree(&bench.gateway.objects().join("reports/tree")), "on disk");
    client.download_tree("reports/tree", &back).expect_ok("download");
    same(&sent, &tree(&back), "read back");
    let mut names: Vec<String> = sent.into_keys().collect();
    names.sort();
    assert_eq!(client.list("reports/tree").unwrap(), names);
}

fn same(sent: &BTreeMap<String, Vec<u8>>, found: &BTreeMap<String, Vec<u8>>, what: &str) {
    assert_eq!(sent.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>(), "{what}");
    for (name, bytes) in sent {
        assert!(found[name] == *bytes, "{what}: {name} differs");
    }
}

/// 33 has written, 34 took over: every kind of write by 33 is refused with a reason that its user sees, it is not
/// retried endlessly, and nothing changes. Reading continues.
pub(crate) fn is_refused_when_stale<C: S3Client>() {
    let bench = Bench::new();
    let proxy = Proxy::noting_requests(bench.gateway.s3());
    let stale: C = bench.at(proxy.address(), &bench.gateway.credentials("reports", "33"));
    let (small, large) = (bench.file("small", 100), bench.file("large", 17 << 20));
    for name in ["kept", "folder/a", "folder/b"] {
        stale.put(&small, &format!("reports/{name}")).expect_ok("33 is the holder");
    }
    let successor: C = bench.holder("34");
    // Different bytes: rclone does not copy onto an identical file.
    let theirs = bench.file("theirs", 120);
    successor.put(&theirs, "reports/of 34").expect_ok("34 is the holder");
    let (files, listed) = (bench.gateway.files(), successor.list("reports").unwrap());
    let few = bench.dir.path().join("few");
    std::fs::create_dir(&few).unwrap();
    std::fs::write(few.join("one"), "of 33").unwrap();
    std::fs::write(few.join("two"), "of 33").unwrap();

    type Write<'a, C> = (&'a str, Box<dyn Fn(&C) -> Said + 'a>);
    let writes: Vec<Write<'_, C>> = vec![
        ("put", Box::new(|client| client.put(&small, "reports/new"))),
        ("put over", Box::new(|client| client.put(&few.join("one"), "reports/of 34"))),
        ("put in parts", Box::new(|client| client.put_in_parts(&large, "reports/kept"))),
        (
            "put described",
            Box::new(|client| client.put_described(&few.join("one"), "reports/kept", "text/x", ("a", "b"))),
        ),
        ("copy", Box::new(|client| client.copy("reports/kept", "reports/of 34"))),
        ("delete", Box::new(|client| client.delete("reports/kept"))),
        ("delete many", Box::new(|client| client.delete_many("reports/folder", &["a", "b"]))),
        ("upload tree", Box::new(|client| client.upload_tree(&few, "reports/folder"))),
    ];
    for (what, write) in &writes {
        proxy.take_requests();
        write(&stale).expect_failure(what, &STALE);
        let requests = proxy.take_requests();
        let mutating = requests.iter().filter(|line| !line.starts_with("GET") && !line.starts_with("HEAD")).count();
        // rclone tries the whole command three times, and checks the bucket each time.
        assert!(mutating <= 9 && requests.len() <= 24, "{what} is tried too often: {requests:?}");
        assert!(bench.gateway.files() == files, "{what} changed a file");
        assert_eq!(successor.list("reports").unwrap(), listed, "{what} changed the listing");
    }
    let back = bench.dir.path().join("back");
    stale.get("reports/of 34", &back).expect_ok("reading goes on");
    assert_eq!(std::fs::read(&back).unwrap(), bytes("theirs", 120));
    assert_eq!(stale.list("reports").unwrap(), listed);
    assert_eq!(bench.gateway.client().fence("reports").as_deref(), Some("34"));
}

pub(crate) fn is_told_that_credentials_expired<C: S3Client>() {
    let bench = Bench::new();
    let file = bench.file("a", 10);
    let client: C = bench.at(bench.gateway.s3(), &bench.gateway.credentials_for("reports", "34", 1));
    // Some clients send HEAD before they write, whose answer has no body for a message; a list has one.
    let said = wait::until("the credentials to expire", PATIENCE, || client.list("reports").err());
    said.expect_failure("a list with expired credentials", &["ExpiredToken"]);
    assert!(!client.put(&file, "reports/a").ok);
    assert!(bench.gateway.files().is_empty());
    // The lease is still valid: new credentials for the same token work.
    let client: C = bench.holder("34");
    client.put(&file, "reports/b").expect_ok("new credentials of the same lease");
}

pub(crate) fn is_kept_to_its_resource<C: S3Client>() {
    let bench = Bench::new();
    let file = bench.file("a", 10);
    let client: C = bench.at(bench.gateway.s3(), &bench.gateway.credentials("shared/daily", "34"));
    client.put(&file, "shared/daily/a").expect_ok("its own folder");
    for outside in ["shared/weekly/a", "free/a", "reports/a"] {
        client.put(&file, outside).expect_failure(outside, &["AccessDenied"]);
    }
    assert_eq!(bench.gateway.files().keys().collect::<Vec<_>>(), ["shared/daily/a"]);
}

pub(crate) fn is_refused_with_a_wrong_secret<C: S3Client>() {
    let bench = Bench::new();
    let file = bench.file("a", 10);
    let right = bench.gateway.credentials("reports", "34");
    let wrong = Credentials { secret_access_key: right.secret_access_key.to_ascii_lowercase() + "x", ..right };
    let client: C = bench.at(bench.gateway.s3(), &wrong);
    // As above: a HEAD answer has no message.
    assert!(!client.put(&file, "reports/a").ok);
    let listed = client.list("reports");
    listed.expect_err("a wrong secret").expect_failure("a list", &["SignatureDoesNotMatch"]);
    assert!(bench.gateway.files().is_empty());
}

/// The long-term key reads everything, and writes only where the guard merely observes.
pub(crate) fn reads_but_does_not_write_without_a_lease<C: S3Client>() {
    let bench = Bench::new();
    let file = bench.file("a", 10);
    let holder: C = bench.holder("34");
    holder.put(&file, "reports/a").expect_ok("the holder");
    let reader: C = bench.at(bench.gateway.s3(), &Credentials::reader());
    assert_eq!(reader.list("reports").unwrap(), ["a"]);
    reader.get("reports/a", &bench.dir.path().join("back")).expect_ok("reading");
    reader.put(&file, "reports/b").expect_failure("a put", &["MissingFencingToken"]);
    reader.delete("reports/a").expect_failure("a delete", &["MissingFencingToken"]);
    reader.put(&file, "watched/b").expect_ok("an observed bucket");
    assert_eq!(bench.gateway.files().keys().collect::<Vec<_>>(), ["reports/a", "watched/b"]);
}
