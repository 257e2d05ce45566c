//! Directories that outlive their gateway: it is stopped or killed, and another one is started on them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::{Credentials, tree};
use fencepost_harness::fresh::write_config;
use fencepost_harness::process::{GatewayProcess, binary};
use fencepost_harness::strace;
use tempfile::TempDir;

use crate::checks::objects_at;
use crate::digests::md5_of;
use crate::parsing::{element, elements, etag};
use crate::signing::Signer;

/// One fence for the whole bucket, and one for a bucket that does not exist.
const CONFIG: &str = r#"
[[guard]]
keys = "reports/**"
resource = "reports"

[[guard]]
keys = "made/**"
resource = "reports"
"#;

/// The bytes of objects, by their keys.
pub(crate) type Objects = BTreeMap<String, Vec<u8>>;

/// Data, configuration and one bucket, `reports`.
pub(crate) struct World {
    dir: TempDir,
}

/// A gateway in a world.
pub(crate) struct Running {
    pub(crate) gateway: GatewayProcess,
    s3: SocketAddr,
}

impl World {
    pub(crate) fn new() -> World {
        World::configured(CONFIG)
    }

    /// A world with guards of its own.
    pub(crate) fn configured(config: &str) -> World {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::create_dir_all(dir.path().join("objects/reports")).expect("a temporary directory can be written");
        write_config(dir.path(), config);
        World { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.dir.path().join("objects")
    }

    fn arguments(&self) -> Vec<String> {
        let config = self.dir.path().join("fencepost.toml").display().to_string();
        let objects = format!("dir:{}", self.objects().display());
        let all = ["--config", &config, "--s3-listen", "127.0.0.1:0", "--objects", &objects, "--s3-create-buckets"];
        all.map(str::to_owned).into()
    }

    /// `fencepost objects` on its gateway: exit code, standard output and standard error.
    pub(crate) fn administer(&self, arguments: &[&str]) -> (i32, String, String) {
        objects_at(&self.dir.path().join("data/admin.sock"), arguments)
    }

    /// Starts a gateway that strace may attach to.
    pub(crate) fn start(&self) -> Running {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Running::new(strace::start_traceable(&self.dir.path().join("data"), &arguments))
    }

    /// Tries to start a gateway with its data in this directory. `Err`: it exited, with this output.
    pub(crate) fn try_start(&self, data: &str) -> Result<GatewayProcess, String> {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(self.dir.path().join(data));
        command.args(self.arguments());
        GatewayProcess::spawn(command)
    }

    /// Starts a gateway that dies at its n-th such call. `Err`: it died before it listened.
    pub(crate) fn start_to_die_at(&self, call: &str, n: u64) -> Result<GatewayProcess, String> {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        strace::start_to_die_at(call, n, &self.dir.path().join("data"), &arguments)
    }

    /// The names of staged bytes.
    pub(crate) fn staged(&self) -> Vec<String> {
        staged(&self.objects())
    }

    /// The buckets: those that the list shows must match the directories.
    pub(crate) fn buckets(&self, signer: &Signer) -> Vec<String> {
        let told = signer.request("GET", "/", &[], b"").text();
        let told: Vec<String> = elements(&told, "Name").into_iter().map(str::to_owned).collect();
        let entries = std::fs::read_dir(self.objects()).expect("the buckets are there");
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut there: Vec<String> = names.filter(|name| name != ".fencepost").collect();
        there.sort();
        assert_eq!(told, there, "buckets and directories are the same");
        told
    }

    /// Every object. Asserts that the list, HEAD, GET and the file of its name agree.
    pub(crate) fn seen(&self, signer: &Signer) -> Objects {
        let seen = agreed(signer, "reports");
        assert_eq!(tree(&self.objects().join("reports")), seen, "files and objects are the same");
        seen
    }

    /// Waits until the number of staged files equals that of listed parts: abandoned bytes are removed after the
    /// answer.
    pub(crate) fn no_leftovers(&self, signer: &Signer) {
        let uploads = signer.request("GET", "/reports?uploads=", &[], b"").text();
        let parts: usize = elements(&uploads, "Upload").into_iter().map(|upload| parts_of(signer, upload)).sum();
        until_so_many_are_staged(&self.objects(), parts);
    }
}

fn parts_of(signer: &Signer, upload: &str) -> usize {
    let (key, id) = (element(upload, "Key").unwrap(), element(upload, "UploadId").unwrap());
    let parts = signer.request("GET", &format!("/reports/{key}?uploadId={id}"), &[], b"");
    assert_eq!(parts.status, 200, "{}", parts.text());
    elements(&parts.text(), "Part").len()
}

impl Running {
    fn new(gateway: GatewayProcess) -> Running {
        let s3 = gateway.s3_address();
        Running { gateway, s3 }
    }

    /// A holder of this token of `reports`. Issuing the credentials claims it.
    pub(crate) fn holder(&self, token: &str) -> Signer {
        self.holder_by(token, &[])
    }

    /// The same, with headers that name the issuer.
    pub(crate) fn holder_by(&self, token: &str, headers: &[(&str, &str)]) -> Signer {
        let body = serde_json::json!({"resource": "reports"}).to_string();
        let headers = [&[("fencing-token", token), ("content-type", "application/json")], headers].concat();
        let answer = self.gateway.client().request("POST", "/v1/s3/credentials", &headers, body.as_bytes());
        Signer { address: self.s3, credentials: Credentials::issued(&answer) }
    }

    /// The same credentials at this gateway's address.
    pub(crate) fn again(&self, signer: &Signer) -> Signer {
        Signer { address: self.s3, credentials: signer.credentials.clone() }
    }
}

impl Deref for Running {
    type Target = GatewayProcess;

    fn deref(&self) -> &GatewayProcess {
        &self.gateway
    }
}

/// The names of staged bytes.
pub(crate) fn staged(objects: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(objects.join(".fencepost/staging")).expect("a gateway makes it");
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Waits until nothing is staged any more.
pub(crate) fn until_nothing_is_staged(objects: &Path) {
    wait::until("staged bytes to be removed", PATIENCE, || staged(objects).is_empty().then_some(()));
}

/// Waits until exactly this many names are staged.
pub(crate) fn until_so_many_are_staged(objects: &Path, number: usize) {
    let what = format!("{number} names to be staged");
    wait::until(&what, PATIENCE, || (staged(objects).len() == number).then_some(()));
}

/// Waits until some of a body has been staged.
pub(crate) fn until_some_is_staged(objects: &Path) {
    let staging = objects.join(".fencepost/staging");
    wait::until("some of the body to be staged", PATIENCE, || {
        let sizes = staged(objects).into_iter().filter_map(|name| staging.join(name).metadata().ok());
        sizes.map(|found| found.len()).find(|size| *size > 0)
    });
}

/// Every object of a bucket with its bytes. Asserts that the list, HEAD and GET agree about each.
pub(crate) fn agreed(signer: &Signer, bucket: &str) -> Objects {
    let mut objects = BTreeMap::new();
    for entry in signer.list(bucket, 1000) {
        let name = format!("{bucket}/{}", entry.key);
        let (head, get) = (signer.request("HEAD", &format!("/{name}"), &[], b""), signer.get(&name));
        assert_eq!((head.status, get.status), (200, 200), "{name}: {}", get.text());
        assert_eq!((etag(&head), etag(&get)), (entry.etag.clone(), entry.etag.clone()), "{name}");
        assert_eq!(head.header("content-length"), Some(entry.size.to_string().as_str()), "{name}");
        assert_eq!(get.body.len(), entry.size, "{name}");
        if !entry.etag.contains('-') {
            assert_eq!(md5_of(&get.body), entry.etag, "{name}");
        }
        objects.insert(entry.key, get.body);
    }
    objects
}
