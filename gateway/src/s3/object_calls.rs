//! Calls about one object, or about several at once.

use fencepost_store::ObjectCondition;
use fencepost_store::record::ObjectRecord;
use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use super::attributes::{self, Said, etag, time};
use super::body;
use super::caller::{Caller, covers, may_read, object_name};
use super::conditions::{self, OfRead, Unmet};
use super::face::{Answer, Face, caller_of};
use super::refuse::{self, Unkept};
use crate::objects::{Algorithm, ObjectError, Put, Reading, Source};

/// The most objects that one request removes, as S3 has it.
const MAX_DELETES: usize = 1000;

impl Face {
    pub(super) async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let name = object_name(&request.input.bucket, &request.input.key)?;
        let presented = self.presented(&request, &name).await?;
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
        let put = Put { key: name, presented, condition, attributes: said.into_attributes()?, grant };
        let bytes = body::bytes(input.body);
        let written = self.objects.put(put, promised, bytes, body::trailer(trailing)).await;
        let written = written.map_err(|error| self.error(error))?;
        let sum = |algorithm: Algorithm| attributes::kept(&written.object.attributes, algorithm.header());
        let output = PutObjectOutput {
            e_tag: Some(etag(&written.object.etag)),
            checksum_crc32: sum(Algorithm::Crc32),
            checksum_crc32c: sum(Algorithm::Crc32c),
            checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
            checksum_sha1: sum(Algorithm::Sha1),
            checksum_sha256: sum(Algorithm::Sha256),
            ..PutObjectOutput::default()
        };
        Ok(self.applied(output, written.changed))
    }

    pub(super) async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = request.input;
        refuse::versions(input.version_id.as_deref())?;
        refuse::parts(input.part_number)?;
        let reading = self.reading(&input.bucket, &input.key).await?;
        let conditions = OfRead {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        conditions.hold(&reading.object, Unmet::NotModified)?;
        let (range, shown) = conditions::range(input.range.as_ref(), reading.object.size)?;
        let mut head = attributes::head(&reading.object, asked(input.checksum_mode.as_ref()) && shown.is_none());
        head.content_length = i64::try_from(range.end - range.start).ok();
        head.content_range = shown;
        let token = reading.object.token;
        let output =
            GetObjectOutput { body: Some(StreamingBlob::wrap(reading.stream(range))), ..attributes::get(head) };
        Ok(with_token(output, token))
    }

    pub(super) async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = request.input;
        refuse::versions(input.version_id.as_deref())?;
        refuse::parts(input.part_number)?;
        let name = object_name(&input.bucket, &input.key)?;
        let object = match self.objects.head(&name).await {
            Ok(object) => object,
            Err(error) => return Err(self.absent(&input.bucket, error).await),
        };
        let conditions = OfRead {
            if_match: input.if_match,
            if_none_match: input.if_none_match,
            if_modified_since: input.if_modified_since,
            if_unmodified_since: input.if_unmodified_since,
        };
        conditions.hold(&object, Unmet::NotModified)?;
        let (range, shown) = conditions::range(input.range.as_ref(), object.size)?;
        let mut head = attributes::head(&object, asked(input.checksum_mode.as_ref()) && shown.is_none());
        head.content_length = i64::try_from(range.end - range.start).ok();
        head.content_range = shown;
        Ok(with_token(head, object.token))
    }

    pub(super) async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let name = object_name(&request.input.bucket, &request.input.key)?;
        let presented = self.presented(&request, &name).await?;
        let input = request.input;
        refuse::versions(input.version_id.as_deref())?;
        if input.if_match_last_modified_time.is_some() || input.if_match_size.is_some() {
            return Err(s3_error!(NotImplemented, "A delete on condition takes If-Match only."));
        }
        let condition = conditions::of_write(input.if_match, None)?;
        let deleted = self.objects.delete(presented, vec![(name, condition)]).await;
        let changed = deleted.map_err(|error| self.error(error))?;
        Ok(self.applied(DeleteObjectOutput::default(), changed))
    }

    /// Refused whole: one key that may not be removed, and none is.
    pub(super) async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        let caller = caller_of(&request)?;
        body::arrived_whole(&request)?.map_err(|error| self.error(error))?;
        let wanted = &request.input.delete.objects;
        if wanted.is_empty() || wanted.len() > MAX_DELETES {
            return Err(s3_error!(MalformedXML, "One request removes from 1 to {MAX_DELETES} objects."));
        }
        let mut names = Vec::with_capacity(wanted.len());
        for object in wanted {
            refuse::versions(object.version_id.as_deref())?;
            let name = object_name(&request.input.bucket, &object.key)?;
            covers(&self.objects, caller, &name)?;
            let condition = match &object.e_tag {
                Some(etag) => ObjectCondition::ETag(etag.value().to_owned()),
                None => ObjectCondition::Always,
            };
            if names.iter().all(|(known, _)| *known != name) {
                names.push((name, condition));
            }
        }
        let Some((first, _)) = names.first() else { return Err(s3_error!(MalformedXML)) };
        let presented = self.presented(&request, first).await?;
        let deleted = self.objects.delete(presented, names).await;
        let changed = deleted.map_err(|error| self.error(error))?;
        let quiet = request.input.delete.quiet.unwrap_or(false);
        let told = |object: ObjectIdentifier| DeletedObject { key: Some(object.key), ..DeletedObject::default() };
        let deleted = (!quiet).then(|| request.input.delete.objects.into_iter().map(told).collect());
        Ok(self.applied(DeleteObjectsOutput { deleted, ..DeleteObjectsOutput::default() }, changed))
    }

    pub(super) async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        let name = object_name(&request.input.bucket, &request.input.key)?;
        let presented = self.presented(&request, &name).await?;
        let (grant, caller) = (self.grant(&request)?, caller_of(&request)?.clone());
        refuse::unkept(&Unkept::from(&request.input))?;
        let condition = conditions::of_headers(&request.headers)?;
        let input = request.input;
        let conditions = OfRead {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        let (source, source_name) = self.source(&caller, &input.copy_source, &conditions).await?;
        let replaces =
            input.metadata_directive.is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        if !replaces && source_name == name {
            return Err(s3_error!(
                InvalidRequest,
                "A copy of an object onto itself changes nothing unless its metadata are replaced."
            ));
        }
        let attributes = match replaces {
            false => attributes::described(&source.object.attributes),
            true => Said {
                content_type: input.content_type,
                cache_control: input.cache_control,
                content_disposition: input.content_disposition,
                content_encoding: input.content_encoding,
                content_language: input.content_language,
                expires: input.expires,
                website_redirect_location: input.website_redirect_location,
                metadata: input.metadata,
            }
            .into_attributes()?,
        };
        if source.object.size > body::MAX_PIECE_BYTES {
            return Err(s3_error!(InvalidRequest, "An object of more than 5 GiB is copied in parts."));
        }
        let put = Put { key: name, presented, condition, attributes, grant };
        let range = 0..source.object.size;
        let written = self.objects.copy(put, Source { reading: source, range }).await;
        let written = written.map_err(|error| self.error(error))?;
        let result = CopyObjectResult {
            e_tag: Some(etag(&written.object.etag)),
            last_modified: Some(time(written.object.modified)),
            ..CopyObjectResult::default()
        };
        let output = CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() };
        Ok(self.applied(output, written.changed))
    }

    pub(super) async fn get_object_acl(&self, request: S3Request<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
        let name = object_name(&request.input.bucket, &request.input.key)?;
        self.objects.head(&name).await.map_err(|error| self.error(error))?;
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
        let name = object_name(&request.input.bucket, &request.input.key)?;
        self.objects.head(&name).await.map_err(|error| self.error(error))?;
        Ok(S3Response::new(GetObjectTaggingOutput { tag_set: Vec::new(), ..GetObjectTaggingOutput::default() }))
    }

    async fn reading(&self, bucket: &str, key: &str) -> S3Result<Reading> {
        let name = object_name(bucket, key)?;
        match self.objects.read(&name).await {
            Ok(reading) => Ok(reading),
            Err(error) => Err(self.absent(bucket, error).await),
        }
    }

    /// Tells an absent bucket from an absent object.
    async fn absent(&self, bucket: &str, error: ObjectError) -> s3s::S3Error {
        if let ObjectError::NoObject(_) = error
            && let Err(no_bucket) = self.objects.need_bucket(bucket).await
        {
            return self.error(no_bucket);
        }
        self.error(error)
    }

    /// The source of a copy, opened as it is now.
    pub(super) async fn source(
        &self,
        caller: &Caller,
        source: &CopySource,
        conditions: &OfRead,
    ) -> S3Result<(Reading, fencepost_core::Key)> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "A copy comes from a bucket of this gateway."));
        };
        refuse::versions(version_id.as_deref())?;
        let name = object_name(bucket, key)?;
        may_read(self, caller, &name)?;
        let reading = self.reading(bucket, key).await?;
        conditions.hold(&reading.object, Unmet::Failed)?;
        Ok((reading, name))
    }
}

fn asked(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// An answer that tells the token of the write that made the object.
fn with_token<T>(output: T, token: Option<fencepost_core::Token>) -> S3Response<T> {
    let mut answer = S3Response::new(output);
    if let Some(token) = token.and_then(|token| token.to_string().try_into().ok()) {
        answer.headers.insert("fencing-token", token);
    }
    answer
}

/// An entry of a list.
pub(super) fn listed(key: String, object: &ObjectRecord) -> Object {
    Object {
        key: Some(key),
        e_tag: Some(etag(&object.etag)),
        last_modified: Some(time(object.modified)),
        size: i64::try_from(object.size).ok(),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..Object::default()
    }
}
