//! s3cmd.

use std::path::Path;

use fencepost_conformance::proxy::Proxy;
use fencepost_harness::bucketed::{Bucketed, Credentials};
use fencepost_harness::servers::program;

use crate::client::{Described, Program, S3Client, Said, parts, path, prefix};

/// `s3cmd`.
pub(crate) struct S3cmd(Program);

impl S3cmd {
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.0.run(&program("s3cmd", &[]), arguments.iter().copied())
    }

    /// The last words of the listed lines, relative to this folder, sorted.
    fn names(&self, folder: &str, arguments: &[&str]) -> Result<Vec<String>, Said> {
        let start = format!("s3://{}/{}", parts(folder).0, prefix(folder));
        let said = self.run(&[&["ls"], arguments, &[&start]].concat());
        if !said.ok {
            return Err(said);
        }
        let name = |line: &str| line.split_once(&start).unwrap_or_else(|| panic!("{line}")).1.to_owned();
        let mut names: Vec<String> = said.out.lines().map(name).collect();
        names.sort();
        Ok(names)
    }
}

fn url(name: &str) -> String {
    format!("s3://{name}")
}

impl S3Client for S3cmd {
    fn new(endpoint: &str, credentials: &Credentials) -> S3cmd {
        let program = Program::new(&[]);
        let address = endpoint.trim_start_matches("http://");
        let config = format!(
            "[default]\naccess_key = {}\nsecret_key = {}\nhost_base = {address}\nhost_bucket = {address}\n\
             use_https = False\nbucket_location = us-east-1\nmultipart_chunk_size_mb = 5\nprogress_meter = False\n",
            credentials.access_key_id, credentials.secret_access_key
        );
        std::fs::write(program.home().join(".s3cfg"), config).unwrap();
        S3cmd(program)
    }

    fn put(&self, file: &Path, object: &str) -> Said {
        self.run(&["put", path(file), &url(object)])
    }

    fn put_in_parts(&self, file: &Path, object: &str) -> Said {
        // Its configuration sets 5 MiB.
        self.put(file, object)
    }

    fn put_described(&self, file: &Path, object: &str, content_type: &str, (name, value): (&str, &str)) -> Said {
        let (mime, header) = (format!("--mime-type={content_type}"), format!("--add-header=x-amz-meta-{name}:{value}"));
        self.run(&["put", "--no-preserve", &mime, &header, path(file), &url(object)])
    }

    fn get(&self, object: &str, file: &Path) -> Said {
        self.run(&["get", "--force", &url(object), path(file)])
    }

    fn describe(&self, object: &str) -> Result<Described, Said> {
        let said = self.run(&["info", &url(object)]);
        if !said.ok {
            return Err(said);
        }
        let field = |name: &str| {
            let line = said.out.lines().find_map(|line| line.trim_start().strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name} in {}", said.out)).trim().to_owned()
        };
        let metadata = said.out.lines().filter_map(|line| {
            let (name, value) = line.trim().strip_prefix("x-amz-meta-")?.split_once(':')?;
            Some((name.to_owned(), value.trim().to_owned()))
        });
        Ok(Described {
            size: field("File size:").parse().unwrap(),
            content_type: field("MIME type:"),
            metadata: metadata.collect(),
        })
    }

    fn copy(&self, from: &str, to: &str) -> Said {
        self.run(&["cp", &url(from), &url(to)])
    }

    fn delete(&self, object: &str) -> Said {
        self.run(&["del", &url(object)])
    }

    fn delete_many(&self, folder: &str, names: &[&str]) -> Said {
        let urls: Vec<String> = names.iter().map(|name| format!("s3://{folder}/{name}")).collect();
        self.run(&["del"].into_iter().chain(urls.iter().map(String::as_str)).collect::<Vec<_>>())
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names(folder, &["--recursive"])
    }

    fn look(&self, folder: &str) -> Result<Vec<String>, Said> {
        self.names(folder, &[])
    }

    fn upload_tree(&self, directory: &Path, folder: &str) -> Said {
        let directory = format!("{}/", path(directory));
        self.run(&["sync", &directory, &format!("s3://{folder}/")])
    }

    fn download_tree(&self, folder: &str, directory: &Path) -> Said {
        let directory = format!("{}/", path(directory));
        self.run(&["sync", &format!("s3://{folder}/"), &directory])
    }
}

/// `del --recursive` sends one DeleteObjects, which is refused as a whole.
#[test]
fn a_recursive_delete_is_done_or_refused_whole() {
    let gateway = Bucketed::filled(|objects| {
        std::fs::create_dir(objects.join("reports/folder")).unwrap();
        ["a", "b"].iter().for_each(|name| std::fs::write(objects.join("reports/folder").join(name), name).unwrap());
    });
    let proxy = Proxy::noting_requests(gateway.s3());
    let endpoint = format!("http://{}", proxy.address());
    let delete = ["del", "--recursive", "--force", "s3://reports/folder/"];
    let old = S3cmd::new(&endpoint, &gateway.credentials("reports", "33"));
    let new = S3cmd::new(&endpoint, &gateway.credentials("reports", "34"));
    old.run(&delete).expect_failure("a stale delete", &["StaleFencingToken", "33", "34"]);
    let requests = proxy.take_requests();
    assert_eq!(
        requests.iter().filter(|line| line.starts_with("POST") && line.contains("delete")).count(),
        1,
        "{requests:?}"
    );
    assert_eq!(gateway.files().len(), 2);
    new.run(&delete).expect_ok("the holder deletes");
    assert!(gateway.files().is_empty());
}

crate::suite!(super::S3cmd);

/// A version 2 signature in a header never expires, and does not cover the body.
#[test]
fn signature_version_2_is_refused_and_says_so() {
    let gateway = Bucketed::start();
    let client = S3cmd::new(&format!("http://{}", gateway.s3()), &gateway.credentials("reports", "33"));
    let file = gateway.objects().join("file");
    std::fs::write(&file, "x").unwrap();
    let arguments = ["put", path(&file), "s3://reports/x"];
    client.run(&[&arguments[..], &["--signature-v2"]].concat()).expect_failure("version 2", &["Sign with version 4"]);
    assert!(gateway.files().is_empty());
    client.run(&arguments).expect_ok("version 4");
}
