//! Calls about one object: writing, reading, and its description.

use fencepost_core::{Key, Token};
use fencepost_objects::{
    Algorithm, Body, Composition, Object as Stored, ObjectCondition, ObjectError, OpenObject, Put,
};
use s3s::dto::*;
use s3s::{S3Error, S3Request, S3Response, S3Result};

use super::attributes::{self, Said, checksum_type, etag, time};
use super::body;
use super::calls::{Answer, Calls};
use super::conditions::{self, OfRead, Unmet};
use super::errors;
use super::names::{Named, Target};
use super::refuse::{self, Unkept};
use super::upload_calls::limit;

impl Calls {
    pub(super) async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let (target, presented) = self.target(&request, &request.input.bucket, &request.input.key).await?;
        let grant = self.grant(&request)?;
        refuse::unkept(&Unkept::from(&request.input))?;
        let trailing = request.trailing_headers.take();
        let input = request.input;
        let checksums = body::checksums([
            input.checksum_crc32,
            input.checksum_crc32c,
            input.checksum_crc64nvme,
            input.checksum_sha1,
            input.checksum_sha256,
        ]);
        let promised = body::promised(&request.headers, input.content_length, input.content_md5, checksums)?;
        let said = Said {
            content_type: input.content_type,
            cache_control: input.cache_control,
            content_disposition: input.content_disposition,
            content_encoding: input.content_encoding,
            content_language: input.content_language,
            expires: input.expires,
            website_redirect_location: input.website_redirect_location,
            metadata: input.metadata,
        };
        let condition = conditions::of_write(input.if_match, input.if_none_match)?;
        let attributes = said.into_attributes()?;
        let put = |key: &Key| Put { key: key.clone(), presented, condition: condition.clone(), attributes, grant };
        let body = Body { promised, bytes: body::bytes(input.body), trailer: body::trailer(trailing) };
        let written = match &target {
            Target::Object(key) => self.objects.put(put(key), body).await,
            Target::Folder(folder) => self.objects.put_folder(put(folder), body).await,
        };
        let written = match written {
            Ok(written) => written,
            Err(error) => return Err(self.unmet(error, &condition, &target).await),
        };
        let sum = |algorithm: Algorithm| attributes::kept(&written.object.attributes, algorithm.header());
        let output = PutObjectOutput {
            e_tag: Some(etag(&written.object.etag)),
            checksum_crc32: sum(Algorithm::Crc32),
            checksum_crc32c: sum(Algorithm::Crc32c),
            checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
            checksum_sha1: sum(Algorithm::Sha1),
            checksum_sha256: sum(Algorithm::Sha256),
            checksum_type: checksum_type(&written.object.attributes),
            ..PutObjectOutput::default()
        };
        Ok(self.applied(output, written.changed))
    }

    pub(super) async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = request.input;
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

    pub(super) async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = request.input;
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
        request: S3Request<GetObjectAttributesInput>,
    ) -> Answer<GetObjectAttributesOutput> {
        let input = request.input;
        refuse::versions(input.version_id.as_deref())?;
        let object = self.record(&input.bucket, &input.key).await?;
        // Several in one header are not taken apart by the S3 library.
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

    pub(super) async fn get_object_acl(&self, request: S3Request<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
        self.record(&request.input.bucket, &request.input.key).await?;
        let (owner, grants) = refuse::everything_is_ours();
        Ok(S3Response::new(GetObjectAclOutput {
            owner: Some(owner),
            grants: Some(grants),
            ..GetObjectAclOutput::default()
        }))
    }

    /// No object has tags.
    pub(super) async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> Answer<GetObjectTaggingOutput> {
        self.record(&request.input.bucket, &request.input.key).await?;
        Ok(S3Response::new(GetObjectTaggingOutput { tag_set: Vec::new(), ..GetObjectTaggingOutput::default() }))
    }

    /// What the index says of an object or a folder marker. What cannot exist is not there.
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

    /// The same, opened.
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

    /// Tells an absent bucket from an absent object.
    async fn absent(&self, bucket: &str, error: ObjectError) -> S3Error {
        if let ObjectError::NoObject(_) = error
            && let Err(no_bucket) = self.objects.need_bucket(bucket).await
        {
            return self.error(no_bucket);
        }
        self.error(error)
    }

    /// The error of a write. A condition on an object that is not there is answered like a read of it: 404.
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
                // Counted as what it is.
                let _ = self.error(error);
                return errors::with_fence(errors::s3_error(absent), fence);
            }
        }
        self.error(error)
    }
}

fn no_object(bucket: &str, key: &str) -> ObjectError {
    let shown: String = key.chars().take(100).flat_map(char::escape_debug).collect();
    ObjectError::NoObject(format!("{bucket}/{shown}"))
}

/// The description of an object in an answer with these bytes of it. Checksums are those of the whole.
fn headers(object: &Stored, wanted: &conditions::Bytes, mode: Option<&ChecksumMode>) -> HeadObjectOutput {
    let asked = mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED);
    let mut head = attributes::head(object, asked && wanted.shown.is_none());
    head.content_length = i64::try_from(wanted.range.end - wanted.range.start).ok();
    head.content_range.clone_from(&wanted.shown);
    head.parts_count = wanted.parts_count;
    head
}

/// The parts of an object that was uploaded in parts, after one.
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

/// An answer that tells the token of the write that made the object.
fn with_token<T>(output: T, token: Option<Token>) -> S3Response<T> {
    let mut answer = S3Response::new(output);
    if let Some(token) = token.and_then(|token| token.to_string().try_into().ok()) {
        answer.headers.insert("fencing-token", token);
    }
    answer
}

/// An entry of a list.
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

/// The only version of an object.
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
