//! An administrator compares index and storage, repairs differences and tidies up: `fencepost objects check` and
//! `collect`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::process::run;
use serde_json::{Value, json};

use crate::digests::md5_of;
use crate::parsing::code;
use crate::signing::Signer;
use crate::world::{agreed, staged, until_nothing_is_staged, until_some_is_staged};

const BODY: usize = 1 << 20;

/// Exit code, standard output and standard error.
pub(crate) fn objects(gateway: &Bucketed, arguments: &[&str]) -> (i32, String, String) {
    objects_at(&gateway.admin_socket(), arguments)
}

/// The same through any admin socket.
pub(crate) fn objects_at(socket: &Path, arguments: &[&str]) -> (i32, String, String) {
    let socket = socket.display().to_string();
    let output = run(&[&["objects"], arguments, &["--admin-socket", &socket]].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The differences that `--json` reports: kind and subject, in order.
fn differences(gateway: &Bucketed, arguments: &[&str]) -> (i32, Vec<(String, String)>, Value) {
    let (code, out, _) = objects(gateway, &[&["check", "--json"], arguments].concat());
    let json: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut found: Vec<_> =
        json["differences"].as_array().unwrap().iter().map(|one| (text(&one["what"]), text(&one["name"]))).collect();
    found.sort();
    (code, found, json)
}

/// Replaces a file as another process would.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("other");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

#[test]
fn files_that_were_there_before_are_objects_without_a_fence() {
    let gateway = Bucketed::filled(|root| {
        fs::create_dir_all(root.join("reports/2025/05")).unwrap();
        fs::write(root.join("reports/2025/05/31.csv"), "old").unwrap();
        fs::write(root.join("reports/today.csv"), "new").unwrap();
    });
    assert_eq!(gateway.client().fence("reports"), None);
    let reader = Signer::reader(&gateway);
    let keys: Vec<String> = reader.list("reports", 1000).into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["2025/05/31.csv", "today.csv"]);
    let read = reader.get("reports/2025/05/31.csv");
    assert_eq!((read.status, read.text().as_str(), read.header("fencing-token")), (200, "old", None));
    assert_eq!(objects(&gateway, &["check"]).0, 0);
    let signer = Signer::holder(&gateway, "reports", "1");
    assert_eq!(signer.put("reports/today.csv", b"newer").status, 200);
    assert_eq!(reader.get("reports/today.csv").header("fencing-token"), Some("1"));
    assert_eq!(signer.delete("reports/2025/05/31.csv").status, 204);
    assert_eq!(
        objects(&gateway, &["check"]),
        (0, "1 objects looked at, 0 differences, 0 repaired\n".into(), String::new())
    );
}

#[test]
fn what_changed_behind_the_gateway_is_named_and_not_served_until_it_is_adopted() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for name in ["longer", "other", "removed", "same"] {
        assert_eq!(signer.put(&format!("reports/{name}"), b"first").status, 200, "{name}");
    }
    assert_eq!(differences(&gateway, &[]).1, []);
    let bucket = gateway.objects().join("reports");
    fs::write(bucket.join("longer"), "first and more").unwrap();
    replace(&bucket.join("other"), "other");
    fs::remove_file(bucket.join("removed")).unwrap();
    fs::write(bucket.join("unknown"), "by hand").unwrap();
    symlink("same", bucket.join("link")).unwrap();

    let wanted = [
        ("changed", "reports/longer"),
        ("changed", "reports/other"),
        ("foreign", "reports/link"),
        ("missing", "reports/removed"),
        ("unknown", "reports/unknown"),
    ]
    .map(|(what, name)| (what.to_owned(), name.to_owned()));
    let (exit, found, json) = differences(&gateway, &[]);
    assert_eq!((exit, found.as_slice()), (1, &wanted[..]), "{json}");
    let (_, out, error) = objects(&gateway, &["check"]);
    for line in [
        "changed: reports/longer: it has 14 bytes instead of 5",
        "changed: reports/other: it is another file",
        "missing: reports/removed: ",
        "unknown: reports/unknown: ",
        "5 objects looked at, 5 differences, 0 repaired",
    ] {
        assert!(out.contains(line), "{line} in {out}");
    }
    assert!(error.contains("is the right disk mounted?") && error.contains("OUT of the index"), "{error}");
    for name in ["longer", "other", "removed"] {
        let answer = signer.get(&format!("reports/{name}"));
        assert_eq!(answer.status, 500, "{name}: {}", answer.text());
        assert!(answer.text().contains("fencepost objects check"), "{name}: {}", answer.text());
    }
    assert_eq!(signer.get("reports/unknown").status, 404);
    // Other buckets are not affected.
    assert_eq!(differences(&gateway, &["--bucket", "shared"]).0, 0);
    let (exit, _, error) = objects(&gateway, &["check", "--bucket", "nowhere"]);
    assert!(exit != 0 && error.contains("nowhere"), "{error}");

    let (exit, out, _) = objects(&gateway, &["check", "--adopt"]);
    assert!(exit == 1 && out.contains("5 differences, 4 repaired"), "a link stays what it is: {out}");
    fs::remove_file(bucket.join("link")).unwrap();
    assert_eq!(differences(&gateway, &[]), (0, vec![], json!({"looked_at": 4, "differences": [], "mended": 0})));
    let texts = [("longer", "first and more"), ("other", "other"), ("same", "first"), ("unknown", "by hand")];
    for (name, text) in texts {
        assert_eq!(signer.get(&format!("reports/{name}")).text(), text, "{name}");
    }
    assert_eq!(signer.get("reports/removed").status, 404);
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("33"), "the fence stays");
    Signer::holder(&gateway, "reports", "34");
    assert_eq!(code(&signer.put("reports/unknown", b"late")), "StaleFencingToken");
}

/// More names than fit in one page, in several buckets, one of which has lost its directory.
#[test]
fn a_check_of_many_names_misses_none() {
    let gateway = Bucketed::filled(|root| {
        for number in 0..2300 {
            fs::write(root.join(format!("reports/{number:05}")), "x").unwrap();
        }
        fs::write(root.join("shared/one"), "x").unwrap();
    });
    for number in [0, 999, 1000, 1001, 2299] {
        fs::remove_file(gateway.objects().join(format!("reports/{number:05}"))).unwrap();
    }
    fs::write(gateway.objects().join("reports/01000.x"), "x").unwrap();
    fs::remove_dir_all(gateway.objects().join("shared")).unwrap();
    let (code, found, json) = differences(&gateway, &[]);
    let wanted = [
        ("missing", "reports/00000"),
        ("missing", "reports/00999"),
        ("missing", "reports/01000"),
        ("missing", "reports/01001"),
        ("missing", "reports/02299"),
        ("missing", "shared/one"),
        ("unknown", "reports/01000.x"),
    ]
    .map(|(what, name)| (what.to_owned(), name.to_owned()));
    assert_eq!((code, found.as_slice()), (1, &wanted[..]), "{json}");
    assert_eq!(json["looked_at"], 2302);
}

#[test]
fn leftovers_are_counted_by_a_dry_run_and_then_removed() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let upload = signer.begin_upload("reports/open");
    assert_eq!(signer.put_part("reports/open", &upload, 1, b"a part").status, 200);
    assert_eq!(signer.put("reports/x", b"x").status, 200);
    let mut slow = signer.begin("PUT", "/reports/slow", &[], BODY);
    slow.send(&vec![b'x'; BODY / 2]).unwrap();
    crate::world::until_so_many_are_staged(&gateway.objects(), 2);

    let dry = objects(&gateway, &["collect", "--older-than", "0s", "--dry-run"]);
    assert_eq!(
        dry,
        (
            0,
            "1 leftovers and 0 unfinished uploads of fenced holders found; none removed, this was a dry run\n".into(),
            String::new()
        )
    );
    assert_eq!(staged(&gateway.objects()).len(), 2);
    let young = objects(&gateway, &["collect"]);
    assert_eq!(young.1, "0 leftovers removed, 0 unfinished uploads of fenced holders ended\n", "it is not a day old");
    let (code, out, _) = objects(&gateway, &["collect", "--older-than", "0s", "--json"]);
    assert_eq!((code, serde_json::from_str::<Value>(&out).unwrap()["removed"].clone()), (0, json!(1)), "{out}");
    assert_eq!(staged(&gateway.objects()).len(), 1, "parts of an upload that is under way are no leftovers");
    assert_eq!(signer.complete("reports/open", &upload, &[md5_of(b"a part")]).status, 200);
    drop(slow);
    until_nothing_is_staged(&gateway.objects());
    assert_eq!(agreed(&signer, "reports").len(), 2);
}

/// Its bytes are gone, so it cannot be published any more, however the upload continues.
#[test]
fn t34_an_upload_whose_bytes_were_collected_is_not_published() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"before").status, 200);
    let before = (agreed(&signer, "reports"), gateway.files());
    let mut slow = signer.begin("PUT", "/reports/x", &[], BODY);
    slow.send(&vec![b'x'; BODY / 2]).unwrap();
    until_some_is_staged(&gateway.objects());
    assert_eq!(objects(&gateway, &["collect", "--older-than", "0s"]).0, 0);
    slow.send(&vec![b'x'; BODY / 2]).unwrap();
    let answer = slow.receive().unwrap();
    assert_eq!((answer.status, code(&answer).as_str()), (503, "SlowDown"), "{}", answer.text());
    assert!(answer.text().contains("send it again"), "{}", answer.text());
    assert_eq!((agreed(&signer, "reports"), gateway.files()), before);
    until_nothing_is_staged(&gateway.objects());
    assert_eq!(signer.put("reports/x", b"again").status, 200);
    assert_eq!(agreed(&signer, "reports")["x"], b"again");
}
