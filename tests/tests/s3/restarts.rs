//! SIGKILL in the middle of a start: the next start finishes what the last one began.

use std::fs;
use std::time::Instant;

use fencepost_harness::budget;

use crate::steps::Injected;
use crate::world::{Objects, World, until_nothing_is_staged};

/// Call numbers: with the CI budget every third, from a different first one each time.
fn numbers(started: Instant) -> impl Iterator<Item = u64> {
    let (first, stride) = budget::pick((1 + started.elapsed().subsec_nanos() as u64 % 3, 3), (1, 1));
    (0..).map(move |at| first + at * stride)
}

/// Starts a gateway that dies at the n-th such call, for rising n until it survives to listen. Returns how often it
/// died.
fn die_at_every(call: &str, prepare: impl Fn() -> World, check: impl Fn(World, &str)) -> u64 {
    let mut died = 0;
    for n in numbers(Instant::now()) {
        let world = prepare();
        let survivor = world.start_to_die_at(call, n).ok();
        let all = survivor.is_some();
        if let Some(gateway) = survivor {
            gateway.kill();
        }
        check(world, &format!("{call} number {n}"));
        died += u64::from(!all);
        if all {
            break;
        }
    }
    died
}

fn assert_nothing_differs(world: &World, when: &str) {
    let (exit, out, _) = world.administer(&["check"]);
    assert!(exit == 0 && out.contains(" 0 differences"), "{when}: {exit}: {out}");
}

/// Existing files are indexed, each exactly once, whenever the first start ended.
#[test]
fn a_start_that_dies_while_it_takes_files_in_is_finished_by_the_next() {
    let files: Objects = (0..7).map(|number| (format!("d{}/{number}", number % 3), vec![b'x'; number])).collect();
    let mut died = 0;
    for call in ["fdatasync", "fsync", "pwrite64"] {
        died += die_at_every(
            call,
            || {
                let world = World::new();
                for (name, bytes) in &files {
                    let path = world.objects().join("reports").join(name);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, bytes).unwrap();
                }
                world
            },
            |world, when| {
                let running = world.start();
                assert_nothing_differs(&world, when);
                assert_eq!(running.client().fence("reports"), None, "{when}: no fence");
                let signer = running.holder("33");
                assert_eq!(world.seen(&signer), files, "{when}");
                until_nothing_is_staged(&world.objects());
            },
        );
    }
    println!("{died} kills");
    assert!(died > 2, "there are calls to die at");
}

/// A world in which a change of each kind is committed but not published.
fn with_intents() -> World {
    let world = World::new();
    let running = world.start();
    let signer = running.holder("33");
    for name in ["reports/replaced", "reports/d/removed", "reports/keep"] {
        assert_eq!(signer.put(name, b"old").status, 200, "{name}");
    }
    let failing = Injected::error(running.pid(), "renameat,renameat2,unlinkat", "EIO");
    for answer in [
        signer.put("reports/replaced", b"committed"),
        signer.put("reports/new/deep", b"committed"),
        signer.delete("reports/d/removed"),
    ] {
        assert_eq!(answer.status, 500, "{}", answer.text());
    }
    running.gateway.kill();
    drop(failing);
    world
}

/// What was committed before the first kill is published after the second.
#[test]
fn a_start_that_dies_while_it_redoes_is_finished_by_the_next() {
    let after: Objects = [("keep", "old"), ("new/deep", "committed"), ("replaced", "committed")]
        .map(|(name, bytes)| (name.to_owned(), bytes.as_bytes().to_vec()))
        .into();
    let mut died = 0;
    for call in ["renameat", "unlinkat", "fsync", "fdatasync"] {
        died += die_at_every(call, with_intents, |world, when| {
            let running = world.start();
            assert_eq!(running.client().fence("reports").as_deref(), Some("33"), "{when}");
            assert_eq!(world.seen(&running.holder("33")), after, "{when}");
            assert_nothing_differs(&world, when);
            until_nothing_is_staged(&world.objects());
        });
    }
    println!("{died} kills");
    assert!(died > 2, "there are calls to die at");
}
