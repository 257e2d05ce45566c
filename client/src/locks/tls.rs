//! TLS to a lock service: trusted roots, client certificate, and explanations of failed handshakes.
//!
//! All services read their certificates here; only the names of the settings differ.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier, WantsVersions,
};

use super::url::wrong;
use super::{LockError, LockUrl};

/// The names of the TLS settings in a URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) roots: &'static str,
    pub(super) certificate: &'static str,
    pub(super) key: &'static str,
}

impl Names {
    /// For services whose own clients have no established URL settings.
    const USUAL: Names = Names { roots: "ca", certificate: "cert", key: "key" };

    fn all(self) -> [&'static str; 3] {
        [self.roots, self.certificate, self.key]
    }
}

/// Reads the TLS settings of a service that selects TLS by its scheme, and rejects all other settings.
///
/// With a scheme that does not select TLS, such a setting is an error: ignoring it would leave the traffic unencrypted.
pub(super) fn by_scheme(url: &LockUrl, encrypted: &str) -> Result<Option<Certificates>, LockError> {
    let names = Names::USUAL.all();
    if url.scheme == encrypted {
        url.only(&names)?;
        return Certificates::read(url, Names::USUAL).map(Some);
    }
    if let Some(name) = names.into_iter().chain(["tls"]).find(|name| url.setting(name).is_some()) {
        let why = format!("`{name}` is for TLS, which is asked for by writing {encrypted}://");
        return Err(wrong(&url.to_string(), &why));
    }
    url.only(&[])?;
    Ok(None)
}

/// The cryptography provider of TLS.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A configuration builder with safe defaults.
pub(super) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, LockError> {
    let builder: ConfigBuilder<ClientConfig, WantsVersions> = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions();
    builder.map_err(|error| LockError::Invalid(format!("TLS cannot be used: {error}")))
}

/// The contents of the files that a URL names. Never shown.
pub(super) struct Certificates {
    names: Names,
    /// The URL without its password, for messages.
    service: String,
    roots: Option<File>,
    identity: Option<Identity>,
}

/// The client certificate, with its intermediate certificates and its key.
struct Identity {
    chain: File,
    key: File,
}

/// A PEM file.
struct File {
    setting: &'static str,
    path: String,
    text: Vec<u8>,
}

impl Certificates {
    /// Reads the files.
    pub(super) fn read(url: &LockUrl, names: Names) -> Result<Certificates, LockError> {
        let service = url.to_string();
        let read = |setting| match url.setting(setting) {
            None => Ok(None),
            Some(path) => match contents(path, setting == names.key) {
                Ok(text) => Ok(Some(File { setting, path: path.to_owned(), text })),
                Err(error) => Err(unusable(&service, setting, path, &error)),
            },
        };
        let alone = |there: &str, missing: &str| {
            let why = format!("{service}: `{there}` without `{missing}`; a certificate and its key belong together");
            LockError::Invalid(why)
        };
        let identity = match (read(names.certificate)?, read(names.key)?) {
            (Some(chain), Some(key)) => Some(Identity { chain, key }),
            (Some(_), None) => return Err(alone(names.certificate, names.key)),
            (None, Some(_)) => return Err(alone(names.key, names.certificate)),
            (None, None) => None,
        };
        // libpq's name for the system's roots.
        let roots = match url.setting(names.roots) {
            Some("system") => None,
            _ => read(names.roots)?,
        };
        Ok(Certificates { names, service, roots, identity })
    }

    /// True if the URL names its own roots, instead of using only the machine's.
    pub(super) fn has_roots(&self) -> bool {
        self.roots.is_some()
    }

    /// The trusted roots: those in the file, or those that this machine trusts.
    pub(super) fn trusted(&self) -> Result<RootCertStore, LockError> {
        let mut roots = RootCertStore::empty();
        match &self.roots {
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Some(file) => {
                for certificate in file.certificates().map_err(|why| self.unusable(file, &why))? {
                    roots.add(certificate).map_err(|error| self.unusable(file, &error))?;
                }
            }
        }
        if roots.is_empty() {
            let (service, name) = (&self.service, self.names.roots);
            let why =
                format!("{service}: this machine trusts no certificates; name a file with `{name}=/path/to/ca.pem`");
            return Err(LockError::Invalid(why));
        }
        Ok(roots)
    }

    /// A configuration with the trusted roots and the client certificate.
    pub(super) fn config(&self) -> Result<ClientConfig, LockError> {
        self.identified(builder()?.with_root_certificates(self.trusted()?))
    }

    /// Adds the client certificate, if there is one.
    pub(super) fn identified(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, LockError> {
        let Some(Identity { chain, key }) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let certificates = chain.certificates().map_err(|why| self.unusable(chain, &why))?;
        let secret = key.key().map_err(|why| self.unusable(key, &why))?;
        builder.with_client_auth_cert(certificates, secret).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                self.unusable(key, &format!("it is not the key of the certificate in `{}`", chain.path))
            }
            error => self.unusable(key, &error),
        })
    }

    /// The roots as PEM, for libraries that read it themselves.
    pub(super) fn roots(&self) -> Option<&[u8]> {
        self.roots.as_ref().map(|file| file.text.as_slice())
    }

    /// The client certificate and its key as PEM.
    pub(super) fn identity(&self) -> Option<(&[u8], &[u8])> {
        self.identity.as_ref().map(|Identity { chain, key }| (chain.text.as_slice(), key.text.as_slice()))
    }

    /// The wording of messages about a failed connection.
    pub(super) fn terms(&self) -> Terms {
        Terms { names: self.names, identified: self.identity.is_some() }
    }

    fn unusable(&self, file: &File, why: &dyn fmt::Display) -> LockError {
        unusable(&self.service, file.setting, &file.path, why)
    }
}

/// The contents of a file. A private key must be readable only by its owner, as libpq requires as well. If the file
/// belongs to root, a group may read it too, which is how a system shares its key with its services.
fn contents(path: &str, is_secret: bool) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let found = file.metadata()?;
    let others = if found.uid() == 0 { 0o037 } else { 0o077 };
    if is_secret && found.is_file() && found.mode() & others != 0 {
        return Err(io::Error::other(format!("others may read this private key; run: chmod 600 {path}")));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

fn unusable(service: &str, setting: &str, path: &str, why: &dyn fmt::Display) -> LockError {
    LockError::Invalid(format!("{service}: the file `{path}` of `{setting}` cannot be used: {why}"))
}

impl File {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        match found {
            Ok(found) if found.is_empty() => Err("it holds no certificate in PEM".to_owned()),
            Ok(found) => Ok(found),
            Err(error) => Err(format!("it is not PEM: {error}")),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                "it holds no private key in PEM; one that is encrypted must be decrypted first (openssl pkey)"
                    .to_owned()
            }
            // The parser's message is not shown: it may contain a part of the key.
            _ => "it is not PEM".to_owned(),
        })
    }
}

/// The wording of messages about a failed connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    names: Names,
    /// Whether a client certificate was presented.
    identified: bool,
}

impl Terms {
    /// Why TLS failed, and what to do about it. `None`: something else failed, which may be transient.
    pub(super) fn refusal(self, error: &(dyn Error + 'static)) -> Option<String> {
        let Names { roots, certificate, .. } = self.names;
        let why = match among_causes(error, &|error| error.downcast_ref::<rustls::Error>())? {
            // `BadSignature`: the trusted CA has the same name, but another key.
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                format!("no trusted authority vouches for its certificate; name the file of its CA with `{roots}`")
            }
            error @ rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => format!("it is not who the URL names: {error}"),
            error @ rustls::Error::InvalidCertificate(_) => format!("its certificate is not trusted: {error}"),
            rustls::Error::AlertReceived(alert) if is_about_us(*alert) => match self.identified {
                true => format!("it refused our certificate, the one of `{certificate}` ({alert:?})"),
                false => format!("it asks who we are ({alert:?}); {}", self.introduce()),
            },
            rustls::Error::InvalidMessage(_) => "what answers there does not speak TLS".to_owned(),
            error @ (rustls::Error::PeerIncompatible(_) | rustls::Error::AlertReceived(_)) => {
                format!("there is no TLS that both sides speak: {error}")
            }
            _ => return None,
        };
        Some(why)
    }

    /// A hint for a connection that the peer closed: it may not speak TLS, or require a client certificate.
    pub(super) fn suspicion(self) -> String {
        match self.identified {
            true => {
                format!(
                    ". Does it speak TLS there, and know who signed the certificate of `{}`?",
                    self.names.certificate
                )
            }
            false => format!(". Does it speak TLS there, and ask who its clients are? Then {}", self.introduce()),
        }
    }

    fn introduce(self) -> String {
        format!("name the files of a certificate with `{}` and `{}`", self.names.certificate, self.names.key)
    }
}

/// True if the peer closed the connection.
pub(super) fn ended(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    among_causes(error, &|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(kind, Some(BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)).then_some(())
    })
    .is_some()
}

/// True if the alert is about our certificate. Some servers send the first of these also when no certificate was
/// presented.
fn is_about_us(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::HandshakeFailure
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate
            | Alert::AccessDenied
    )
}

/// Searches an error and its causes, however they are wrapped.
fn among_causes<'a, T>(
    error: &'a (dyn Error + 'static),
    found: &dyn Fn(&'a (dyn Error + 'static)) -> Option<T>,
) -> Option<T> {
    if let Some(found) = found(error) {
        return Some(found);
    }
    // Neither of these types returns the error it wraps as its source.
    let held = match error.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref().map(|held| held as &(dyn Error + 'static)),
        None => error.downcast_ref::<Arc<dyn Error + Send + Sync>>().map(|held| held.as_ref() as _),
    };
    among_causes(held.or_else(|| error.source())?, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Terms = Terms { names: Names::USUAL, identified: false };

    #[test]
    fn the_word_of_tls_is_found_however_it_is_wrapped() {
        let stranger = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let shared: Arc<dyn Error + Send + Sync> = Arc::new(io::Error::other(stranger()));
        let wrapped: [Box<dyn Error>; 4] = [
            Box::new(stranger()),
            Box::new(io::Error::other(stranger())),
            Box::new(io::Error::other(io::Error::other(stranger()))),
            Box::new(shared),
        ];
        for error in wrapped {
            assert!(UNKNOWN.refusal(error.as_ref()).unwrap().contains("`ca`"), "{error:?}");
        }
    }

    #[test]
    fn who_is_meant_depends_on_what_we_showed() {
        let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        let said = UNKNOWN.refusal(&alert).unwrap();
        assert!(said.contains("`cert` and `key`"), "{said}");
        let said = Terms { identified: true, ..UNKNOWN }.refusal(&alert).unwrap();
        assert!(said.contains("refused our certificate"), "{said}");
    }

    #[test]
    fn what_may_pass_is_no_refusal() {
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut] {
            assert_eq!(UNKNOWN.refusal(&io::Error::from(kind)), None);
            assert!(!ended(&io::Error::from(kind)));
        }
        let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(UNKNOWN.refusal(&eof).is_none() && ended(&io::Error::other(eof)));
    }

    #[test]
    fn s24_a_private_key_with_other_readers_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("fencepost-key-{}.pem", std::process::id()));
        let name = path.to_str().unwrap();
        std::fs::write(&path, "secret").unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let root = std::fs::metadata(&path).unwrap().uid() == 0;
        for mode in [0o644, 0o604, 0o660, 0o666] {
            set(mode);
            let said = contents(name, true).unwrap_err().to_string();
            assert!(said.contains(&format!("chmod 600 {name}")), "{mode:o}: {said}");
            assert_eq!(contents(name, false).unwrap(), b"secret", "certificates are for everybody");
        }
        for mode in [0o600, 0o400] {
            set(mode);
            assert_eq!(contents(name, true).unwrap(), b"secret", "{mode:o}");
        }
        set(0o640);
        assert_eq!(contents(name, true).is_ok(), root, "a group may read what belongs to root");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn settings_go_with_the_scheme() {
        let asked = |text: &str| by_scheme(&LockUrl::parse(text).unwrap(), "zks").map(|read| read.is_some());
        assert_eq!(asked("zk://a:1"), Ok(false));
        assert_eq!(asked("zks://a:1"), Ok(true));
        for text in ["zk://a:1?ca=x", "zk://a:1?cert=x&key=y", "zk://a:1?tls=true"] {
            let error = asked(text).unwrap_err().to_string();
            assert!(error.contains("zks://"), "{text}: {error}");
        }
        for text in ["zk://a:1?timeout=3", "zks://a:1?timeout=3"] {
            let error = asked(text).unwrap_err().to_string();
            assert!(error.contains("`timeout`"), "{text}: {error}");
        }
    }
}
