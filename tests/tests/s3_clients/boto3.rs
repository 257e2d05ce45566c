//! boto3, through a script beside this file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::venv;
use serde_json::Value;

use crate::client::{Described, Program, S3Client, Said, parts, path, prefix};

/// boto3, a process for each call.
pub(crate) struct Boto3(Program);

impl Boto3 {
    /// Runs a function of the script.
    pub(crate) fn call(&self, function: &str, arguments: &[&str]) -> Said {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/s3_clients/boto3_client.py");
        let python = venv::program("python");
        self.0.run(&python, [&[path(&script), function], arguments].concat())
    }

    /// The names in its result, from this prefix, sorted.
    fn names(&self, function: &str, bucket: &str, prefix: &str) -> Result<Vec<String>, Said> {
        let said = self.call(function, &[bucket, prefix]);
        if !said.ok {
            return Err(said);
        }
        let keys: Vec<String> = serde_json::from_str(&said.out).unwrap();
        let mut names: Vec<String> = keys.iter().map(|key| key.strip_prefix(prefix).unwrap().to_owned()).collect();
        names.sort();
        Ok(names)
    }
}

impl S3Client for Boto3 {
    fn new(endpoint: &str, credentials: &Credentials) -> Boto3 {
        Boto3(Program::aws(endpoint, credentials))
    }

    fn put(&self, file: &Path, object: &str) -> Said {
        let (bucket, key) = parts(object);
        self.call("put", &[path(file), bucket, key])
    }

    fn put_in_parts(&self, file: &Path, object: &str) -> Said {
        let (bucket, key) = parts(object);
        self.call("put_in_parts", &[path(file), bucket, key])
    }

    fn put_described(&self, file: &Path, object: &str, content_type: &str, (name, value): (&str, &str)) -> Said {
        let (bucket, key) = parts(object);
        self.call("put_described", &[path(file), bucket, key, content_type, name, value])
    }

    fn get(&self, object: &str, file: &Path) -> Said {
        let (bucket, key) = parts(object);
        self.call("get", &[bucket, key, path(file)])
    }

    fn describe(&self, object: &str) -> Result<Described, Said> {
        let (bucket, key) = parts(object);
        let said = self.call("describe", &[bucket, key]);
        if !said.ok {
            return Err(said);
        }
        let json: Value = serde_json::from_str(&said.out).unwrap();
        Ok(Described {
            size: json["size"].as_u64().unwrap(),
            content_type: json["type"].as_str().unwrap().to_owned(),
            metadata: serde_json::from_value(json["metadata"].clone()).unwrap(),
        })
    }

    fn copy(&self, from: &str, to: &str) -> Said {
        let ((from_bucket, from_key), (bucket, key)) = (parts(from), parts(to));
        self.call("copy", &[from_bucket, from_key, bucket, key])
    }

    fn delete(&self, object: &str) -> Said {
        let (bucket, key) = parts(object);
        self.call("delete", &[bucket, key])
    }

    fn delete_many(&self, folder: &str, names: &[&str]) -> Said {
        let keys: Vec<String> = names.iter().map(|name| format!("{}{name}", prefix(folder))).collect();
        let keys = keys.iter().map(String::as_str);
        self.call("delete_many", &[parts(folder).0].into_iter().chain(keys).collect::<Vec<_>>())
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names("list_all", parts(folder).0, &prefix(folder))
    }

    fn look(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names("look", parts(folder).0, &prefix(folder))
    }

    fn upload_tree(&self, directory: &Path, folder: &str) -> Said {
        self.call("upload_tree", &[path(directory), parts(folder).0, &prefix(folder)])
    }

    fn download_tree(&self, folder: &str, directory: &Path) -> Said {
        self.call("download_tree", &[parts(folder).0, &prefix(folder), path(directory)])
    }
}

crate::suite!(super::Boto3);

/// A call that the S3 library does not know may have the method and path of a known one.
#[test]
fn b01_no_call_of_boto3_is_taken_for_another() {
    let gateway = Bucketed::with(&["--s3-create-buckets"]);
    let boto3 = |resource: &str| -> Boto3 {
        S3Client::new(&format!("http://{}", gateway.s3()), &gateway.credentials(resource, "33"))
    };
    let full = boto3("reports");
    let file = full.0.home().join("file");
    for name in ["source", "target"] {
        std::fs::write(&file, name).unwrap();
        full.put(&file, &format!("reports/{name}")).expect_ok("put");
    }
    let before = gateway.files();
    assert_eq!(before.len(), 2);
    // Only an empty bucket could be removed by mistake, so one is tried too.
    for (client, bucket) in [(full, "reports"), (boto3("watched"), "watched")] {
        let said = client.call("change_in_every_other_way", &[bucket, "target", "source"]).expect_ok("boto3");
        let answers: BTreeMap<String, (u16, String)> = serde_json::from_str(&said).unwrap();
        assert!(answers.len() > 50, "{answers:?}");
        for (call, (status, code)) in answers {
            // This call has a path of its own, which is not that of a bucket.
            let is_elsewhere = call == "WriteGetObjectResponse";
            let wanted = if is_elsewhere { (400, "InvalidBucketName") } else { (501, "NotImplemented") };
            assert_eq!((status, code.as_str()), wanted, "{call} in {bucket}");
        }
        assert_eq!(gateway.files(), before, "{bucket}");
        assert!(gateway.objects().join(bucket).is_dir(), "{bucket}");
    }
}
