//! Concurrent writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fencepost_harness::budget;

use super::{Storage, key};
use crate::layout::{Layout, LayoutError};

/// Writers with clashing names: none passes the check and then fails at the rename.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l3_of_writers_that_clash_none_fails_after_the_check() {
    let storage = Arc::new(Storage::new());
    let (published, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let rounds = budget::pick(60, 600);
    let writers: Vec<_> = ["bucket/a", "bucket/a/b", "bucket/a/b/c", "bucket/a/b"]
        .into_iter()
        .map(|name| {
            let (storage, published, refused) = (storage.clone(), published.clone(), refused.clone());
            tokio::spawn(async move {
                for round in 0..rounds {
                    let (id, mark) = storage.stage(format!("{name} {round}").as_bytes()).await;
                    match storage.layout.prepare(&key(name)).await {
                        Ok(place) => {
                            storage.layout.publish(&key(name), id, mark).await.unwrap();
                            published.fetch_add(1, Ordering::Relaxed);
                            storage.layout.remove(&key(name)).await.unwrap();
                            drop(place);
                        }
                        Err(LayoutError::Clash(_)) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            storage.layout.discard(id).await.unwrap();
                        }
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(published.load(Ordering::Relaxed) > 0);
    assert!(refused.load(Ordering::Relaxed) > 0, "they were never in each other's way");
    assert!(!storage.path("bucket/a").exists());
    assert!(storage.layout.tree.reservations.is_idle());
}

/// Writers repeatedly create and empty the same directories: no directory is pruned while another writer uses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pruning_never_costs_another_his_directory() {
    let storage = Arc::new(Storage::new());
    let rounds = budget::pick(60, 600);
    let writers: Vec<_> = (0..8)
        .map(|number| {
            let storage = storage.clone();
            tokio::spawn(async move {
                let name = format!("bucket/shared/{}/deep/{number}", number % 2);
                for round in 0..rounds {
                    let bytes = format!("{number} {round}");
                    storage.put(&name, bytes.as_bytes()).await.unwrap();
                    assert_eq!(storage.get(&name).await.unwrap(), bytes.as_bytes());
                    storage.layout.remove(&key(&name)).await.unwrap();
                }
                storage.put(&name, b"last").await.unwrap();
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for number in 0..8 {
        assert_eq!(storage.get(&format!("bucket/shared/{}/deep/{number}", number % 2)).await.unwrap(), b"last");
    }
    assert!(storage.layout.tree.reservations.is_idle());
}

/// A bucket is removed while others write to it: a writer that has a place can publish.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_is_not_removed_under_a_writer() {
    let storage = Arc::new(Storage::new());
    let rounds = budget::pick(200, 2000);
    let writer = {
        let storage = storage.clone();
        tokio::spawn(async move {
            let mut published = 0;
            for _ in 0..rounds {
                let (id, mark) = storage.stage(b"x").await;
                match storage.layout.prepare(&key("bucket/a/b")).await {
                    Ok(_place) => {
                        storage.layout.publish(&key("bucket/a/b"), id, mark).await.unwrap();
                        assert_eq!(storage.get("bucket/a/b").await.unwrap(), b"x");
                        storage.layout.remove(&key("bucket/a/b")).await.unwrap();
                        published += 1;
                    }
                    Err(LayoutError::NoBucket(_)) => storage.layout.discard(id).await.unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
            published
        })
    };
    let mut removed = 0;
    while !writer.is_finished() {
        if storage.layout.delete_bucket("bucket").await.unwrap() {
            removed += 1;
            assert!(storage.layout.create_bucket("bucket").await.unwrap());
        }
    }
    assert!(writer.await.unwrap() > 0 && removed > 0);
}
