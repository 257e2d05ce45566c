//! A server's certificate, and the root that signed it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{as_owner, run};

/// Made anew, with a root of their own.
pub struct Certificates {
    home: TempDir,
}

fn openssl(home: &Path, arguments: &str) {
    run(Command::new("openssl").args(arguments.split(' ')).current_dir(home));
}

impl Certificates {
    /// For a server at this address.
    pub fn make(address: &str) -> Certificates {
        let home = TempDir::new().expect("a temporary directory can be made");
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(home.path(), &format!("req -x509 {key} -keyout root.key -out root.crt -days 2 -subj /CN=root"));
        openssl(home.path(), &format!("req {key} -keyout server.key -out server.csr -subj /CN=server"));
        fs::write(home.path().join("names"), format!("subjectAltName=IP:{address}\n")).expect("it can be written");
        openssl(
            home.path(),
            "x509 -req -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -days 2 -extfile names -out server.crt",
        );
        Certificates { home }
    }

    /// What clients trust.
    pub fn root(&self) -> PathBuf {
        self.home.path().join("root.crt")
    }

    /// Copies what the server needs into its data.
    pub(super) fn install(&self, data: &Path) {
        for file in ["server.key", "server.crt"] {
            let copy = data.join(file);
            fs::copy(self.home.path().join(file), &copy).expect("a file can be copied");
            as_owner(&copy);
        }
        run(Command::new("chmod").arg("600").arg(data.join("server.key")));
    }
}
