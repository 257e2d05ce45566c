//! A gateway with an S3 front end on a temporary directory, and credentials for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::fresh::write_config;
use crate::http::Answer;
use crate::process::GatewayProcess;

/// One fence for all of `reports`, one for each folder of `shared`, none enforced for `watched`; in other buckets each
/// object is its own resource. One key that carries no lease.
const CONFIG: &str = r#"
[[guard]]
keys = "reports/**"
resource = "reports"

[[guard]]
keys = "shared/*/**"
resource = "shared/*"

[[guard]]
keys = "watched/**"
resource = "watched"
mode = "observe"

[[guard]]
keys = "free/once/**"
resource = "once"
equal = "reject"

[[s3.key]]
access_key_id = "READER"
secret_access_key = "a-secret-of-tests-and-nothing-else"
"#;

/// The buckets that exist from the start.
pub const BUCKETS: [&str; 4] = ["reports", "shared", "watched", "free"];

/// The key pair of an S3 client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The key id, which carries the claim.
    pub access_key_id: String,
    /// The secret that signs requests.
    pub secret_access_key: String,
}

impl Credentials {
    /// The long-term key of the configuration: it carries no token.
    pub fn reader() -> Credentials {
        Credentials {
            access_key_id: "READER".to_owned(),
            secret_access_key: "a-secret-of-tests-and-nothing-else".to_owned(),
        }
    }

    /// The credentials in an answer to POST /v1/s3/credentials, which must be a success.
    pub fn issued(answer: &Answer) -> Credentials {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let json = answer.json();
        let member = |name: &str| json[name].as_str().unwrap_or_else(|| panic!("{name} in {json}")).to_owned();
        Credentials { access_key_id: member("access_key_id"), secret_access_key: member("secret_access_key") }
    }
}

/// A running gateway with buckets. Its directories are removed with it.
pub struct Bucketed {
    gateway: GatewayProcess,
    s3: SocketAddr,
    dir: TempDir,
}

impl Bucketed {
    /// Starts a gateway with empty buckets.
    pub fn start() -> Bucketed {
        Bucketed::filled(|_| {})
    }

    /// Starts a gateway with empty buckets and more arguments.
    pub fn with(arguments: &[&str]) -> Bucketed {
        Bucketed::filled_with(|_| {}, arguments)
    }

    /// Starts a gateway after `fill` has filled the directory of the buckets.
    pub fn filled(fill: impl FnOnce(&Path)) -> Bucketed {
        Bucketed::filled_with(fill, &[])
    }

    /// Like `filled`, with more arguments.
    pub fn filled_with(fill: impl FnOnce(&Path), more: &[&str]) -> Bucketed {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let objects = dir.path().join("objects");
        for bucket in BUCKETS {
            std::fs::create_dir_all(objects.join(bucket)).expect("a temporary directory can be written");
        }
        fill(&objects);
        let config = write_config(dir.path(), CONFIG);
        let (config, place) = (config.display().to_string(), format!("dir:{}", objects.display()));
        let arguments = ["--config", &config, "--s3-listen", "127.0.0.1:0", "--objects", &place];
        let gateway = GatewayProcess::start(&dir.path().join("data"), &[&arguments[..], more].concat());
        let s3 = gateway.s3_address();
        Bucketed { gateway, s3, dir }
    }

    /// The address of the S3 front end.
    pub fn s3(&self) -> SocketAddr {
        self.s3
    }

    /// The directory of the buckets.
    pub fn objects(&self) -> PathBuf {
        self.dir.path().join("objects")
    }

    /// The path of the admin listener.
    pub fn admin_socket(&self) -> PathBuf {
        self.dir.path().join("data/admin.sock")
    }

    /// POST /v1/s3/credentials.
    pub fn ask_for_credentials(&self, resource: &str, token: &str, ttl_s: u64) -> Answer {
        let body = serde_json::json!({"resource": resource, "ttl_s": ttl_s}).to_string();
        let headers = [("fencing-token", token), ("content-type", "application/json")];
        self.gateway.client().request("POST", "/v1/s3/credentials", &headers, body.as_bytes())
    }

    /// Credentials for this token. Issuing them claims it.
    pub fn credentials(&self, resource: &str, token: &str) -> Credentials {
        self.credentials_for(resource, token, 3600)
    }

    /// Like `credentials`, with a ttl in seconds.
    pub fn credentials_for(&self, resource: &str, token: &str, ttl_s: u64) -> Credentials {
        let answer = self.ask_for_credentials(resource, token, ttl_s);
        let credentials = Credentials::issued(&answer);
        let json = answer.json();
        assert_eq!(json["endpoint"], format!("http://{}", self.s3), "{json}");
        credentials
    }

    /// Every file in the buckets with its bytes, as other processes see them.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for bucket in BUCKETS {
            gather(&self.objects().join(bucket), bucket, &mut files);
        }
        files
    }
}

impl Deref for Bucketed {
    type Target = GatewayProcess;

    fn deref(&self) -> &GatewayProcess {
        &self.gateway
    }
}

/// Every file below a directory with its bytes, by its relative path.
pub fn tree(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    gather(directory, "", &mut files);
    files
}

fn gather(directory: &Path, name: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let entry = entry.expect("a directory can be read to its end");
        let part = entry.file_name().into_string().expect("names are UTF-8");
        let name = if name.is_empty() { part } else { format!("{name}/{part}") };
        if entry.file_type().expect("a directory entry has a type").is_dir() {
            gather(&entry.path(), &name, files);
        } else {
            files.insert(name, std::fs::read(entry.path()).expect("a file can be read"));
        }
    }
}
