//! A gateway for one test: with empty data, removed with the test.

use std::fs::Permissions;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::GatewayProcess;

/// A running gateway and its data directory. Both end when this is dropped.
pub struct Fresh {
    process: GatewayProcess,
    dir: TempDir,
}

impl Fresh {
    /// On the memory engine, for tests that are not about durability.
    pub fn memory(arguments: &[&str]) -> Fresh {
        Fresh::start(&[&["--engine", "memory"], arguments].concat())
    }

    /// On the embedded default engine.
    pub fn rocksdb(arguments: &[&str]) -> Fresh {
        Fresh::start(arguments)
    }

    /// On the memory engine, with a configuration file.
    pub fn configured(toml: &str, arguments: &[&str]) -> Fresh {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let config = write_config(dir.path(), toml);
        let config = config.to_str().expect("temporary directories have plain names");
        Fresh::start_in(dir, &[&["--engine", "memory", "--config", config], arguments].concat())
    }

    /// On the embedded default engine, with a configuration file and an S3 front end on an empty directory.
    pub fn with_s3(toml: &str, arguments: &[&str]) -> Fresh {
        let dir = TempDir::new().expect("a temporary directory can be made");
        let (config, objects) = (write_config(dir.path(), toml), dir.path().join("objects"));
        std::fs::create_dir(&objects).expect("a temporary directory can be written");
        let config = config.to_str().expect("temporary directories have plain names");
        let place = format!("dir:{}", objects.display());
        let front_end = ["--config", config, "--s3-listen", "127.0.0.1:0", "--objects", &place];
        Fresh::start_in(dir, &[&front_end, arguments].concat())
    }

    fn start(arguments: &[&str]) -> Fresh {
        Fresh::start_in(TempDir::new().expect("a temporary directory can be made"), arguments)
    }

    fn start_in(dir: TempDir, arguments: &[&str]) -> Fresh {
        let process = GatewayProcess::start(&dir.path().join("data"), arguments);
        Fresh { process, dir }
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Splits off the process; its data stays until the directory is dropped.
    pub fn into_parts(self) -> (GatewayProcess, TempDir) {
        (self.process, self.dir)
    }
}

impl Deref for Fresh {
    type Target = GatewayProcess;

    fn deref(&self) -> &GatewayProcess {
        &self.process
    }
}

/// Writes a configuration file into a directory. It is readable only by its owner, because it may contain a secret.
pub fn write_config(dir: &Path, toml: &str) -> PathBuf {
    let path = dir.join("fencepost.toml");
    std::fs::write(&path, toml).expect("a temporary directory can be written");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("our own file can be changed");
    path
}
