//! `fencepost serve`: the gateway.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fencepost_objects::directory::{Directory, SharedModes};
use fencepost_objects::{Objects, collect_abandoned_uploads};
use fencepost_store::engines::EngineKind;
use fencepost_store::{Store, Stores};
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

use super::exit::{self, Failed};
use super::hardening;
use crate::config::{Config, Flags, Objects as Place, S3FrontEnd, S3Settings};
use crate::credentials::S3Credentials;
use crate::data_directory;
use crate::http::{AuditLog, Gateway};
use crate::listener::{AdminListener, files};
use crate::metrics::Metrics;
use crate::opened_stores::{self, PositionKeepers};
use crate::reload::Reload;
use crate::s3::S3Listener;
use crate::s3::options::{Endpoint, S3Options, Transport};
use crate::server::{ServeError, Server, Stopped};

#[derive(Args)]
pub(super) struct Serve {
    #[command(flatten)]
    flags: Box<Flags>,
    /// What to log, as a tracing filter
    #[arg(long, value_name = "FILTER", env = "FENCEPOST_LOG", default_value = "info")]
    log: String,
    /// How to log, on standard error
    #[arg(long, value_name = "FORMAT", env = "FENCEPOST_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), Failed> {
        // Before any file is made.
        let modes = hardening::make_files_private();
        let mut config = Config::load(&self.flags).map_err(Failed::usage)?;
        self.start_log()?;
        if !config.debuggable {
            hardening::keep_memory_private();
        }
        let asked = config.clone();
        // Before anything is opened.
        files::fit(&mut config.limits, config.s3.front_end.is_some(), config.engines.len()).map_err(Failed::other)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(network_threads(config.s3.front_end.is_some()))
            .enable_all()
            .build()
            .map_err(Failed::other)?;
        let reload = Reload::new(*self.flags, asked);
        let result = runtime.block_on(serve(config, reload, modes));
        // Does not wait for a disk that hangs.
        runtime.shutdown_background();
        result
    }

    fn start_log(&self) -> Result<(), Failed> {
        let mut filter = EnvFilter::try_new(&self.log).map_err(|error| Failed::usage(format!("--log: {error}")))?;
        // s3s logs every refused request as an error of its own.
        if !self.log.contains("s3s")
            && let Ok(quiet) = "s3s=off".parse()
        {
            filter = filter.add_directive(quiet);
        }
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let log = log.with_ansi(std::io::stderr().is_terminal());
        match self.log_format {
            LogFormat::Text => log.try_init(),
            LogFormat::Json => log.json().try_init(),
        }
        .map_err(Failed::other)
    }
}

/// Threads that serve connections. Each answer of the committer would wake a thread without work, so one core is left to
/// the committer; unless objects are hashed on these threads, which takes more than it does.
fn network_threads(objects: bool) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if objects { cores } else { cores.saturating_sub(1).max(1) }
}

async fn serve(config: Config, reload: Reload, modes: SharedModes) -> Result<(), Failed> {
    // Bind first: a second gateway on the same port should not touch a store.
    let server = Server::bind(&config.listen, config.insecure_no_auth).await.map_err(|error| match error {
        ServeError::Address(_) | ServeError::BeyondLoopback(_) => Failed::usage(error),
        ServeError::Bind(..) | ServeError::Signals(_) => Failed::other(error),
    })?;
    if config.insecure_no_auth && !server.address().ip().is_loopback() {
        tracing::warn!(address = %server.address(), "the HTTP interface is open to every caller who can reach it (--insecure-no-auth)");
    }
    let s3 = match &config.s3.front_end {
        Some(front_end) => Some(listen_for_s3(front_end, config.s3.insecure_plaintext).await?),
        None => None,
    };
    let kind = config.engine.kind();
    if s3.is_some() {
        check_objects(kind)?;
    }
    data_directory::check(&config.data, config.data_mode_ok).map_err(Failed::usage)?;
    let metrics = Arc::new(Metrics::new());
    let stores = opened_stores::open(&config, metrics.clone()).await.map_err(Failed::other)?;
    let stores = Arc::new(stores);
    let Ready { gateway, admin, s3_listener, s3_welcome, keepers } =
        match make_ready(&config, &stores, metrics, reload, s3, modes).await {
            Ok(ready) => ready,
            Err(failed) => {
                opened_stores::close(stores).await;
                return Err(failed);
            }
        };
    drop(stores);
    let gateway = gateway.answering_for(&config.hosts, server.address().ip());
    let address = server.address();
    let place = opened_stores::whereabouts(&config);
    let welcome = welcome(&format!("http://{address}"), kind.name, &place, &s3_welcome);
    if let Err(failed) = exit::write(welcome.as_bytes()) {
        drop(s3_listener);
        close(Some(gateway), Duration::MAX).await;
        return Err(failed);
    }
    tracing::info!(%address, engine = kind.name, admin = %config.admin_socket.display(), "serving");
    match server.run(gateway, admin, s3_listener).await {
        Stopped::Drained(gateway) => {
            keepers.stop().await;
            close(gateway, Duration::MAX).await;
            tracing::info!("stopped");
            Ok(())
        }
        Stopped::Forced(gateway) => {
            close(gateway, FORCED_CLOSE).await;
            Err(Failed::other("stopped with requests under way; what was answered is durable"))
        }
    }
}

/// The parts of a gateway that is ready to serve.
struct Ready {
    gateway: Gateway,
    admin: AdminListener,
    s3_listener: Option<S3Listener>,
    s3_welcome: String,
    keepers: PositionKeepers,
}

async fn make_ready(
    config: &Config,
    stores: &Arc<Stores>,
    metrics: Arc<Metrics>,
    reload: Reload,
    s3: Option<(TcpListener, Transport)>,
    modes: SharedModes,
) -> Result<Ready, Failed> {
    let keepers = PositionKeepers::start(config, stores).map_err(Failed::other)?;
    // After the engine has the data directory to itself. An engine that needs none may not have created it.
    for directory in [&config.admin_socket, &config.audit_log].into_iter().filter_map(|path| path.parent()) {
        std::fs::create_dir_all(directory)
            .map_err(|error| Failed::other(format!("cannot make {}: {error}", directory.display())))?;
    }
    // Before any file is created: binding narrows the umask for a moment.
    let admin = AdminListener::bind(&config.admin_socket).await.map_err(Failed::other)?;
    let (limits, audit) = (config.limits.clone(), AuditLog::new(&config.audit_log));
    let mut gateway = Gateway::new(stores.clone(), limits.clone(), metrics.clone(), reload, audit);
    let mut s3_listener = None;
    let mut s3_welcome = String::new();
    if let (Some((listener, transport)), Some(front_end)) = (s3, &config.s3.front_end) {
        let credentials = credentials(&config.s3, &config.data, &listener)?;
        let store = stores.unnamed().clone();
        let objects = open_objects(front_end, modes, store, config.engine_options.free_space_floor).await?;
        check_buckets(&objects).await?;
        tokio::spawn(collect_abandoned_uploads(Arc::downgrade(&objects), config.s3.upload_retention));
        gateway = gateway.with_s3(credentials.clone(), objects.clone());
        let address = listener.local_addr().map_err(Failed::other)?;
        s3_welcome = format!("S3 on http://{address} (objects in {})\n", front_end.objects);
        let options = S3Options {
            create_buckets: config.s3.create_buckets,
            endpoint: match config.s3.endpoint {
                Some(_) => Endpoint::Configured,
                None => Endpoint::Listener,
            },
            transport,
            read: config.s3.read,
        };
        s3_listener = Some(S3Listener::new(listener, objects, credentials, metrics, &limits, &options));
    }
    Ok(Ready { gateway, admin, s3_listener, s3_welcome, keepers })
}

/// Checks that an engine can keep the fences of objects in a directory.
fn check_objects(kind: &EngineKind) -> Result<(), Failed> {
    if !kind.durable {
        return Err(Failed::usage(format!(
            "the S3 front end keeps objects, and the engine `{}` would forget their fences: use a durable engine",
            kind.name
        )));
    }
    if kind.is_shared() {
        return Err(Failed::usage(format!(
            "the S3 front end keeps objects in a directory, which belongs to one gateway, and the engine `{}` is for several: \
             use the engine rocksdb for the S3 front end. Buckets on several gateways come with bucket layouts",
            kind.name
        )));
    }
    Ok(())
}

/// Checks that no guard keeps names of objects on a named engine: an object and its fence change in one commit, which the
/// engine without a name makes.
async fn check_buckets(objects: &Objects) -> Result<(), Failed> {
    let (guards, buckets) = (objects.guards(), objects.buckets().await.map_err(Failed::other)?);
    // No bucket has an empty name; a guard that begins with `*` reaches every bucket.
    let names = std::iter::once("").chain(buckets.iter().map(|bucket| bucket.name.as_str()));
    let mut found =
        names.filter_map(|name| guards.named_engine_under(name).map(|(number, guard)| (name, number, guard)));
    let Some((bucket, number, guard)) = found.next() else { return Ok(()) };
    let (keys, engine) = (&guard.spec().keys, guard.spec().engine.as_ref().map_or("", |engine| engine.as_str()));
    let what = match bucket {
        "" => "objects of any bucket".to_owned(),
        bucket => format!("objects of the bucket `{bucket}`"),
    };
    Err(Failed::usage(format!(
        "guard {number} (`{keys}`) keeps its resources on the engine `{engine}`, and may cover {what}: objects are fenced by \
         the engine without a name. Remove `engine` from the guard, or give it keys under a name that is no bucket's"
    )))
}

/// Beyond loopback, the operator must accept that others may see bodies and headers.
async fn listen_for_s3(front_end: &S3FrontEnd, insecure_plaintext: bool) -> Result<(TcpListener, Transport), Failed> {
    let wrong = |error| Failed::other(format!("cannot listen for S3 on {}: {error}", front_end.listen));
    let listener = TcpListener::bind(&front_end.listen).await.map_err(wrong)?;
    let address = listener.local_addr().map_err(wrong)?;
    match (address.ip().to_canonical().is_loopback(), insecure_plaintext) {
        (true, _) => Ok((listener, Transport::Loopback)),
        (false, true) => {
            tracing::warn!(%address, "S3 requests are not encrypted: others on the network can read them (s3.insecure_plaintext)");
            Ok((listener, Transport::Plaintext))
        }
        (false, false) => Err(Failed::usage(format!(
            "the S3 listener {address} can be reached from other machines, and nothing on it is encrypted. Listen on \
             loopback behind a TLS proxy or a tunnel; or give --s3-insecure-plaintext, and every client must sign bodies \
             and headers"
        ))),
    }
}

async fn open_objects(
    front_end: &S3FrontEnd,
    modes: SharedModes,
    store: Arc<Store>,
    free_space_floor: u64,
) -> Result<Arc<Objects>, Failed> {
    let Place::Directory(path) = &front_end.objects;
    let directory = Directory::open_with(path, modes).map_err(Failed::other)?;
    directory.keep_free(free_space_floor);
    let known = store.objects("", None, 1).await.map_err(Failed::other)?;
    directory.belongs_to(&store.store_id(), !known.entries.is_empty()).map_err(Failed::other)?;
    Objects::open(store, Arc::new(directory)).await.map_err(Failed::other)
}

/// Makes the issuer of the credentials that the S3 front end accepts.
fn credentials(settings: &S3Settings, data: &Path, listener: &TcpListener) -> Result<Arc<S3Credentials>, Failed> {
    let endpoint = match &settings.endpoint {
        Some(endpoint) => endpoint.clone(),
        None => {
            let address = listener.local_addr().map_err(Failed::other)?;
            if address.ip().is_unspecified() {
                return Err(Failed::usage(format!(
                    "the S3 front end listens on every address ({address}), and clients need the URL of one: give --s3-endpoint"
                )));
            }
            format!("http://{address}")
        }
    };
    let keyring = settings.keyring(data).map_err(Failed::other)?;
    Ok(Arc::new(S3Credentials::new(keyring, endpoint, settings.credentials_max_ttl)))
}

/// How long a forced stop waits for a commit under way.
const FORCED_CLOSE: Duration = Duration::from_secs(2);

/// Closes the store, so that its threads are gone before the process ends.
async fn close(gateway: Option<Gateway>, limit: Duration) {
    if let Some(gateway) = gateway
        && tokio::time::timeout(limit, gateway.close()).await.is_err()
    {
        tracing::warn!("the disk did not finish in time");
    }
}

fn welcome(url: &str, engine: &str, place: &str, s3: &str) -> String {
    format!(
        "fencepost {version} listening on {url} (engine {engine}, {place})\n{s3}\
         Try it:\n  \
         curl -i -X PUT {url}/v1/kv/orders/123 -H 'Fencing-Token: 34' -d 'paid'\n  \
         curl -i {url}/v1/kv/orders/123\n  \
         curl -i -X PUT {url}/v1/kv/orders/123 -H 'Fencing-Token: 33' -d 'too late'   # refused: 409\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}
