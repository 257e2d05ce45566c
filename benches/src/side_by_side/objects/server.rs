//! S3 servers: the gateway on a directory, and SeaweedFS.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_harness::bucketed::Credentials;
use fencepost_harness::http::Client;
use fencepost_harness::venv;

use super::connection::Connection;
use super::sign::Signer;
use super::small::{Does, Small, content, stocked};
use super::{LARGE, ObjectPeer, READ_OBJECTS, block};
use crate::server::{Server, free_port};
use crate::{Outcome, Timing, gateway};

/// A server with a bucket `bench`.
pub(crate) struct S3 {
    name: &'static str,
    server: Server,
    signer: Signer,
}

impl S3 {
    /// The gateway: one fence for the bucket, and the credentials of a lease.
    pub(crate) fn gateway(home: &Path) -> Result<S3, String> {
        let objects = home.join("objects");
        std::fs::create_dir_all(objects.join("bench")).map_err(|error| error.to_string())?;
        let config = home.join("objects.toml");
        let guard = "[[guard]]\nkeys = \"bench/**\"\nresource = \"bench\"\n";
        std::fs::write(&config, guard).map_err(|error| error.to_string())?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("fencepost");
        let (port, s3) = (free_port()?, free_port()?);
        let mut command = Command::new(program);
        command.args(["serve", "--log", "warn", "--listen", &format!("127.0.0.1:{port}"), "--config"]).arg(config);
        command.args(["--s3-listen", &format!("127.0.0.1:{s3}"), "--objects"]);
        command.arg(format!("dir:{}", objects.display())).arg("--data").arg(home.join("objects-data"));
        let server = Server::start(command, s3)?;
        let wanted = (("fencing-token", "34"), br#"{"resource": "bench"}"#);
        let answer = Client::try_connect(&format!("127.0.0.1:{port}"))
            .and_then(|mut client| client.try_request("POST", "/v1/s3/credentials", &[wanted.0], wanted.1))
            .map_err(|error| error.to_string())?;
        let json = answer.json();
        let member = |name: &str| json[name].as_str().map(str::to_owned);
        let (Some(access_key_id), Some(secret_access_key)) = (member("access_key_id"), member("secret_access_key"))
        else {
            return Err(format!("no credentials: {}", answer.text()));
        };
        S3::filled("fencepost", server, &Credentials { access_key_id, secret_access_key })
    }

    /// SeaweedFS in one process, configured to sync what it writes to buckets.
    pub(crate) fn seaweedfs(home: &Path) -> Result<S3, String> {
        let data = home.join("seaweedfs");
        std::fs::create_dir_all(&data).map_err(|error| error.to_string())?;
        let credentials = Credentials { access_key_id: "BENCH".to_owned(), secret_access_key: "secret".to_owned() };
        let config = home.join("seaweedfs.json");
        let identities = r#"{"identities": [{"name": "bench", "actions": ["Admin", "Read", "Write", "List"],
            "credentials": [{"accessKey": "BENCH", "secretKey": "secret"}]}]}"#;
        std::fs::write(&config, identities).map_err(|error| error.to_string())?;
        let port = |name: &str| free_port().map(|port| (format!("-{name}={port}"), port));
        let ((master, at), (master_grpc, at_grpc)) = (port("master.port")?, port("master.port.grpc")?);
        let ((filer, files), (filer_grpc, files_grpc)) = (port("filer.port")?, port("filer.port.grpc")?);
        let ((volume, _), (volume_grpc, _)) = (port("volume.port")?, port("volume.port.grpc")?);
        let ((s3, address), (s3_grpc, _)) = (port("s3.port")?, port("s3.port.grpc")?);
        let mut command = Command::new(venv::program("weed"));
        command.args(["server", "-s3", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=50"]);
        command.args([master, master_grpc, filer, filer_grpc, volume, volume_grpc, s3, s3_grpc]);
        command.args(["-master.volumeSizeLimitMB=1024", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.arg(format!("-dir={}", data.display())).arg(format!("-s3.config={}", config.display()));
        command.arg(format!("-filer.localSocket={}", data.join("filer.sock").display())).stderr(Stdio::null());
        let signer = Signer::new(&format!("127.0.0.1:{address}"), &credentials);
        let ready = |address| Connection::open(address, &signer).and_then(|mut s3| s3.put("/bench", b"", 0)).is_ok();
        let server = Server::start_until(command, address, Duration::from_millis(200), ready)?;
        sync_buckets(&format!("127.0.0.1:{at}.{at_grpc}"), &format!("127.0.0.1:{files}.{files_grpc}"))?;
        S3::filled("SeaweedFS", server, &credentials)
    }

    /// Fills the bucket with the shared small objects.
    fn filled(name: &'static str, server: Server, credentials: &Credentials) -> Result<S3, String> {
        let signer = Signer::new(&server.address.to_string(), credentials);
        let mut connection = Connection::open(server.address, &signer)?;
        let bytes = content(0);
        (0..READ_OBJECTS).try_for_each(|object| connection.put(&format!("/bench/{}", stocked(object)), &bytes, 1))?;
        Ok(S3 { name, server, signer })
    }

    fn connection(&self) -> Result<Connection, String> {
        Connection::open(self.server.address, &self.signer)
    }
}

/// Configures syncing of writes to buckets, with `fs.configure` of `weed shell`.
fn sync_buckets(master: &str, filer: &str) -> Result<(), String> {
    let mut command = Command::new(venv::program("weed"));
    command.args(["shell", &format!("-master={master}"), &format!("-filer={filer}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut shell = command.spawn().map_err(|error| error.to_string())?;
    if let Some(mut input) = shell.stdin.take() {
        let said = input.write_all(b"fs.configure -locationPrefix=/buckets/ -fsync -apply\nexit\n");
        said.map_err(|error| error.to_string())?;
    }
    let output = shell.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).replace(' ', "");
    if said.contains("\"fsync\":true") { Ok(()) } else { Err(format!("SeaweedFS does not sync: {said}")) }
}

impl ObjectPeer for S3 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn small(&mut self, does: Does, connections: usize, time: Timing) -> Result<Outcome, String> {
        let speaker = |number| Small::new(self.signer.clone(), does, number);
        gateway::load(&[self.server.address], (0..connections as u64).map(speaker).collect(), time)
    }

    fn put_large(&mut self) -> Result<Duration, String> {
        let (block, begun) = (block(), Instant::now());
        self.connection()?.put("/bench/large", &block, LARGE / block.len())?;
        Ok(begun.elapsed())
    }

    fn get_large(&mut self) -> Result<Duration, String> {
        let begun = Instant::now();
        let bytes = self.connection()?.get("/bench/large")?;
        if bytes == LARGE { Ok(begun.elapsed()) } else { Err(format!("the large object has {bytes} bytes")) }
    }

    fn process(&self) -> Option<u32> {
        Some(self.server.process())
    }
}
