//! The certificates that a URL names, and the key of one of them.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

use super::{Names, Terms, builder};
use crate::{ServerUrl, Unusable};

/// The contents of the files that a URL names. Never shown.
pub struct Certificates {
    names: Names,
    /// The URL without its password, for messages.
    server: String,
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
    pub fn read(url: &ServerUrl, names: Names) -> Result<Certificates, Unusable> {
        let server = url.to_string();
        let read = |setting| match url.setting(setting) {
            None => Ok(None),
            Some(path) => match contents(path, setting == names.key) {
                Ok(text) => Ok(Some(File { setting, path: path.to_owned(), text })),
                Err(error) => Err(unusable(&server, setting, path, &error)),
            },
        };
        let alone = |there: &str, missing: &str| {
            let why = format!("{server}: `{there}` without `{missing}`; a certificate and its key belong together");
            Unusable(why)
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
        Ok(Certificates { names, server, roots, identity })
    }

    /// True if the URL names its own roots, instead of using only the machine's.
    pub fn has_roots(&self) -> bool {
        self.roots.is_some()
    }

    /// The trusted roots: those in the file, or those that this machine trusts.
    pub fn trusted(&self) -> Result<RootCertStore, Unusable> {
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
            let (server, name) = (&self.server, self.names.roots);
            let why =
                format!("{server}: this machine trusts no certificates; name a file with `{name}=/path/to/ca.pem`");
            return Err(Unusable(why));
        }
        Ok(roots)
    }

    /// A configuration with the trusted roots and the client certificate.
    pub fn config(&self) -> Result<ClientConfig, Unusable> {
        self.identified(builder()?.with_root_certificates(self.trusted()?))
    }

    /// Adds the client certificate, if there is one.
    pub fn identified(&self, builder: ConfigBuilder<ClientConfig, WantsClientCert>) -> Result<ClientConfig, Unusable> {
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
    pub fn roots(&self) -> Option<&[u8]> {
        self.roots.as_ref().map(|file| file.text.as_slice())
    }

    /// The client certificate and its key as PEM.
    pub fn identity(&self) -> Option<(&[u8], &[u8])> {
        self.identity.as_ref().map(|Identity { chain, key }| (chain.text.as_slice(), key.text.as_slice()))
    }

    /// The wording of messages about a failed connection.
    pub fn terms(&self) -> Terms {
        Terms::new(self.names, self.identity.is_some())
    }

    fn unusable(&self, file: &File, why: &dyn fmt::Display) -> Unusable {
        unusable(&self.server, file.setting, &file.path, why)
    }
}

/// The contents of a file. A private key must be readable only by its owner, as libpq requires as well. If the file
/// belongs to root, a group may read it too, which is how a system shares its key with its servers.
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

fn unusable(server: &str, setting: &str, path: &str, why: &dyn fmt::Display) -> Unusable {
    Unusable(format!("{server}: the file `{path}` of `{setting}` cannot be used: {why}"))
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
