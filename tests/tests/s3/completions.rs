//! Completions that take longer than clients are willing to wait, and parts that are sent more than once.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Client;
use fencepost_harness::venv;
use rustix::process::Signal;

use crate::digests::md5_of;
use crate::parsing::{code, element, etag};
use crate::signing::Signer;
use crate::steps::Injected;
use crate::takeovers::assert_stale;
use crate::world::{Running, World, agreed, staged, until_nothing_is_staged};

const PART: usize = 5 << 20;

/// Much longer than any of these tests takes.
const LONG_US: u32 = 300_000_000;

/// An upload of two parts.
struct Begun {
    id: String,
    etags: Vec<String>,
    whole: Vec<u8>,
}

fn begin(signer: &Signer) -> Begun {
    let id = signer.begin_upload("reports/large");
    let parts = [vec![b'1'; PART], vec![b'2'; 10]];
    let put = |(part, number): (&Vec<u8>, u16)| etag(&signer.put_part("reports/large", &id, number, part));
    Begun { etags: parts.iter().zip(1..).map(put).collect(), whole: parts.concat(), id }
}

/// Sends a completion without waiting for the answer.
fn send(signer: &Signer, begun: &Begun) -> Client {
    let body = Signer::completion(&begun.etags);
    let target = format!("/reports/large?uploadId={}", begun.id);
    let mut client = signer.begin("POST", &target, &[], body.len());
    client.send(body.as_bytes()).unwrap();
    client
}

/// Waits until the parts are being combined: the whole is staged beside the two parts.
fn until_it_is_put_together(world: &World) {
    wait::until("the whole to be staged", PATIENCE, || (world.staged().len() == 3).then_some(()));
}

/// A gateway that does not finish combining an upload until the delay is dropped.
struct Slow {
    world: World,
    running: Running,
    signer: Signer,
    begun: Begun,
    delay: Injected,
}

impl Slow {
    fn start() -> Slow {
        let world = World::new();
        let running = world.start();
        let signer = running.holder("33");
        let begun = begin(&signer);
        let delay = Injected::delay(running.pid(), "copy_file_range", LONG_US);
        Slow { world, running, signer, begun, delay }
    }
}

#[test]
fn a_completion_that_takes_long_keeps_its_client_waiting() {
    let Slow { world, running: _running, signer, begun, delay } = Slow::start();
    let mut client = send(&signer, &begun);
    // It begins to answer although it cannot have finished.
    client.wait_for_answer().unwrap();
    assert_eq!(signer.get("reports/large").status, 404);
    drop(delay);
    let answer = client.receive().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("?> "), "spaces after the declaration: {}", answer.text());
    let told = element(&answer.text(), "ETag").unwrap_or_else(|| panic!("no ETag in {}", answer.text()));
    assert!(told.contains("-2"), "{told}");
    assert_eq!(world.seen(&signer)["large"], begun.whole);
    until_nothing_is_staged(&world.objects());
}

/// Status 200 is already sent by then, so the refusal is in the body, where S3 clients look for it.
#[test]
fn a_completion_that_is_overtaken_while_it_takes_long_is_refused_in_its_body() {
    let Slow { world, running, signer, begun, delay } = Slow::start();
    assert_eq!(signer.put("reports/large", b"before").status, 200);
    let mut client = send(&signer, &begun);
    client.wait_for_answer().unwrap();
    let successor = running.holder("34");
    drop(delay);
    let answer = client.receive().unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(element(&answer.text(), "Code").as_deref(), Some("StaleFencingToken"), "{}", answer.text());
    assert_eq!(world.seen(&successor)["large"], b"before");
    world.no_leftovers(&successor);
}

/// The same through boto3, which raises the error that it finds in the body.
#[test]
fn boto3_reads_a_refusal_in_the_body() {
    let Slow { world, running, signer, begun, delay } = Slow::start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/s3_clients/boto3_client.py");
    let mut boto3 = Command::new(venv::program("python"));
    boto3.arg(script).args(["complete_upload", "reports", "large", &begun.id]).args(&begun.etags);
    boto3.env("AWS_ENDPOINT_URL", format!("http://{}", signer.address)).env("AWS_REGION", "us-east-1");
    boto3.env("AWS_ACCESS_KEY_ID", &signer.credentials.access_key_id);
    boto3.env("AWS_SECRET_ACCESS_KEY", &signer.credentials.secret_access_key);
    let boto3 = boto3.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until_it_is_put_together(&world);
    // Later requests are answered later: when this one has its 200, boto3 has it too.
    let mut later = send(&signer, &begun);
    later.wait_for_answer().unwrap();
    let successor = running.holder("34");
    drop(delay);
    let boto3 = boto3.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&boto3.stderr);
    assert!(!boto3.status.success() && said.contains("StaleFencingToken"), "{said}");
    assert_eq!(element(&later.receive().unwrap().text(), "Code").as_deref(), Some("StaleFencingToken"));
    assert!(world.seen(&successor).is_empty());
}

/// The client gave up. Its completion is still done, once, and its retry reports that.
#[test]
fn a_completion_goes_on_without_its_client_and_a_retry_waits_for_it() {
    let Slow { world, running: _running, signer, begun, delay } = Slow::start();
    let impatient = send(&signer, &begun);
    until_it_is_put_together(&world);
    let before: BTreeSet<String> = world.staged().into_iter().collect();
    drop(impatient);
    let mut retry = send(&signer, &begun);
    retry.wait_for_answer().unwrap();
    assert_eq!(BTreeSet::from_iter(world.staged()), before, "nothing is put together twice");
    drop(delay);
    let answer = retry.receive().unwrap();
    assert!(element(&answer.text(), "ETag").is_some(), "{}", answer.text());
    assert_eq!(world.seen(&signer)["large"], begun.whole);
    until_nothing_is_staged(&world.objects());
}

/// There may be ten thousand parts, and all requests share the descriptors.
#[test]
fn the_parts_are_opened_one_after_the_other() {
    let Slow { world, running, signer, begun, delay } = Slow::start();
    let mut client = send(&signer, &begun);
    until_it_is_put_together(&world);
    let staging = world.objects().join(".fencepost/staging");
    let open = || {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", running.pid())).unwrap();
        let files = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        files.filter(|file| file.parent() == Some(&staging)).count()
    };
    wait::until("the first part to be opened", PATIENCE, || (open() == 2).then_some(()));
    client.wait_for_answer().unwrap();
    assert_eq!(open(), 2, "the whole and one part");
    drop(delay);
    assert!(element(&client.receive().unwrap().text(), "ETag").is_some());
}

/// A part that is added after the list of parts was read belongs to no object, and is removed.
#[test]
fn a_part_that_comes_while_its_upload_is_completed_leaves_nothing() {
    let Slow { world, running: _running, signer, begun, delay } = Slow::start();
    let mut client = send(&signer, &begun);
    until_it_is_put_together(&world);
    assert_eq!(signer.put_part("reports/large", &begun.id, 9, b"late").status, 200);
    drop(delay);
    assert_eq!(client.receive().unwrap().status, 200);
    assert_eq!(world.seen(&signer)["large"], begun.whole);
    until_nothing_is_staged(&world.objects());
}

/// The same with an abort, repeated until the race occurs.
#[test]
fn parts_that_come_while_their_upload_is_aborted_leave_nothing() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    for _ in 0..15 {
        let upload = signer.begin_upload("reports/x");
        let sending: Vec<_> = (0..4)
            .map(|sender| {
                let (signer, upload) = (signer.clone(), upload.clone());
                std::thread::spawn(move || {
                    (0..500).find(|at| signer.put_part("reports/x", &upload, 1 + sender + 4 * at, b"x").status != 200)
                })
            })
            .collect();
        wait::until("some parts to arrive", PATIENCE, || (staged(&gateway.objects()).len() > 3).then_some(()));
        let target = format!("/reports/x?uploadId={upload}");
        let mut asked_before = false;
        wait::until("the abort", PATIENCE, || {
            let answer = signer.request("DELETE", &target, &[], b"");
            let again = std::mem::replace(&mut asked_before, true);
            match answer.status {
                204 => Some(()),
                // Aborted by the previous attempt, whose answer was different.
                404 if again && code(&answer) == "NoSuchUpload" => Some(()),
                // Not done: a part was replaced or added at the moment of the commit, or the gateway is overloaded.
                400 | 503 => None,
                _ => panic!("{answer:?} {}", answer.text()),
            }
        });
        for sender in sending {
            assert!(sender.join().unwrap().is_some(), "the upload is over");
        }
    }
    until_nothing_is_staged(&gateway.objects());
}

/// Where a token can be used only once, the retry of a completion that used it is not a second use.
#[test]
fn a_retry_of_a_completion_that_spent_its_token_is_answered_like_the_first() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "once", "33");
    let upload = signer.begin_upload("free/once/x");
    let etag = etag(&signer.put_part("free/once/x", &upload, 1, b"x"));
    for attempt in ["first", "retry"] {
        let answer = signer.complete("free/once/x", &upload, std::slice::from_ref(&etag));
        assert_eq!(answer.status, 200, "{attempt}: {}", answer.text());
    }
    assert_eq!(code(&signer.put("free/once/x", b"y")), "SpentFencingToken");
}

/// Trap 4: an applied completion is never reported as refused, as long as its object exists. The work of another holder
/// is not reported as this one's success.
#[test]
fn t04_a_retry_of_a_completion_is_answered_like_the_first_also_after_a_take_over() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    let complete = |name: &str| {
        let upload = first.begin_upload(name);
        let etags = [etag(&first.put_part(name, &upload, 1, name.as_bytes()))];
        let answer = first.complete(name, &upload, &etags);
        assert_eq!(answer.status, 200, "{}", answer.text());
        (upload, etags, element(&answer.text(), "ETag").unwrap())
    };
    let names = ["reports/kept", "reports/replaced", "reports/removed"];
    let completed = names.map(complete);
    let open = first.begin_upload("reports/kept");
    let part = etag(&first.put_part("reports/kept", &open, 1, b"never completed"));
    let second = Signer::holder(&gateway, "reports", "34");
    assert_eq!(second.put("reports/replaced", b"by 34").status, 200);
    assert_eq!(second.delete("reports/removed").status, 204);
    let before = (agreed(&second, "reports"), gateway.files());

    let (upload, etags, told) = &completed[0];
    let answer = first.complete(names[0], upload, etags);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(element(&answer.text(), "ETag").as_ref(), Some(told), "the answer of the first");
    for (name, (upload, etags, _)) in names.iter().zip(&completed).skip(1) {
        assert_stale(&first.complete(name, upload, etags));
    }
    // Another list of parts is another completion.
    assert_stale(&first.complete(names[0], upload, std::slice::from_ref(&part)));
    assert_eq!(code(&second.complete(names[0], upload, std::slice::from_ref(&part))), "NoSuchUpload");
    assert_stale(&first.complete("reports/kept", &open, &[part]));
    assert_stale(&first.complete("reports/kept", &"0".repeat(32), etags));
    assert_eq!((agreed(&second, "reports"), gateway.files()), before, "nothing was done again");
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("34"));
    // The current holder gets the same answer; a client that never held the lock does not.
    assert_eq!(code(&Signer::reader(&gateway).complete(names[0], upload, etags)), "MissingFencingToken");
    assert_eq!(second.complete(names[0], upload, etags).status, 200);
}

/// No client waits for the completion any more, so it does not delay the stop.
#[test]
fn a_stop_does_not_wait_for_what_is_put_together() {
    let Slow { world, running, signer, begun, delay } = Slow::start();
    let leaving = send(&signer, &begun);
    until_it_is_put_together(&world);
    drop(leaving);
    running.signal(Signal::TERM);
    // The process has ended, except for the thread that strace holds.
    let stat = format!("/proc/{}/stat", running.pid());
    wait::until("the process to end", PATIENCE, || {
        std::fs::read_to_string(&stat).unwrap().contains(") Z ").then_some(())
    });
    drop(delay);
    assert!(running.gateway.wait(PATIENCE).success());
    let running = world.start();
    let signer = running.again(&signer);
    assert!(world.seen(&signer).is_empty());
    assert_eq!(signer.complete("reports/large", &begun.id, &begun.etags).status, 200, "its parts are there");
    assert_eq!(world.seen(&signer)["large"], begun.whole);
    until_nothing_is_staged(&world.objects());
}

#[test]
fn the_bytes_of_a_part_that_is_replaced_go_at_once() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let upload = signer.begin_upload("reports/x");
    for body in ["first", "second", "third"] {
        assert_eq!(signer.put_part("reports/x", &upload, 1, body.as_bytes()).status, 200);
        assert_eq!(staged(&gateway.objects()).len(), 1, "{body}");
    }
    assert_eq!(signer.complete("reports/x", &upload, &[md5_of(b"third")]).status, 200);
    assert_eq!(agreed(&signer, "reports")["x"], b"third");
    until_nothing_is_staged(&gateway.objects());
}

/// A client that gave up sends a part again while the first is still being received.
#[test]
fn a_part_that_is_sent_several_times_at_once_is_taken_each_time() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    let upload = signer.begin_upload("reports/x");
    for _ in 0..5 {
        let sending: Vec<_> = (0..6)
            .map(|sender| {
                let (signer, upload) = (signer.clone(), upload.clone());
                let body = format!("by {sender}").repeat(1000);
                std::thread::spawn(move || signer.put_part("reports/x", &upload, 1, body.as_bytes()))
            })
            .collect();
        for sender in sending {
            let answer = sender.join().unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        wait::until("only the last to stay", PATIENCE, || (staged(&gateway.objects()).len() == 1).then_some(()));
    }
    let parts = signer.request("GET", &format!("/reports/x?uploadId={upload}"), &[], b"").text();
    let left = crate::parsing::plain(&element(&parts, "ETag").unwrap()).trim_matches('"').to_owned();
    assert_eq!(signer.complete("reports/x", &upload, std::slice::from_ref(&left)).status, 200);
    assert_eq!(md5_of(&agreed(&signer, "reports")["x"]), left);
    until_nothing_is_staged(&gateway.objects());
}

/// The completion by another holder is not a success for a client that requested something else or was too late.
#[test]
fn a_completion_by_another_holder_is_answered_for_by_nobody_else() {
    let gateway = Bucketed::start();
    let first = Signer::holder(&gateway, "reports", "33");
    let upload = first.begin_upload("reports/x");
    let one = etag(&first.put_part("reports/x", &upload, 1, b"one"));
    let two = etag(&first.put_part("reports/x", &upload, 2, b"two"));
    let second = Signer::holder(&gateway, "reports", "34");
    assert_eq!(second.complete("reports/x", &upload, std::slice::from_ref(&one)).status, 200);
    for parts in [vec![one.clone()], vec![one.clone(), two.clone()]] {
        assert_stale(&first.complete("reports/x", &upload, &parts));
    }
    assert_eq!(second.complete("reports/x", &upload, std::slice::from_ref(&one)).status, 200, "a retry");
    let other = second.complete("reports/x", &upload, &[one, two]);
    assert_eq!((other.status, code(&other).as_str()), (404, "NoSuchUpload"), "{}", other.text());
    assert_eq!(agreed(&second, "reports")["x"], b"one");
}
