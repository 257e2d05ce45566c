//! Settings in a file (TOML).

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use fencepost_core::{Claim, EngineName, Equal, GuardSpec, IssuerRule, Mode, Policy};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::ConfigError;
use super::engine::EngineText;
use super::s3::FileS3;
use super::unreadable::unreadable;
use crate::credentials::secret_file;
use crate::http::Host;
use crate::quantity::{Size, Span};

/// A larger file is not a configuration file.
const MAX_BYTES: u64 = 16 << 20;

/// The file. Every key is optional; an unknown one is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<String>,
    pub(super) data: Option<PathBuf>,
    pub(super) data_mode_ok: Option<bool>,
    pub(super) engine: Option<EngineText>,
    #[serde(default)]
    pub(super) engines: BTreeMap<EngineName, EngineText>,
    pub(super) admin_socket: Option<PathBuf>,
    pub(super) audit_log: Option<PathBuf>,
    pub(super) state_dir: Option<String>,
    pub(super) outcome_retention: Option<Span>,
    pub(super) lock_delay: Option<Span>,
    pub(super) insecure_no_auth: Option<bool>,
    pub(super) hosts: Option<Vec<Host>>,
    pub(super) debuggable: Option<bool>,
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
    pub(super) engine: Option<EngineName>,
}

impl From<FileGuard> for GuardSpec {
    fn from(guard: FileGuard) -> GuardSpec {
        let FileGuard { keys, resource, equal, claim, mode, issuer, max_jump, engine } = guard;
        GuardSpec { keys, resource, policy: Policy { equal, claim, mode, issuer, max_jump }, engine }
    }
}

impl File {
    pub(super) fn read(path: &Path) -> Result<File, ConfigError> {
        let cannot = |error| ConfigError::Read(path.to_owned(), error);
        let opened = std::fs::File::open(path).map_err(cannot)?;
        // The metadata of the open file: its name may belong to another file by now.
        let metadata = opened.metadata().map_err(cannot)?;
        let mut text = Zeroizing::new(String::new());
        opened.take(MAX_BYTES).read_to_string(&mut text).map_err(cannot)?;
        let file: File = toml::from_str(&text).map_err(|error| unreadable(path, &text, error))?;
        let mut engines = file.engine.iter().chain(file.engines.values());
        if file.s3.holds_a_secret() || engines.any(EngineText::may_hold_a_secret) {
            secret_file::check_private(path, &metadata)?;
        }
        Ok(file)
    }
}
