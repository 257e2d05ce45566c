//! The gateway's configuration: flags over `FENCEPOST_*` over the file over the defaults.

mod engine;
mod engines;
mod file;
mod flags;
mod s3;
mod unreadable;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::{EngineName, GuardSpec, Guards, Policy};
use fencepost_remote::Unusable;
use fencepost_store::StoreOptions;
use fencepost_store::engines::{EngineOptions, Place};

use crate::credentials::secret_file::SecretFileError;
use crate::http::Host;
use crate::listener::Bounds;
use crate::position_file::StateDir;
use crate::quantity::{Size, Span};
use file::File;

pub(crate) use engine::without_secrets;
pub use engine::{EngineSetting, EngineText};
pub use flags::Flags;
pub use s3::{Objects, S3Flags, S3FrontEnd, S3Settings, S3SettingsError};

/// The complete configuration of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on.
    pub listen: String,
    /// The data directory. With an engine on a server, only the socket and the logs are in it.
    pub data: PathBuf,
    /// Whether other users may have access to that directory.
    pub data_mode_ok: bool,
    /// The engine that keeps the data of every guard that names none.
    pub engine: EngineSetting,
    /// The engines that guards name.
    pub engines: BTreeMap<EngineName, EngineSetting>,
    /// The administrator's Unix socket.
    pub admin_socket: PathBuf,
    /// The file of the audit log.
    pub audit_log: PathBuf,
    /// The directory in which the position of the store is noted.
    pub state_dir: StateDir,
    /// Whether it may listen beyond loopback although every caller is anonymous.
    pub insecure_no_auth: bool,
    /// Names by which clients reach the gateway, beside localhost and its addresses.
    pub hosts: Vec<Host>,
    /// Whether the process may dump core, and debuggers of its own user may attach to it.
    pub debuggable: bool,
    /// The guards: which resource protects which keys, and by which rules.
    pub guards: Guards,
    /// The S3 front end.
    pub s3: S3Settings,
    /// Bounds of requests and connections.
    pub limits: Limits,
    /// Bounds of the store.
    pub store: StoreOptions,
    /// Bounds of the engine.
    pub engine_options: EngineOptions,
}

/// A larger limit of connections or queued writes would limit nothing.
const MAX_COUNT: usize = 1_000_000;

/// The longest time that a lock without a holder may be kept from other callers.
const MAX_LOCK_DELAY: Duration = Duration::from_secs(24 * 3600);

/// The shortest retention of outcomes: a client must be able to ask for one.
const MIN_RETENTION: Duration = Duration::from_secs(1);

/// Bounds of requests and connections.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a body.
    pub body: usize,
    /// Bytes of all headers of a request.
    pub headers: usize,
    /// Bytes of all bodies in memory at once.
    pub bodies: usize,
    /// Open connections of each listener.
    pub connections: usize,
    /// Open connections of one peer address. `None`: a quarter of all, and no limit for callers on this machine, who
    /// share one address.
    pub connections_per_peer: Option<usize>,
    /// Time for a request's headers to arrive.
    pub header_timeout: Duration,
    /// Time for a request's body to arrive.
    pub body_timeout: Duration,
    /// Time for a client to take any of what is sent to it.
    pub write_timeout: Duration,
    /// Time that an HTTP/2 connection may be without a request.
    pub idle_timeout: Duration,
    /// Time for requests under way to end after SIGTERM.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body: 4 << 20,
            headers: 16 << 10,
            bodies: 256 << 20,
            connections: 4096,
            connections_per_peer: None,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// Connections of administrators.
    pub const ADMIN_CONNECTIONS: usize = 16;

    /// Requests of S3 clients at once, each of which may have files open.
    pub fn s3_requests(&self) -> usize {
        self.connections.saturating_mul(2).min(1024)
    }

    /// The bounds of a listener with this many connections and requests, under the limit per peer.
    pub(crate) fn bounds(&self, connections: usize, requests: usize) -> Bounds {
        Bounds {
            connections,
            per_peer: self.connections_per_peer.unwrap_or_else(|| (connections / 4).max(1)).min(connections),
            binds_local: self.connections_per_peer.is_some(),
            requests,
        }
    }

    /// Bounds of the public listener. An HTTP/2 connection may have many requests under way; all connections together
    /// may have four per connection.
    pub(crate) fn public_bounds(&self) -> Bounds {
        self.bounds(self.connections, self.connections.saturating_mul(4))
    }

    /// Bounds of the S3 listener.
    pub(crate) fn s3_bounds(&self) -> Bounds {
        self.bounds(self.connections, self.s3_requests())
    }

    /// Bounds of the administrators' listener.
    pub(crate) fn admin_bounds(&self) -> Bounds {
        let connections = Limits::ADMIN_CONNECTIONS;
        Bounds { connections, per_peer: connections, binds_local: false, requests: connections * 4 }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {0}: {1}")]
    Read(PathBuf, std::io::Error),
    /// The file is not valid.
    #[error("{0}: {1}")]
    Parse(PathBuf, Box<toml::de::Error>),
    /// The file is not valid, and its lines must not be shown.
    #[error("{path}: line {line}, column {column}: {why} (the line is not shown, because the file may hold a secret)")]
    ParseSecret {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What kind of error, in words that repeat nothing of the file.
        why: String,
    },
    /// The file holds a secret, and other users can read or write it.
    #[error(transparent)]
    Secret(#[from] SecretFileError),
    /// The settings of the S3 front end cannot be used.
    #[error(transparent)]
    S3(#[from] S3SettingsError),
    /// The directory for the note of the store's position is not valid.
    #[error("state_dir: {0}")]
    StateDir(String),
    /// A guard is wrong.
    #[error("{0}")]
    Guard(#[from] fencepost_core::GuardError),
    /// No such engine.
    #[error("there is no engine `{0}`; choose one of: {1}")]
    Engine(String, String),
    /// The engine is not part of this build.
    #[error(
        "this fencepost was built without the engine `{0}`: choose one of: {1} (`--engine memory` keeps nothing), or build it with the feature `{0}`"
    )]
    EngineNotBuilt(&'static str, String),
    /// Neither the name of an engine nor the URL of one. It may be, or hold, a password.
    #[error(
        "engine: this is neither a name nor the URL of an engine (it is not shown, because it may hold a password); \
         choose one of: {0}"
    )]
    NoEngine(String),
    /// The engine is on a server, and only its name was given.
    #[error(
        "the engine `{0}` is on a server, and needs its URL: `{1}` (with a password, write user:password@, and give it \
         in FENCEPOST_ENGINE or in a file that only you can read)"
    )]
    EngineUrl(&'static str, String),
    /// The URL of the engine cannot be understood.
    #[error("engine: {0}")]
    EngineServer(Unusable),
    /// A named engine cannot be used.
    #[error("engines.{0}: {1}")]
    Engines(EngineName, Box<ConfigError>),
    /// A named engine keeps its data in the data directory, or in none.
    #[error(
        "engines.{0}: the engine `{1}` cannot have a name: a named engine is on a server, such as \
         postgres://user@host:port/database. The embedded engine is the one without a name, `engine`"
    )]
    EmbeddedEngine(EngineName, &'static str),
    /// A guard names an engine that is not there.
    #[error("guard {0} names the engine `{1}`, and there is none: add `{1} = \"…\"` to [engines]")]
    NoSuchEngine(usize, EngineName),
    /// No guard names this engine.
    #[error("engines.{0}: no guard names this engine, so it would keep nothing: remove it, or name it in a guard")]
    UnusedEngine(EngineName),
    /// A limit so small that nothing would work.
    #[error("{0} must be at least {1}")]
    TooSmall(&'static str, u64),
    /// A limit so large that it limits nothing.
    #[error("{0} must be at most {1}")]
    TooLarge(&'static str, u64),
    /// A time too long to be intended.
    #[error("{0} must be at most {1}")]
    Long(&'static str, Span),
    /// A time too short to be of use.
    #[error("{0} must be at least {1}")]
    Brief(&'static str, Span),
    /// A deadline that no client can meet.
    #[error("{0} must be longer than 0")]
    NoTime(&'static str),
}

impl Config {
    /// Merges flags, environment, file and defaults, and checks the result.
    pub fn load(flags: &Flags) -> Result<Config, ConfigError> {
        let file = flags.config.as_deref().map_or_else(|| Ok(File::default()), File::read)?;
        Config::merge(flags, file)
    }

    fn merge(flags: &Flags, file: File) -> Result<Config, ConfigError> {
        let (limits, store, engine) = (Limits::default(), StoreOptions::default(), EngineOptions::default());
        let bytes = |flag: Option<Size>, file: Option<Size>, default: usize| {
            flag.or(file).map_or(default, |size| usize::try_from(size.0).unwrap_or(usize::MAX))
        };
        let time = |flag: Option<Span>, file: Option<Span>, default| flag.or(file).map_or(default, |span| span.0);
        let data = flags.data.clone().or(file.data).unwrap_or_else(|| "./fencepost-data".into());
        let in_data = |flag: &Option<PathBuf>, file: Option<PathBuf>, name| {
            flag.clone().or(file).unwrap_or_else(|| data.join(name))
        };
        let cache = bytes(flags.cache, file.cache, engine.cache_bytes);
        let guards = Guards::new(file.guard.into_iter().map(GuardSpec::from).collect())?;
        let config = Config {
            admin_socket: in_data(&flags.admin_socket, file.admin_socket, "admin.sock"),
            audit_log: in_data(&flags.audit_log, file.audit_log, "audit.jsonl"),
            listen: flags.listen.clone().or(file.listen).unwrap_or_else(|| "127.0.0.1:3362".into()),
            data,
            data_mode_ok: flags.data_mode_ok.or(file.data_mode_ok).unwrap_or(false),
            engine: flags.engine.clone().or(file.engine).unwrap_or_default().read()?,
            engines: engines::read(file.engines, &guards)?,
            state_dir: match (&flags.state_dir, file.state_dir) {
                (Some(state_dir), _) => state_dir.clone(),
                (None, Some(text)) => text.parse().map_err(ConfigError::StateDir)?,
                (None, None) => StateDir::default(),
            },
            insecure_no_auth: flags.insecure_no_auth.or(file.insecure_no_auth).unwrap_or(false),
            hosts: flags.hosts.clone().or(file.hosts).unwrap_or_default(),
            debuggable: flags.debuggable.or(file.debuggable).unwrap_or(false),
            guards,
            s3: S3Settings::merge(&flags.s3, file.s3)?,
            limits: Limits {
                body: bytes(flags.max_body, file.limits.max_body, limits.body),
                headers: bytes(flags.max_headers, file.limits.max_headers, limits.headers),
                bodies: bytes(flags.max_bodies, file.limits.max_bodies, limits.bodies),
                connections: flags.max_connections.or(file.limits.max_connections).unwrap_or(limits.connections),
                connections_per_peer: flags.max_connections_per_peer.or(file.limits.max_connections_per_peer),
                header_timeout: time(flags.header_timeout, file.limits.header_timeout, limits.header_timeout),
                body_timeout: time(flags.body_timeout, file.limits.body_timeout, limits.body_timeout),
                write_timeout: time(flags.write_timeout, file.limits.write_timeout, limits.write_timeout),
                idle_timeout: time(flags.idle_timeout, file.limits.idle_timeout, limits.idle_timeout),
                drain_timeout: time(flags.drain_timeout, file.limits.drain_timeout, limits.drain_timeout),
            },
            store: StoreOptions {
                queue: flags.queue.or(file.queue).unwrap_or(store.queue),
                outcome_retention: time(flags.outcome_retention, file.outcome_retention, store.outcome_retention),
                lock_delay: time(flags.lock_delay, file.lock_delay, store.lock_delay),
                known_bytes: cache,
                ..store
            },
            engine_options: EngineOptions {
                cache_bytes: cache,
                write_buffer_bytes: bytes(flags.write_buffer, file.write_buffer, engine.write_buffer_bytes),
                free_space_floor: flags
                    .free_space_floor
                    .or(file.free_space_floor)
                    .map_or(engine.free_space_floor, |size| size.0),
                ..engine
            },
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let at_least = |name, value: usize, least: u64| {
            if (value as u64) < least { Err(ConfigError::TooSmall(name, least)) } else { Ok(()) }
        };
        for (name, value) in [("max_connections", self.limits.connections), ("queue", self.store.queue)] {
            if value > MAX_COUNT {
                return Err(ConfigError::TooLarge(name, MAX_COUNT as u64));
            }
        }
        let Limits { header_timeout, body_timeout, write_timeout, idle_timeout, .. } = &self.limits;
        for (name, time) in [
            ("header_timeout", header_timeout),
            ("body_timeout", body_timeout),
            ("write_timeout", write_timeout),
            ("idle_timeout", idle_timeout),
        ] {
            if time.is_zero() {
                return Err(ConfigError::NoTime(name));
            }
        }
        if self.store.outcome_retention < MIN_RETENTION {
            return Err(ConfigError::Brief("outcome_retention", Span(MIN_RETENTION)));
        }
        if self.store.lock_delay > MAX_LOCK_DELAY {
            return Err(ConfigError::Long("lock_delay", Span(MAX_LOCK_DELAY)));
        }
        at_least("max_headers", self.limits.headers, 1024)?;
        at_least("max_body", self.limits.body, 1)?;
        at_least("max_connections", self.limits.connections, 1)?;
        at_least("max_connections_per_peer", self.limits.connections_per_peer.unwrap_or(1), 1)?;
        at_least("max_bodies", self.limits.bodies, self.limits.body as u64)?;
        at_least("queue", self.store.queue, 1)?;
        at_least("write_buffer", self.engine_options.write_buffer_bytes, 1 << 20)?;
        at_least("cache", self.engine_options.cache_bytes, 1 << 20)
    }

    /// Every engine, that without a name first.
    pub fn each_engine(&self) -> impl Iterator<Item = (Option<&EngineName>, &EngineSetting)> {
        let named = self.engines.iter().map(|(name, setting)| (Some(name), setting));
        std::iter::once((None, &self.engine)).chain(named)
    }

    /// The place of an engine's records: a server, or the data directory.
    pub fn place_of(&self, engine: &EngineSetting) -> Place {
        engine.place(&self.data)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { body, headers, bodies, connections, connections_per_peer, .. } = &self.limits;
        let Limits { header_timeout, body_timeout, write_timeout, idle_timeout, drain_timeout, .. } = &self.limits;
        let size = |bytes: usize| Size(bytes as u64);
        writeln!(f, "listen           {}", self.listen)?;
        writeln!(f, "data             {}", self.data.display())?;
        writeln!(f, "data_mode_ok     {}", self.data_mode_ok)?;
        writeln!(f, "engine           {}", self.engine)?;
        let engines: Vec<_> = self.engines.iter().map(|(name, setting)| format!("{name} = {setting}")).collect();
        let engines = if engines.is_empty() { "none".to_owned() } else { engines.join(", ") };
        writeln!(f, "engines          {engines}")?;
        writeln!(f, "admin_socket     {}", self.admin_socket.display())?;
        writeln!(f, "audit_log        {}", self.audit_log.display())?;
        writeln!(f, "state_dir        {}", self.state_dir)?;
        writeln!(f, "outcome_retention {}", Span(self.store.outcome_retention))?;
        writeln!(f, "lock_delay       {}", Span(self.store.lock_delay))?;
        writeln!(f, "insecure_no_auth {}", self.insecure_no_auth)?;
        let hosts: Vec<_> = self.hosts.iter().map(Host::to_string).collect();
        writeln!(f, "hosts            {}", if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") })?;
        writeln!(f, "debuggable       {}", self.debuggable)?;
        writeln!(f, "queue            {}", self.store.queue)?;
        writeln!(f, "cache            {}", size(self.engine_options.cache_bytes))?;
        writeln!(f, "write_buffer     {}", size(self.engine_options.write_buffer_bytes))?;
        writeln!(f, "free_space_floor {}", Size(self.engine_options.free_space_floor))?;
        writeln!(f, "max_body         {}", size(*body))?;
        writeln!(f, "max_headers      {}", size(*headers))?;
        writeln!(f, "max_bodies       {}", size(*bodies))?;
        writeln!(f, "max_connections  {connections}")?;
        match connections_per_peer {
            Some(count) => writeln!(f, "max_connections_per_peer {count}")?,
            None => {
                writeln!(f, "max_connections_per_peer {}, loopback excepted", self.limits.public_bounds().per_peer)?
            }
        }
        writeln!(f, "header_timeout   {}", Span(*header_timeout))?;
        writeln!(f, "body_timeout     {}", Span(*body_timeout))?;
        writeln!(f, "write_timeout    {}", Span(*write_timeout))?;
        writeln!(f, "idle_timeout     {}", Span(*idle_timeout))?;
        writeln!(f, "drain_timeout    {}", Span(*drain_timeout))?;
        write!(f, "{}", self.s3)?;
        for (at, guard) in self.guards.list().iter().enumerate() {
            let GuardSpec { keys, resource, policy, engine } = guard.spec();
            let resource = resource.as_deref().unwrap_or(keys);
            let engine = engine.as_ref().map_or_else(String::new, |engine| format!(", on engine {engine}"));
            writeln!(f, "guard {}          {keys} -> {resource}, {policy}{engine}", at + 1)?;
        }
        write!(f, "keys that no guard matches are their own resources, {}", Policy::default())
    }
}

#[cfg(test)]
mod tests;
