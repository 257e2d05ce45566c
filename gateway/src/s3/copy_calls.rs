//! Copies of objects, and their sources.

use fencepost_core::Key;
use fencepost_objects::{Algorithm, Body, ObjectCopy, OpenObject, Promised, Put};
use s3s::dto::*;
use s3s::{S3Result, s3_error};

use super::attributes::{self, checksum_type, etag, said, time};
use super::body;
use super::caller::{Caller, may_read};
use super::calls::{Answer, Calls};
use super::conditions::{self, OfRead, Unmet};
use super::names::{self, Target};
use super::permit::Call;
use super::refuse::{self, Unkept};

impl Calls {
    pub(super) async fn copy_object(&self, call: Call<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        let (target, presented) = self.target(&call.caller, &call.input.bucket, &call.input.key).await?;
        // Checked before the source is opened: a stale holder must get this refusal and no other.
        self.objects.foresee(target.name(), presented.as_ref()).await.map_err(|error| self.error(error))?;
        let grant = call.caller.grant().clone();
        refuse::unkept(&Unkept::from(&call.input))?;
        let condition = conditions::of_headers(&call.headers)?;
        let input = call.input;
        let conditions = OfRead {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        let source = self.source(&call.caller, &input.copy_source, &conditions).await?;
        let replaces =
            input.metadata_directive.is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
        if !replaces && is_source(&input.copy_source, &input.bucket, &input.key) {
            return Err(s3_error!(
                InvalidRequest,
                "A copy of an object onto itself changes nothing unless its metadata are replaced."
            ));
        }
        let attributes = match replaces {
            false => attributes::described(&source.object.attributes),
            true => said!(input).into_attributes()?,
        };
        if source.object.size > body::MAX_PIECE_BYTES {
            return Err(s3_error!(InvalidRequest, "An object of more than 5 GiB is copied in parts."));
        }
        let asked = input.checksum_algorithm.as_ref().and_then(|algorithm| Algorithm::named(algorithm.as_str()));
        let put = |key: &Key| Put { key: key.clone(), presented, condition: condition.clone(), attributes, grant };
        let written = match &target {
            // A folder marker takes the metadata of its source, which must be empty as well.
            Target::Folder(folder) => {
                let promised = Promised { length: Some(source.object.size), ..Promised::default() };
                let body = Body { promised, bytes: futures_util::stream::empty(), trailer: Box::new(Vec::new) };
                self.objects.put_folder(put(folder), body).await
            }
            Target::Object(key) => self.objects.put(put(key), ObjectCopy::whole(source, asked)).await,
        };
        let written = match written {
            Ok(written) => written,
            Err(error) => return Err(self.unmet(error, &condition, &target).await),
        };
        let sum = |algorithm: Algorithm| attributes::kept(&written.object.attributes, algorithm.header());
        let result = CopyObjectResult {
            e_tag: Some(etag(&written.object.etag)),
            last_modified: Some(time(written.object.modified)),
            checksum_crc32: sum(Algorithm::Crc32),
            checksum_crc32c: sum(Algorithm::Crc32c),
            checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
            checksum_sha1: sum(Algorithm::Sha1),
            checksum_sha256: sum(Algorithm::Sha256),
            checksum_type: checksum_type(&written.object.attributes),
        };
        let output = CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() };
        Ok(self.applied(output, &written.changed))
    }

    /// Opens the source of a copy.
    pub(super) async fn source(
        &self,
        caller: &Caller,
        source: &CopySource,
        conditions: &OfRead,
    ) -> S3Result<OpenObject> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "A copy comes from a bucket of this gateway."));
        };
        refuse::versions(version_id.as_deref())?;
        may_read(self, caller, &names::judged_by(bucket, key)?)?;
        let reading = self.reading(bucket, key).await?;
        conditions.hold(&reading.object, Unmet::Failed)?;
        Ok(reading)
    }
}

fn is_source(source: &CopySource, to_bucket: &str, to_key: &str) -> bool {
    match source {
        CopySource::Bucket { bucket, key, .. } => (bucket.as_ref(), key.as_ref()) == (to_bucket, to_key),
        _ => false,
    }
}
