//! The caller of an S3 request, what its credentials cover, and what it presents to the judge.

use std::sync::Arc;

use async_trait::async_trait;
use fencepost_core::{Key, Presented};
use fencepost_objects::{Grant, ObjectError, Objects};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::calls::Calls;
use super::errors;
use super::options::Read;
use super::permit::Permitted;
use crate::credentials::S3Credentials;
use crate::credentials::access_key::LeaseKey;
use crate::credentials::keyring::Signer;

/// The caller of a request.
#[derive(Clone)]
pub(super) struct Caller {
    signed: SignedBy,
    grant: Grant,
}

/// The kind of key that signed a request.
#[derive(Clone)]
pub(super) enum SignedBy {
    /// The credentials of a lease.
    Lease(LeaseKey),
    /// A long-term key, which has no token.
    LongTerm,
}

impl Caller {
    pub(super) fn new(signed: SignedBy, grant: Grant) -> Caller {
        Caller { signed, grant }
    }

    /// The lease, if there is one.
    pub(super) fn lease(&self) -> Option<&LeaseKey> {
        match &self.signed {
            SignedBy::Lease(lease) => Some(lease),
            SignedBy::LongTerm => None,
        }
    }

    /// The grant, which lasts as long as the credentials.
    pub(super) fn grant(&self) -> &Grant {
        &self.grant
    }
}

/// Gives the S3 library the secret of each key.
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

/// Checks that the object belongs to the resource of the lease.
pub(super) fn covers(objects: &Objects, caller: &Caller, name: &Key) -> S3Result<()> {
    let Some(lease) = caller.lease() else { return Ok(()) };
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

/// Checks that the caller may read this object.
pub(super) fn may_read(calls: &Calls, caller: &Caller, name: &Key) -> S3Result<()> {
    match calls.read {
        Read::All => Ok(()),
        Read::Own => covers(&calls.objects, caller, name),
    }
}

/// What a write presents to the judge. The claim behind the credentials was judged against the fence's issuer, which
/// does not change within a generation. So the issuer is the fence's own, unless that claim did not count.
pub(super) async fn presented(
    objects: &Objects,
    caller: &Permitted<Caller>,
    name: &Key,
) -> S3Result<Option<Presented>> {
    let Some(lease) = caller.lease() else { return Ok(None) };
    let guarded = objects.guards().of_key(name).map_err(|error| errors::name(name.as_str(), &error))?;
    let fence = match objects.fence(&guarded.resource).await {
        Ok(fence) => fence,
        // The guards were changed in between.
        Err(ObjectError::Name(_)) => return Err(S3Error::new(S3ErrorCode::InternalError)),
        Err(error) => return Err(errors::s3_error(error)),
    };
    let issuer = fence.issuer.clone().filter(|_| fence.token() >= Some(lease.token));
    Ok(Some(Presented { token: lease.token, holder: None, issuer }))
}

/// Builds `bucket/key`, if that can be the name of an object here.
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

/// A bucket's own name, as a key.
pub(super) fn bucket_name(bucket: &str) -> S3Result<Key> {
    Key::new(bucket).map_err(|error| errors::name(bucket, &error))
}
