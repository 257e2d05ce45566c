//! Multipart uploads: each part has its own ref, and completing an upload is a write like any other.

use fencepost_core::{Access, Key, Presented, Timestamp};

use super::{Draft, ObjectOutcome, Why};
use crate::command::Requirement;
use crate::failure::Failure;
use crate::reads::{Page, ReadError};
use crate::record::{self, PartRecord, RecordKey, UploadId, UploadRecord};
use crate::store::Store;

/// An upload that was begun and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// The key of the object.
    pub key: Key,
    /// The upload's id.
    pub id: UploadId,
    /// The record from when it was begun.
    pub record: UploadRecord,
}

/// The upload that a write completes.
#[derive(Clone, Debug)]
pub struct Complete {
    /// The upload's id.
    pub id: UploadId,
    /// All its parts, used or not, as they were when the bytes were assembled.
    pub parts: Vec<(u16, PartRecord)>,
}

impl Complete {
    /// Removes everything about the upload; the bytes of its parts go to the collector.
    pub(super) fn into_draft(self, key: &Key, draft: &mut Draft) {
        let now = Timestamp::now();
        draft.require(RecordKey::upload(key, self.id), Requirement::Present, Why::NoUpload);
        draft.delete(RecordKey::upload(key, self.id));
        for (number, part) in self.parts {
            let record = RecordKey::part(self.id, number);
            draft.require(record.clone(), Requirement::Exactly(part.encode()), Why::PartChanged);
            draft.delete(record);
            draft.drop_ref(part.id, now);
        }
    }
}

impl Store {
    /// Begins an upload, if the fence admits it.
    pub async fn begin_upload(
        &self,
        key: &Key,
        presented: Option<&Presented>,
        id: UploadId,
        mut record: UploadRecord,
    ) -> Result<ObjectOutcome, Failure> {
        record.token = presented.map(|presented| presented.token);
        let mut draft = Draft::default();
        draft.require(RecordKey::upload(key, id), Requirement::Absent, Why::NoUpload);
        draft.put(RecordKey::upload(key, id), record.encode());
        // This raises the fence but does not spend the token: the completion counts as the write.
        self.change_of([key], presented, Access::Claim, draft).await
    }

    /// Adds a part whose bytes are staged, if the fence admits it. It replaces the part that has its number now, whose
    /// bytes go to the collector.
    pub async fn put_part(
        &self,
        key: &Key,
        presented: Option<&Presented>,
        upload: UploadId,
        number: u16,
        part: PartRecord,
        replaced: Option<PartRecord>,
    ) -> Result<ObjectOutcome, Failure> {
        let place = RecordKey::part(upload, number);
        let mut draft = Draft::default();
        draft.require(RecordKey::upload(key, upload), Requirement::Present, Why::NoUpload);
        draft.use_ref(part.id);
        let expected = replaced.as_ref().map_or(Requirement::Absent, |part| Requirement::Exactly(part.encode()));
        draft.require(place.clone(), expected, Why::PartChanged);
        if let Some(replaced) = replaced {
            draft.drop_ref(replaced.id, Timestamp::now());
        }
        draft.put(place, part.encode());
        self.change_of([key], presented, Access::Claim, draft).await
    }

    /// A part of an upload.
    pub async fn part(&self, upload: UploadId, number: u16) -> Result<Option<PartRecord>, ReadError> {
        let found = self.record(&RecordKey::part(upload, number)).await?;
        Ok(found.as_ref().map(PartRecord::decode).transpose()?)
    }

    /// Removes parts of an upload that has ended; their bytes go to the collector.
    pub async fn forget_parts(&self, upload: UploadId, parts: Vec<(u16, PartRecord)>) -> Result<(), Failure> {
        let now = Timestamp::now();
        let mut draft = Draft::freeing();
        for (number, part) in parts {
            let record = RecordKey::part(upload, number);
            draft.require(record.clone(), Requirement::Exactly(part.encode()), Why::PartChanged);
            draft.delete(record);
            draft.drop_ref(part.id, now);
        }
        self.change(Vec::new(), draft).await.map(|_| ())
    }

    /// Ends an upload without an object, if the fence admits it.
    pub async fn abort_upload(
        &self,
        key: &Key,
        presented: Option<&Presented>,
        complete: Complete,
    ) -> Result<ObjectOutcome, Failure> {
        let mut draft = Draft::freeing();
        complete.into_draft(key, &mut draft);
        self.change_of([key], presented, Access::Claim, draft).await
    }

    /// Ends an upload without an object and without a judgement: for an upload whose holder was fenced off. `false`: it
    /// has already ended, or one of its parts was replaced.
    pub async fn end_upload(&self, key: &Key, complete: Complete) -> Result<bool, Failure> {
        let mut draft = Draft::freeing();
        complete.into_draft(key, &mut draft);
        Ok(matches!(self.change(Vec::new(), draft).await?, ObjectOutcome::Done(_)))
    }

    /// An upload, if it was begun and has not ended.
    pub async fn upload(&self, key: &Key, id: UploadId) -> Result<Option<Upload>, ReadError> {
        let found = self.record(&RecordKey::upload(key, id)).await?;
        let record = found.map(|bytes| UploadRecord::decode(&bytes)).transpose()?;
        Ok(record.map(|record| Upload { key: key.clone(), id, record }))
    }

    /// Uploads ordered by name, then by id.
    pub async fn uploads(
        &self,
        prefix: &str,
        after: Option<(&Key, Option<UploadId>)>,
        limit: usize,
    ) -> Result<Page<Upload>, ReadError> {
        // `\x01` sorts after every id of the key.
        let after = after.map(|(key, id)| id.map_or_else(|| format!("{key}\x01"), |id| format!("{key}\0{id}")));
        self.page(record::upload_prefix, prefix, after.as_deref(), limit, |name, found| {
            let malformed =
                || ReadError::Failed("a stored record cannot be read: an upload has a malformed name".into());
            let (key, id) = name.split_once('\0').ok_or_else(malformed)?;
            let key = Key::new(key).map_err(|_| malformed())?;
            let id = id.parse().map_err(|()| malformed())?;
            Ok(Upload { key, id, record: UploadRecord::decode(&found.bytes)? })
        })
        .await
    }

    /// The parts of all uploads, ordered by upload and number, after the given one.
    pub async fn all_parts(
        &self,
        after: Option<(UploadId, u16)>,
        limit: usize,
    ) -> Result<Page<(UploadId, u16, PartRecord)>, ReadError> {
        let after = after.map(|(upload, number)| format!("{upload}{number:05}"));
        self.page(record::part_prefix, "", after.as_deref(), limit, |name, found| {
            let parsed = name
                .split_at_checked(UploadId::TEXT)
                .and_then(|(upload, number)| Some((upload.parse().ok()?, number.parse().ok()?)));
            let (upload, number) = parsed
                .ok_or_else(|| ReadError::Failed("a stored record cannot be read: a part has no number".into()))?;
            Ok((upload, number, PartRecord::decode(&found.bytes)?))
        })
        .await
    }

    /// The parts of an upload, ordered by number, after the given one.
    pub async fn parts(
        &self,
        upload: UploadId,
        after: Option<u16>,
        limit: usize,
    ) -> Result<Page<(u16, PartRecord)>, ReadError> {
        let name = upload.to_string();
        let after = after.map(|number| format!("{name}{number:05}"));
        self.page(record::part_prefix, &name, after.as_deref(), limit, |found_name, found| {
            let number = found_name.get(name.len()..).and_then(|digits| digits.parse().ok());
            let number = number
                .ok_or_else(|| ReadError::Failed("a stored record cannot be read: a part has no number".into()))?;
            Ok((number, PartRecord::decode(&found.bytes)?))
        })
        .await
    }
}
