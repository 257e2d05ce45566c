//! Calls about multipart uploads.

use std::time::Duration;

use fencepost_core::Key;
use fencepost_objects::{
    Algorithm, Body, ChecksumKind, Completion, GivenPart, Part as Stored, Promised, PutPart, UploadChecksum, UploadId,
    tellable,
};
use s3s::dto::*;
use s3s::{S3Error, S3Response, S3Result, s3_error};

use super::attributes::{self, checksum_type, etag, said, time};
use super::body;
use super::caller::{Caller, object_name};
use super::calls::{Answer, Calls};
use super::conditions::{self, OfRead};
use super::names::{Named, Target};
use super::permit::{Call, Permitted};
use super::refuse::{self, Unkept};

/// The highest part number; the lowest is 1.
const MAX_PART_NUMBER: i32 = 10_000;

/// The largest object, as in S3.
const MAX_OBJECT_BYTES: u64 = 5 << 40;

/// How long the answer to a completion is held back. A completion that ends sooner is answered with its own status. A
/// slower one gets status 200, with any error in the body. S3 does the same, and its clients expect it.
const SILENCE: Duration = Duration::from_secs(10);

/// The default and largest number of entries in a listing.
const MAX_LISTED: i32 = 1000;

impl Calls {
    pub(super) async fn create_multipart_upload(
        &self,
        call: Call<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let (name, presented) = self.uploaded(&call.caller, &call.input.bucket, &call.input.key).await?;
        refuse::unkept(&Unkept::from(&call.input))?;
        let input = call.input;
        let said = said!(input);
        let checksum = checksum(input.checksum_algorithm.as_ref(), input.checksum_type.as_ref())?;
        let mut attributes = said.into_attributes()?;
        if let Some(checksum) = checksum {
            checksum.keep(&mut attributes);
        }
        let begun = self.objects.begin_upload(&name, presented.as_ref(), attributes).await;
        let (id, changed) = begun.map_err(|error| self.error(error))?;
        self.judged(&changed);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id.to_string()),
            checksum_algorithm: input.checksum_algorithm,
            checksum_type: checksum.map(|checksum| ChecksumType::from_static(kind_name(checksum.kind))),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    /// The part that a call writes.
    async fn part_to_put(
        &self,
        caller: &Permitted<Caller>,
        (bucket, key): (&str, &str),
        id: &str,
        given: i32,
    ) -> S3Result<PutPart> {
        let (key, presented) = self.uploaded(caller, bucket, key).await?;
        let (upload, number) = (upload(id)?, number(given)?);
        Ok(PutPart { key, presented, upload, number, grant: caller.grant().clone() })
    }

    pub(super) async fn upload_part(&self, mut call: Call<UploadPartInput>) -> Answer<UploadPartOutput> {
        let name = (call.input.bucket.as_str(), call.input.key.as_str());
        let part = self.part_to_put(&call.caller, name, &call.input.upload_id, call.input.part_number).await?;
        let trailing = call.trailing_headers.take();
        let input = call.input;
        let checksums = body::checksums([
            input.checksum_crc32,
            input.checksum_crc32c,
            input.checksum_crc64nvme,
            input.checksum_sha1,
            input.checksum_sha256,
        ]);
        let promised = body::promised(&call.headers, input.content_length, input.content_md5, checksums)?;
        let body = Body { promised, bytes: body::bytes(input.body), trailer: body::trailer(trailing) };
        let part = self.objects.put_part(part, body).await;
        let (part, changed) = part.map_err(|error| self.error(error))?;
        self.judged(&changed);
        let sum = |algorithm: Algorithm| attributes::kept(&part.attributes, algorithm.header());
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(etag(&part.etag)),
            checksum_crc32: sum(Algorithm::Crc32),
            checksum_crc32c: sum(Algorithm::Crc32c),
            checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
            checksum_sha1: sum(Algorithm::Sha1),
            checksum_sha256: sum(Algorithm::Sha256),
            ..UploadPartOutput::default()
        }))
    }

    pub(super) async fn upload_part_copy(&self, call: Call<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        let name = (call.input.bucket.as_str(), call.input.key.as_str());
        let part = self.part_to_put(&call.caller, name, &call.input.upload_id, call.input.part_number).await?;
        let input = call.input;
        let conditions = OfRead {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        let reading = self.source(&call.caller, &input.copy_source, &conditions).await?;
        let range = conditions::source_range(input.copy_source_range.as_deref(), reading.object.size)?;
        let part = self.objects.copy_part(part, reading, range).await;
        let (part, changed) = part.map_err(|error| self.error(error))?;
        self.judged(&changed);
        let sum = |algorithm: Algorithm| attributes::kept(&part.attributes, algorithm.header());
        let result = CopyPartResult {
            e_tag: Some(etag(&part.etag)),
            last_modified: Some(time(part.modified)),
            checksum_crc32: sum(Algorithm::Crc32),
            checksum_crc32c: sum(Algorithm::Crc32c),
            checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
            checksum_sha1: sum(Algorithm::Sha1),
            checksum_sha256: sum(Algorithm::Sha256),
        };
        Ok(S3Response::new(UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() }))
    }

    pub(super) async fn complete_multipart_upload(
        &self,
        call: Call<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let (name, presented) = self.uploaded(&call.caller, &call.input.bucket, &call.input.key).await?;
        let grant = call.caller.grant().clone();
        let input = call.input;
        let mut parts = Vec::new();
        for part in input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default() {
            let checksums = body::checksums([
                part.checksum_crc32,
                part.checksum_crc32c,
                part.checksum_crc64nvme,
                part.checksum_sha1,
                part.checksum_sha256,
            ]);
            let given = part.part_number.ok_or_else(|| s3_error!(MalformedXML, "A part has no PartNumber."))?;
            parts.push(GivenPart { number: number(given)?, etag: part.e_tag.map(|etag| etag.into_value()), checksums });
        }
        let whole = body::checksums([
            input.checksum_crc32,
            input.checksum_crc32c,
            input.checksum_crc64nvme,
            input.checksum_sha1,
            input.checksum_sha256,
        ]);
        let (composite, whole) = whole.into_iter().partition(|(_, sum)| sum.contains('-'));
        let length = input.mpu_object_size.map(u64::try_from).transpose().map_err(|_| s3_error!(InvalidArgument))?;
        let condition = conditions::of_write(input.if_match, input.if_none_match)?;
        let target = Target::Object(name.clone());
        let completion = Completion {
            key: name,
            presented,
            condition: condition.clone(),
            upload: upload(&input.upload_id)?,
            parts,
            promised: Promised { length, checksums: whole, limit: MAX_OBJECT_BYTES, ..Promised::default() },
            composite,
            grant,
        };
        let calls = self.clone();
        let mut completing = Box::pin(async move {
            let written = match calls.objects.complete(completion).await {
                Ok(written) => written,
                Err(error) => return Err(calls.unmet(error, &condition, &target).await),
            };
            let sum = |algorithm: Algorithm| attributes::kept(&written.object.attributes, algorithm.header());
            let output = CompleteMultipartUploadOutput {
                location: Some(format!("/{}/{}", input.bucket, input.key)),
                bucket: Some(input.bucket),
                key: Some(input.key),
                e_tag: Some(etag(&written.object.etag)),
                checksum_crc32: sum(Algorithm::Crc32),
                checksum_crc32c: sum(Algorithm::Crc32c),
                checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
                checksum_sha1: sum(Algorithm::Sha1),
                checksum_sha256: sum(Algorithm::Sha256),
                checksum_type: checksum_type(&written.object.attributes),
                ..CompleteMultipartUploadOutput::default()
            };
            Ok(calls.applied(output, &written.changed))
        });
        match tokio::time::timeout(SILENCE, &mut completing).await {
            Ok(answer) => answer,
            // Send the status now, and a space from time to time, so that the client keeps waiting.
            Err(_) => Ok(S3Response::new(CompleteMultipartUploadOutput {
                future: Some(Box::pin(async move { completing.await.map(|answer| answer.output) })),
                ..CompleteMultipartUploadOutput::default()
            })),
        }
    }

    pub(super) async fn abort_multipart_upload(
        &self,
        call: Call<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let (name, presented) = self.uploaded(&call.caller, &call.input.bucket, &call.input.key).await?;
        let id = upload(&call.input.upload_id)?;
        let aborted = self.objects.abort(&name, presented.as_ref(), id).await;
        self.judged(&aborted.map_err(|error| self.error(error))?);
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    pub(super) async fn list_parts(&self, call: Call<ListPartsInput>) -> Answer<ListPartsOutput> {
        let input = call.input;
        // A name that cannot exist has no uploads.
        let Named::Object(name) = Named::new(&input.bucket, &input.key)? else { return Err(no_upload()) };
        let id = upload(&input.upload_id)?;
        self.objects.need_upload(&name, id).await.map_err(|error| self.error(error))?;
        let after = input.part_number_marker.map(u16::try_from).transpose();
        let after = after.map_err(|_| s3_error!(InvalidArgument, "part-number-marker is no number of a part."))?;
        let most = limit(input.max_parts, "max-parts")?;
        let page = self.objects.parts(id, after, most).await.map_err(|error| self.error(error))?;
        let (owner, _) = refuse::everything_is_ours();
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            is_truncated: Some(page.next.is_some()),
            next_part_number_marker: page.entries.last().map(|part| i32::from(part.number)),
            part_number_marker: input.part_number_marker,
            max_parts: i32::try_from(most).ok(),
            parts: Some(page.entries.iter().map(part).collect()),
            owner: Some(owner),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            ..ListPartsOutput::default()
        }))
    }

    pub(super) async fn list_multipart_uploads(
        &self,
        call: Call<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        let input = call.input;
        self.objects.need_bucket(&input.bucket).await.map_err(|error| self.error(error))?;
        if input.delimiter.as_ref().is_some_and(|delimiter| !delimiter.is_empty()) {
            return Err(s3_error!(NotImplemented, "Uploads are listed without a delimiter."));
        }
        for asked in [&input.prefix, &input.key_marker, &input.upload_id_marker].into_iter().flatten() {
            if !tellable(asked) {
                return Err(s3_error!(InvalidArgument, "A question cannot have characters that XML does not allow."));
            }
        }
        let prefix = format!("{}/{}", input.bucket, input.prefix.as_deref().unwrap_or_default());
        let marker = match input.key_marker.as_deref() {
            None | Some("") => None,
            Some(key) => Some(object_name(&input.bucket, key)?),
        };
        let id = match input.upload_id_marker.as_deref() {
            None | Some("") => None,
            Some(id) => Some(upload(id)?),
        };
        let after = marker.as_ref().map(|key: &Key| (key, id));
        let most = limit(input.max_uploads, "max-uploads")?;
        let page = self.objects.uploads(&prefix, after, most).await.map_err(|error| self.error(error))?;
        let key_of = |key: &Key| key.as_str()[input.bucket.len() + 1..].to_owned();
        let last = page.next.is_some().then(|| page.entries.last()).flatten();
        Ok(S3Response::new(ListMultipartUploadsOutput {
            is_truncated: Some(page.next.is_some()),
            next_key_marker: last.map(|upload| key_of(&upload.key)),
            next_upload_id_marker: last.map(|upload| upload.id.to_string()),
            uploads: Some(
                page.entries
                    .iter()
                    .map(|upload| MultipartUpload {
                        key: Some(key_of(&upload.key)),
                        upload_id: Some(upload.id.to_string()),
                        initiated: Some(time(upload.started)),
                        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                        ..MultipartUpload::default()
                    })
                    .collect(),
            ),
            bucket: Some(input.bucket.clone()),
            key_marker: input.key_marker,
            upload_id_marker: input.upload_id_marker,
            max_uploads: i32::try_from(most).ok(),
            prefix: input.prefix,
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

fn part(part: &Stored) -> Part {
    let sum = |algorithm: Algorithm| attributes::kept(&part.attributes, algorithm.header());
    Part {
        part_number: Some(i32::from(part.number)),
        e_tag: Some(etag(&part.etag)),
        last_modified: Some(time(part.modified)),
        size: i64::try_from(part.size).ok(),
        checksum_crc32: sum(Algorithm::Crc32),
        checksum_crc32c: sum(Algorithm::Crc32c),
        checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
        checksum_sha1: sum(Algorithm::Sha1),
        checksum_sha256: sum(Algorithm::Sha256),
    }
}

fn upload(id: &str) -> S3Result<UploadId> {
    id.parse().map_err(|()| no_upload())
}

fn no_upload() -> S3Error {
    s3_error!(NoSuchUpload, "There is no such upload.")
}

/// The checksum of a new upload, if one is requested. The default kind is that of S3.
fn checksum(asked: Option<&ChecksumAlgorithm>, kind: Option<&ChecksumType>) -> S3Result<Option<UploadChecksum>> {
    let Some(asked) = asked else { return Ok(None) };
    let Some(algorithm) = Algorithm::named(asked.as_str()) else {
        return Err(s3_error!(InvalidRequest, "x-amz-checksum-algorithm is none of those that S3 has."));
    };
    let kind = match kind.map(ChecksumType::as_str) {
        None if algorithm == Algorithm::Crc64Nvme => ChecksumKind::FullObject,
        None | Some(ChecksumType::COMPOSITE) => ChecksumKind::Composite,
        Some(ChecksumType::FULL_OBJECT) => ChecksumKind::FullObject,
        Some(_) => return Err(s3_error!(InvalidRequest, "x-amz-checksum-type is COMPOSITE or FULL_OBJECT.")),
    };
    match (algorithm, kind) {
        (Algorithm::Sha1 | Algorithm::Sha256, ChecksumKind::FullObject)
        | (Algorithm::Crc64Nvme, ChecksumKind::Composite) => Err(s3_error!(
            InvalidRequest,
            "The checksum type {} cannot be used with {}.",
            kind_name(kind),
            algorithm.name()
        )),
        _ => Ok(Some(UploadChecksum { algorithm, kind })),
    }
}

fn kind_name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Composite => ChecksumType::COMPOSITE,
        ChecksumKind::FullObject => ChecksumType::FULL_OBJECT,
    }
}

fn number(number: i32) -> S3Result<u16> {
    match u16::try_from(number) {
        Ok(small) if (1..=MAX_PART_NUMBER).contains(&number) => Ok(small),
        _ => Err(s3_error!(InvalidArgument, "Parts are numbered from 1 to {MAX_PART_NUMBER}, not {number}.")),
    }
}

/// The number of entries that a listing requests.
pub(super) fn limit(asked: Option<i32>, what: &str) -> S3Result<usize> {
    let asked = asked.unwrap_or(MAX_LISTED);
    usize::try_from(asked.min(MAX_LISTED)).map_err(|_| s3_error!(InvalidArgument, "{what} is {asked}, below 0."))
}
