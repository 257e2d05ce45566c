//! Objects in the store: the index changes with the fence, refs are used once, uploads end once, lists group.

use std::collections::BTreeSet;

use crate::testbed::{claim, claimed, fence, fence_change, guard, key, memory_store, memory_store_of, token};
use fencepost_core::{Mode, Policy, Reason, Timestamp};
use fencepost_store::engine::Ownership;
use fencepost_store::record::{Act, Intent, ObjectRecord, PartRecord, UploadId, UploadRecord};
use fencepost_store::{Complete, DeleteObjects, Listed, ObjectCondition, ObjectOutcome, PutObject, Store};
use proptest::prelude::*;

fn object(id: u64, etag: &str) -> ObjectRecord {
    let attributes = vec![("content-type".to_owned(), "text/plain".to_owned())];
    ObjectRecord { id, size: 3, inode: 7, etag: etag.to_owned(), modified: Timestamp(5), token: None, attributes }
}

async fn fresh(store: &Store) -> u64 {
    store.reserve_refs(1).await.unwrap().start
}

async fn put_if(store: &Store, name: &str, number: &str, etag: &str, condition: ObjectCondition) -> ObjectOutcome {
    let id = fresh(store).await;
    let put = PutObject {
        key: key(name),
        presented: Some(token(number)),
        condition,
        object: object(id, etag),
        completes: None,
    };
    store.put_object(put).await.unwrap()
}

async fn put(store: &Store, name: &str, number: &str, etag: &str) -> ObjectOutcome {
    put_if(store, name, number, etag, ObjectCondition::Always).await
}

fn refused(outcome: ObjectOutcome) -> Reason {
    match outcome {
        ObjectOutcome::Refused(refusals) => refusals[0].reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn done(outcome: ObjectOutcome) {
    assert!(matches!(outcome, ObjectOutcome::Done(_)), "{outcome:?}");
}

async fn etag(store: &Store, name: &str) -> Option<String> {
    store.object(&key(name)).await.unwrap().map(|object| object.etag)
}

#[tokio::test]
async fn a_write_is_one_commit_of_fence_index_intent_and_ref() {
    let (store, memory) = memory_store().await;
    let id = fresh(&store).await;
    assert_eq!(store.pending_refs(None, 10).await.unwrap().entries.len(), 1);
    let commits = memory.commits().len();
    let put = PutObject {
        key: key("reports/a"),
        presented: Some(token("34")),
        condition: ObjectCondition::Absent,
        object: object(id, "e"),
        completes: None,
    };
    done(store.put_object(put).await.unwrap());
    let made = memory.commits().split_off(commits);
    assert_eq!(made.len(), 1);
    assert_eq!(fence_change("reports/a", &made[0].changes).as_deref(), Some("34"));
    let found = store.object(&key("reports/a")).await.unwrap().unwrap();
    assert_eq!(found.token.unwrap().to_string(), "34");
    assert_eq!(found, ObjectRecord { token: found.token, ..object(id, "e") });
    assert!(store.pending_refs(None, 10).await.unwrap().entries.is_empty());
    let intent = Intent { key: key("reports/a"), act: Act::Publish { size: 3, inode: 7 } };
    assert_eq!(store.intents(None, 10).await.unwrap().entries, [(id, intent)]);
    store.settle_intents(&[id]).await.unwrap();
    assert!(store.intents(None, 10).await.unwrap().entries.is_empty());
    // A value of the same name is separate, but under the same fence.
    assert!(store.read(&key("reports/a"), None).await.unwrap().unwrap().value.is_none());
}

#[tokio::test]
async fn t09_every_verb_of_objects_is_judged() {
    let (store, _) = memory_store().await;
    done(put(&store, "a", "34", "rightful").await);
    let id = UploadId([1; 16]);
    let upload = UploadRecord { started: Timestamp(1), token: None, attributes: Vec::new() };
    done(store.begin_upload(&key("a"), Some(&token("34")), id, upload.clone()).await.unwrap());
    let part = |id| PartRecord { id, size: 3, etag: "p".into(), modified: Timestamp(2), attributes: Vec::new() };
    let own = part(fresh(&store).await);
    done(store.put_part(&key("a"), Some(&token("34")), id, 1, own.clone(), None).await.unwrap());
    let before = (etag(&store, "a").await, store.pending_refs(None, 100).await.unwrap().entries.len());

    let late = Some(token("33"));
    assert_eq!(refused(put(&store, "a", "33", "late").await), Reason::Stale);
    let gone = fresh(&store).await;
    let delete = DeleteObjects {
        presented: late.clone(),
        keys: vec![(key("a"), ObjectCondition::Always, Some(gone))],
        ..DeleteObjects::default()
    };
    assert_eq!(refused(store.delete_objects(delete).await.unwrap()), Reason::Stale);
    let begun = store.begin_upload(&key("a"), late.as_ref(), UploadId([2; 16]), upload).await;
    assert_eq!(refused(begun.unwrap()), Reason::Stale);
    let other = part(fresh(&store).await);
    let added = store.put_part(&key("a"), late.as_ref(), id, 1, other, Some(own.clone())).await;
    assert_eq!(refused(added.unwrap()), Reason::Stale);
    let complete = || Complete { id, parts: vec![(1, own.clone())] };
    let aborted = store.abort_upload(&key("a"), late.as_ref(), complete()).await;
    assert_eq!(refused(aborted.unwrap()), Reason::Stale);
    let whole = PutObject {
        key: key("a"),
        presented: late.clone(),
        condition: ObjectCondition::Always,
        object: object(fresh(&store).await, "whole"),
        completes: Some(complete()),
    };
    assert_eq!(refused(store.put_object(whole).await.unwrap()), Reason::Stale);
    assert_eq!(refused(store.judge_object(&key("a"), late.as_ref()).await.unwrap()), Reason::Stale);
    assert_eq!(refused(put_without_token(&store).await), Reason::MissingToken);

    assert_eq!(etag(&store, "a").await, before.0);
    assert!(store.upload(&key("a"), id).await.unwrap().is_some());
    assert_eq!(store.parts(id, None, 10).await.unwrap().entries, [(1, own)]);
    // Refs of refused writes stay pending.
    assert_eq!(store.pending_refs(None, 100).await.unwrap().entries.len(), before.1 + 5);
}

async fn put_without_token(store: &Store) -> ObjectOutcome {
    let object = object(fresh(store).await, "without");
    let put = PutObject { key: key("a"), presented: None, condition: ObjectCondition::Always, object, completes: None };
    store.put_object(put).await.unwrap()
}

#[tokio::test]
async fn a_prefix_that_was_taken_over_refuses_an_object_that_the_successor_only_read() {
    let (store, _) = memory_store_of(Ownership::Exclusive, guard("p/**", Some("p"), Policy::default())).await;
    done(put(&store, "p/x", "33", "old").await);
    claimed(claim(&store, "p", token("34")).await);
    assert_eq!(refused(put(&store, "p/x", "33", "late").await), Reason::Stale);
    assert_eq!(etag(&store, "p/x").await.as_deref(), Some("old"));
    done(put(&store, "p/y", "34", "new").await);
}

#[tokio::test]
async fn a_delete_keeps_the_fence_and_leaves_an_intent() {
    let (store, _) = memory_store().await;
    done(put(&store, "a", "34", "e").await);
    let id = fresh(&store).await;
    let delete = DeleteObjects {
        presented: Some(token("35")),
        keys: vec![(key("a"), ObjectCondition::Always, Some(id))],
        ..DeleteObjects::default()
    };
    done(store.delete_objects(delete).await.unwrap());
    assert_eq!(etag(&store, "a").await, None);
    assert_eq!(fence(&store, "a").await.as_deref(), Some("35"));
    let intents = store.intents(None, 10).await.unwrap().entries;
    assert_eq!(intents[1], (id, Intent { key: key("a"), act: Act::Remove }));
    assert_eq!(refused(put(&store, "a", "34", "late").await), Reason::Stale);
}

#[tokio::test]
async fn deletes_are_all_or_none() {
    let (store, _) = memory_store().await;
    done(put(&store, "a", "1", "e").await);
    done(put(&store, "b", "9", "e").await);
    let ids = store.reserve_refs(2).await.unwrap();
    let keys = vec![
        (key("a"), ObjectCondition::Always, Some(ids.start)),
        (key("b"), ObjectCondition::Always, Some(ids.start + 1)),
    ];
    let delete = DeleteObjects { presented: Some(token("5")), keys, ..DeleteObjects::default() };
    assert_eq!(refused(store.delete_objects(delete).await.unwrap()), Reason::Stale);
    assert!(etag(&store, "a").await.is_some() && etag(&store, "b").await.is_some());
    assert_eq!(fence(&store, "a").await.as_deref(), Some("1"), "nothing is raised");
}

#[tokio::test]
async fn a_condition_that_fails_raises_the_fence_and_changes_nothing_else() {
    let (store, _) = memory_store().await;
    done(put(&store, "a", "1", "first").await);
    for (number, condition, holds) in [
        ("2", ObjectCondition::Absent, false),
        ("3", ObjectCondition::ETag("other".into()), false),
        ("4", ObjectCondition::NotETag("first".into()), false),
        ("5", ObjectCondition::Exists, true),
        ("6", ObjectCondition::ETag("first".into()), true),
        ("7", ObjectCondition::NotETag("other".into()), true),
    ] {
        let outcome = put_if(&store, "a", number, "first", condition.clone()).await;
        assert_eq!(matches!(outcome, ObjectOutcome::Done(_)), holds, "{condition:?}: {outcome:?}");
        assert_eq!(matches!(outcome, ObjectOutcome::ConditionFailed { .. }), !holds);
        assert_eq!(fence(&store, "a").await.as_deref(), Some(number));
    }
    let outcome = put_if(&store, "new", "1", "e", ObjectCondition::Exists).await;
    assert!(matches!(outcome, ObjectOutcome::ConditionFailed { .. }));
}

#[tokio::test]
async fn t34_a_ref_is_published_or_collected_never_both() {
    let (store, _) = memory_store().await;
    let refs = store.reserve_refs(3).await.unwrap();
    let pending = store.pending_refs(None, 10).await.unwrap().entries;
    assert_eq!(pending.iter().map(|(id, _)| *id).collect::<Vec<_>>(), refs.clone().collect::<Vec<_>>());
    // One ref is published while the collector already has it on its list.
    let put = |id| PutObject {
        key: key("a"),
        presented: Some(token("1")),
        condition: ObjectCondition::Always,
        object: object(id, "e"),
        completes: None,
    };
    done(store.put_object(put(refs.start)).await.unwrap());
    assert_eq!(store.collect_refs(&pending).await.unwrap(), [refs.start + 1, refs.start + 2]);
    // A collected ref cannot be published.
    let late = store.put_object(put(refs.start + 1)).await.unwrap();
    assert_eq!(late, ObjectOutcome::Collected);
    assert_eq!(store.object(&key("a")).await.unwrap().unwrap().id, refs.start);
    // A ref is never reserved twice, nor published twice.
    assert!(store.reserve_refs(1).await.unwrap().start > refs.end - 1);
    assert_eq!(store.put_object(put(refs.start)).await.unwrap(), ObjectOutcome::Collected);
}

#[tokio::test]
async fn reservations_at_once_never_overlap() {
    let (store, _) = memory_store().await;
    let store = std::sync::Arc::new(store);
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.reserve_refs(5).await })
        })
        .collect();
    let mut seen = BTreeSet::new();
    for task in tasks {
        // A reservation that fails because of too many conflicts was certainly not applied.
        if let Ok(refs) = task.await.unwrap() {
            assert!(refs.into_iter().all(|id| seen.insert(id)));
        }
    }
    assert!(seen.len() >= 5);
}

#[tokio::test]
async fn an_upload_ends_once_and_its_parts_go_to_the_collector() {
    let (store, _) = memory_store().await;
    let (name, by, id) = (key("a"), Some(token("1")), UploadId([9; 16]));
    let upload = UploadRecord { started: Timestamp(1), token: None, attributes: vec![("a".into(), "b".into())] };
    done(store.begin_upload(&name, by.as_ref(), id, upload).await.unwrap());
    assert_eq!(store.upload(&name, id).await.unwrap().unwrap().record.token.unwrap().to_string(), "1");
    let mut parts = Vec::new();
    for number in [1u16, 2, 10_000] {
        let part = PartRecord {
            id: fresh(&store).await,
            size: 3,
            etag: format!("p{number}"),
            modified: Timestamp(2),
            attributes: Vec::new(),
        };
        done(store.put_part(&name, by.as_ref(), id, number, part.clone(), None).await.unwrap());
        parts.push((number, part));
    }
    assert_eq!(store.parts(id, None, 10).await.unwrap().entries, parts);
    assert_eq!(store.parts(id, Some(1), 1).await.unwrap().entries, parts[1..2]);
    // The bytes of a replaced part go to the collector.
    let replaced = PartRecord { id: fresh(&store).await, etag: "again".into(), ..parts[1].1.clone() };
    let unseen = store.put_part(&name, by.as_ref(), id, 2, replaced.clone(), None).await.unwrap();
    assert_eq!(unseen, ObjectOutcome::PartChanged, "only what was seen is replaced");
    let seen = store.part(id, 2).await.unwrap();
    assert_eq!(seen.as_ref(), Some(&parts[1].1));
    done(store.put_part(&name, by.as_ref(), id, 2, replaced.clone(), seen).await.unwrap());
    let pending = store.pending_refs(None, 10).await.unwrap().entries;
    assert_eq!(pending.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [parts[1].1.id]);
    // A completion that names a replaced part changes nothing.
    let whole = fresh(&store).await;
    let complete = |parts: &[(u16, PartRecord)], whole| PutObject {
        key: name.clone(),
        presented: by.clone(),
        condition: ObjectCondition::Always,
        object: object(whole, "whole"),
        completes: Some(Complete { id, parts: parts.to_vec() }),
    };
    let outcome = store.put_object(complete(&parts, whole)).await.unwrap();
    assert_eq!(outcome, ObjectOutcome::PartChanged);
    assert!(store.upload(&name, id).await.unwrap().is_some() && etag(&store, "a").await.is_none());
    parts[1].1 = replaced;
    done(store.put_object(complete(&parts, whole)).await.unwrap());
    assert_eq!(etag(&store, "a").await.as_deref(), Some("whole"));
    assert!(store.upload(&name, id).await.unwrap().is_none());
    assert!(store.parts(id, None, 10).await.unwrap().entries.is_empty());
    let pending: BTreeSet<u64> =
        store.pending_refs(None, 10).await.unwrap().entries.into_iter().map(|(id, _)| id).collect();
    assert!(parts.iter().all(|(_, part)| pending.contains(&part.id)) && !pending.contains(&whole));
    // The upload has ended: no new part, no second completion, no abort.
    let again = store.put_object(complete(&[], fresh(&store).await)).await.unwrap();
    assert_eq!(again, ObjectOutcome::NoUpload);
    let late = PartRecord { id: fresh(&store).await, ..parts[0].1.clone() };
    let late = store.put_part(&name, by.as_ref(), id, 1, late, None).await.unwrap();
    assert_eq!(late, ObjectOutcome::NoUpload);
    let aborted = store.abort_upload(&name, by.as_ref(), Complete { id, parts: Vec::new() }).await.unwrap();
    assert_eq!(aborted, ObjectOutcome::NoUpload);
}

/// A part that was added after the list of parts was read remains when its upload ends, until it is removed.
#[tokio::test]
async fn parts_without_an_upload_are_found_and_forgotten() {
    let (store, _) = memory_store().await;
    let (name, by) = (key("a"), Some(token("1")));
    let upload = UploadRecord { started: Timestamp(1), token: None, attributes: Vec::new() };
    let mut all = Vec::new();
    for id in [UploadId([1; 16]), UploadId([2; 16])] {
        done(store.begin_upload(&name, by.as_ref(), id, upload.clone()).await.unwrap());
        for number in [1, 2, 10_000] {
            let part = PartRecord {
                id: fresh(&store).await,
                size: 3,
                etag: "p".into(),
                modified: Timestamp(2),
                attributes: Vec::new(),
            };
            done(store.put_part(&name, by.as_ref(), id, number, part.clone(), None).await.unwrap());
            all.push((id, number, part));
        }
    }
    assert_eq!(store.all_parts(None, 100).await.unwrap().entries, all);
    assert_eq!(store.all_parts(Some((all[1].0, all[1].1)), 2).await.unwrap().entries, all[2..4]);
    // The abort does not list the last part.
    let known = all[3..5].iter().map(|(_, number, part)| (*number, part.clone())).collect();
    let over = Complete { id: UploadId([2; 16]), parts: known };
    done(store.abort_upload(&name, by.as_ref(), over).await.unwrap());
    let (id, number, late) = all[5].clone();
    assert_eq!(store.parts(id, None, 10).await.unwrap().entries, [(number, late.clone())]);
    store.forget_parts(id, vec![(number, late.clone())]).await.unwrap();
    assert_eq!(store.all_parts(None, 100).await.unwrap().entries, all[..3]);
    let pending = store.pending_refs(None, 100).await.unwrap().entries;
    assert!(pending.iter().any(|(id, _)| *id == late.id), "its bytes go to the collector");
}

#[tokio::test]
async fn parts_spend_nothing_and_the_completion_does() {
    let once = Policy { equal: fencepost_core::Equal::Reject, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, guard("a", None, once)).await;
    let id = UploadId([3; 16]);
    let upload = UploadRecord { started: Timestamp(1), token: None, attributes: Vec::new() };
    done(store.begin_upload(&key("a"), Some(&token("1")), id, upload).await.unwrap());
    done(put(&store, "a", "1", "the one write").await);
    assert_eq!(refused(put(&store, "a", "1", "another").await), Reason::Spent);
}

#[tokio::test]
async fn observing_changes_objects_and_never_fences() {
    let watched = Policy { mode: Mode::Observe, ..Policy::default() };
    let (store, _) = memory_store_of(Ownership::Exclusive, guard("a", None, watched)).await;
    done(put(&store, "a", "34", "first").await);
    let ObjectOutcome::Done(changed) = put(&store, "a", "33", "late").await else { panic!("observed only") };
    assert_eq!(changed.observed[0].1, Reason::Stale);
    let ObjectOutcome::Done(changed) = put_without_token(&store).await else { panic!("observed only") };
    assert_eq!(changed.observed[0].1, Reason::MissingToken);
    assert_eq!(etag(&store, "a").await.as_deref(), Some("without"));
    assert_eq!(fence(&store, "a").await.as_deref(), Some("34"));
}

#[tokio::test]
async fn the_early_look_agrees_with_the_judge_and_raises_nothing() {
    let (store, _) = memory_store().await;
    done(put(&store, "a", "34", "e").await);
    let refusal = store.foresee(&key("a"), Some(&token("33"))).await.unwrap().unwrap_err();
    assert_eq!(refusal.reason, Reason::Stale);
    assert!(store.foresee(&key("a"), Some(&token("35"))).await.unwrap().is_ok());
    assert_eq!(fence(&store, "a").await.as_deref(), Some("34"));
}

/// The expected list, computed by looking at every name.
fn expected(names: &BTreeSet<String>, prefix: &str, delimiter: Option<&str>, after: Option<&str>) -> Vec<String> {
    let mut listed: Vec<String> = Vec::new();
    for name in names.iter().filter(|name| name.starts_with(prefix)) {
        let group = delimiter.and_then(|delimiter| {
            let at = name[prefix.len()..].find(delimiter)?;
            Some(name[..prefix.len() + at + delimiter.len()].to_owned())
        });
        let passed = match (&group, after) {
            (_, None) => false,
            (Some(group), Some(after)) => group.as_str() <= after && (group == after || name.as_str() <= after),
            (None, Some(after)) => name.as_str() <= after,
        };
        let entry = group.unwrap_or_else(|| name.clone());
        if !passed && listed.last() != Some(&entry) {
            listed.push(entry);
        }
    }
    listed
}

/// The folder whose marker has this name.
fn folder_of(name: &str) -> Option<&str> {
    name.strip_suffix('/')
}

async fn put_folder(store: &Store, folder: &str, number: &str, condition: ObjectCondition) -> ObjectOutcome {
    let marker = ObjectRecord { size: 0, inode: 0, ..object(0, "empty") };
    store.put_folder(&key(folder), Some(&token(number)), condition, marker).await.unwrap()
}

#[tokio::test]
async fn b_slash_a_folder_marker_is_one_commit_under_the_fence_of_its_folder() {
    let (store, memory) = memory_store().await;
    let commits = memory.commits().len();
    done(put_folder(&store, "b/x", "34", ObjectCondition::Absent).await);
    assert_eq!(memory.commits().len(), commits + 1);
    assert_eq!(refused(put_folder(&store, "b/x", "33", ObjectCondition::Always).await), Reason::Stale);
    let again = put_folder(&store, "b/x", "34", ObjectCondition::Absent).await;
    assert!(matches!(again, ObjectOutcome::ConditionFailed { .. }), "{again:?}");
    let marker = store.folder(&key("b/x")).await.unwrap().unwrap();
    assert_eq!((marker.size, marker.token.unwrap().to_string().as_str()), (0, "34"));
    assert!(store.object(&key("b/x")).await.unwrap().is_none(), "a marker is no object of its folder's name");
    // A deletion of a name that cannot exist is judged, and raises the fence.
    let nothing = |number: &str| DeleteObjects {
        presented: Some(token(number)),
        judged: vec![key("b/x")],
        ..DeleteObjects::default()
    };
    done(store.delete_objects(nothing("35")).await.unwrap());
    assert_eq!(refused(store.delete_objects(nothing("34")).await.unwrap()), Reason::Stale);
    let folder = |number: &str| DeleteObjects {
        presented: Some(token(number)),
        folders: vec![(key("b/x"), ObjectCondition::Always)],
        ..DeleteObjects::default()
    };
    assert_eq!(refused(store.delete_objects(folder("34")).await.unwrap()), Reason::Stale);
    assert!(store.folder(&key("b/x")).await.unwrap().is_some());
    done(store.delete_objects(folder("35")).await.unwrap());
    assert!(store.folder(&key("b/x")).await.unwrap().is_none());
    done(store.delete_objects(folder("35")).await.unwrap());
}

fn name_of(entry: &Listed) -> String {
    match entry {
        Listed::Object(name, _) => name.clone(),
        Listed::Prefix(prefix) => prefix.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn lists_group_and_page_like_a_look_at_every_name(
        names in proptest::collection::btree_set("b/[ab/\u{10ffff}-]{1,6}", 1..40),
        prefix in "(b/|b/a|b/-|b/a/)",
        delimiter in proptest::option::of("(/|a|-)"),
        limit in 1usize..5,
    ) {
        let names: BTreeSet<String> =
            names.into_iter().filter(|name| fencepost_core::Key::new(folder_of(name).unwrap_or(name)).is_ok()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, _) = memory_store().await;
            for name in &names {
                match folder_of(name) {
                    None => done(put(&store, name, "1", "e").await),
                    Some(folder) => done(put_folder(&store, folder, "1", ObjectCondition::Always).await),
                }
            }
            let objects: Vec<&String> = names.iter().filter(|name| folder_of(name).is_none()).collect();
            let (mut paged, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
            loop {
                let page = store.objects("b/", after.as_deref(), limit).await.unwrap();
                paged.extend(page.entries.iter().map(|(key, _)| key.to_string()));
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(paged.iter().collect::<Vec<_>>(), objects, "without the markers of {names:?}");
            let delimiter = delimiter.as_deref();
            let whole = expected(&names, &prefix, delimiter, None);
            let (mut paged, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
            loop {
                let page = store.list_objects(&prefix, delimiter, after.as_deref(), limit).await.unwrap();
                assert!(page.entries.len() <= limit);
                paged.extend(page.entries.iter().map(name_of));
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(paged, whole, "{names:?} {prefix} {delimiter:?} {limit}");
            // After any name, whether or not it exists.
            for after in &names {
                let page = store.list_objects(&prefix, delimiter, Some(after), 1000).await.unwrap();
                let listed: Vec<String> = page.entries.iter().map(name_of).collect();
                assert_eq!(listed, expected(&names, &prefix, delimiter, Some(after)), "after {after} of {names:?}");
            }
        });
    }
}
