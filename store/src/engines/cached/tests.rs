use bytes::Bytes;
use fencepost_core::Key;
use proptest::prelude::*;

use super::*;
use crate::engine::Purpose;
use crate::engines::memory::{Fault, Memory};

const NAMES: usize = 12;

fn key(number: usize) -> RecordKey {
    RecordKey::value(&Key::new(&format!("k{number}")).unwrap())
}

fn batch(loaded: &Loaded, keys: &[RecordKey], changes: Vec<(RecordKey, Change)>) -> Batch {
    let versions = loaded.records.iter().map(|record| record.as_ref().map(|record| record.version));
    Batch {
        as_of: loaded.as_of,
        compare: keys.iter().cloned().zip(versions).collect(),
        changes,
        purpose: Purpose::Store,
    }
}

#[derive(Clone, Debug)]
enum Act {
    Load(Vec<usize>),
    Write { numbers: Vec<usize>, bytes: usize, fault: Option<u8> },
    Remove(usize),
}

fn any_act() -> impl Strategy<Value = Act> {
    let numbers = || prop::collection::vec(0..NAMES, 1..5);
    prop_oneof![
        4 => numbers().prop_map(Act::Load),
        4 => (numbers(), prop_oneof![0..200_usize, Just(MAX_BYTES), Just(MAX_BYTES + 1)], prop::option::weighted(0.3, 0..5_u8))
            .prop_map(|(numbers, bytes, fault)| Act::Write { numbers, bytes, fault }),
        1 => (0..NAMES).prop_map(Act::Remove),
    ]
}

async fn agrees(cached: &Cached<Memory>, memory: &Memory, numbers: &[usize]) -> Result<(), TestCaseError> {
    let keys: Vec<RecordKey> = numbers.iter().map(|number| key(*number)).collect();
    let (here, there) = (cached.load(&keys).await.unwrap(), memory.load(&keys).await.unwrap());
    prop_assert_eq!(&here.records, &there.records);
    let wanted: Vec<Wanted> = keys.into_iter().map(Wanted::bytes).collect();
    prop_assert_eq!(cached.load_to_change(&wanted, 0).await.unwrap().records, there.records);
    Ok(())
}

async fn play(acts: &[Act], bytes: usize) -> Result<(), TestCaseError> {
    let memory = Memory::default();
    let cached = Cached::new(memory.clone(), bytes);
    for (round, act) in acts.iter().enumerate() {
        let changes = match act {
            Act::Load(numbers) => {
                agrees(&cached, &memory, numbers).await?;
                continue;
            }
            Act::Write { numbers, bytes, fault } => {
                if let Some(fault) = fault {
                    let faults = [
                        Fault::Conflict,
                        Fault::NoSpace,
                        Fault::Unavailable,
                        Fault::UnknownApplied,
                        Fault::UnknownLost,
                    ];
                    memory.inject(faults[usize::from(*fault)].clone());
                }
                let bytes = Bytes::from(vec![round as u8; *bytes]);
                numbers.iter().map(|number| (key(*number), Change::Put(bytes.clone()))).collect()
            }
            Act::Remove(number) => vec![(key(*number), Change::Delete)],
        };
        let keys: Vec<RecordKey> = changes.iter().map(|(key, _)| key.clone()).collect();
        let loaded = cached.load(&keys).await.unwrap();
        // Its outcome may be unknown; the cache must not guess.
        let _ = cached.commit(batch(&loaded, &keys, changes)).await;
    }
    agrees(&cached, &memory, &(0..NAMES).collect::<Vec<_>>()).await
}

proptest! {
    #[test]
    fn cache_and_engine_agree_after_any_history(
        acts in prop::collection::vec(any_act(), 1..60),
        bytes in prop_oneof![Just(0_usize), Just(64 << 10), Just(8 << 20)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(play(&acts, bytes))?;
    }
}

/// While a commit is durable but not yet published, every reader sees the engine's record.
#[tokio::test]
async fn readers_see_a_commit_as_soon_as_the_engine_has_it() {
    let memory = Memory::default();
    let cached = std::sync::Arc::new(Cached::new(memory.clone(), 8 << 20));
    let keys = [key(1)];
    let none = cached.load(&keys).await.unwrap();
    assert_eq!(none.records, [None]);
    memory.inject(Fault::HoldWritten);
    let write = batch(&none, &keys, vec![(key(1), Change::Put(Bytes::from_static(b"new")))]);
    let committing = tokio::spawn({
        let cached = cached.clone();
        async move { cached.commit(write).await }
    });
    memory.wait_held().await;
    for _ in 0..3 {
        let seen = cached.load(&keys).await.unwrap();
        assert_eq!(seen.records[0].as_ref().map(|record| &record.bytes[..]), Some(&b"new"[..]));
    }
    memory.release();
    committing.await.unwrap().unwrap();
    memory.break_reads(Some("not asked"));
    assert!(cached.load(&keys).await.is_ok(), "what was published needs no engine");
}

/// A reader that loaded a record before a commit must not keep it after the commit.
#[tokio::test]
async fn a_slow_reader_keeps_nothing_old() {
    let memory = Memory::default();
    let cached = Cached::new(memory.clone(), 8 << 20);
    let wanted = [Wanted::bytes(key(1))];
    let seen = cached.seen(&wanted);
    let old = memory.load_wanted(&wanted, 0).await.unwrap();
    cached.commit(batch(&old, &[key(1)], vec![(key(1), Change::Put(Bytes::from_static(b"new")))])).await.unwrap();
    cached.keep_unchanged(&wanted, &seen, &old);
    let now = cached.load(&[key(1)]).await.unwrap();
    assert_eq!(now.records[0].as_ref().map(|record| &record.bytes[..]), Some(&b"new"[..]));
}

/// E1: a load that crosses the publication of a commit does not mix it with the one before.
#[test]
fn loads_never_mix_two_commits() {
    const COMMITS: u32 = 20_000;
    let cached = std::sync::Arc::new(Cached::new(Memory::default(), 8 << 20));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    // The records between the two make it likely that a commit comes between.
    let wanted: Vec<Wanted> =
        [1].into_iter().chain(10..310).chain([2]).map(|number| Wanted::bytes(key(number))).collect();
    runtime.block_on(cached.load_wanted(&wanted, 0)).unwrap();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (cached, wanted, done) = (cached.clone(), wanted.clone(), done.clone());
            runtime.spawn(async move {
                let mut seen = 0;
                while !done.load(Ordering::Acquire) {
                    if let Some(found) = cached.find_all(&wanted, 0) {
                        let bytes =
                            |record: Option<&Option<Record>>| record.cloned().flatten().map(|record| record.bytes);
                        assert_eq!(bytes(found.first()), bytes(found.last()), "two commits were mixed");
                        seen += 1;
                    }
                }
                assert!(seen > 0, "no load was answered from the cache");
            })
        })
        .collect();
    runtime.block_on(async {
        for round in 0..COMMITS {
            let bytes = Bytes::copy_from_slice(&round.to_be_bytes());
            let changes = [1, 2].map(|number| (key(number), Change::Put(bytes.clone()))).to_vec();
            let nothing = Loaded { records: Vec::new(), as_of: LONG_AGO };
            cached.commit(batch(&nothing, &[], changes)).await.unwrap();
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            reader.await.unwrap();
        }
    });
}
