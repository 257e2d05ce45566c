//! The checksum of an object that was uploaded in parts, computed from those of its parts.

use crc_fast::checksum_combine;
use fencepost_store::record::PartRecord;

use crate::checksum::{Algorithm, Hashers};
use crate::object::Attributes;

/// The checksum that the object of an upload will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadChecksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// How it is computed from the parts.
    pub kind: ChecksumKind,
}

/// How the checksum of an upload is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    /// A checksum of the parts' checksums.
    Composite,
    /// The checksum of the whole object, as if written in one piece.
    FullObject,
}

const ALGORITHM: &str = "fencepost-checksum-algorithm";
const KIND: &str = "fencepost-checksum-type";

impl UploadChecksum {
    /// Stores it with the upload until the completion.
    pub fn keep(self, attributes: &mut Attributes) {
        let kind = match self.kind {
            ChecksumKind::Composite => "composite",
            ChecksumKind::FullObject => "full-object",
        };
        attributes.push((ALGORITHM.to_owned(), self.algorithm.name().to_owned()));
        attributes.push((KIND.to_owned(), kind.to_owned()));
    }

    /// Reads the stored choice, and removes it: the object has the checksum itself.
    pub(crate) fn take(attributes: &mut Attributes) -> Option<UploadChecksum> {
        let kept = |name: &str| attributes.iter().find(|(kept, _)| kept == name).map(|(_, value)| value.as_str());
        let kind = match kept(KIND) {
            Some("composite") => Some(ChecksumKind::Composite),
            Some("full-object") => Some(ChecksumKind::FullObject),
            _ => None,
        };
        let algorithm = kept(ALGORITHM).and_then(Algorithm::named);
        attributes.retain(|(name, _)| name != ALGORITHM && name != KIND);
        Some(UploadChecksum { algorithm: algorithm?, kind: kind? })
    }

    /// Computes it from the checksums of the parts. `None`: a part was uploaded without one.
    pub(crate) fn of(self, parts: &[PartRecord]) -> Option<String> {
        match self.kind {
            ChecksumKind::Composite => composite(parts, self.algorithm),
            ChecksumKind::FullObject => combined(parts, self.algorithm),
        }
    }
}

/// A composite checksum as in S3: the checksum of the parts' binary checksums in order, and the number of parts.
pub(crate) fn composite(parts: &[PartRecord], algorithm: Algorithm) -> Option<String> {
    let mut hashers = Hashers::new([algorithm].into_iter());
    for part in parts {
        hashers.update(&checksum(part, algorithm)?);
    }
    Some(format!("{}-{}", hashers.finish().get(algorithm)?, parts.len()))
}

/// The checksum of the whole, computed from the checksums and sizes of the parts. This is possible for CRCs only.
fn combined(parts: &[PartRecord], algorithm: Algorithm) -> Option<String> {
    let crc = algorithm.crc()?;
    let mut whole: Option<(u64, usize)> = None;
    for part in parts {
        let bytes = checksum(part, algorithm)?;
        let width = bytes.len();
        let next = bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        whole = Some(match whole {
            None => (next, width),
            Some((before, _)) => (checksum_combine(crc, before, next, part.size), width),
        });
    }
    let (whole, width) = whole?;
    let bytes = whole.to_be_bytes();
    Some(data_encoding::BASE64.encode(bytes.get(bytes.len().checked_sub(width)?..)?))
}

/// The binary checksum of a part.
fn checksum(part: &PartRecord, algorithm: Algorithm) -> Option<Vec<u8>> {
    let kept = part.attributes.iter().find(|(name, _)| name == algorithm.header());
    kept.and_then(|(_, value)| data_encoding::BASE64.decode(value.as_bytes()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::Timestamp;

    fn measured(body: &[u8], algorithm: Algorithm) -> String {
        let mut hashers = Hashers::new([algorithm].into_iter());
        hashers.update(body);
        hashers.finish().get(algorithm).unwrap().to_owned()
    }

    fn part(body: &[u8], algorithm: Algorithm) -> PartRecord {
        let attributes = vec![(algorithm.header().to_owned(), measured(body, algorithm))];
        let size = body.len() as u64;
        PartRecord { id: 1, size, etag: "e".to_owned(), modified: Timestamp(0), attributes }
    }

    #[test]
    fn the_checksum_of_the_whole_is_made_from_those_of_the_parts() {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let parts = [part(b"one", algorithm), part(b"", algorithm), part(b" and another", algorithm)];
            let whole = UploadChecksum { algorithm, kind: ChecksumKind::FullObject };
            assert_eq!(whole.of(&parts), Some(measured(b"one and another", algorithm)), "{algorithm:?}");
            assert_eq!(whole.of(&[part(b"x", Algorithm::Sha1)]), None, "{algorithm:?}");
        }
        let hashed = UploadChecksum { algorithm: Algorithm::Sha256, kind: ChecksumKind::FullObject };
        assert_eq!(hashed.of(&[part(b"x", Algorithm::Sha256)]), None);
    }

    #[test]
    fn what_an_upload_will_have_is_kept_until_it_is_completed() {
        let wanted = UploadChecksum { algorithm: Algorithm::Crc64Nvme, kind: ChecksumKind::FullObject };
        let mut attributes = vec![("content-type".to_owned(), "text/plain".to_owned())];
        let before = attributes.clone();
        wanted.keep(&mut attributes);
        assert_eq!(UploadChecksum::take(&mut attributes), Some(wanted));
        assert_eq!(attributes, before);
        assert_eq!(UploadChecksum::take(&mut attributes), None);
    }
}
