//! Calls about one object: writing, reading and describing it.

use fencepost_core::Token;
use fencepost_objects::{
    Algorithm, Body, Composition, Object as Stored, ObjectCondition, ObjectError, OpenObject, Put,
};
use s3s::dto::*;
use s3s::{S3Error, S3Response, S3Result};

use super::attributes::{self, checksum_type, etag, said, time};
use super::body;
use super::calls::{Answer, Calls};
use super::conditions::{self, OfRead, Unmet};
use super::errors;
use super::names::{Named, Target};
use super::permit::Call;
use super::refuse::{self, Unkept};
use super::upload_calls::limit;

impl Calls {
    /// A PUT, from its checked caller to its answer.
    pub(super) async fn put_object(&self, call: Call<PutObjectInput>) -> Answer<PutObjectOutput> {
        let Call { caller, mut input, headers, trailing_headers, .. } = call;
        // The target of the write, and the token presented for it.
        let (target, presented) = self.target(&caller, &input.bucket, &input.key).await?;
        // Refuse what would not be stored, before any of the body is read.
        refuse::unkept(&Unkept::from(&input))?;
        // What the body must match, the condition of the write, and the metadata.
        let promised = body::promised_of_put(&headers, &mut input)?;
        let bytes = body::bytes(input.body.take());
        let condition = conditions::of_write(input.if_match.take(), input.if_none_match.take())?;
        let attributes = said!(input).into_attributes()?;
        let (key, grant) = (target.name().clone(), caller.grant().clone());
        let put = Put { key, presented, condition: condition.clone(), attributes, grant };
        let body = Body { promised, bytes, trailer: body::trailer(trailing_headers) };
        // Foresee, stage, commit, show: see `Objects::put`. A folder marker has no bytes to stage and show.
        let written = match &target {
            Target::Object(_) => self.objects.put(put, body).await,
            Target::Folder(_) => self.objects.put_folder(put, body).await,
        };
        match written {
            Ok(written) => Ok(self.applied(put_output(&written.object), &written.changed)),
            Err(error) => Err(self.unmet(error, &condition, &target).await),
        }
    }

    pub(super) async fn get_object(&self, call: Call<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = call.input;
        refuse::versions(input.version_id.as_deref())?;
        let reading = self.reading(&input.bucket, &input.key).await?;
        let conditions = OfRead {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        conditions.hold(&reading.object, Unmet::NotModified)?;
        let wanted = conditions::wanted(input.range.as_ref(), input.part_number, &reading.object)?;
        let head = headers(&reading.object, &wanted, input.checksum_mode.as_ref());
        let token = reading.object.token;
        let output =
            GetObjectOutput { body: Some(StreamingBlob::wrap(reading.stream(wanted.range))), ..attributes::get(head) };
        Ok(with_token(output, token))
    }

    pub(super) async fn head_object(&self, call: Call<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = call.input;
        refuse::versions(input.version_id.as_deref())?;
        let object = self.record(&input.bucket, &input.key).await?;
        let conditions = OfRead {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        conditions.hold(&object, Unmet::NotModified)?;
        let wanted = conditions::wanted(input.range.as_ref(), input.part_number, &object)?;
        let head = headers(&object, &wanted, input.checksum_mode.as_ref());
        Ok(with_token(head, object.token))
    }

    pub(super) async fn get_object_attributes(
        &self,
        call: Call<GetObjectAttributesInput>,
    ) -> Answer<GetObjectAttributesOutput> {
        let input = call.input;
        refuse::versions(input.version_id.as_deref())?;
        let object = self.record(&input.bucket, &input.key).await?;
        // The S3 library does not split several values in one header.
        let asked = |name: &str| {
            let mut given = input.object_attributes.iter().flat_map(|given| given.as_str().split(','));
            given.any(|given| given.trim() == name)
        };
        let after = input.part_number_marker.unwrap_or(0);
        let most = limit(input.max_parts, "x-amz-max-parts")?;
        let output = GetObjectAttributesOutput {
            checksum: asked(ObjectAttributes::CHECKSUM).then(|| attributes::checksum(&object.attributes)).flatten(),
            e_tag: asked(ObjectAttributes::ETAG).then(|| etag(&object.etag)),
            last_modified: Some(time(object.modified)),
            object_parts: asked(ObjectAttributes::OBJECT_PARTS).then(|| parts(&object, after, most)).flatten(),
            object_size: asked(ObjectAttributes::OBJECT_SIZE).then(|| i64::try_from(object.size).ok()).flatten(),
            storage_class: asked(ObjectAttributes::STORAGE_CLASS)
                .then(|| StorageClass::from_static(StorageClass::STANDARD)),
            ..GetObjectAttributesOutput::default()
        };
        Ok(with_token(output, object.token))
    }

    pub(super) async fn get_object_acl(&self, call: Call<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
        self.record(&call.input.bucket, &call.input.key).await?;
        let (owner, grants) = refuse::everything_is_ours();
        Ok(S3Response::new(GetObjectAclOutput {
            owner: Some(owner),
            grants: Some(grants),
            ..GetObjectAclOutput::default()
        }))
    }

    /// Always empty: objects have no tags.
    pub(super) async fn get_object_tagging(&self, call: Call<GetObjectTaggingInput>) -> Answer<GetObjectTaggingOutput> {
        self.record(&call.input.bucket, &call.input.key).await?;
        Ok(S3Response::new(GetObjectTaggingOutput { tag_set: Vec::new(), ..GetObjectTaggingOutput::default() }))
    }

    /// The index entry of an object or a folder marker. A name that cannot exist is absent.
    async fn record(&self, bucket: &str, key: &str) -> S3Result<Stored> {
        let found = match Named::new(bucket, key)? {
            Named::Object(name) => self.objects.head(&name).await,
            Named::Folder(folder) => self.objects.folder(&folder).await,
            Named::Impossible(_) => Err(no_object(bucket, key)),
        };
        match found {
            Ok(object) => Ok(object),
            Err(error) => Err(self.absent(bucket, error).await),
        }
    }

    /// Like [`Calls::record`], opened for reading.
    pub(super) async fn reading(&self, bucket: &str, key: &str) -> S3Result<OpenObject> {
        let opened = match Named::new(bucket, key)? {
            Named::Object(name) => self.objects.read(&name).await,
            Named::Folder(folder) => self.objects.read_folder(&folder).await,
            Named::Impossible(_) => Err(no_object(bucket, key)),
        };
        match opened {
            Ok(reading) => Ok(reading),
            Err(error) => Err(self.absent(bucket, error).await),
        }
    }

    /// Distinguishes an absent bucket from an absent object.
    async fn absent(&self, bucket: &str, error: ObjectError) -> S3Error {
        if let ObjectError::NoObject(_) = error
            && let Err(no_bucket) = self.objects.need_bucket(bucket).await
        {
            return self.error(no_bucket);
        }
        self.error(error)
    }

    /// The error of a write. If its condition requires an object that is absent, the answer is 404, as for a read.
    pub(super) async fn unmet(&self, error: ObjectError, condition: &ObjectCondition, target: &Target) -> S3Error {
        let wants_one = matches!(condition, ObjectCondition::Exists | ObjectCondition::ETag(_));
        if let ObjectError::ConditionFailed { fence } = error
            && wants_one
        {
            let found = match target {
                Target::Object(name) => self.objects.head(name).await,
                Target::Folder(folder) => self.objects.folder(folder).await,
            };
            if let Err(absent @ ObjectError::NoObject(_)) = found {
                // Count it as the failed condition that it is.
                let _ = self.error(error);
                return errors::with_fence(errors::s3_error(absent), fence);
            }
        }
        self.error(error)
    }
}

/// The answer to the writer of an object.
fn put_output(object: &Stored) -> PutObjectOutput {
    let sum = |algorithm: Algorithm| attributes::kept(&object.attributes, algorithm.header());
    PutObjectOutput {
        e_tag: Some(etag(&object.etag)),
        checksum_crc32: sum(Algorithm::Crc32),
        checksum_crc32c: sum(Algorithm::Crc32c),
        checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
        checksum_sha1: sum(Algorithm::Sha1),
        checksum_sha256: sum(Algorithm::Sha256),
        checksum_type: checksum_type(&object.attributes),
        ..PutObjectOutput::default()
    }
}

fn no_object(bucket: &str, key: &str) -> ObjectError {
    let shown: String = key.chars().take(100).flat_map(char::escape_debug).collect();
    ObjectError::NoObject(format!("{bucket}/{shown}"))
}

/// The description of an object in an answer with these bytes. The checksums are those of the whole object.
fn headers(object: &Stored, wanted: &conditions::Bytes, mode: Option<&ChecksumMode>) -> HeadObjectOutput {
    let asked = mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED);
    let mut head = attributes::head(object, asked && wanted.shown.is_none());
    head.content_length = i64::try_from(wanted.range.end - wanted.range.start).ok();
    head.content_range.clone_from(&wanted.shown);
    head.parts_count = wanted.parts_count;
    head
}

/// The parts of an object that was uploaded in parts, after a part number.
fn parts(object: &Stored, after: i32, most: usize) -> Option<GetObjectAttributesParts> {
    let Composition::Parts(sizes) = Composition::of(object) else { return None };
    let numbered = (1..).zip(&sizes).filter(|(number, _)| *number > after);
    let shown: Vec<ObjectPart> = numbered
        .take(most)
        .map(|(number, size)| ObjectPart {
            part_number: Some(number),
            size: i64::try_from(*size).ok(),
            ..ObjectPart::default()
        })
        .collect();
    let last = shown.last().and_then(|part| part.part_number);
    let total = i32::try_from(sizes.len()).ok();
    Some(GetObjectAttributesParts {
        is_truncated: Some(last.is_some() && last != total),
        max_parts: i32::try_from(most).ok(),
        next_part_number_marker: last,
        part_number_marker: Some(after),
        parts: Some(shown),
        total_parts_count: total,
    })
}

/// Adds the token of the write that made the object to an answer.
fn with_token<T>(output: T, token: Option<Token>) -> S3Response<T> {
    let mut answer = S3Response::new(output);
    if let Some(token) = token.and_then(|token| token.to_string().try_into().ok()) {
        answer.headers.insert("fencing-token", token);
    }
    answer
}

/// An entry of a listing.
pub(super) fn listed(key: String, object: &Stored, owner: Option<Owner>) -> Object {
    Object {
        key: Some(key),
        e_tag: Some(etag(&object.etag)),
        last_modified: Some(time(object.modified)),
        size: i64::try_from(object.size).ok(),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        owner,
        checksum_algorithm: attributes::checksum_algorithms(&object.attributes),
        checksum_type: checksum_type(&object.attributes),
        ..Object::default()
    }
}

/// The only version of an object, as an entry of a listing.
pub(super) fn version(key: String, object: &Stored, owner: Option<Owner>) -> ObjectVersion {
    ObjectVersion {
        key: Some(key),
        version_id: Some(refuse::ONLY_VERSION.to_owned()),
        is_latest: Some(true),
        e_tag: Some(etag(&object.etag)),
        last_modified: Some(time(object.modified)),
        size: i64::try_from(object.size).ok(),
        storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
        owner,
        checksum_algorithm: attributes::checksum_algorithms(&object.attributes),
        checksum_type: checksum_type(&object.attributes),
        ..ObjectVersion::default()
    }
}
