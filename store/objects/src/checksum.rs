//! The checksums that an object can have, and their computation in one pass.

use crc_fast::CrcAlgorithm;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// The checksum algorithms of S3, each documented with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// `x-amz-checksum-crc32`
    Crc32,
    /// `x-amz-checksum-crc32c`
    Crc32c,
    /// `x-amz-checksum-crc64nvme`
    Crc64Nvme,
    /// `x-amz-checksum-sha1`
    Sha1,
    /// `x-amz-checksum-sha256`
    Sha256,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

    /// The header that carries the checksum. It is also the name of the attribute that stores it.
    pub fn header(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "x-amz-checksum-crc32",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Sha1 => "x-amz-checksum-sha1",
            Algorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The algorithm's name in S3.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    /// Finds an algorithm by its name in `x-amz-checksum-algorithm` and `x-amz-sdk-checksum-algorithm`.
    pub fn named(name: &str) -> Option<Algorithm> {
        let name = name.to_ascii_lowercase();
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.header().rsplit('-').next() == Some(&name))
    }

    /// The CRC variant, if the algorithm is a CRC.
    pub(crate) fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 | Algorithm::Sha256 => None,
        }
    }
}

/// Checksums of the same bytes, in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checksums(Vec<(Algorithm, String)>);

impl Checksums {
    /// The checksum of one algorithm, if it was computed.
    pub fn get(&self, algorithm: Algorithm) -> Option<&str> {
        self.0.iter().find(|(computed, _)| *computed == algorithm).map(|(_, sum)| sum.as_str())
    }

    /// Converts them to attributes of an object, in the order of [`Algorithm::ALL`].
    pub(crate) fn into_attributes(self) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter().map(|(algorithm, sum)| (algorithm.header().to_owned(), sum))
    }
}

/// Computes several checksums in one pass.
pub(crate) struct Hashers(Vec<(Algorithm, Hasher)>);

enum Hasher {
    Crc32(crc_fast::Digest),
    Crc64(crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hashers {
    /// Creates hashers for these algorithms; duplicates are computed once.
    pub(crate) fn new(algorithms: impl Iterator<Item = Algorithm>) -> Hashers {
        let wanted: Vec<Algorithm> = algorithms.collect();
        let wanted = Algorithm::ALL.into_iter().filter(|algorithm| wanted.contains(algorithm));
        Hashers(wanted.map(|algorithm| (algorithm, Hasher::new(algorithm))).collect())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|(_, hasher)| hasher.update(bytes));
    }

    pub(crate) fn finish(self) -> Checksums {
        Checksums(self.0.into_iter().map(|(algorithm, hasher)| (algorithm, hasher.finish())).collect())
    }
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Hasher {
        match algorithm {
            Algorithm::Crc32 => Hasher::Crc32(crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc)),
            Algorithm::Crc32c => Hasher::Crc32(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Crc64Nvme => Hasher::Crc64(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)),
            Algorithm::Sha1 => Hasher::Sha1(Sha1::new()),
            Algorithm::Sha256 => Hasher::Sha256(Sha256::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Crc32(crc) | Hasher::Crc64(crc) => crc.update(bytes),
            Hasher::Sha1(sha) => sha.update(bytes),
            Hasher::Sha256(sha) => sha.update(bytes),
        }
    }

    fn finish(self) -> String {
        let encode = |bytes: &[u8]| data_encoding::BASE64.encode(bytes);
        match self {
            // A 32-bit CRC is in the lower half.
            Hasher::Crc32(crc) => encode(&crc.finalize().to_be_bytes()[4..]),
            Hasher::Crc64(crc) => encode(&crc.finalize().to_be_bytes()),
            Hasher::Sha1(sha) => encode(&sha.finalize()),
            Hasher::Sha256(sha) => encode(&sha.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values that the CRC and hash catalogues give for the input `123456789`.
    #[test]
    fn checksums_are_those_of_the_catalogues() {
        let expected = [
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (Algorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ];
        let mut hashers = Hashers::new(Algorithm::ALL.into_iter().chain([Algorithm::Crc32]));
        hashers.update(b"1234");
        hashers.update(b"56789");
        let sums = hashers.finish();
        for (algorithm, hex) in expected {
            let bytes = data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap();
            assert_eq!(sums.get(algorithm), Some(data_encoding::BASE64.encode(&bytes).as_str()), "{algorithm:?}");
        }
        assert_eq!(sums.into_attributes().count(), Algorithm::ALL.len(), "each once");
        assert_eq!(Hashers::new(std::iter::empty()).finish(), Checksums::default());
    }
}
