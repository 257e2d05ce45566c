//! Settings in a file (TOML).

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use fencepost_core::{Claim, Equal, GuardSpec, IssuerRule, Mode, Policy};
use serde::Deserialize;

use super::ConfigError;
use super::s3::FileS3;
use crate::http::Host;
use crate::quantity::{Size, Span};

/// The file. Every key is optional; an unknown one is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<String>,
    pub(super) data: Option<PathBuf>,
    pub(super) engine: Option<String>,
    pub(super) admin_socket: Option<PathBuf>,
    pub(super) audit_log: Option<PathBuf>,
    pub(super) state_dir: Option<String>,
    pub(super) outcome_retention: Option<Span>,
    pub(super) lock_delay: Option<Span>,
    pub(super) insecure_no_auth: Option<bool>,
    pub(super) hosts: Option<Vec<Host>>,
    pub(super) free_space_floor: Option<Size>,
    pub(super) cache: Option<Size>,
    pub(super) write_buffer: Option<Size>,
    pub(super) queue: Option<usize>,
    #[serde(default)]
    pub(super) limits: FileLimits,
    #[serde(default)]
    pub(super) s3: FileS3,
    #[serde(default)]
    pub(super) guard: Vec<FileGuard>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileLimits {
    pub(super) max_body: Option<Size>,
    pub(super) max_headers: Option<Size>,
    pub(super) max_bodies: Option<Size>,
    pub(super) max_connections: Option<usize>,
    pub(super) max_connections_per_peer: Option<usize>,
    pub(super) header_timeout: Option<Span>,
    pub(super) body_timeout: Option<Span>,
    pub(super) write_timeout: Option<Span>,
    pub(super) idle_timeout: Option<Span>,
    pub(super) drain_timeout: Option<Span>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileGuard {
    pub(super) keys: String,
    pub(super) resource: Option<String>,
    #[serde(default)]
    pub(super) equal: Equal,
    #[serde(default)]
    pub(super) claim: Claim,
    #[serde(default)]
    pub(super) mode: Mode,
    #[serde(default)]
    pub(super) issuer: IssuerRule,
    pub(super) max_jump: Option<NonZeroU64>,
}

impl From<FileGuard> for GuardSpec {
    fn from(guard: FileGuard) -> GuardSpec {
        let FileGuard { keys, resource, equal, claim, mode, issuer, max_jump } = guard;
        GuardSpec { keys, resource, policy: Policy { equal, claim, mode, issuer, max_jump } }
    }
}

impl File {
    pub(super) fn read(path: &Path) -> Result<File, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read(path.to_owned(), error))?;
        toml::from_str(&text).map_err(|error| unreadable(path, &text, error))
    }
}

/// An error shows the line that it is about, unless that may hold a secret.
fn unreadable(path: &Path, text: &str, error: toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let number = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
    if !text.lines().nth(number).is_some_and(|line| line.to_ascii_lowercase().contains("secret")) {
        return ConfigError::Parse(path.to_owned(), Box::new(error));
    }
    // Names may be said, values may not.
    let why =
        if error.message().starts_with("unknown field") { format!(": {}", error.message()) } else { String::new() };
    ConfigError::ParseSecret(path.to_owned(), number + 1, why)
}
