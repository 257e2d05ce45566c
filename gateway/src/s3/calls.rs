//! The S3 front end: every call that is offered, and nothing else.

use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{Key, Presented, Timestamp};
use fencepost_objects::{Grant, ObjectError, Objects};
use fencepost_store::{Changed, Outcome};
use hyper::header::{HeaderMap, HeaderValue};
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use super::caller::{self, Caller};
use super::errors;
use super::options::Read;
use crate::credentials::S3Credentials;
use crate::credentials::keyring::Signer;
use crate::metrics::Metrics;

/// The S3 front end of a gateway.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) objects: Arc<Objects>,
    pub(super) credentials: Arc<S3Credentials>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) create_buckets: bool,
    pub(super) read: Read,
}

/// The answer to a call.
pub(super) type Answer<T> = S3Result<S3Response<T>>;

impl Calls {
    /// What a write presents to the judge.
    pub(super) async fn presented<T>(&self, request: &S3Request<T>, name: &Key) -> S3Result<Option<Presented>> {
        let caller = caller_of(request)?;
        self.grant(request)?.check().map_err(|ended| self.error(ended))?;
        caller::covers(&self.objects, caller, name)?;
        caller::presented(&self.objects, caller, name).await
    }

    /// Lasts as long as the credentials of a request.
    pub(super) fn grant<T>(&self, request: &S3Request<T>) -> S3Result<Grant> {
        let signed =
            request.credentials.clone().ok_or_else(|| s3_error!(AccessDenied, "The request is not signed."))?;
        let known = self.credentials.clone();
        Ok(Grant::new(move || match known.keyring().signer(&signed.access_key) {
            Ok(Signer::Lease(verified)) if verified.lease.expired(Timestamp::now()) => Err(ObjectError::Expired),
            Ok(Signer::Lease(verified)) if verified.secret == signed.secret_key.expose() => Ok(()),
            Ok(Signer::LongTerm(secret)) if secret.expose() == signed.secret_key.expose() => Ok(()),
            Ok(_) | Err(_) => Err(ObjectError::Revoked),
        }))
    }

    /// An error as S3 knows it, counted if the fence refused.
    pub(super) fn error(&self, error: ObjectError) -> S3Error {
        match &error {
            ObjectError::Refused(refusals) => self.metrics.object(&Outcome::Refused(refusals.clone())),
            ObjectError::ConditionFailed { fence } => self.metrics.object(&Outcome::Unmet { at: 0, fence: *fence }),
            _ => {}
        }
        errors::s3_error(error)
    }

    /// A change that writes no object: who would have been refused is counted.
    pub(super) fn judged(&self, changed: Changed) {
        self.metrics.object_judged(&Outcome::Changed(Box::new(changed)));
    }

    /// The answer to a write, which is counted.
    pub(super) fn applied<T>(&self, output: T, changed: Changed) -> S3Response<T> {
        let fence = changed.fence;
        self.metrics.object(&Outcome::Changed(Box::new(changed)));
        fenced(output, fence)
    }
}

/// Who asks; the permit has put it there.
pub(super) fn caller_of<T>(request: &S3Request<T>) -> S3Result<&Caller> {
    request.extensions.get::<Caller>().ok_or_else(|| s3_error!(AccessDenied, "The request is not signed."))
}

/// An answer that tells the fence.
fn fenced<T>(output: T, fence: Option<fencepost_core::Token>) -> S3Response<T> {
    let mut headers = HeaderMap::new();
    if let Some(fence) = fence.and_then(|fence| HeaderValue::try_from(fence.to_string()).ok()) {
        headers.insert(errors::FENCE, fence);
    }
    S3Response::with_headers(output, headers)
}

macro_rules! offered {
    ($($call:ident: $input:ident => $output:ident,)*) => {
        #[async_trait]
        impl S3 for Calls {
            $(async fn $call(&self, request: S3Request<$input>) -> Answer<$output> {
                Calls::$call(self, request).await
            })*
        }
    };
}

// Whatever is not here is answered NotImplemented by the permit.
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
