//! Explanations of failed handshakes.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError};

use super::Names;

/// The wording of messages about a failed connection.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    names: Names,
    /// Whether a client certificate was presented.
    identified: bool,
}

impl Terms {
    pub(super) fn new(names: Names, identified: bool) -> Terms {
        Terms { names, identified }
    }

    /// Why TLS failed, and what to do about it. `None`: something else failed, which may be transient.
    pub fn refusal(self, error: &(dyn Error + 'static)) -> Option<String> {
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
    pub fn suspicion(self) -> String {
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
pub fn ended(error: &(dyn Error + 'static)) -> bool {
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
}
