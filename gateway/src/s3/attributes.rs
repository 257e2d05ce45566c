//! Metadata that a client gives for an object, stored with it and returned.

use fencepost_core::Timestamp as Millis;
use fencepost_objects::{Algorithm, Attributes, Object};
use s3s::dto::{
    Checksum, ChecksumAlgorithm, ChecksumType, ETag, GetObjectOutput, HeadObjectOutput, Metadata, Timestamp,
    TimestampFormat,
};
use s3s::{S3Result, s3_error};

const META: &str = "x-amz-meta-";

/// S3 allows at most this much user metadata.
const MAX_METADATA_BYTES: usize = 2048;

/// Headers of a write that are stored.
#[derive(Default)]
pub(super) struct Said {
    pub(super) content_type: Option<String>,
    pub(super) cache_control: Option<String>,
    pub(super) content_disposition: Option<String>,
    pub(super) content_encoding: Option<String>,
    pub(super) content_language: Option<String>,
    pub(super) expires: Option<Timestamp>,
    pub(super) website_redirect_location: Option<String>,
    pub(super) metadata: Option<Metadata>,
}

/// Moves the stored headers out of an input of the S3 library. The inputs share these fields, but no type.
macro_rules! said {
    ($input:ident) => {
        $crate::s3::attributes::Said {
            content_type: $input.content_type,
            cache_control: $input.cache_control,
            content_disposition: $input.content_disposition,
            content_encoding: $input.content_encoding,
            content_language: $input.content_language,
            expires: $input.expires,
            website_redirect_location: $input.website_redirect_location,
            metadata: $input.metadata,
        }
    };
}

pub(super) use said;

impl Said {
    /// Converts the headers to stored attributes.
    pub(super) fn into_attributes(self) -> S3Result<Attributes> {
        let mut kept = Vec::new();
        let encoding = self.content_encoding.map(|encoding| without_chunks(&encoding)).filter(|text| !text.is_empty());
        let named = [
            ("content-type", self.content_type),
            ("cache-control", self.cache_control),
            ("content-disposition", self.content_disposition),
            ("content-encoding", encoding),
            ("content-language", self.content_language),
            ("expires", self.expires.as_ref().map(http_date)),
            ("x-amz-website-redirect-location", self.website_redirect_location),
        ];
        kept.extend(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        let metadata = self.metadata.unwrap_or_default();
        let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_METADATA_BYTES {
            return Err(s3_error!(
                MetadataTooLarge,
                "The metadata has {bytes} bytes, and the limit is {MAX_METADATA_BYTES}."
            ));
        }
        let mut metadata: Vec<_> = metadata.into_iter().collect();
        metadata.sort();
        kept.extend(metadata.into_iter().map(|(name, value)| (format!("{META}{}", name.to_ascii_lowercase()), value)));
        if let Some((name, value)) = kept.iter().find(|(name, value)| name.len().max(value.len()) > 8192) {
            let longest = name.len().max(value.len());
            return Err(s3_error!(InvalidArgument, "A header has {longest} bytes, and the limit is 8192."));
        }
        Ok(kept)
    }
}

/// Removes `aws-chunked`: how the body was transferred is not a property of the object. The rest stays unchanged.
fn without_chunks(encoding: &str) -> String {
    let parts = encoding.split(',').filter(|part| !part.trim().eq_ignore_ascii_case("aws-chunked"));
    parts.collect::<Vec<_>>().join(",").trim().to_owned()
}

/// Formats a time for a header.
pub(super) fn http_date(time: &Timestamp) -> String {
    let mut text = Vec::new();
    match time.format(TimestampFormat::HttpDate, &mut text) {
        Ok(()) => String::from_utf8(text).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// Converts a time of the index to the type of the S3 library.
pub(super) fn time(at: Millis) -> Timestamp {
    let seconds = i64::try_from(at.0 / 1000).unwrap_or(0);
    Timestamp::from(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.unsigned_abs()))
}

/// The ETag of an object.
pub(super) fn etag(etag: &str) -> ETag {
    ETag::Strong(etag.to_owned())
}

/// The stored attribute of a name.
pub(super) fn kept(attributes: &Attributes, name: &str) -> Option<String> {
    attributes.iter().find(|(kept, _)| kept == name).map(|(_, value)| value.clone())
}

/// The kind of the stored checksum, if any. A composite checksum is followed by the number of parts; otherwise it
/// covers the full object.
pub(super) fn checksum_type(attributes: &Attributes) -> Option<ChecksumType> {
    let mut sums = Algorithm::ALL.into_iter().filter_map(|algorithm| kept(attributes, algorithm.header()));
    let kind = if sums.next()?.contains('-') { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT };
    Some(ChecksumType::from_static(kind))
}

/// The algorithms of the stored checksums.
pub(super) fn checksum_algorithms(attributes: &Attributes) -> Option<Vec<ChecksumAlgorithm>> {
    let kept = Algorithm::ALL.into_iter().filter(|algorithm| kept(attributes, algorithm.header()).is_some());
    let names: Vec<_> = kept.map(|algorithm| ChecksumAlgorithm::from_static(algorithm.name())).collect();
    if names.is_empty() { None } else { Some(names) }
}

/// The stored checksums.
pub(super) fn checksum(attributes: &Attributes) -> Option<Checksum> {
    let sum = |algorithm: Algorithm| kept(attributes, algorithm.header());
    let checksum_type = checksum_type(attributes)?;
    Some(Checksum {
        checksum_crc32: sum(Algorithm::Crc32),
        checksum_crc32c: sum(Algorithm::Crc32c),
        checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
        checksum_sha1: sum(Algorithm::Sha1),
        checksum_sha256: sum(Algorithm::Sha256),
        checksum_type: Some(checksum_type),
    })
}

/// The attributes that a copy inherits: the metadata, without the checksums of the bytes.
pub(super) fn described(attributes: &Attributes) -> Attributes {
    let describes = |name: &str| !name.starts_with("x-amz-checksum-") && !name.starts_with("fencepost-");
    attributes.iter().filter(|(name, _)| describes(name)).cloned().collect()
}

fn metadata(attributes: &Attributes) -> Option<Metadata> {
    let own = attributes.iter().filter_map(|(name, value)| Some((name.strip_prefix(META)?.to_owned(), value.clone())));
    let own: Metadata = own.collect();
    if own.is_empty() { None } else { Some(own) }
}

/// The description of an object, without the fields of a range.
pub(super) fn head(object: &Object, checksums: bool) -> HeadObjectOutput {
    let kept = |name| kept(&object.attributes, name);
    let sum = |algorithm: Algorithm| if checksums { kept(algorithm.header()) } else { None };
    HeadObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        cache_control: kept("cache-control"),
        checksum_crc32: sum(Algorithm::Crc32),
        checksum_crc32c: sum(Algorithm::Crc32c),
        checksum_crc64nvme: sum(Algorithm::Crc64Nvme),
        checksum_sha1: sum(Algorithm::Sha1),
        checksum_sha256: sum(Algorithm::Sha256),
        checksum_type: if checksums { checksum_type(&object.attributes) } else { None },
        content_disposition: kept("content-disposition"),
        content_encoding: kept("content-encoding"),
        content_language: kept("content-language"),
        content_length: i64::try_from(object.size).ok(),
        content_type: Some(kept("content-type").unwrap_or_else(|| "binary/octet-stream".to_owned())),
        e_tag: Some(etag(&object.etag)),
        expires: kept("expires").and_then(|text| Timestamp::parse(TimestampFormat::HttpDate, &text).ok()),
        last_modified: Some(time(object.modified)),
        metadata: metadata(&object.attributes),
        website_redirect_location: kept("x-amz-website-redirect-location"),
        ..HeadObjectOutput::default()
    }
}

/// Converts a description to that of an answer with a body.
pub(super) fn get(head: HeadObjectOutput) -> GetObjectOutput {
    GetObjectOutput {
        accept_ranges: head.accept_ranges,
        cache_control: head.cache_control,
        checksum_crc32: head.checksum_crc32,
        checksum_crc32c: head.checksum_crc32c,
        checksum_crc64nvme: head.checksum_crc64nvme,
        checksum_sha1: head.checksum_sha1,
        checksum_sha256: head.checksum_sha256,
        checksum_type: head.checksum_type,
        content_disposition: head.content_disposition,
        content_encoding: head.content_encoding,
        content_language: head.content_language,
        content_length: head.content_length,
        content_type: head.content_type,
        content_range: head.content_range,
        e_tag: head.e_tag,
        expires: head.expires,
        last_modified: head.last_modified,
        metadata: head.metadata,
        parts_count: head.parts_count,
        website_redirect_location: head.website_redirect_location,
        ..GetObjectOutput::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_small_content_encoding_is_kept_as_it_was_sent() {
        for (sent, expected) in [
            ("deflate, gzip", "deflate, gzip"),
            ("deflate,gzip", "deflate,gzip"),
            ("aws-chunked", ""),
            ("aws-chunked, deflate, gzip", "deflate, gzip"),
            ("gzip,AWS-chunked", "gzip"),
        ] {
            assert_eq!(without_chunks(sent), expected, "{sent}");
        }
    }
}
