//! Who asks the S3 front end, and what they may ask: an allow-list of reads; everything else is a write and goes through the
//! judge, or is not offered at all.

use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{Key, Mode, Presented, Timestamp};
use fencepost_objects::{ObjectError, Objects, bucket_of};
use hyper::Uri;
use hyper::header::CONTENT_LENGTH;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::path::S3Path;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

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
use crate::credentials::access_key::LeaseKey;
use crate::credentials::keyring::Signer;

/// What only looks.
pub const READS: &[&str] = &[
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
pub const WRITES: &[&str] = &[
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

/// Who asks.
#[derive(Clone, Debug)]
pub(super) enum Caller {
    /// Whoever has this lease.
    Lease(LeaseKey),
    /// Somebody without a token.
    LongTerm,
}

/// Knows every secret.
pub(super) struct Secrets(pub(super) Arc<S3Credentials>);

#[async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.0.keyring().signer(access_key) {
            Ok(Signer::Lease(verified)) => Ok(SecretKey::from(verified.secret)),
            Ok(Signer::LongTerm(secret)) => Ok(SecretKey::from(secret.expose())),
            Err(unknown) => Err(s3_error!(InvalidAccessKeyId, "{unknown}")),
        }
    }
}

/// Decides what is asked further.
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
        let caller = match signer.map_err(|unknown| s3_error!(InvalidAccessKeyId, "{unknown}"))? {
            Signer::Lease(verified) if verified.lease.expired(Timestamp::now()) => {
                return Err(s3_error!(
                    ExpiredToken,
                    "These credentials have expired. Ask for new ones for the same lease and token \
                     (fencepost s3 credentials); the lock need not be taken again."
                ));
            }
            Signer::Lease(verified) => Caller::Lease(verified.lease),
            Signer::LongTerm(_) => Caller::LongTerm,
        };
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
                // Clients ask for a bucket to be made that is there, and want to hear that it is; the call itself sees
                // to those that are not.
                S3Path::Bucket { .. } if name == "CreateBucket" => None,
                S3Path::Bucket { bucket } => Some(bucket_name(bucket)?),
                S3Path::Root => None,
            };
            if let Some(named) = named
                && let Err(denied) = covers(&self.calls.objects, &caller, &named)
            {
                // Whoever writes a bucket's name wrong should not look for the fault in its locks.
                self.calls.objects.need_bucket(bucket_of(&named)).await.map_err(errors::s3_error)?;
                return Err(denied);
            }
        }
        if WHOLE.contains(&name) {
            self.may_send_a_list(cx, &caller).await?;
        }
        cx.extensions_mut().insert(caller);
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
            S3Path::Root => match caller {
                Caller::LongTerm => return Ok(()),
                Caller::Lease(_) => {
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
        if let Caller::LongTerm = caller {
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

/// Is this object one of the lease's?
pub(super) fn covers(objects: &Objects, caller: &Caller, name: &Key) -> S3Result<()> {
    let Caller::Lease(lease) = caller else { return Ok(()) };
    let guarded = objects.guards().of_key(name).map_err(|error| errors::name(name.as_str(), &error))?;
    match lease.covers(&guarded.resource) {
        true => Ok(()),
        false => Err(s3_error!(
            AccessDenied,
            "`{name}` belongs to the resource `{0}`, and these credentials are of another one's lock. Take the lock of \
             `{0}`; or have a guard in the gateway's configuration that puts all these names under one resource.",
            guarded.resource
        )),
    }
}

/// May this object be read?
pub(super) fn may_read(calls: &Calls, caller: &Caller, name: &Key) -> S3Result<()> {
    match calls.read {
        Read::All => Ok(()),
        Read::Own => covers(&calls.objects, caller, name),
    }
}

/// What is presented to the judge. The claim that issued the credentials was judged by the issuer of the fence, which does
/// not change within a generation; so the issuer is the fence's own, unless that claim did not count.
pub(super) async fn presented(objects: &Objects, caller: &Caller, name: &Key) -> S3Result<Option<Presented>> {
    let Caller::Lease(lease) = caller else { return Ok(None) };
    let guarded = objects.guards().of_key(name).map_err(|error| errors::name(name.as_str(), &error))?;
    let fence = match objects.fence(&guarded.resource).await {
        Ok(fence) => fence,
        // The rules were changed in between.
        Err(ObjectError::Name(_)) => return Err(S3Error::new(S3ErrorCode::InternalError)),
        Err(error) => return Err(errors::s3_error(error)),
    };
    let issuer = fence.issuer.clone().filter(|_| fence.token() >= Some(lease.token));
    Ok(Some(Presented { token: lease.token, holder: None, issuer }))
}

/// `bucket/key`, if that can be the name of an object here.
pub(super) fn object_name(bucket: &str, key: &str) -> S3Result<Key> {
    let name = format!("{bucket}/{key}");
    if key.contains(['\u{fffe}', '\u{ffff}']) {
        return Err(s3_error!(
            InvalidArgument,
            "The name of an object cannot have a character that XML does not allow."
        ));
    }
    Key::new(&name).map_err(|error| errors::name(key, &error))
}

/// A bucket's own name among the names of objects.
pub(super) fn bucket_name(bucket: &str) -> S3Result<Key> {
    Key::new(bucket).map_err(|error| errors::name(bucket, &error))
}
