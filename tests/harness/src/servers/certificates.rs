//! Certificates of a test's own: a root, and what it has signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::program;

/// A root that nobody else has.
pub struct Certificates {
    home: TempDir,
    server: Signed,
}

/// A certificate, and the key it belongs to, as PEM.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Whom a server lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Everybody.
    Anybody,
    /// Who has a certificate that the same root has signed.
    Known,
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn openssl(home: &Path, arguments: &str) {
    let mut command = Command::new(program("openssl", &[]));
    let output = command.args(arguments.split(' ')).current_dir(home).output().expect("openssl runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Certificates {
    /// For a server at this address.
    pub fn make(address: &str) -> Certificates {
        let home = TempDir::new().expect("a temporary directory can be made");
        openssl(home.path(), &format!("req -x509 {NEW_KEY} -keyout root.key -out root.crt -days 2 -subj /CN=root"));
        fs::write(home.path().join("names"), format!("subjectAltName=IP:{address}\n")).expect("it can be written");
        let server = sign(home.path(), "server", "/CN=server");
        Certificates { home, server }
    }

    /// What the other side trusts.
    pub fn root(&self) -> PathBuf {
        self.home.path().join("root.crt")
    }

    /// The server's.
    pub fn server(&self) -> &Signed {
        &self.server
    }

    /// A client's, with this subject: `/CN=worker`, `/O=workers`.
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
