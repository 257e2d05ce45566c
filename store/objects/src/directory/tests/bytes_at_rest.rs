//! Staging and reading.

use std::any::Any;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use async_trait::async_trait;
use bytes::Bytes;

use super::super::new_file::Owned;
use super::{Storage, key, read};
use crate::layout::{Layout, LayoutError, Mark, Opened, Ref};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8).collect()
}

#[tokio::test]
async fn l1_what_is_staged_is_seen_under_no_key() {
    let storage = Storage::new();
    let (id, mark) = storage.stage(b"hello").await;
    assert_eq!(mark.size, 5);
    assert_eq!(storage.layout.walk("bucket", None, 10).await.unwrap().found, []);
    assert_eq!(storage.layout.buckets().await.unwrap().len(), 1);
    let hidden = format!(".fencepost/staging/{id}");
    assert!(matches!(storage.layout.open(&key(&hidden)).await.err(), Some(LayoutError::Missing(_))));
    assert_eq!(read(&*storage.layout.open_staged(id).await.unwrap()).await.unwrap(), b"hello");
    let mode = fs::metadata(storage.path(".fencepost")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others do not look into it");
}

#[tokio::test]
async fn small_and_large_writes_arrive_in_order() {
    let storage = Storage::new();
    let mut expected = Vec::new();
    let mut staging = storage.layout.stage(Ref(77), None).await.unwrap();
    for length in [0, 1, 100_000, 3, 300_000, 262_144, 5, 1_000_000, 0, 9] {
        let bytes = pattern(length);
        expected.extend_from_slice(&bytes);
        staging.write(bytes.into()).await.unwrap();
    }
    let mark = staging.seal().await.unwrap();
    let opened = storage.layout.open_staged(Ref(77)).await.unwrap();
    assert_eq!(opened.mark(), mark);
    assert_eq!(mark.size, expected.len() as u64);
    assert!(read(&*opened).await.unwrap() == expected);
}

#[tokio::test]
async fn a_ref_is_staged_once() {
    let storage = Storage::new();
    let (id, _) = storage.stage(b"first").await;
    assert!(matches!(storage.layout.stage(id, None).await.err(), Some(LayoutError::Failed { .. })));
    assert_eq!(read(&*storage.layout.open_staged(id).await.unwrap()).await.unwrap(), b"first");
}

/// Its bytes may have been discarded already, and nothing would remove it.
#[tokio::test]
async fn a_file_of_an_upload_that_was_given_up_is_not_made() {
    let storage = Storage::new();
    let owned = Owned::new(&storage.layout.tree, Ref(1));
    let file = owned.file();
    drop(owned);
    assert!(file.write(&[Bytes::from_static(b"late")]).is_err());
    assert_eq!(storage.layout.staged().await.unwrap(), []);
}

#[tokio::test]
async fn a_short_file_is_made_when_it_is_sealed_or_paused() {
    let storage = Storage::new();
    let mut sealed = storage.layout.stage(Ref(1), Some(5)).await.unwrap();
    sealed.write(Bytes::from_static(b"hel")).await.unwrap();
    sealed.write(Bytes::from_static(b"lo")).await.unwrap();
    let mut paused = storage.layout.stage(Ref(2), Some(5)).await.unwrap();
    paused.write(Bytes::from_static(b"hel")).await.unwrap();
    assert_eq!(storage.layout.staged().await.unwrap(), []);
    assert_eq!(sealed.seal().await.unwrap().size, 5);
    paused.rest().await.unwrap();
    assert_eq!(storage.layout.staged().await.unwrap(), [Ref(1), Ref(2)]);
    paused.write(Bytes::from_static(b"lo")).await.unwrap();
    paused.seal().await.unwrap();
    for id in [Ref(1), Ref(2)] {
        assert_eq!(read(&*storage.layout.open_staged(id).await.unwrap()).await.unwrap(), b"hello");
    }
    // An empty one, and one that is longer than it was said to be.
    let empty = storage.layout.stage(Ref(3), Some(0)).await.unwrap();
    assert_eq!(empty.seal().await.unwrap().size, 0);
    let mut longer = storage.layout.stage(Ref(4), Some(5)).await.unwrap();
    for _ in 0..10 {
        longer.write(pattern(100_000).into()).await.unwrap();
    }
    assert_eq!(longer.seal().await.unwrap().size, 1_000_000);
    // A ref is staged once.
    let again = storage.layout.stage(Ref(1), Some(5)).await.unwrap();
    assert!(matches!(again.seal().await, Err(LayoutError::Failed { .. })));
    assert_eq!(read(&*storage.layout.open_staged(Ref(1)).await.unwrap()).await.unwrap(), b"hello");
}

/// Trap 47: however short it is, its room is checked before its body is taken, and again when it is written.
#[tokio::test]
async fn a_short_file_needs_room_from_the_beginning() {
    let storage = Storage::new();
    let mut begun = storage.layout.stage(Ref(1), Some(5)).await.unwrap();
    begun.write(Bytes::from_static(b"hello")).await.unwrap();
    storage.layout.keep_free(u64::MAX);
    assert!(matches!(storage.layout.stage(Ref(2), Some(5)).await.err(), Some(LayoutError::NoSpace(_))));
    assert!(matches!(begun.seal().await, Err(LayoutError::NoSpace(_))));
    assert_eq!(storage.layout.staged().await.unwrap(), []);
}

#[tokio::test]
async fn ranges_of_other_files_are_appended() {
    let storage = Storage::new();
    let bytes = pattern(700_001);
    storage.put("bucket/source", &bytes).await.unwrap();
    let source = storage.layout.open(&key("bucket/source")).await.unwrap();
    let memory = InMemory(pattern(3_000_000));
    let mut staging = storage.layout.stage(Ref(78), None).await.unwrap();
    staging.write(Bytes::from_static(b"head ")).await.unwrap();
    staging.append(&*source, 1, 600_000).await.unwrap();
    staging.write(Bytes::from_static(b" middle ")).await.unwrap();
    staging.append(&memory, 2, 2_900_000).await.unwrap();
    staging.append(&*source, 700_001, 0).await.unwrap();
    staging.append(&*source, 700_000, 1).await.unwrap();
    assert!(staging.append(&*source, 700_000, 2).await.is_err(), "past the end");
    assert!(staging.append(&memory, u64::MAX, 2).await.is_err(), "past every end");
    staging.write(Bytes::from_static(b" tail")).await.unwrap();
    staging.seal().await.unwrap();
    let staged = read(&*storage.layout.open_staged(Ref(78)).await.unwrap()).await.unwrap();
    let parts: [&[u8]; 6] =
        [b"head ", &bytes[1..600_001], b" middle ", &memory.0[2..2_900_002], &bytes[700_000..], b" tail"];
    assert!(staged == parts.concat());
}

/// Opened bytes of another layout.
struct InMemory(Vec<u8>);

#[async_trait]
impl Opened for InMemory {
    fn mark(&self) -> Mark {
        Mark { size: self.0.len() as u64, inode: 0 }
    }

    fn modified_ms(&self) -> u64 {
        0
    }

    async fn read(&self, start: u64, length: usize) -> Result<Bytes, LayoutError> {
        let start = usize::try_from(start).unwrap().min(self.0.len());
        Ok(Bytes::copy_from_slice(&self.0[start..(start + length).min(self.0.len())]))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[test]
fn a_dropped_write_is_not_sealed_over() {
    // With a single disk thread, the test decides when a write begins by keeping the thread busy.
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let storage = Storage::new();
        storage.put("bucket/source", &pattern(1000)).await.unwrap();
        let source = storage.layout.open(&key("bucket/source")).await.unwrap();
        let mut staging = storage.layout.stage(Ref(79), None).await.unwrap();
        let (free, busy) = std::sync::mpsc::sync_channel::<()>(1);
        let keeping = tokio::task::spawn_blocking(move || busy.recv());
        {
            let appending = staging.append(&*source, 0, 1000);
            tokio::pin!(appending);
            // Started, and cancelled before it completes.
            assert!(futures_util::poll!(&mut appending).is_pending());
        }
        free.send(()).unwrap();
        keeping.await.unwrap().unwrap();
        let error = staging.seal().await.unwrap_err();
        assert!(error.to_string().contains("0 bytes were written, and the file has 1000"), "{error}");
    });
}

#[tokio::test]
async fn l5_what_was_opened_stays_as_it_was() {
    let storage = Storage::new();
    storage.put("bucket/a", b"first").await.unwrap();
    let opened = storage.layout.open(&key("bucket/a")).await.unwrap();
    storage.put("bucket/a", b"second, longer").await.unwrap();
    assert_eq!(read(&*opened).await.unwrap(), b"first");
    let second = storage.layout.open(&key("bucket/a")).await.unwrap();
    storage.layout.remove(&key("bucket/a")).await.unwrap();
    assert_eq!(read(&*opened).await.unwrap(), b"first");
    assert_eq!(read(&*second).await.unwrap(), b"second, longer");
    assert!(matches!(storage.get("bucket/a").await, Err(LayoutError::Missing(_))));
}

#[tokio::test]
async fn reads_are_ranges_of_what_was_there() {
    let storage = Storage::new();
    storage.put("bucket/a", b"0123456789").await.unwrap();
    let opened = storage.layout.open(&key("bucket/a")).await.unwrap();
    let metadata = fs::metadata(storage.path("bucket/a")).unwrap();
    assert_eq!(opened.mark(), Mark { size: 10, inode: metadata.ino() });
    let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(u128::from(opened.modified_ms()), modified.as_millis());
    for (start, length, expected) in
        [(0, 3, "012"), (7, 3, "789"), (7, 100, "789"), (10, 5, ""), (u64::MAX, 5, ""), (2, 0, "")]
    {
        assert_eq!(opened.read(start, length).await.unwrap(), expected, "{start} {length}");
    }
    // A process that must not write here does.
    fs::write(storage.path("bucket/a"), b"0123456789 and more").unwrap();
    assert_eq!(read(&*opened).await.unwrap(), b"0123456789");
    fs::write(storage.path("bucket/a"), b"01234").unwrap();
    let error = opened.read(0, 10).await.unwrap_err();
    assert!(error.to_string().contains("another program has made it shorter"), "{error}");
}

#[tokio::test]
async fn files_are_for_others_to_read() {
    let storage = Storage::new();
    storage.put("bucket/a/b", b"x").await.unwrap();
    let mode = |path: &str| fs::metadata(storage.path(path)).unwrap().permissions().mode() & 0o7777;
    // The modes do not depend on the umask of the process.
    assert_eq!(mode("bucket/a/b"), 0o644);
    assert_eq!(mode("bucket/a"), 0o755);
    // A set-group-id directory passes the bit on to new directories.
    fs::set_permissions(storage.path("bucket"), fs::Permissions::from_mode(0o2755)).unwrap();
    storage.put("bucket/c/d", b"x").await.unwrap();
    assert_eq!(mode("bucket/c"), 0o2755);
}

#[tokio::test]
async fn staged_bytes_are_listed_and_discarded() {
    let storage = Storage::new();
    for id in [Ref(5), Ref(u64::MAX), Ref(1)] {
        storage.layout.stage(id, None).await.unwrap().seal().await.unwrap();
    }
    fs::write(storage.path(".fencepost/staging/note"), b"not ours").unwrap();
    fs::write(storage.path(".fencepost/staging/5"), b"not ours").unwrap();
    assert_eq!(storage.layout.staged().await.unwrap(), [Ref(1), Ref(5), Ref(u64::MAX)]);
    storage.layout.discard(Ref(5)).await.unwrap();
    storage.layout.discard(Ref(5)).await.unwrap();
    assert_eq!(storage.layout.staged().await.unwrap(), [Ref(1), Ref(u64::MAX)]);
    assert!(matches!(storage.layout.open_staged(Ref(5)).await.err(), Some(LayoutError::Missing(_))));
}
