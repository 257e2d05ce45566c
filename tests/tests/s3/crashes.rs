//! SIGKILL before every step of the protocol, then a restart: files, index and fence agree, what was answered holds,
//! and no leftovers remain.

use std::time::{Duration, Instant};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::budget;
use fencepost_harness::http::Answer;

use crate::parsing::{code, element, elements, etag};
use crate::signing::Signer;
use crate::steps::Steps;
use crate::world::{Objects, Running, World};

const PART: usize = 5 << 20;

/// A request, and how to prepare it again.
struct Sweep {
    /// Prepares the initial state. The result is passed to the request.
    prepare: fn(&Signer) -> Vec<String>,
    act: fn(&Signer, &[String]) -> std::io::Result<Answer>,
    /// The error codes that a retry may get besides success, if the first attempt was applied.
    again: &'static [&'static str],
}

/// The whole visible state: objects and buckets.
type Seen = (Objects, Vec<String>);

fn see(world: &World, signer: &Signer) -> Seen {
    (world.seen(signer), world.buckets(signer))
}

fn succeeded(answer: &Answer) -> bool {
    (200..300).contains(&answer.status)
}

/// Objects that no request of a sweep concerns.
fn bystanders(signer: &Signer) {
    assert!(succeeded(&signer.put("reports/keep/1", b"one")));
    assert!(succeeded(&signer.put("reports/keep/2", b"two")));
}

/// Aborts every upload in progress.
fn abort_all(signer: &Signer) {
    let uploads = signer.request("GET", "/reports?uploads=", &[], b"").text();
    for upload in elements(&uploads, "Upload") {
        let (key, id) = (element(upload, "Key").unwrap(), element(upload, "UploadId").unwrap());
        let aborted = signer.request("DELETE", &format!("/reports/{key}?uploadId={id}"), &[], b"");
        assert!(succeeded(&aborted), "{}", aborted.text());
    }
}

/// An upload with two parts: its id, and the ETags of the parts.
fn upload(signer: &Signer) -> Vec<String> {
    abort_all(signer);
    let id = signer.begin_upload("reports/x/large");
    let first = etag(&signer.put_part("reports/x/large", &id, 1, &vec![b'1'; PART]));
    let second = etag(&signer.put_part("reports/x/large", &id, 2, b"the end"));
    vec![id, first, second]
}

impl Sweep {
    /// Kills before every step, until the request has fewer steps than that.
    fn run(self) {
        let (world, started) = (World::new(), Instant::now());
        let running = world.start();
        let signer = running.holder("33");
        bystanders(&signer);
        let given = (self.prepare)(&signer);
        let before = see(&world, &signer);
        let answer = (self.act)(&signer, &given).unwrap();
        assert!(succeeded(&answer), "{}", answer.text());
        let after = see(&world, &signer);
        running.gateway.kill();
        let (mut kills, mut applied) = (0, 0);
        // With the CI budget every third step, from a different first one each time.
        let (mut step, stride) = budget::pick((1 + started.elapsed().as_nanos() as usize % 3, 3), (1, 1));
        loop {
            let running = world.start();
            let signer = running.again(&signer);
            let given = (self.prepare)(&signer);
            assert_eq!(see(&world, &signer), before);
            let (answer, seen, enough) = self.die_before(step, running, &world, &signer, &given);
            let what = seen.last().cloned().unwrap_or_default();
            let running = world.start();
            let signer = running.again(&signer);
            let now = self.check(&world, &running, &signer, (&before, &after), answer.as_ref(), &seen);
            applied += usize::from(now == after && before != after);
            let retried = (self.act)(&signer, &given).unwrap();
            let may_be = !succeeded(&retried) && self.again.contains(&code(&retried).as_str());
            assert!(succeeded(&retried) || may_be, "again after {what}: {}", retried.text());
            assert_eq!(see(&world, &signer), after, "again after {what}");
            running.gateway.kill();
            kills += 1;
            if enough {
                println!("all steps: {seen:#?}");
                break;
            }
            step += stride;
        }
        assert!(kills > 1, "there are steps to die before");
        println!("{kills} kills in {:.1} s, {applied} after the commit", started.elapsed().as_secs_f64());
    }

    /// Sends the request and kills the gateway before the step with this number. Returns the answer, if there was one,
    /// the steps that were seen, and whether those were all.
    fn die_before(
        &self,
        step: usize,
        running: Running,
        world: &World,
        signer: &Signer,
        given: &[String],
    ) -> (Option<Answer>, Vec<String>, bool) {
        let mut steps = Steps::hold(running.pid(), world.path());
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| (self.act)(signer, given).ok());
            // A few more steps follow the answer: the intent is dropped.
            let mut quiet_since = None;
            let enough = wait::until("the step, or the end", PATIENCE, || {
                let known = steps.seen.len();
                steps.look();
                if steps.seen.len() >= step {
                    return Some(false);
                }
                if known != steps.seen.len() || !asking.is_finished() {
                    quiet_since = None;
                    return None;
                }
                let since = *quiet_since.get_or_insert_with(Instant::now);
                (since.elapsed() > Duration::from_millis(300)).then_some(true)
            });
            running.gateway.kill();
            let seen = std::mem::take(&mut steps.seen);
            (asking.join().expect("it does not panic"), seen, enough)
        })
    }

    /// Checks the state after the restart.
    fn check(
        &self,
        world: &World,
        running: &Running,
        signer: &Signer,
        (before, after): (&Seen, &Seen),
        answer: Option<&Answer>,
        seen: &[String],
    ) -> Seen {
        let now = see(world, signer);
        let keys = |seen: &Seen| (seen.0.keys().cloned().collect::<Vec<_>>(), seen.1.clone());
        assert!(now == *before || now == *after, "neither before nor after: {:?} after {seen:#?}", keys(&now));
        if let Some(answer) = answer {
            assert!(succeeded(answer), "nothing fails but the process: {}", answer.text());
            assert!(now == *after, "it was answered, and is gone: {:?} after {seen:#?}", keys(&now));
        }
        world.no_leftovers(signer);
        assert_eq!(running.client().fence("reports").as_deref(), Some("33"), "after {seen:#?}");
        now
    }
}

#[test]
fn a_put_of_a_new_name() {
    Sweep {
        prepare: |signer| {
            assert!(succeeded(&signer.delete("reports/a/b/new")));
            Vec::new()
        },
        act: |signer, _| signer.try_request("PUT", "/reports/a/b/new", &[], b"new"),
        again: &[],
    }
    .run();
}

#[test]
fn a_put_over_another() {
    Sweep {
        prepare: |signer| {
            assert!(succeeded(&signer.put("reports/x", b"old")));
            Vec::new()
        },
        act: |signer, _| signer.try_request("PUT", "/reports/x", &[], b"a new one"),
        again: &[],
    }
    .run();
}

#[test]
fn a_delete() {
    Sweep {
        prepare: |signer| {
            assert!(succeeded(&signer.put("reports/a/b/x", b"old")));
            Vec::new()
        },
        act: |signer, _| signer.try_request("DELETE", "/reports/a/b/x", &[], b""),
        again: &[],
    }
    .run();
}

/// All objects are deleted, or none.
#[test]
fn a_delete_of_several() {
    Sweep {
        prepare: |signer| {
            for name in ["reports/a/1", "reports/a/2", "reports/b"] {
                assert!(succeeded(&signer.put(name, name.as_bytes())));
            }
            Vec::new()
        },
        act: |signer, _| {
            let body = "<Delete><Object><Key>a/1</Key></Object><Object><Key>a/2</Key></Object>\
                        <Object><Key>b</Key></Object></Delete>";
            signer.try_request("POST", "/reports?delete=", &[], body.as_bytes())
        },
        again: &[],
    }
    .run();
}

#[test]
fn a_copy() {
    Sweep {
        prepare: |signer| {
            assert!(succeeded(&signer.put("reports/to", b"old")));
            Vec::new()
        },
        act: |signer, _| signer.try_request("PUT", "/reports/to", &[("x-amz-copy-source", "/reports/keep/1")], b""),
        again: &[],
    }
    .run();
}

#[test]
fn a_completed_upload() {
    Sweep {
        prepare: |signer| {
            assert!(succeeded(&signer.put("reports/x/large", b"old")));
            upload(signer)
        },
        act: |signer, given| signer.try_complete("reports/x/large", &given[0], &given[1..]),
        again: &[],
    }
    .run();
}

#[test]
fn an_aborted_upload() {
    Sweep {
        prepare: upload,
        act: |signer, given| signer.try_request("DELETE", &format!("/reports/x/large?uploadId={}", given[0]), &[], b""),
        again: &["NoSuchUpload"],
    }
    .run();
}

#[test]
fn a_part_of_an_upload() {
    Sweep {
        prepare: upload,
        act: |signer, given| {
            let target = format!("/reports/x/large?partNumber=2&uploadId={}", given[0]);
            signer.try_request("PUT", &target, &[], b"another end")
        },
        again: &[],
    }
    .run();
}

#[test]
fn a_part_copied_from_an_object() {
    Sweep {
        prepare: upload,
        act: |signer, given| {
            let target = format!("/reports/x/large?partNumber=2&uploadId={}", given[0]);
            signer.try_request("PUT", &target, &[("x-amz-copy-source", "/reports/keep/1")], b"")
        },
        again: &[],
    }
    .run();
}

#[test]
fn a_new_bucket() {
    Sweep {
        prepare: |signer| {
            let removed = signer.request("DELETE", "/made", &[], b"");
            assert!(succeeded(&removed) || code(&removed) == "NoSuchBucket", "{}", removed.text());
            Vec::new()
        },
        act: |signer, _| signer.try_request("PUT", "/made", &[], b""),
        again: &["BucketAlreadyOwnedByYou"],
    }
    .run();
}

#[test]
fn a_removed_bucket() {
    Sweep {
        prepare: |signer| {
            let made = signer.request("PUT", "/made", &[], b"");
            assert!(succeeded(&made) || code(&made) == "BucketAlreadyOwnedByYou", "{}", made.text());
            Vec::new()
        },
        act: |signer, _| signer.try_request("DELETE", "/made", &[], b""),
        again: &["NoSuchBucket"],
    }
    .run();
}
