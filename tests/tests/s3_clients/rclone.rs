//! rclone: the current version, and the one that Debian ships.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use fencepost_harness::bucketed::Credentials;
use fencepost_harness::venv;
use serde_json::Value;

use crate::client::{Described, Program, S3Client, Said, path};

/// A version of rclone.
pub(crate) trait Build {
    fn program() -> PathBuf;
}

/// From PyPI.
pub(crate) struct Current;

impl Build for Current {
    fn program() -> PathBuf {
        venv::program("rclone")
    }
}

/// From the distribution.
pub(crate) struct Debian;

impl Build for Debian {
    fn program() -> PathBuf {
        let program = PathBuf::from("/usr/bin/rclone");
        assert!(program.exists(), "{} is missing: run `scripts/setup test`", program.display());
        program
    }
}

/// `rclone` with a remote called `fp`.
pub(crate) struct Rclone<B> {
    program: Program,
    build: PhantomData<B>,
}

impl<B: Build> Rclone<B> {
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.program.run(&B::program(), arguments.iter().copied())
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    fn names(&self, folder: &str, arguments: &[&str]) -> Result<Vec<String>, Said> {
        let said = self.run(&[&["lsf"], arguments, &[&remote(folder)]].concat());
        if !said.ok {
            return Err(said);
        }
        let mut names: Vec<String> = said.out.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }
}

fn remote(name: &str) -> String {
    format!("fp:{name}")
}

impl<B: Build> S3Client for Rclone<B> {
    fn new(endpoint: &str, credentials: &Credentials) -> Rclone<B> {
        let program = Program::new(&[
            ("RCLONE_CONFIG_FP_TYPE", "s3"),
            ("RCLONE_CONFIG_FP_PROVIDER", "Other"),
            ("RCLONE_CONFIG_FP_ENDPOINT", endpoint),
            ("RCLONE_CONFIG_FP_ACCESS_KEY_ID", &credentials.access_key_id),
            ("RCLONE_CONFIG_FP_SECRET_ACCESS_KEY", &credentials.secret_access_key),
            // No configuration file, and no message that there is none.
            ("RCLONE_CONFIG", ""),
        ]);
        Rclone { program, build: PhantomData }
    }

    fn put(&self, file: &Path, object: &str) -> Said {
        self.run(&["copyto", path(file), &remote(object)])
    }

    fn put_in_parts(&self, file: &Path, object: &str) -> Said {
        let small = ["--s3-upload-cutoff", "5Mi", "--s3-chunk-size", "5Mi"];
        self.run(&[&["copyto"], &small[..], &[path(file), &remote(object)]].concat())
    }

    fn put_described(&self, file: &Path, object: &str, content_type: &str, (name, value): (&str, &str)) -> Said {
        let (kind, meta) = (format!("content-type={content_type}"), format!("{name}={value}"));
        let metadata = ["--metadata", "--metadata-set", &kind, "--metadata-set", &meta];
        self.run(&[&["copyto"], &metadata[..], &[path(file), &remote(object)]].concat())
    }

    fn get(&self, object: &str, file: &Path) -> Said {
        self.run(&["copyto", &remote(object), path(file)])
    }

    fn describe(&self, object: &str) -> Result<Described, Said> {
        let said = self.run(&["lsjson", "--stat", "--metadata", &remote(object)]);
        if !said.ok {
            return Err(said);
        }
        let json: Value = serde_json::from_str(&said.out).unwrap();
        let metadata = json["Metadata"].as_object().cloned().unwrap_or_default();
        // Metadata that rclone itself or the protocol adds to every object.
        let own = ["btime", "mtime", "content-type", "tier"];
        let said_by_user = metadata.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        Ok(Described {
            size: json["Size"].as_u64().unwrap(),
            content_type: json["MimeType"].as_str().unwrap().to_owned(),
            metadata: said_by_user.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect(),
        })
    }

    fn copy(&self, from: &str, to: &str) -> Said {
        self.run(&["copyto", &remote(from), &remote(to)])
    }

    fn delete(&self, object: &str) -> Said {
        self.run(&["deletefile", &remote(object)])
    }

    fn delete_many(&self, folder: &str, names: &[&str]) -> Said {
        let list = self.program.home().join("names");
        std::fs::write(&list, names.join("\n")).unwrap();
        self.run(&["delete", &remote(folder), "--files-from-raw", path(&list)])
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names(folder, &["--recursive", "--files-only"])
    }

    fn look(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names(folder, &[])
    }

    fn upload_tree(&self, directory: &Path, folder: &str) -> Said {
        self.run(&["sync", path(directory), &remote(folder)])
    }

    fn download_tree(&self, folder: &str, directory: &Path) -> Said {
        self.run(&["sync", &remote(folder), path(directory)])
    }
}

mod current {
    crate::suite!(super::super::Rclone<super::super::Current>);
}

mod debian {
    crate::suite!(super::super::Rclone<super::super::Debian>);
}
