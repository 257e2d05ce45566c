//! Which requests of S3 clients go further: an allow-list of reads; everything else is a write and goes through the
//! judge, or is not offered at all.
//!
//! Our own code gets a request as a [`Call`], which has the caller that was checked. Only the check makes one
//! ([`Permitted`]), so a call that was not checked does not reach it.

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

/// What only looks.
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

/// What changes something, and is judged.
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

/// What is taken into memory whole before it is looked at: lists of keys and of parts.
const WHOLE: &[&str] = &["CompleteMultipartUpload", "CreateBucket", "DeleteObjects"];

/// Something that may be done. Only [`Permit::check`] makes one.
#[derive(Clone)]
pub(super) struct Permitted<T>(T);

impl<T> Deref for Permitted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A request whose caller was checked, as every call gets it.
pub(super) struct Call<T> {
    pub(super) caller: Permitted<Caller>,
    pub(super) input: T,
    pub(super) headers: HeaderMap,
    /// They arrive after the body.
    pub(super) trailing_headers: Option<TrailingHeaders>,
    /// A body that was taken whole, as it was measured.
    pub(super) measuring: Option<Measuring>,
    /// What the request holds until it is answered, such as its place among the lists.
    _held: Extensions,
}

impl<T> Call<T> {
    /// The one place where the S3 library hands over a request. The library has no room for the caller but among the
    /// extensions of the request, and it is taken from there here and nowhere else.
    pub(super) fn new(request: S3Request<T>) -> S3Result<Call<T>> {
        let S3Request { input, headers, mut extensions, trailing_headers, .. } = request;
        let caller = extensions.remove::<Permitted<Caller>>();
        let caller = caller.ok_or_else(|| s3_error!(AccessDenied, "The request is not signed."))?;
        let measuring = extensions.remove::<Measuring>();
        Ok(Call { caller, input, headers, trailing_headers, measuring, _held: extensions })
    }
}

/// Decides which requests go further.
pub(super) struct Permit {
    pub(super) credentials: Arc<S3Credentials>,
    pub(super) calls: Calls,
}

#[async_trait]
impl S3Access for Permit {
    /// Runs after the signature was verified and before any of the body is looked at.
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
                // What DeleteObjects removes is in its body.
                S3Path::Bucket { .. } if name == "DeleteObjects" => None,
                // Clients ask for a bucket to be made that is there, and expect to learn that it is; the call itself
                // decides about those that are not.
                S3Path::Bucket { .. } if name == "CreateBucket" => None,
                S3Path::Bucket { bucket } => Some(bucket_name(bucket)?),
                S3Path::Root => None,
            };
            if let Some(named) = named
                && let Err(denied) = covers(&self.calls.objects, &caller, &named)
            {
                // A wrong name of a bucket is reported as that, and not as a matter of locks.
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
    /// Refuses a lease that reads something of another resource. What is asked of a bucket itself is the same for all.
    fn reads_its_own(&self, caller: &Caller, path: &S3Path, uri: &Uri, call: &str) -> S3Result<()> {
        let name = match path {
            S3Path::Object { bucket, key } => names::judged_by(bucket, key)?,
            S3Path::Bucket { bucket } if call.starts_with("List") => {
                let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
                let prefix = query.into_iter().find(|(name, _)| name == "prefix").map(|(_, prefix)| prefix);
                // The folder that every name of the list is in.
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

    /// Decides about a body that is taken into memory whole, before any of it is.
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
        // Given back with the request.
        cx.extensions_mut().insert(Arc::new(place));
        Ok(())
    }

    /// Refuses a caller without a token where every guard asks for one. What is decided counts at the commit.
    async fn may_write_without_a_token(&self, path: &S3Path, call: &str) -> S3Result<()> {
        let probe = match path {
            S3Path::Object { bucket, key } => names::judged_by(bucket, key)?,
            // Which keys it is about stands in the body; some of them may be watched only.
            S3Path::Bucket { bucket } if call != "DeleteObjects" || self.observes(bucket) => return Ok(()),
            S3Path::Bucket { bucket } => object_name(bucket, "any")?,
            S3Path::Root => return Ok(()),
        };
        self.calls.objects.foresee_fence(&probe, None).await.map_err(|error| self.calls.error(error))
    }

    /// Could a key of this bucket be written without a token, because its guard only observes?
    fn observes(&self, bucket: &str) -> bool {
        self.calls.objects.guards().list().iter().map(|guard| guard.spec()).any(|guard| {
            let first = guard.keys.split('/').next().unwrap_or_default();
            guard.policy.mode == Mode::Observe && (first == bucket || first.starts_with('*'))
        })
    }
}

/// Lasts as long as the credentials of a request.
fn grant(known: Arc<S3Credentials>, signed: Credentials) -> Grant {
    Grant::new(move || match known.keyring().signer(&signed.access_key) {
        Ok(Signer::Lease(verified)) if verified.lease.expired(Timestamp::now()) => Err(ObjectError::Expired),
        Ok(Signer::Lease(verified)) if verified.secret == signed.secret_key.expose() => Ok(()),
        Ok(Signer::LongTerm(secret)) if secret.expose() == signed.secret_key.expose() => Ok(()),
        Ok(_) | Err(_) => Err(ObjectError::Revoked),
    })
}
