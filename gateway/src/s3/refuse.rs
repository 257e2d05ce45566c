//! Requests for features that this gateway does not have. They are refused, because accepting and ignoring them would
//! be worse.

use hyper::header::{HeaderMap, HeaderValue};
use s3s::dto::*;
use s3s::{S3Result, s3_error};

/// Options of a write besides its bytes and their metadata.
#[derive(Default)]
pub(super) struct Unkept {
    acl: Option<String>,
    grants: bool,
    encryption: bool,
    tags: bool,
    lock: bool,
    append: bool,
    storage_class: Option<String>,
}

/// ACLs that match the actual access: a caller with the keys has access to everything.
const USUAL_ACLS: [&str; 3] = ["private", "bucket-owner-full-control", "bucket-owner-read"];

/// Reads these options from inputs of the S3 library, which share the fields but no type. Only one of them can append.
macro_rules! unkept {
    ($($kind:ident: |$input:ident| $append:expr;)*) => {
        $(impl From<&$kind> for Unkept {
            fn from($input: &$kind) -> Unkept {
                Unkept {
                    acl: $input.acl.as_ref().map(|acl| acl.as_str().to_owned()),
                    grants: $input.grant_full_control.is_some()
                        || $input.grant_read.is_some()
                        || $input.grant_read_acp.is_some()
                        || $input.grant_write_acp.is_some(),
                    encryption: $input.sse_customer_algorithm.is_some()
                        || $input.sse_customer_key.is_some()
                        || $input.ssekms_key_id.is_some()
                        || $input.server_side_encryption.is_some(),
                    tags: $input.tagging.is_some(),
                    lock: $input.object_lock_mode.is_some()
                        || $input.object_lock_legal_hold_status.is_some()
                        || $input.object_lock_retain_until_date.is_some(),
                    append: $append,
                    storage_class: $input.storage_class.as_ref().map(|class| class.as_str().to_owned()),
                }
            }
        })*
    };
}

unkept! {
    CopyObjectInput: |input| false;
    CreateMultipartUploadInput: |input| false;
    PutObjectInput: |input| input.write_offset_bytes.is_some();
}

/// Refuses options that would not be stored.
pub(super) fn unkept(asked: &Unkept) -> S3Result<()> {
    if let Some(acl) = asked.acl.as_ref().filter(|acl| !USUAL_ACLS.contains(&acl.as_str())) {
        return Err(s3_error!(NotImplemented, "The ACL `{acl}` is not offered: only clients with keys may read."));
    }
    if let Some(class) = asked.storage_class.as_ref().filter(|class| *class != StorageClass::STANDARD) {
        let shown: String = class.chars().take(100).flat_map(char::escape_debug).collect();
        return Err(s3_error!(InvalidStorageClass, "The storage class here is STANDARD, and not `{shown}`."));
    }
    for (asked, what) in [
        (asked.grants, "Granting rights"),
        (asked.encryption, "Encryption by the server"),
        (asked.tags, "Tagging"),
        (asked.lock, "Object Lock"),
        (asked.append, "Appending"),
    ] {
        if asked {
            return Err(s3_error!(NotImplemented, "{what} is not offered by this gateway."));
        }
    }
    Ok(())
}

/// The id of the only version of each object.
pub(super) const ONLY_VERSION: &str = "null";

/// Refuses versions other than the only one.
pub(super) fn versions(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some(ONLY_VERSION) => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Versions are not kept; leave out versionId.")),
    }
}

/// Refuses an expected bucket owner other than the actual one: such a client has reached the wrong bucket.
pub(super) fn another_owner(headers: &HeaderMap) -> S3Result<()> {
    for name in ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"] {
        if headers.get_all(name).iter().any(|expected| expected != OWNER) {
            return Err(s3_error!(AccessDenied, "{name} is not the owner of the buckets here, which is `{OWNER}`."));
        }
    }
    Ok(())
}

/// Checks that `Content-MD5` is 16 bytes in base64.
pub(super) fn digests(headers: &HeaderMap) -> S3Result<()> {
    let is_md5 = |sent: &HeaderValue| {
        data_encoding::BASE64.decode(sent.as_bytes().trim_ascii()).is_ok_and(|digest| digest.len() == 16)
    };
    match headers.get_all("content-md5").iter().all(is_md5) {
        true => Ok(()),
        false => Err(s3_error!(InvalidDigest, "Content-MD5 must be the base64 of 16 bytes.")),
    }
}

/// The owner of all buckets and objects.
const OWNER: &str = "fencepost";

/// The owner, for answers.
pub(super) fn owner() -> Owner {
    Owner { id: Some(OWNER.to_owned()), display_name: Some(OWNER.to_owned()) }
}

/// The owner of everything, with no grants to others.
pub(super) fn everything_is_ours() -> (Owner, Grants) {
    let owner = owner();
    let grantee = Grantee {
        id: owner.id.clone(),
        display_name: owner.display_name.clone(),
        email_address: None,
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let grant = Grant { grantee: Some(grantee), permission: Some(Permission::from_static(Permission::FULL_CONTROL)) };
    (owner, vec![grant])
}
