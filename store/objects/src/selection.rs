//! The parts that a completion lists, checked against those that were uploaded.

use fencepost_store::record::PartRecord;

use crate::checksum::Algorithm;
use crate::error::ObjectError;
use crate::upload_checksum::composite;

/// The smallest size of every part but the last, as in S3.
pub const MIN_PART_BYTES: u64 = 5 << 20;

/// A part as the client lists it.
#[derive(Clone, Debug)]
pub struct GivenPart {
    /// The part's number.
    pub number: u16,
    /// The expected ETag, without quotes.
    pub etag: Option<String>,
    /// The expected checksums.
    pub checksums: Vec<(Algorithm, String)>,
}

/// Returns the parts that the client lists, if they match what was uploaded.
pub(crate) fn select(parts: &[(u16, PartRecord)], given: &[GivenPart]) -> Result<Vec<PartRecord>, ObjectError> {
    if given.is_empty() {
        return Err(ObjectError::InvalidPart("a completion lists at least one part".to_owned()));
    }
    if !given.is_sorted_by(|one, next| one.number < next.number) {
        return Err(ObjectError::PartOrder);
    }
    let mut selected = Vec::with_capacity(given.len());
    for part in given {
        let wrong = |what: &str| ObjectError::InvalidPart(format!("part {} {what}", part.number));
        let found = parts.iter().find(|(number, _)| *number == part.number);
        let (_, found) = found.ok_or_else(|| wrong("was not uploaded"))?;
        if part.etag.as_ref().is_some_and(|etag| *etag != found.etag) {
            return Err(wrong(&format!("has the ETag {}, not the one that was given", found.etag)));
        }
        for (algorithm, value) in &part.checksums {
            let header = algorithm.header();
            match checksum(found, *algorithm) {
                Some(kept) if kept == value => {}
                Some(_) => return Err(wrong(&format!("has another {header} than was given"))),
                None => return Err(wrong(&format!("was uploaded without {header}, and is listed with one"))),
            }
        }
        selected.push(found.clone());
    }
    let small = given.iter().zip(&selected).rev().skip(1).rev().find(|(_, part)| part.size < MIN_PART_BYTES);
    if let Some((given, part)) = small {
        return Err(ObjectError::PartTooSmall { number: given.number, size: part.size, least: MIN_PART_BYTES });
    }
    Ok(selected)
}

/// Checks the given composite checksums against the parts.
pub(crate) fn check_composite(parts: &[PartRecord], given: &[(Algorithm, String)]) -> Result<(), ObjectError> {
    for (algorithm, sent) in given {
        let header = algorithm.header();
        match composite(parts, *algorithm) {
            None => return Err(ObjectError::InvalidPart(format!("not every part was uploaded with {header}"))),
            Some(found) if found != *sent => {
                return Err(ObjectError::BadDigest(format!(
                    "{header} of the request is {sent}, and that of the parts is {found}"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn checksum(part: &PartRecord, algorithm: Algorithm) -> Option<&String> {
    part.attributes.iter().find(|(name, _)| name == algorithm.header()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Hashers;
    use fencepost_core::Timestamp;

    fn part(body: &[u8]) -> PartRecord {
        let mut hashers = Hashers::new([Algorithm::Sha256].into_iter());
        hashers.update(body);
        let sum = hashers.finish().get(Algorithm::Sha256).unwrap().to_owned();
        let attributes = vec![(Algorithm::Sha256.header().to_owned(), sum)];
        PartRecord { id: 1, size: MIN_PART_BYTES, etag: "e".to_owned(), modified: Timestamp(0), attributes }
    }

    #[test]
    fn a_checksum_of_checksums_is_compared() {
        let parts = [part(b"one"), part(b"two")];
        // python3: sha256(sha256(b"one").digest() + sha256(b"two").digest())
        let right = "EZFMGaKKmMV9EvPM5sMreUR4T0tHgacGwk6x3ChOKFY=-2".to_owned();
        assert!(check_composite(&parts, &[(Algorithm::Sha256, right.clone())]).is_ok());
        let wrong = check_composite(&parts[..1], &[(Algorithm::Sha256, right.clone())]);
        assert!(matches!(wrong, Err(ObjectError::BadDigest(_))));
        let unknown = check_composite(&parts, &[(Algorithm::Crc32, right)]);
        assert!(matches!(unknown, Err(ObjectError::InvalidPart(_))));
    }

    #[test]
    fn a_part_listed_with_a_checksum_it_does_not_have_is_refused() {
        let parts = [(1, part(b"one"))];
        let listed = |algorithm, sum: &str| {
            let checksums = vec![(algorithm, sum.to_owned())];
            select(&parts, &[GivenPart { number: 1, etag: None, checksums }])
        };
        let own = parts[0].1.attributes[0].1.clone();
        assert!(listed(Algorithm::Sha256, &own).is_ok());
        for refused in [listed(Algorithm::Sha256, "AAAA"), listed(Algorithm::Crc32, "AAAA")] {
            assert!(matches!(refused, Err(ObjectError::InvalidPart(_))));
        }
    }
}
