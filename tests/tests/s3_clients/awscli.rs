//! The AWS command line.

use std::path::Path;

use fencepost_harness::bucketed::Credentials;
use fencepost_harness::venv;
use serde_json::{Value, json};

use crate::client::{Described, Program, S3Client, Said, parts, path, prefix};

/// `aws`.
pub(crate) struct AwsCli(Program);

impl AwsCli {
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.0.run(&venv::program("aws"), arguments.iter().copied())
    }

    /// Calls an S3 operation by its name; its answer is JSON, or empty.
    fn api(&self, arguments: &[&str]) -> Result<Value, Said> {
        let said = self.run(&[&["s3api"], arguments, &["--output", "json"]].concat());
        match said.ok {
            true if said.out.trim().is_empty() => Ok(Value::Null),
            true => Ok(serde_json::from_str(&said.out).unwrap()),
            false => Err(said),
        }
    }

    fn names(&self, folder: &str, more: &[&str]) -> Result<Vec<String>, Said> {
        let prefix = prefix(folder);
        let list = ["list-objects-v2", "--bucket", parts(folder).0, "--prefix", &prefix];
        let found = self.api(&[&list, more].concat())?;
        let names = |list: &Value, member: &str| -> Vec<String> {
            let entries = list.as_array().cloned().unwrap_or_default();
            entries
                .iter()
                .map(|entry| entry[member].as_str().unwrap().strip_prefix(&prefix).unwrap().to_owned())
                .collect()
        };
        let mut all = [names(&found["Contents"], "Key"), names(&found["CommonPrefixes"], "Prefix")].concat();
        all.sort();
        Ok(all)
    }
}

fn url(name: &str) -> String {
    format!("s3://{name}")
}

impl S3Client for AwsCli {
    fn new(endpoint: &str, credentials: &Credentials) -> AwsCli {
        AwsCli(Program::aws(endpoint, credentials))
    }

    fn put(&self, file: &Path, object: &str) -> Said {
        self.run(&["s3", "cp", path(file), &url(object)])
    }

    fn put_in_parts(&self, file: &Path, object: &str) -> Said {
        // Above 8 MiB it uploads in parts by default.
        self.put(file, object)
    }

    fn put_described(&self, file: &Path, object: &str, content_type: &str, (name, value): (&str, &str)) -> Said {
        let metadata = format!("{name}={value}");
        self.run(&["s3", "cp", "--content-type", content_type, "--metadata", &metadata, path(file), &url(object)])
    }

    fn get(&self, object: &str, file: &Path) -> Said {
        self.run(&["s3", "cp", &url(object), path(file)])
    }

    fn describe(&self, object: &str) -> Result<Described, Said> {
        let (bucket, key) = parts(object);
        let head = self.api(&["head-object", "--bucket", bucket, "--key", key])?;
        Ok(Described {
            size: head["ContentLength"].as_u64().unwrap(),
            content_type: head["ContentType"].as_str().unwrap().to_owned(),
            metadata: serde_json::from_value(head["Metadata"].clone()).unwrap(),
        })
    }

    fn copy(&self, from: &str, to: &str) -> Said {
        self.run(&["s3", "cp", &url(from), &url(to)])
    }

    fn delete(&self, object: &str) -> Said {
        self.run(&["s3", "rm", &url(object)])
    }

    fn delete_many(&self, folder: &str, names: &[&str]) -> Said {
        let objects: Vec<Value> =
            names.iter().map(|name| json!({"Key": format!("{}{name}", prefix(folder))})).collect();
        let objects = json!({ "Objects": objects }).to_string();
        self.run(&["s3api", "delete-objects", "--bucket", parts(folder).0, "--delete", &objects])
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names(folder, &[])
    }

    fn look(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names(folder, &["--delimiter", "/"])
    }

    fn upload_tree(&self, directory: &Path, folder: &str) -> Said {
        self.run(&["s3", "sync", path(directory), &url(folder)])
    }

    fn download_tree(&self, folder: &str, directory: &Path) -> Said {
        self.run(&["s3", "sync", &url(folder), path(directory)])
    }
}

crate::suite!(super::AwsCli);
