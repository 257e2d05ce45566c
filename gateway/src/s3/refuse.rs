//! What clients can ask for and this gateway does not keep. Saying yes and doing nothing would be worse than no.

use s3s::dto::*;
use s3s::{S3Result, s3_error};

/// What a write asks for besides its bytes and their description.
#[derive(Default)]
pub(super) struct Unkept {
    acl: Option<String>,
    grants: bool,
    encryption: bool,
    tags: bool,
    lock: bool,
    append: bool,
}

/// Grants that say what is so anyway: whoever has the keys, has everything.
const USUAL_ACLS: [&str; 3] = ["private", "bucket-owner-full-control", "bucket-owner-read"];

macro_rules! unkept {
    ($($input:ident),*) => {
        $(impl From<&$input> for Unkept {
            fn from(input: &$input) -> Unkept {
                Unkept {
                    acl: input.acl.as_ref().map(|acl| acl.as_str().to_owned()),
                    grants: input.grant_full_control.is_some()
                        || input.grant_read.is_some()
                        || input.grant_read_acp.is_some()
                        || input.grant_write_acp.is_some(),
                    encryption: input.sse_customer_algorithm.is_some()
                        || input.sse_customer_key.is_some()
                        || input.ssekms_key_id.is_some()
                        || input.server_side_encryption.is_some(),
                    tags: input.tagging.is_some(),
                    lock: input.object_lock_mode.is_some()
                        || input.object_lock_legal_hold_status.is_some()
                        || input.object_lock_retain_until_date.is_some(),
                    append: false,
                }
            }
        })*
    };
}

unkept!(CopyObjectInput, CreateMultipartUploadInput);

impl From<&PutObjectInput> for Unkept {
    fn from(input: &PutObjectInput) -> Unkept {
        Unkept {
            acl: input.acl.as_ref().map(|acl| acl.as_str().to_owned()),
            grants: input.grant_full_control.is_some()
                || input.grant_read.is_some()
                || input.grant_read_acp.is_some()
                || input.grant_write_acp.is_some(),
            encryption: input.sse_customer_algorithm.is_some()
                || input.sse_customer_key.is_some()
                || input.ssekms_key_id.is_some()
                || input.server_side_encryption.is_some(),
            tags: input.tagging.is_some(),
            lock: input.object_lock_mode.is_some()
                || input.object_lock_legal_hold_status.is_some()
                || input.object_lock_retain_until_date.is_some(),
            append: input.write_offset_bytes.is_some(),
        }
    }
}

/// Refuses what would not be kept.
pub(super) fn unkept(asked: &Unkept) -> S3Result<()> {
    if let Some(acl) = asked.acl.as_ref().filter(|acl| !USUAL_ACLS.contains(&acl.as_str())) {
        return Err(s3_error!(
            NotImplemented,
            "The ACL `{acl}` is not offered: whoever has keys may read, nobody else."
        ));
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

/// There is one version of each object.
pub(super) fn versions(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("null") => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Versions are not kept; leave out versionId.")),
    }
}

/// Objects are not read by part.
pub(super) fn parts(number: Option<i32>) -> S3Result<()> {
    match number {
        None => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Objects are read by range, not by partNumber.")),
    }
}

/// The owner of everything, and that nobody else was granted anything.
pub(super) fn everything_is_ours() -> (Owner, Grants) {
    let owner = Owner { id: Some("fencepost".to_owned()), display_name: Some("fencepost".to_owned()) };
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
