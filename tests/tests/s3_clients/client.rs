//! The operations of every S3 client, under common names.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use fencepost_harness::bucketed::Credentials;
use fencepost_harness::{process, venv};
use tempfile::TempDir;

/// The output of a client, and whether it reports success.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) ok: bool,
    /// Its standard output, with the result.
    pub(crate) out: String,
    /// Its standard error, with messages for the user.
    pub(crate) err: String,
}

impl Said {
    /// The result; panics if the client failed.
    pub(crate) fn expect_ok(self, what: &str) -> String {
        assert!(self.ok, "{what}: {self:?}");
        self.out
    }

    /// Asserts a failure whose message contains each of these words.
    pub(crate) fn expect_failure(&self, what: &str, words: &[&str]) {
        assert!(!self.ok, "{what} should have failed: {self:?}");
        for word in words {
            assert!(self.err.contains(word), "{what}: `{word}` is not in what the user sees: {self:?}");
        }
    }
}

/// The properties of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) size: u64,
    pub(crate) content_type: String,
    /// User metadata, with names in lower case.
    pub(crate) metadata: BTreeMap<String, String>,
}

/// A client. Objects are named `bucket/key`, folders `bucket/prefix` without a slash at the end.
pub(crate) trait S3Client: Sized {
    /// A client for this endpoint with these credentials.
    fn new(endpoint: &str, credentials: &Credentials) -> Self;

    /// Uploads a file.
    fn put(&self, file: &Path, object: &str) -> Said;

    /// Uploads a file in parts of at most 8 MiB.
    fn put_in_parts(&self, file: &Path, object: &str) -> Said;

    /// Uploads a file with a content type and metadata.
    fn put_described(&self, file: &Path, object: &str, content_type: &str, metadata: (&str, &str)) -> Said;

    /// Downloads a file.
    fn get(&self, object: &str, file: &Path) -> Said;

    /// The properties of an object.
    fn describe(&self, object: &str) -> Result<Described, Said>;

    /// Copies an object on the server.
    fn copy(&self, from: &str, to: &str) -> Said;

    /// Removes an object.
    fn delete(&self, object: &str) -> Said;

    /// Removes these objects of one bucket, with as few requests as the client supports.
    fn delete_many(&self, folder: &str, names: &[&str]) -> Said;

    /// The names of all objects below a folder, relative to it, sorted.
    fn list(&self, folder: &str) -> Result<Vec<String>, Said>;

    /// The direct content of a folder, sorted: objects, and folders with a slash at the end.
    fn look(&self, folder: &str) -> Result<Vec<String>, Said>;

    /// Uploads a directory.
    fn upload_tree(&self, directory: &Path, folder: &str) -> Said;

    /// Downloads a folder.
    fn download_tree(&self, folder: &str, directory: &Path) -> Said;
}

/// A program with a minimal environment and a home directory of its own.
pub(crate) struct Program {
    home: TempDir,
    environment: Vec<(String, String)>,
}

impl Program {
    pub(crate) fn new(environment: &[(&str, &str)]) -> Program {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Program { home: TempDir::new().unwrap(), environment: environment.collect() }
    }

    /// The variables that `fencepost run` sets for a program.
    pub(crate) fn aws(endpoint: &str, credentials: &Credentials) -> Program {
        Program::new(&[
            ("AWS_ENDPOINT_URL_S3", endpoint),
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", &credentials.access_key_id),
            ("AWS_SECRET_ACCESS_KEY", &credentials.secret_access_key),
            ("AWS_REGION", "us-east-1"),
        ])
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The command, in this environment. Programs are found in the venv first, and beside the gateway.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let beside = process::binary().parent().unwrap().to_owned();
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("PATH", format!("{}:{}:/usr/bin:/bin", venv::programs().display(), beside.display()));
        command.env("HOME", self.home.path()).env("LANG", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
        command.current_dir(self.home.path()).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run<'a>(&self, program: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Said {
        said(self.command(program).args(arguments))
    }
}

/// Runs a command to its end.
pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { ok: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A path as an argument.
pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("tests use plain paths")
}

/// `bucket/key` in its two parts; the key of a bucket alone is empty.
pub(crate) fn parts(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

/// The prefix of everything in a folder.
pub(crate) fn prefix(folder: &str) -> String {
    let key = parts(folder).1;
    if key.is_empty() { String::new() } else { format!("{key}/") }
}
