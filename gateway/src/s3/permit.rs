//! Decides which requests of S3 clients are admitted. An allow-list names the reads. Every other call is a write and
//! goes through the judge, or is not offered at all.
//!
//! The gateway's own code gets a request as a [`Call`], which contains the checked caller. Only the check creates a
//! [`Permitted`] caller, so an unchecked request cannot reach that code.

use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{Mode, Timestamp};
use fencepost_objects::{Grant, ObjectError, bucket_of};
use hyper::Uri;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::http::Extensions;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::Credentials;
use s3s::path::S3Path;
use s3s::{S3Error, S3Request, S3Result, TrailingHeaders, s3_error};

use super::body::Measuring;
use super::caller::{Caller, SignedBy, bucket_name, covers, may_read, object_name};
use super::calls::Calls;
use super::chunks;
use super::errors;
use super::listing::List;
use super::names;
use super::options::Read;
use super::queries::{self, Effect};
use super::refuse;
use super::request::ListPlaces;
use crate::credentials::S3Credentials;
use crate::credentials::keyring::Signer;

/// Calls that change nothing.
pub(super) const READS: &[&str] = &[
    "GetBucketAccelerateConfiguration",
    "GetBucketAcl",
    "GetBucketCors",
    "GetBucketEncryption",
    "GetBucketLifecycleConfiguration",
    "GetBucketLocation",
    "GetBucketLogging",
    "GetBucketNotificationConfiguration",
    "GetBucketOwnershipControls",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketReplication",
    "GetBucketRequestPayment",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetBucketWebsite",
    "GetObject",
    "GetObjectAcl",
    "GetObjectAttributes",
    "GetObjectLockConfiguration",
    "GetObjectTagging",
    "GetPublicAccessBlock",
    "HeadBucket",
    "HeadObject",
    "ListBuckets",
    "ListMultipartUploads",
    "ListObjectVersions",
    "ListObjects",
    "ListObjectsV2",
    "ListParts",
];

/// Calls that change something, and are judged.
pub(super) const WRITES: &[&str] = &[
    "AbortMultipartUpload",
    "CompleteMultipartUpload",
    "CopyObject",
    "CreateBucket",
    "CreateMultipartUpload",
    "DeleteBucket",
    "DeleteObject",
    "DeleteObjects",
    "PutObject",
    "UploadPart",
    "UploadPartCopy",
];

/// Calls whose body is buffered whole before it is parsed: lists of keys and of parts.
const WHOLE: &[&str] = &["CompleteMultipartUpload", "CreateBucket", "DeleteObjects"];

/// A value that was checked. Only [`Permit::check`] creates one.
#[derive(Clone)]
pub(super) struct Permitted<T>(T);

impl<T> Deref for Permitted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A request with its checked caller, as every call gets it.
pub(super) struct Call<T> {
    pub(super) caller: Permitted<Caller>,
    pub(super) input: T,
    pub(super) headers: HeaderMap,
    /// Headers that arrive after the body.
    pub(super) trailing_headers: Option<TrailingHeaders>,
    /// The measurement of a body that was buffered whole.
    pub(super) measuring: Option<Measuring>,
    /// What the request holds until it is answered, such as its place for a list.
    _held: Extensions,
}

impl<T> Call<T> {
    /// The only place where the S3 library hands over a request. The library can carry the caller only in the
    /// extensions of the request; it is taken from there here and nowhere else.
    pub(super) fn new(request: S3Request<T>) -> S3Result<Call<T>> {
        let S3Request { input, headers, mut extensions, trailing_headers, .. } = request;
        let caller = extensions.remove::<Permitted<Caller>>();
        let caller = caller.ok_or_else(|| s3_error!(AccessDenied, "The request is not signed."))?;
        let measuring = extensions.remove::<Measuring>();
        Ok(Call { caller, input, headers, trailing_headers, measuring, _held: extensions })
    }
}

/// Decides which requests are admitted.
pub(super) struct Permit {
    pub(super) credentials: Arc<S3Credentials>,
    pub(super) calls: Calls,
}

#[async_trait]
impl S3Access for Permit {
    /// Runs after the signature was verified and before any of the body is read.
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = cx.credentials() else {
            return Err(s3_error!(
                AccessDenied,
                "The request is not signed. Sign it with lease credentials (fencepost s3 credentials), or with a \
                 long-term key of the gateway's configuration."
            ));
        };
        let signer = self.credentials.keyring().signer(&credentials.access_key);
        let signed = match signer.map_err(|unknown| s3_error!(InvalidAccessKeyId, "{unknown}"))? {
            Signer::Lease(verified) if verified.lease.expired(Timestamp::now()) => {
                return Err(s3_error!(
                    ExpiredToken,
                    "These credentials have expired. Ask for new ones for the same lease and token \
                     (fencepost s3 credentials); the lock need not be taken again."
                ));
            }
            Signer::Lease(verified) => SignedBy::Lease(verified.lease),
            Signer::LongTerm(_) => SignedBy::LongTerm,
        };
        let caller = Caller::new(signed, grant(self.credentials.clone(), credentials.clone()));
        refuse::another_owner(cx.headers())?;
        let name = cx.s3_op().name();
        let writes = WRITES.contains(&name);
        if !writes && !READS.contains(&name) {
            return Err(s3_error!(NotImplemented, "{name} is not offered by this gateway."));
        }
        queries::check(name, if writes { Effect::Writes } else { Effect::Reads }, cx.uri())?;
        if !writes && self.calls.read == Read::Own {
            self.reads_its_own(&caller, cx.s3_path(), cx.uri(), name)?;
        }
        if writes {
            let named = match cx.s3_path() {
                S3Path::Object { bucket, key } => Some(names::judged_by(bucket, key)?),
                // The keys that DeleteObjects removes are in its body.
                S3Path::Bucket { .. } if name == "DeleteObjects" => None,
                // Clients create buckets that already exist, and expect an answer that says so. The call itself
                // decides about new ones.
                S3Path::Bucket { .. } if name == "CreateBucket" => None,
                S3Path::Bucket { bucket } => Some(bucket_name(bucket)?),
                S3Path::Root => None,
            };
            if let Some(named) = named
                && let Err(denied) = covers(&self.calls.objects, &caller, &named)
            {
                // A wrong bucket name is reported as such, and not as a refusal of the lease.
                self.calls.objects.need_bucket(bucket_of(&named)).await.map_err(errors::s3_error)?;
                return Err(denied);
            }
        }
        if WHOLE.contains(&name) {
            self.may_send_a_list(cx, &caller).await?;
        }
        cx.extensions_mut().insert(Permitted(caller));
        Ok(())
    }
}

impl Permit {
    /// Refuses a lease that reads from another resource. Calls about the bucket itself are the same for all callers.
    fn reads_its_own(&self, caller: &Caller, path: &S3Path, uri: &Uri, call: &str) -> S3Result<()> {
        let name = match path {
            S3Path::Object { bucket, key } => names::judged_by(bucket, key)?,
            S3Path::Bucket { bucket } if call.starts_with("List") => {
                let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
                let prefix = query.into_iter().find(|(name, _)| name == "prefix").map(|(_, prefix)| prefix);
                // The folder that contains every name of the listing.
                match prefix.as_deref().and_then(|prefix| prefix.rsplit_once('/')) {
                    Some((folder, _)) => names::judged_by(bucket, folder)?,
                    None => bucket_name(bucket)?,
                }
            }
            S3Path::Bucket { .. } => return Ok(()),
            S3Path::Root => match caller.lease() {
                None => return Ok(()),
                Some(_) => {
                    return Err(s3_error!(AccessDenied, "A lease does not list buckets here (s3.read)."));
                }
            },
        };
        may_read(&self.calls, caller, &name)
    }

    /// Decides about a body that is buffered whole, before any of it is read.
    async fn may_send_a_list(&self, cx: &mut S3AccessContext<'_>, caller: &Caller) -> S3Result<()> {
        if chunks::are_used(cx.headers()) {
            return Err(s3_error!(InvalidRequest, "This call takes its body in one piece, and not in signed chunks."));
        }
        let length = cx.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if let (Some(list), Some(length)) = (cx.extensions_mut().get::<List>().copied(), length) {
            list.check_length(length).map_err(|fault| S3Error::with_message(fault.code, fault.why))?;
        }
        if caller.lease().is_none() {
            self.may_write_without_a_token(cx.s3_path(), cx.s3_op().name()).await?;
        }
        let places = cx.extensions_mut().get::<ListPlaces>().cloned();
        let place = places.and_then(|ListPlaces(share)| share.try_take(1));
        let place = place.ok_or_else(|| s3_error!(SlowDown, "Too many lists of keys and parts arrive at once."))?;
        // Released with the request.
        cx.extensions_mut().insert(Arc::new(place));
        Ok(())
    }

    /// Refuses a caller without a token if every guard requires one. The decisive check is at the commit.
    async fn may_write_without_a_token(&self, path: &S3Path, call: &str) -> S3Result<()> {
        let probe = match path {
            S3Path::Object { bucket, key } => names::judged_by(bucket, key)?,
            // The keys are in the body, and some of them may have guards that only observe.
            S3Path::Bucket { bucket } if call != "DeleteObjects" || self.observes(bucket) => return Ok(()),
            S3Path::Bucket { bucket } => object_name(bucket, "any")?,
            S3Path::Root => return Ok(()),
        };
        self.calls.objects.foresee_fence(&probe, None).await.map_err(|error| self.calls.error(error))
    }

    /// Returns whether a key of this bucket could be written without a token, because its guard only observes.
    fn observes(&self, bucket: &str) -> bool {
        self.calls.objects.guards().list().iter().map(|guard| guard.spec()).any(|guard| {
            let first = guard.keys.split('/').next().unwrap_or_default();
            guard.policy.mode == Mode::Observe && (first == bucket || first.starts_with('*'))
        })
    }
}

/// A grant that lasts as long as the credentials of a request.
fn grant(known: Arc<S3Credentials>, signed: Credentials) -> Grant {
    Grant::new(move || match known.keyring().signer(&signed.access_key) {
        Ok(Signer::Lease(verified)) if verified.lease.expired(Timestamp::now()) => Err(ObjectError::Expired),
        Ok(Signer::Lease(verified)) if verified.secret == signed.secret_key.expose() => Ok(()),
        Ok(Signer::LongTerm(secret)) if secret.expose() == signed.secret_key.expose() => Ok(()),
        Ok(_) | Err(_) => Err(ObjectError::Revoked),
    })
}
