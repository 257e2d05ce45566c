//! The query parameters that each call accepts.
//!
//! The S3 library chooses a call by the parameters that it knows and ignores all others. A newer `PUT ?renameObject`
//! would be treated as a plain PUT, which empties the object. So a call that changes something is refused if it has a
//! parameter that is not listed here, and a read is refused if it names a subresource of S3 ([`SUBRESOURCES`]) that
//! is not offered. Parameters of reads that S3 does not know either are ignored, as in S3.

use hyper::Uri;
use s3s::{S3Result, s3_error};

/// The parameters of each offered call, besides [`EVERYWHERE`]. A call without a row accepts none.
const PARAMETERS: &[(&str, &[&str])] = &[
    ("AbortMultipartUpload", &["uploadId"]),
    ("CompleteMultipartUpload", &["uploadId"]),
    ("CreateMultipartUpload", &["uploads"]),
    ("DeleteObject", &["versionId"]),
    ("DeleteObjects", &["delete"]),
    ("GetBucketAccelerateConfiguration", &["accelerate"]),
    ("GetBucketAcl", &["acl"]),
    ("GetBucketCors", &["cors"]),
    ("GetBucketEncryption", &["encryption"]),
    ("GetBucketLifecycleConfiguration", &["lifecycle"]),
    ("GetBucketLocation", &["location"]),
    ("GetBucketLogging", &["logging"]),
    ("GetBucketNotificationConfiguration", &["notification"]),
    ("GetBucketOwnershipControls", &["ownershipControls"]),
    ("GetBucketPolicy", &["policy"]),
    ("GetBucketPolicyStatus", &["policyStatus"]),
    ("GetBucketReplication", &["replication"]),
    ("GetBucketRequestPayment", &["requestPayment"]),
    ("GetBucketTagging", &["tagging"]),
    ("GetBucketVersioning", &["versioning"]),
    ("GetBucketWebsite", &["website"]),
    ("GetObject", &["partNumber", "versionId"]),
    ("GetObjectAcl", &["acl", "versionId"]),
    ("GetObjectAttributes", &["attributes", "versionId"]),
    ("GetObjectLockConfiguration", &["object-lock"]),
    ("GetObjectTagging", &["tagging", "versionId"]),
    ("GetPublicAccessBlock", &["publicAccessBlock"]),
    ("HeadObject", &["partNumber", "versionId"]),
    ("ListMultipartUploads", &["uploads"]),
    ("ListObjectVersions", &["versions"]),
    ("ListObjects", &["list-type"]),
    ("ListObjectsV2", &["list-type"]),
    ("UploadPart", &["partNumber", "uploadId"]),
    ("UploadPartCopy", &["partNumber", "uploadId"]),
];

/// Parameters of the signature, and those without effect that SDKs add to presigned URLs, in lower case.
const EVERYWHERE: &[&str] = &[
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
    "x-amz-user-agent",
];

/// SDKs add the checksum of an empty body to presigned URLs of uploads, because they do not know the body yet.
const CHECKSUMS: &str = "x-amz-checksum-";

/// Names the call, for logs of proxies.
const CALL: &str = "x-id";

/// The subresources of buckets and objects in S3, on all levels.
const SUBRESOURCES: &[&str] = &[
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "annotation",
    "append",
    "attributes",
    "cors",
    "defaultObjectAcl",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "select-type",
    "session",
    "tagging",
    "torrent",
    "uploads",
    "versioning",
    "versions",
    "website",
];

/// Whether a call changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It reads.
    Reads,
    /// It writes or deletes.
    Writes,
}

/// Refuses a call with parameters that it does not accept: the client means another call, which is not offered.
pub(super) fn check(call: &str, effect: Effect, uri: &Uri) -> S3Result<()> {
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if !is_taken(call, effect, &name, &value) {
            let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            return Err(s3_error!(
                NotImplemented,
                "The parameter `{name}` is not offered by this gateway for this call ({call}). Nothing was changed."
            ));
        }
    }
    Ok(())
}

fn is_taken(call: &str, effect: Effect, name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    if EVERYWHERE.contains(&lower.as_str()) || lower.starts_with(CHECKSUMS) {
        return true;
    }
    let own = PARAMETERS.iter().find(|(known, _)| *known == call).map_or(&[][..], |(_, own)| own);
    match effect {
        Effect::Reads => own.contains(&name) || !SUBRESOURCES.contains(&name),
        Effect::Writes => own.contains(&name) || (name == CALL && value == call),
    }
}

#[cfg(test)]
mod tests {
    use super::super::permit::{READS, WRITES};
    use super::*;

    fn passes(call: &str, effect: Effect, query: &str) -> bool {
        check(call, effect, &format!("/bucket/key?{query}").parse().unwrap()).is_ok()
    }

    #[test]
    fn b01_a_write_takes_its_own_parameters_only() {
        let writes = |call, query| passes(call, Effect::Writes, query);
        assert!(writes("PutObject", "") && writes("PutObject", "x-id=PutObject"));
        assert!(writes("UploadPart", "partNumber=1&uploadId=x&x-id=UploadPart"));
        let presigned = "X-Amz-Algorithm=a&X-Amz-Signature=b&x-amz-checksum-crc32=AAAAAA%3D%3D";
        assert!(writes("PutObject", presigned));
        for query in ["renameObject", "%72enameObject", "partNumber=1", "uploadId=x", "append&position=5", "acl", "="] {
            assert!(!writes("PutObject", query), "{query}");
        }
        assert!(!writes("PutObject", "x-id=RenameObject") && !writes("PutObject", "x-amz-copy-source=/a/b"));
        assert!(!writes("DeleteObject", "uploads") && writes("DeleteObject", "versionId=null"));
        assert!(!writes("DeleteBucket", "metadataConfiguration") && !writes("CreateBucket", "abac"));
    }

    #[test]
    fn b01_a_read_is_not_taken_for_another() {
        let reads = |call, query| passes(call, Effect::Reads, query);
        assert!(reads("GetObject", "versionId=null&response-content-type=a&unknown=1"));
        assert!(reads("ListObjectsV2", "list-type=2&prefix=a&metadata=true"));
        for query in ["annotation", "renameObject=", "policy", "uploads"] {
            assert!(!reads("GetObject", query), "{query}");
        }
        assert!(!reads("ListObjects", "abac") && reads("GetObjectAcl", "acl"));
    }

    #[test]
    fn rows_are_those_of_calls_that_are_offered() {
        for (call, own) in PARAMETERS {
            assert!(READS.contains(call) || WRITES.contains(call), "{call}");
            assert!(!own.is_empty(), "{call}");
        }
    }
}
