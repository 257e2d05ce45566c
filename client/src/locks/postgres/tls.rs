//! `sslmode` and `sslrootcert`, with libpq's meaning.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What is asked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    KnownIssuer,
    KnownIssuerAndName,
}

/// Reads both settings. `prefer` is the default, as everywhere; from `require` on, a server without TLS is an error.
pub(super) fn read(mode: Option<&str>, roots: Option<&str>) -> Result<(SslMode, MakeRustlsConnect), String> {
    let (mode, asked) = match mode.unwrap_or("prefer") {
        "disable" => (SslMode::Disable, Asked::Nothing),
        "prefer" => (SslMode::Prefer, Asked::Nothing),
        // With roots at hand, libpq checks against them also here.
        "require" if roots.is_some() => (SslMode::Require, Asked::KnownIssuer),
        "require" => (SslMode::Require, Asked::Nothing),
        "verify-ca" => (SslMode::Require, Asked::KnownIssuer),
        "verify-full" => (SslMode::Require, Asked::KnownIssuerAndName),
        other => {
            return Err(format!(
                "sslmode=`{other}` is unknown; it is `disable`, `prefer`, `require`, `verify-ca` or `verify-full`"
            ));
        }
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = match asked {
        Asked::Nothing => None,
        Asked::KnownIssuer | Asked::KnownIssuerAndName => {
            let roots = Arc::new(trusted(roots)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(verifier.map_err(|error| format!("sslrootcert cannot be used: {error}"))?)
        }
    };
    let verifier = Arc::new(Verifier { asked, chain, provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok((mode, MakeRustlsConnect::new(config)))
}

/// The certificates of a file, or the system's.
fn trusted(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None | Some("system") => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
        Some(file) => {
            let read = |error| format!("sslrootcert `{file}` cannot be read: {error}");
            for certificate in CertificateDer::pem_file_iter(file).map_err(read)? {
                let certificate = certificate.map_err(read)?;
                roots
                    .add(certificate)
                    .map_err(|error| format!("sslrootcert `{file}` holds a bad certificate: {error}"))?;
            }
        }
    }
    match roots.is_empty() {
        true => Err("no trusted certificate was found for it: name a file, sslrootcert=/path/to/root.crt".to_owned()),
        false => Ok(roots),
    }
}

/// Asks of a certificate what `sslmode` says. That the server owns its key is asked always.
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
            // The name is the last thing that is looked at; whoever gets that far has a good chain.
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
