//! Certificates for one test: a root, and certificates signed by it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::program;

/// A root certificate that only this test has.
pub struct Certificates {
    home: TempDir,
    server: Signed,
}

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The path of the certificate.
    pub certificate: PathBuf,
    /// The path of its key.
    pub key: PathBuf,
}

/// The clients that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// All clients.
    Anybody,
    /// Clients with a certificate signed by the same root.
    Known,
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn openssl(home: &Path, arguments: &str) {
    let mut command = Command::new(program("openssl", &[]));
    let output = command.args(arguments.split(' ')).current_dir(home).output().expect("openssl runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Certificates {
    /// Creates a root, and a certificate for a server at this address.
    pub fn make(address: &str) -> Certificates {
        let home = TempDir::new().expect("a temporary directory can be made");
        openssl(home.path(), &format!("req -x509 {NEW_KEY} -keyout root.key -out root.crt -days 2 -subj /CN=root"));
        fs::write(home.path().join("names"), format!("subjectAltName=IP:{address}\n")).expect("it can be written");
        let server = sign(home.path(), "server", "/CN=server");
        Certificates { home, server }
    }

    /// The root certificate, which the peer trusts.
    pub fn root(&self) -> PathBuf {
        self.home.path().join("root.crt")
    }

    /// The server's certificate.
    pub fn server(&self) -> &Signed {
        &self.server
    }

    /// Signs a client certificate with this subject: `/CN=worker`, `/O=workers`.
    pub fn client(&self, subject: &str) -> Signed {
        sign(self.home.path(), &format!("client{}", subject.replace(['/', '='], "-")), subject)
    }
}

fn sign(home: &Path, name: &str, subject: &str) -> Signed {
    openssl(home, &format!("req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj {subject}"));
    openssl(
        home,
        &format!(
            "x509 -req -in {name}.csr -CA root.crt -CAkey root.key -CAcreateserial -days 2 -extfile names -out {name}.crt"
        ),
    );
    Signed { certificate: home.join(format!("{name}.crt")), key: home.join(format!("{name}.key")) }
}
