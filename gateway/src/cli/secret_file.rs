//! Secrets from files, which keeps them out of `ps` and of a shell's history: leases, and URLs with passwords.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::Failed;

/// Far more bytes than any lease or URL has.
const MOST_BYTES: u64 = 64 << 10;

/// The reader of standard input, which `-` names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// The command itself.
    Ours,
    /// The program that the command runs.
    TheProgram,
}

/// The lease, as acquire printed it.
#[derive(Args, Clone)]
pub(super) struct LeaseArgs {
    /// Lease, as acquire printed it; it is a secret, and others see it in `ps`
    #[arg(
        long,
        value_name = "LEASE",
        env = "FENCEPOST_LEASE",
        hide_env_values = true,
        required_unless_present = "lease_file"
    )]
    lease: Option<String>,
    /// File with the lease, alone or as `acquire --json` printed it; `-` is standard input
    #[arg(long, value_name = "FILE", env = "FENCEPOST_LEASE_FILE", conflicts_with = "lease")]
    lease_file: Option<PathBuf>,
}

impl LeaseArgs {
    pub(super) fn lease(&self) -> Result<String, Failed> {
        match (&self.lease, &self.lease_file) {
            (Some(lease), _) => Ok(lease.clone()),
            (None, Some(file)) => {
                let text = read("--lease-file", file, Input::Ours)?;
                let json: Option<serde_json::Value> = serde_json::from_str(&text).ok();
                let lease = json.as_ref().and_then(|json| json.get("lease")).and_then(|lease| lease.as_str());
                Ok(lease.map(str::to_owned).unwrap_or(text))
            }
            (None, None) => Err(Failed::usage("give the lease with --lease-file, --lease or FENCEPOST_LEASE")),
        }
    }

    /// Whether the lease is read from standard input.
    pub(super) fn is_input(&self) -> bool {
        self.lease_file.as_deref().is_some_and(is_input)
    }
}

fn is_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The URL of a lock service, in a file that only its owner may read: it may have a password in it.
pub(super) fn lock_url(path: &Path, input: Input) -> Result<String, Failed> {
    read("--lock-file", path, input)
}

/// The one line of a file, without white space around it.
fn read(flag: &str, path: &Path, input: Input) -> Result<String, Failed> {
    let unusable = |why: String| Failed::usage(format!("{flag} {}: {why}", path.display()));
    let mut text = String::new();
    let read = match (is_input(path), input) {
        (true, Input::TheProgram) => {
            return Err(unusable("standard input is the program's; name a file".to_owned()));
        }
        (true, Input::Ours) => std::io::stdin().take(MOST_BYTES).read_to_string(&mut text),
        (false, _) => File::open(path).and_then(|file| {
            if flag == "--lock-file" {
                owners_only(&file, path)?;
            }
            file.take(MOST_BYTES).read_to_string(&mut text)
        }),
    };
    read.map_err(|error| unusable(format!("it cannot be read: {error}")))?;
    match text.trim() {
        "" => Err(unusable("it is empty".to_owned())),
        line if line.contains('\n') => Err(unusable("it has more than one line".to_owned())),
        line => Ok(line.to_owned()),
    }
}

/// Refuses a file that others may read. A pipe is accepted: it has no reader but us, whatever its mode is.
fn owners_only(file: &File, path: &Path) -> std::io::Result<()> {
    let found = file.metadata()?;
    if found.is_file() && found.mode() & 0o077 != 0 {
        let why = format!("others may read it, and it may hold a password; run: chmod 600 {}", path.display());
        return Err(std::io::Error::other(why));
    }
    Ok(())
}
