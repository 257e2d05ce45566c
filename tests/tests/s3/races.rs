//! Concurrent requests: at the end the files, the index and the answers agree.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::budget;
use fencepost_harness::http::Answer;

use crate::digests::md5_of;
use crate::parsing::{code, etag};
use crate::signing::Signer;
use crate::world::{agreed, until_nothing_is_staged};
use parking_lot::Mutex;

/// Asserts that the bucket's directory matches its index.
fn assert_agreed(gateway: &Bucketed, signer: &Signer) {
    let objects = agreed(signer, "reports");
    let files: Vec<(String, Vec<u8>)> = gateway.files().into_iter().collect();
    let named: Vec<(String, Vec<u8>)> =
        objects.into_iter().map(|(key, bytes)| (format!("reports/{key}"), bytes)).collect();
    assert!(files == named, "files: {:?}, objects: {:?}", sizes(&files), sizes(&named));
}

fn sizes(objects: &[(String, Vec<u8>)]) -> Vec<(&str, usize)> {
    objects.iter().map(|(name, bytes)| (name.as_str(), bytes.len())).collect()
}

/// Runs all functions at the same moment.
fn at_once<T: Send>(work: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
    let barrier = Barrier::new(work.len());
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let threads: Vec<_> = work
            .into_iter()
            .map(|work| {
                scope.spawn(move || {
                    barrier.wait();
                    work()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

/// Two commits and two renames: in a different order, the file would be old and the index new.
#[test]
fn t38_writes_of_one_name_end_with_file_and_index_alike() {
    let gateway = Bucketed::start();
    let signer = Signer::holder(&gateway, "reports", "33");
    assert_eq!(signer.put("reports/x", b"first").status, 200);
    let over = AtomicBool::new(false);
    let rounds: u32 = budget::pick(60, 2_000);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !over.load(Ordering::Relaxed) {
                let answer = signer.get("reports/x");
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(md5_of(&answer.body), etag(&answer), "a reader sees bytes and ETag of one write");
                reads += 1;
            }
            reads
        });
        for round in 0..rounds {
            let body = |writer: u32| format!("{round} by {writer} ").repeat(1 + (writer as usize) * 400).into_bytes();
            let signer = &signer;
            let work = (0..3).map(|writer| {
                let body = body(writer);
                Box::new(move || signer.put("reports/x", &body)) as Box<dyn FnOnce() -> Answer + Send>
            });
            for answer in at_once(work.collect()) {
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
            assert_agreed(&gateway, signer);
            let bytes = signer.get("reports/x").body;
            assert!((0..3).any(|writer| body(writer) == bytes), "round {round}: it is one of what was written");
        }
        over.store(true, Ordering::Relaxed);
        reader.join().expect("every read is whole")
    });
    println!("{rounds} rounds of 3 writers, {reads} reads beside them");
    assert!(reads > 0);
    until_nothing_is_staged(&gateway.objects());
}

#[test]
fn a_delete_races_a_put() {
    let gateway = Bucketed::start();
    let signer = &Signer::holder(&gateway, "reports", "33");
    let (mut there, mut gone, mut deletes) = (0, 0, 0);
    for round in 0..budget::pick(60, 1_000) {
        // In a directory of its own, which the delete removes and the put needs.
        let body = format!("{round}").into_bytes();
        let written = body.clone();
        if round % 2 == 0 {
            assert_eq!(signer.put("reports/d/x", b"old").status, 200);
        }
        // Deletes continue until the put is answered: sooner or later, one falls between each two of its steps.
        let answered = &AtomicBool::new(false);
        let until_answered = |delete: &dyn Fn() -> Answer| {
            let mut deletes = 0;
            while !answered.load(Ordering::SeqCst) {
                let answer = delete();
                assert!((200..300).contains(&answer.status), "{}", answer.text());
                deletes += 1;
            }
            deletes
        };
        let work: Vec<Box<dyn FnOnce() -> u32 + Send>> = vec![
            Box::new(move || {
                let answer = signer.put("reports/d/x", &written);
                answered.store(true, Ordering::SeqCst);
                assert_eq!(answer.status, 200, "{}", answer.text());
                0
            }),
            Box::new(|| until_answered(&|| signer.delete("reports/d/x"))),
            Box::new(|| until_answered(&|| signer.delete_all("reports", &["d/x", "d/y"]))),
        ];
        deletes += at_once(work).into_iter().sum::<u32>();
        assert_agreed(&gateway, signer);
        match signer.get("reports/d/x") {
            found if found.status == 200 => {
                assert!(found.body == body, "round {round}: what was there before is gone in any case");
                there += 1;
            }
            none => {
                assert_eq!(code(&none), "NoSuchKey");
                gone += 1;
            }
        }
    }
    println!("there {there} times, gone {gone} times, {deletes} deletes");
    until_nothing_is_staged(&gateway.objects());
}

/// `c` is a file or a directory, never both.
#[test]
fn a_name_races_a_name_below_it() {
    let gateway = Bucketed::start();
    let signer = &Signer::holder(&gateway, "reports", "33");
    let mut won = [0, 0];
    for round in 0..budget::pick(40, 500) {
        let (file, below) = (format!("reports/c{round}"), format!("reports/c{round}/x"));
        let answers = at_once(vec![
            Box::new(|| signer.put(&file, b"file")) as Box<dyn FnOnce() -> Answer + Send>,
            Box::new(|| signer.put(&below, b"below")),
        ]);
        let written: Vec<usize> = (0..2).filter(|at| answers[*at].status == 200).collect();
        for answer in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!((answer.status, code(answer).as_str()), (409, "ObjectNameClash"), "{}", answer.text());
        }
        assert!(written.len() <= 1, "round {round}: both were written");
        written.iter().for_each(|at| won[*at] += 1);
    }
    assert_agreed(&gateway, signer);
    println!("files {}, below {}", won[0], won[1]);
    assert!(won[0] + won[1] > 0, "somebody wins at times");
    until_nothing_is_staged(&gateway.objects());
}

#[test]
fn a_hundred_writers_while_another_lists() {
    const WRITERS: usize = 100;
    let keys_each: usize = budget::pick(3, 20);
    let gateway = Bucketed::start();
    let signer = &Signer::holder(&gateway, "reports", "33");
    let (written, over) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    let lists = std::thread::scope(|scope| {
        let lister = scope.spawn(|| {
            let mut lists = 0;
            loop {
                let last = over.load(Ordering::SeqCst);
                let before: BTreeSet<String> = written.lock().clone();
                let found: Vec<String> = signer.list("reports", 7).into_iter().map(|entry| entry.key).collect();
                assert!(found.is_sorted_by(|one, next| one < next), "in order, and none twice: {found:?}");
                let found: BTreeSet<String> = found.into_iter().collect();
                let missing: Vec<&String> = before.difference(&found).collect();
                assert!(missing.is_empty(), "answered before the list began, and not in it: {missing:?}");
                lists += 1;
                if last {
                    return lists;
                }
            }
        });
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let written = &written;
                scope.spawn(move || {
                    for number in 0..keys_each {
                        let key = format!("w{}/{writer}-{number}", writer % 10);
                        let answer = signer.put(&format!("reports/{key}"), key.as_bytes());
                        assert_eq!(answer.status, 200, "{}", answer.text());
                        written.lock().insert(key);
                    }
                });
            }
        });
        over.store(true, Ordering::SeqCst);
        lister.join().expect("every list is right")
    });
    let objects = agreed(signer, "reports");
    assert_eq!(objects.len(), WRITERS * keys_each);
    assert!(objects.iter().all(|(key, bytes)| key.as_bytes() == bytes));
    assert_agreed(&gateway, signer);
    println!("{} objects, {lists} lists beside them", objects.len());
    until_nothing_is_staged(&gateway.objects());
}
