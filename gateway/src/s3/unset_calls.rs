//! Bucket settings that this gateway does not have. Consoles, infrastructure tools and clean-up scripts query them,
//! and expect the answer that they are not set. They cannot be set.

use hyper::StatusCode;
use s3s::dto::*;
use s3s::{S3Response, S3Result};

use super::calls::{Answer, Calls};
use super::errors;
use super::permit::Call;

/// Answers that a setting is absent, with S3's code for it.
macro_rules! unset {
    ($($call:ident: $input:ident => $output:ident, $code:literal;)*) => {
        impl Calls {
            $(pub(super) async fn $call(&self, call: Call<$input>) -> Answer<$output> {
                self.unset(&call.input.bucket, $code).await
            })*
        }
    };
}

unset! {
    get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput, "NoSuchCORSConfiguration";
    get_bucket_encryption: GetBucketEncryptionInput => GetBucketEncryptionOutput,
        "ServerSideEncryptionConfigurationNotFoundError";
    get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput,
        "NoSuchLifecycleConfiguration";
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput => GetBucketOwnershipControlsOutput,
        "OwnershipControlsNotFoundError";
    get_bucket_policy: GetBucketPolicyInput => GetBucketPolicyOutput, "NoSuchBucketPolicy";
    get_bucket_policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput, "NoSuchBucketPolicy";
    get_bucket_replication: GetBucketReplicationInput => GetBucketReplicationOutput,
        "ReplicationConfigurationNotFoundError";
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput, "NoSuchTagSet";
    get_bucket_website: GetBucketWebsiteInput => GetBucketWebsiteOutput, "NoSuchWebsiteConfiguration";
    get_object_lock_configuration: GetObjectLockConfigurationInput => GetObjectLockConfigurationOutput,
        "ObjectLockConfigurationNotFoundError";
    get_public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput,
        "NoSuchPublicAccessBlockConfiguration";
}

/// Answers that a setting has its default, which S3 expresses by an empty answer.
macro_rules! empty {
    ($($call:ident: $input:ident => $output:ident,)*) => {
        impl Calls {
            $(pub(super) async fn $call(&self, call: Call<$input>) -> Answer<$output> {
                self.objects.need_bucket(&call.input.bucket).await.map_err(|error| self.error(error))?;
                Ok(S3Response::new($output::default()))
            })*
        }
    };
}

empty! {
    get_bucket_accelerate_configuration:
        GetBucketAccelerateConfigurationInput => GetBucketAccelerateConfigurationOutput,
    get_bucket_logging: GetBucketLoggingInput => GetBucketLoggingOutput,
    get_bucket_notification_configuration:
        GetBucketNotificationConfigurationInput => GetBucketNotificationConfigurationOutput,
}

impl Calls {
    /// The payer is always the owner, the only requester.
    pub(super) async fn get_bucket_request_payment(
        &self,
        call: Call<GetBucketRequestPaymentInput>,
    ) -> Answer<GetBucketRequestPaymentOutput> {
        self.objects.need_bucket(&call.input.bucket).await.map_err(|error| self.error(error))?;
        let payer = Some(Payer::from_static(Payer::BUCKET_OWNER));
        Ok(S3Response::new(GetBucketRequestPaymentOutput { payer }))
    }

    async fn unset<T>(&self, bucket: &str, code: &'static str) -> S3Result<S3Response<T>> {
        self.objects.need_bucket(bucket).await.map_err(|error| self.error(error))?;
        let text = "This is not set, and setting it is not offered by this gateway.";
        Err(errors::coded(code, StatusCode::NOT_FOUND, text.to_owned()))
    }
}
