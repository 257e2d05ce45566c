//! The list of all S3 calls that are offered.

use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{Key, Presented};
use fencepost_objects::{Changed, ObjectError, Objects};
use hyper::header::{HeaderMap, HeaderValue};
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result};

use super::caller::{self, Caller};
use super::errors;
use super::options::Read;
use super::permit::{Call, Permitted};
use crate::metrics::Metrics;

/// Answers the calls.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) objects: Arc<Objects>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) create_buckets: bool,
    pub(super) read: Read,
}

/// The answer to a call.
pub(super) type Answer<T> = S3Result<S3Response<T>>;

impl Calls {
    /// What a write presents to the judge.
    pub(super) async fn presented(&self, caller: &Permitted<Caller>, name: &Key) -> S3Result<Option<Presented>> {
        caller.grant().check().map_err(|ended| self.error(ended))?;
        caller::covers(&self.objects, caller, name)?;
        caller::presented(&self.objects, caller, name).await
    }

    /// Converts an error to S3, and counts refusals by the fence.
    pub(super) fn error(&self, error: ObjectError) -> S3Error {
        match &error {
            ObjectError::Refused(refusals) => self.metrics.object_refused(refusals),
            ObjectError::ConditionFailed { .. } => self.metrics.object_condition_failed(),
            _ => {}
        }
        errors::s3_error(error)
    }

    /// Counts the refusals that observing guards did not enforce, for a change that writes no object.
    pub(super) fn judged(&self, changed: &Changed) {
        self.metrics.object_judged(changed);
    }

    /// Builds the answer to a write, and counts the write.
    pub(super) fn applied<T>(&self, output: T, changed: &Changed) -> S3Response<T> {
        self.metrics.object_applied(changed);
        fenced(output, changed.fence)
    }
}

/// Builds an answer with the current fence in a header.
fn fenced<T>(output: T, fence: Option<fencepost_core::Token>) -> S3Response<T> {
    let mut headers = HeaderMap::new();
    if let Some(fence) = fence.and_then(|fence| HeaderValue::try_from(fence.to_string()).ok()) {
        headers.insert(errors::FENCE, fence);
    }
    S3Response::with_headers(output, headers)
}

/// Converts each call of the S3 library to a [`Call`].
macro_rules! offered {
    ($($call:ident: $input:ident => $output:ident,)*) => {
        #[async_trait]
        impl S3 for Calls {
            $(async fn $call(&self, request: S3Request<$input>) -> Answer<$output> {
                Calls::$call(self, Call::new(request)?).await
            })*
        }
    };
}

// The permit answers NotImplemented to every call that is not listed here.
offered! {
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput,
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput,
    copy_object: CopyObjectInput => CopyObjectOutput,
    create_bucket: CreateBucketInput => CreateBucketOutput,
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput,
    delete_bucket: DeleteBucketInput => DeleteBucketOutput,
    delete_object: DeleteObjectInput => DeleteObjectOutput,
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput,
    get_bucket_accelerate_configuration: GetBucketAccelerateConfigurationInput => GetBucketAccelerateConfigurationOutput,
    get_bucket_acl: GetBucketAclInput => GetBucketAclOutput,
    get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput,
    get_bucket_encryption: GetBucketEncryptionInput => GetBucketEncryptionOutput,
    get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput,
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput,
    get_bucket_logging: GetBucketLoggingInput => GetBucketLoggingOutput,
    get_bucket_notification_configuration: GetBucketNotificationConfigurationInput => GetBucketNotificationConfigurationOutput,
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput => GetBucketOwnershipControlsOutput,
    get_bucket_policy: GetBucketPolicyInput => GetBucketPolicyOutput,
    get_bucket_policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput,
    get_bucket_replication: GetBucketReplicationInput => GetBucketReplicationOutput,
    get_bucket_request_payment: GetBucketRequestPaymentInput => GetBucketRequestPaymentOutput,
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput,
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput,
    get_bucket_website: GetBucketWebsiteInput => GetBucketWebsiteOutput,
    get_object: GetObjectInput => GetObjectOutput,
    get_object_acl: GetObjectAclInput => GetObjectAclOutput,
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput,
    get_object_lock_configuration: GetObjectLockConfigurationInput => GetObjectLockConfigurationOutput,
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput,
    get_public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput,
    head_bucket: HeadBucketInput => HeadBucketOutput,
    head_object: HeadObjectInput => HeadObjectOutput,
    list_buckets: ListBucketsInput => ListBucketsOutput,
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput,
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput,
    list_objects: ListObjectsInput => ListObjectsOutput,
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output,
    list_parts: ListPartsInput => ListPartsOutput,
    put_object: PutObjectInput => PutObjectOutput,
    upload_part: UploadPartInput => UploadPartOutput,
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput,
}
