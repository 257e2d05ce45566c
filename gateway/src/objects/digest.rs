//! What arrives, measured: length, MD5 for the ETag, and whatever checksums were asked for or promised.

use md5::{Digest, Md5};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::dto::Checksum;

use super::error::ObjectError;

/// The checksums that S3 knows, by the end of their header's name.
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
    /// All of them.
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

    /// The header that carries it, which is also the attribute it is kept in.
    pub fn header(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "x-amz-checksum-crc32",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Sha1 => "x-amz-checksum-sha1",
            Algorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Its name, as S3 has it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    /// By its name in `x-amz-checksum-algorithm` and `x-amz-sdk-checksum-algorithm`.
    pub fn named(name: &str) -> Option<Algorithm> {
        let name = name.to_ascii_lowercase();
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.header().rsplit('-').next() == Some(&name))
    }

    /// Its value among checksums.
    pub fn of(self, checksum: &Checksum) -> Option<&str> {
        match self {
            Algorithm::Crc32 => checksum.checksum_crc32.as_deref(),
            Algorithm::Crc32c => checksum.checksum_crc32c.as_deref(),
            Algorithm::Crc64Nvme => checksum.checksum_crc64nvme.as_deref(),
            Algorithm::Sha1 => checksum.checksum_sha1.as_deref(),
            Algorithm::Sha256 => checksum.checksum_sha256.as_deref(),
        }
    }
}

/// What the sender promised of the body.
#[derive(Clone, Debug, Default)]
pub struct Promised {
    /// Its length.
    pub length: Option<u64>,
    /// `Content-MD5`, in base64.
    pub md5: Option<String>,
    /// Checksums in base64.
    pub checksums: Vec<(Algorithm, String)>,
    /// Checksums that come after the body.
    pub announced: Vec<Algorithm>,
    /// More than this is too much.
    pub limit: u64,
}

impl Promised {
    /// Is it as long as was promised?
    pub(super) fn fits(&self, found: u64) -> Result<(), ObjectError> {
        match self.length {
            Some(expected) if expected != found => Err(ObjectError::Incomplete { expected, found }),
            _ => Ok(()),
        }
    }

    /// Did everything arrive that was to come after the body?
    pub(super) fn complete(&self) -> Result<(), ObjectError> {
        let arrived = |wanted: &Algorithm| self.checksums.iter().any(|(algorithm, _)| algorithm == wanted);
        match self.announced.iter().find(|wanted| !arrived(wanted)) {
            None => Ok(()),
            Some(missing) => {
                let header = missing.header();
                Err(ObjectError::BadDigest(format!("{header} was announced as a trailer and did not come")))
            }
        }
    }
}

/// A running measurement.
pub(crate) struct Measure {
    length: u64,
    md5: Md5,
    checksums: ChecksumHasher,
}

/// What arrived.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(super) length: u64,
    pub(super) md5: [u8; 16],
    pub(super) checksums: Checksum,
}

impl Measure {
    pub(crate) fn new(algorithms: impl Iterator<Item = Algorithm>) -> Measure {
        let mut checksums = ChecksumHasher::default();
        for algorithm in algorithms {
            match algorithm {
                Algorithm::Crc32 => checksums.crc32 = Some(Crc32::new()),
                Algorithm::Crc32c => checksums.crc32c = Some(Crc32c::new()),
                Algorithm::Crc64Nvme => checksums.crc64nvme = Some(Crc64Nvme::new()),
                Algorithm::Sha1 => checksums.sha1 = Some(Sha1::new()),
                Algorithm::Sha256 => checksums.sha256 = Some(Sha256::new()),
            }
        }
        Measure { length: 0, md5: Md5::new(), checksums }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.md5.update(bytes);
        self.checksums.update(bytes);
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn finish(self) -> Measured {
        Measured { length: self.length, md5: self.md5.finalize().into(), checksums: self.checksums.finalize() }
    }
}

impl Measured {
    /// The ETag of an object that came in one piece.
    pub(super) fn etag(&self) -> String {
        hex(&self.md5)
    }

    /// Is it what was promised?
    pub(crate) fn keeps(&self, promised: &Promised) -> Result<(), ObjectError> {
        promised.fits(self.length)?;
        if let Some(md5) = &promised.md5
            && *md5 != data_encoding::BASE64.encode(&self.md5)
        {
            return Err(ObjectError::BadDigest(format!(
                "the Content-MD5 of the request is {md5}, and that of the body is {}",
                data_encoding::BASE64.encode(&self.md5)
            )));
        }
        for (algorithm, sent) in &promised.checksums {
            let found = algorithm.of(&self.checksums);
            if found != Some(sent.as_str()) {
                return Err(ObjectError::BadDigest(format!(
                    "{} of the request is {sent}, and that of the body is {}",
                    algorithm.header(),
                    found.unwrap_or("not known")
                )));
            }
        }
        Ok(())
    }
}

/// The ETag of an object that came in parts: of the parts' MD5s, and how many.
pub(super) fn etag_of_parts(etags: &[String]) -> String {
    let mut md5 = Md5::new();
    for etag in etags {
        md5.update(data_encoding::HEXLOWER.decode(etag.as_bytes()).unwrap_or_default());
    }
    format!("{}-{}", hex(&md5.finalize()), etags.len())
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
