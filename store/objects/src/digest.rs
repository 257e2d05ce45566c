//! Measurement of arriving bytes: length, MD5 for the ETag, and the requested or promised checksums.

use md5::{Digest, Md5};

use crate::checksum::{Algorithm, Checksums, Hashers};
use crate::error::ObjectError;

/// What the sender promised about the body.
#[derive(Clone, Debug, Default)]
pub struct Promised {
    /// The length in bytes.
    pub length: Option<u64>,
    /// `Content-MD5`, in base64.
    pub md5: Option<String>,
    /// Checksums to verify, in base64.
    pub checksums: Vec<(Algorithm, String)>,
    /// Checksums that the sender will transmit after the body.
    pub announced: Vec<Algorithm>,
    /// The largest accepted length in bytes.
    pub limit: u64,
}

impl Promised {
    /// The checksums to compute.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        self.checksums.iter().map(|(algorithm, _)| *algorithm).chain(self.announced.iter().copied())
    }

    /// Checks the length against the promised one.
    pub(crate) fn fits(&self, found: u64) -> Result<(), ObjectError> {
        match self.length {
            Some(expected) if expected != found => Err(ObjectError::Incomplete { expected, found }),
            _ => Ok(()),
        }
    }

    /// Checks that all announced trailing checksums have arrived.
    pub(crate) fn complete(&self) -> Result<(), ObjectError> {
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

/// A measurement in progress.
pub struct Measure {
    length: u64,
    md5: Md5,
    checksums: Hashers,
}

/// The measured properties of a body.
#[derive(Clone, Debug)]
pub struct Measured {
    pub(crate) length: u64,
    pub(crate) md5: [u8; 16],
    pub(crate) checksums: Checksums,
}

impl Measure {
    /// Measures length, MD5 and the checksums of these algorithms.
    pub fn new(algorithms: impl Iterator<Item = Algorithm>) -> Measure {
        Measure { length: 0, md5: Md5::new(), checksums: Hashers::new(algorithms) }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        self.md5.update(bytes);
        self.checksums.update(bytes);
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Ends the measurement.
    pub fn finish(self) -> Measured {
        Measured { length: self.length, md5: self.md5.finalize().into(), checksums: self.checksums.finish() }
    }
}

impl Measured {
    /// The ETag of an object written in one piece.
    pub(crate) fn etag(&self) -> String {
        hex(&self.md5)
    }

    /// Checks the measured values against the promised ones.
    pub fn keeps(&self, promised: &Promised) -> Result<(), ObjectError> {
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
            let found = self.checksums.get(*algorithm);
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

/// The ETag of an object joined from parts: the MD5 of the parts' MD5s, and their number.
pub(crate) fn etag_of_parts(etags: &[String]) -> String {
    let mut md5 = Md5::new();
    for etag in etags {
        md5.update(data_encoding::HEXLOWER.decode(etag.as_bytes()).unwrap_or_default());
    }
    format!("{}-{}", hex(&md5.finalize()), etags.len())
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
