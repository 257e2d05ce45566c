//! `sslmode`, `sslrootcert`, `sslcert` and `sslkey`, with libpq's meaning.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::tls::{Certificates, Names, Terms, builder, provider};
use crate::{ServerUrl, Unusable};

/// The settings that are read here, and that PostgreSQL's own parser must not see.
pub(super) const SETTINGS: &[&str] = &["sslmode", "sslrootcert", "sslcert", "sslkey"];

const NAMES: Names = Names { roots: "sslrootcert", certificate: "sslcert", key: "sslkey" };

/// How far the server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    KnownIssuer,
    KnownIssuerAndName,
}

/// Reads the settings. The default is `prefer`, as in libpq; from `require` on, a server without TLS is an error.
pub(super) fn read(url: &ServerUrl) -> Result<(SslMode, MakeRustlsConnect, Terms), Unusable> {
    let certificates = Certificates::read(url, NAMES)?;
    let (mode, asked) = match url.setting("sslmode").unwrap_or("prefer") {
        "disable" => (SslMode::Disable, Asked::Nothing),
        "prefer" => (SslMode::Prefer, Asked::Nothing),
        // If there are roots, libpq checks against them in this mode too.
        "require" if certificates.has_roots() => (SslMode::Require, Asked::KnownIssuer),
        "require" => (SslMode::Require, Asked::Nothing),
        "verify-ca" => (SslMode::Require, Asked::KnownIssuer),
        "verify-full" => (SslMode::Require, Asked::KnownIssuerAndName),
        other => {
            let why = format!(
                "sslmode=`{other}` is unknown; it is `disable`, `prefer`, `require`, `verify-ca` or `verify-full`"
            );
            return Err(Unusable::url(&url.to_string(), &why));
        }
    };
    let chain = match asked {
        Asked::Nothing => None,
        Asked::KnownIssuer | Asked::KnownIssuerAndName => {
            let roots = Arc::new(certificates.trusted()?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
            Some(
                verifier
                    .map_err(|error| Unusable::url(&url.to_string(), &format!("its roots cannot be used: {error}")))?,
            )
        }
    };
    let verifier = Arc::new(Verifier { asked, chain, provider: provider() });
    let config = certificates.identified(builder()?.dangerous().with_custom_certificate_verifier(verifier))?;
    Ok((mode, MakeRustlsConnect::new(config), certificates.terms()))
}

/// Checks a certificate as `sslmode` requires. That the server owns its key is always checked.
#[derive(Debug)]
struct Verifier {
    asked: Asked,
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match (chain.verify_server_cert(certificate, between, name, stapled, now), self.asked) {
            // The name is checked last, so a certificate that fails only here has a valid chain.
            (
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                )),
                Asked::KnownIssuer,
            ) => Ok(ServerCertVerified::assertion()),
            (verified, _) => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
