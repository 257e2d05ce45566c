//! Settings as flags and environment variables.

use std::path::PathBuf;

use clap::Args;

use super::engine::{self, EngineText};
use super::s3::S3Flags;
use crate::http::Host;
use crate::position_file::StateDir;
use crate::quantity::{Size, Span};

/// Settings of the gateway as flags and environment variables.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Configuration file (TOML); none by default
    #[arg(long, value_name = "FILE", env = "FENCEPOST_CONFIG")]
    pub config: Option<PathBuf>,
    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:3362]
    #[arg(long, value_name = "ADDRESS", env = "FENCEPOST_LISTEN")]
    pub listen: Option<String>,
    /// Directory of the data; made if missing [default: ./fencepost-data]
    #[arg(long, value_name = "DIR", env = "FENCEPOST_DATA")]
    pub data: Option<PathBuf>,
    /// Use a data directory although other users may enter it, or its group may write it
    #[arg(
        long,
        value_name = "BOOL",
        env = "FENCEPOST_DATA_MODE_OK",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub data_mode_ok: Option<bool>,
    /// Unix socket for administrators, mode 0600 [default: admin.sock in the data directory]
    #[arg(long, value_name = "PATH", env = "FENCEPOST_ADMIN_SOCKET")]
    pub admin_socket: Option<PathBuf>,
    /// File of what administrators did, in JSON lines [default: audit.jsonl in the data directory]
    #[arg(long, value_name = "PATH", env = "FENCEPOST_AUDIT_LOG")]
    pub audit_log: Option<PathBuf>,
    /// Directory outside the data directory where the position of the store is noted, so that an older copy of the data is noticed;
    /// `user` for fencepost in $XDG_STATE_HOME or ~/.local/state, `off` for none [default: user]
    #[arg(long, value_name = "DIR", env = "FENCEPOST_STATE_DIR")]
    pub state_dir: Option<StateDir>,
    /// How long outcomes of requests with an idempotency key are kept [default: 24h]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_OUTCOME_RETENTION")]
    pub outcome_retention: Option<Span>,
    /// How much longer than its ttl a lease of the built-in lock service is respected [default: 0s]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_LOCK_DELAY")]
    pub lock_delay: Option<Span>,
    /// Engine that keeps the data, by its name or by the URL of its server [default: rocksdb]
    #[arg(long, value_name = "ENGINE", env = "FENCEPOST_ENGINE", hide_env_values = true, long_help = engine::help())]
    pub engine: Option<EngineText>,
    /// Listen beyond loopback although every caller is anonymous and may write
    #[arg(
        long,
        value_name = "BOOL",
        env = "FENCEPOST_INSECURE_NO_AUTH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub insecure_no_auth: Option<bool>,
    /// Names by which clients reach the gateway, beside localhost and its addresses; another `Host` is answered 421
    #[arg(long, value_name = "HOST,…", env = "FENCEPOST_HOSTS", value_delimiter = ',')]
    pub hosts: Option<Vec<Host>>,
    /// Let the process dump core, and debuggers and tracers of its own user attach to it: both see every key
    #[arg(
        long,
        value_name = "BOOL",
        env = "FENCEPOST_DEBUGGABLE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub debuggable: Option<bool>,
    /// Largest body of a request, answered 413 above [default: 4MiB]
    #[arg(long, value_name = "SIZE", env = "FENCEPOST_MAX_BODY")]
    pub max_body: Option<Size>,
    /// Largest headers of a request, answered 431 above [default: 16KiB]
    #[arg(long, value_name = "SIZE", env = "FENCEPOST_MAX_HEADERS")]
    pub max_headers: Option<Size>,
    /// Bytes of all bodies and values in memory at once, answered 503 above [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "FENCEPOST_MAX_BODIES")]
    pub max_bodies: Option<Size>,
    /// Open connections of each listener, answered 503 above [default: 4096]
    #[arg(long, value_name = "COUNT", env = "FENCEPOST_MAX_CONNECTIONS")]
    pub max_connections: Option<usize>,
    /// Open connections of one address, answered 503 above [default: a quarter of all; loopback only if set]
    #[arg(long, value_name = "COUNT", env = "FENCEPOST_MAX_CONNECTIONS_PER_PEER")]
    pub max_connections_per_peer: Option<usize>,
    /// Writes that may wait for a commit, answered 503 above [default: 4096]
    #[arg(long, value_name = "COUNT", env = "FENCEPOST_QUEUE")]
    pub queue: Option<usize>,
    /// Time for the headers of a request to arrive, answered 408 after [default: 10s]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_HEADER_TIMEOUT")]
    pub header_timeout: Option<Span>,
    /// Time for the body of a request to arrive, answered 408 after [default: 30s]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_BODY_TIMEOUT")]
    pub body_timeout: Option<Span>,
    /// Time for a client to take 64 KiB of an answer, or all of it; then the answer is cut off [default: 30s]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_WRITE_TIMEOUT")]
    pub write_timeout: Option<Span>,
    /// Time that an HTTP/2 connection may be without a request; then it is closed [default: 60s]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_IDLE_TIMEOUT")]
    pub idle_timeout: Option<Span>,
    /// Time for requests under way to end after SIGTERM [default: 30s]
    #[arg(long, value_name = "TIME", env = "FENCEPOST_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<Span>,
    /// Disk space that must stay free; writes are answered 507 below [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "FENCEPOST_FREE_SPACE_FLOOR")]
    pub free_space_floor: Option<Size>,
    /// Memory for what is kept at hand: records, data blocks, indexes and filters [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "FENCEPOST_CACHE")]
    pub cache: Option<Size>,
    /// Memory for writes not yet in tables [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "FENCEPOST_WRITE_BUFFER")]
    pub write_buffer: Option<Size>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of every flag in it")]
    pub s3: S3Flags,
}
