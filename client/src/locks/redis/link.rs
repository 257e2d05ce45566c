//! The connection to Redis: opened when it is needed, reopened when it is in doubt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencepost_remote::tls::{self, Certificates, Terms};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, ScriptInvocation, ServerErrorKind, TlsCertificates,
};
use tokio::sync::Mutex;

use crate::locks::url::wrong;
use crate::locks::{LockError, LockUrl};

/// The time limit for connecting, and for each answer.
const TIMEOUT: Duration = Duration::from_secs(3);

const DEFAULT_PORT: u16 = 6379;

/// A Redis server, shared by all calls.
pub(super) struct Link {
    client: Client,
    /// Its URL, without the password.
    service: String,
    /// Present if the connection uses TLS.
    terms: Option<Terms>,
    current: Mutex<Current>,
    /// Connections up to this number are not reused.
    in_doubt: AtomicU64,
}

/// The connection and its number, so that only the one that failed is replaced.
#[derive(Default)]
struct Current {
    made: u64,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    /// Reads the URL, without connecting.
    pub(super) fn open(url: &LockUrl) -> Result<Link, LockError> {
        let certificates = tls::by_scheme(url, "rediss")?;
        let terms = certificates.as_ref().map(Certificates::terms);
        let info = connection_info(url)?;
        let refused = |error: RedisError| wrong(&url.to_string(), &error.to_string());
        let client = match certificates {
            None => Client::open(info).map_err(refused)?,
            Some(certificates) => {
                // The library builds its own configuration, but does not report which file it cannot use. So try it
                // here first.
                certificates.config()?;
                // The program may have installed a provider already. Without one, rustls cannot choose between several.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let root_cert = certificates.roots().map(<[u8]>::to_vec);
                let client_tls = certificates.identity().map(|(certificate, key)| ClientTlsConfig {
                    client_cert: certificate.to_vec(),
                    client_key: key.to_vec(),
                });
                Client::build_with_tls(info, TlsCertificates { client_tls, root_cert }).map_err(refused)?
            }
        };
        Ok(Link { client, service: url.to_string(), terms, current: Mutex::default(), in_doubt: AtomicU64::new(0) })
    }

    /// Finds problems early that would otherwise fail later calls.
    pub(super) async fn check(&self) -> Result<(), LockError> {
        self.query::<String>(&redis::cmd("PING")).await?;
        // The command may be forbidden; its result is used only for a warning.
        let info: String = self.query(redis::cmd("INFO").arg("memory")).await.unwrap_or_default();
        let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if let (Some(limit), Some(policy)) = (value("maxmemory"), value("maxmemory_policy"))
            && limit != "0"
            && policy.starts_with("allkeys")
        {
            tracing::warn!(
                service = %self.service,
                policy,
                "this Redis evicts keys that do not expire, so the counters of locks as well; each time one is lost, a fence has \
                 to be rotated. Set maxmemory-policy to noeviction, or use a Redis of its own for locks"
            );
        }
        Ok(())
    }

    /// Runs a script.
    pub(super) async fn run<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, LockError> {
        let (made, mut connection) = self.connection().await?;
        let unanswered = Unanswered { link: self, made };
        let answer = script.invoke_async(&mut connection).await;
        unanswered.answered(answer)
    }

    /// Runs one command.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, LockError> {
        let (made, mut connection) = self.connection().await?;
        let unanswered = Unanswered { link: self, made };
        let answer = command.query_async(&mut connection).await;
        unanswered.answered(answer)
    }

    /// A separate connection for one waiter, because its blocking read would block other calls. It sets its own
    /// timeouts.
    pub(super) async fn listener(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(None);
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// An error for an answer that cannot be used.
    pub(super) fn failed(&self, why: &str) -> LockError {
        LockError::Failed { service: self.service.clone(), why: why.to_owned() }
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), LockError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection
            && current.made > self.in_doubt.load(Ordering::Relaxed)
        {
            return Ok((current.made, connection.clone()));
        }
        // Calls that still wait for an answer keep a clone of the old connection.
        current.connection = None;
        let limits =
            AsyncConnectionConfig::new().set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
        let connection = self.client.get_multiplexed_async_connection_with_config(&limits).await;
        let connection = connection.map_err(|error| self.error(&error))?;
        current.made += 1;
        current.connection = Some(connection.clone());
        Ok((current.made, connection))
    }

    fn error(&self, error: &RedisError) -> LockError {
        let service = self.service.clone();
        let unreachable = |why: String| LockError::Unreachable { service: service.clone(), why };
        let failed = |why: String| LockError::Failed { service: service.clone(), why };
        if let Some(why) = self.terms.and_then(|terms| terms.refusal(error)) {
            return failed(why);
        }
        match error.kind() {
            ErrorKind::AuthenticationFailed => {
                failed("it refused the user or the password; check those in the URL".to_owned())
            }
            ErrorKind::Io => {
                let suspicion = self
                    .terms
                    .filter(|_| error.is_connection_dropped() && !error.is_connection_refusal())
                    .map(Terms::suspicion);
                unreachable(format!("{error}{}", suspicion.unwrap_or_default()))
            }
            ErrorKind::Server(kind) => match kind {
                ServerErrorKind::ReadOnly => {
                    unreachable("it is a replica, which takes no writes. Name the primary in the URL".to_owned())
                }
                ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown => unreachable(error.to_string()),
                ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot => failed(
                    "it is a node of a Redis Cluster, which keeps this lock elsewhere. Use a Redis that is no cluster"
                        .to_owned(),
                ),
                ServerErrorKind::NoPerm => failed(format!(
                    "the user in the URL may not do what locks need ({error}); it needs ~fencepost:* +@read +@write +@scripting \
                     +ping"
                )),
                _ => failed(error.to_string()),
            },
            _ => match error.code() {
                Some("NOAUTH") => failed("it wants a password; write it into the URL".to_owned()),
                // Too few replicas, a failed save, a long-running script, or out of memory: transient.
                Some("NOREPLICAS" | "MISCONF" | "BUSY" | "OOM") => unreachable(error.to_string()),
                _ => failed(error.to_string()),
            },
        }
    }
}

/// A call in progress. If it is dropped, its connection is in doubt: it may hang, and the next call must not use it.
struct Unanswered<'a> {
    link: &'a Link,
    made: u64,
}

impl Unanswered<'_> {
    fn answered<T>(self, answer: Result<T, RedisError>) -> Result<T, LockError> {
        let link = self.link;
        // An answer of the server proves that the connection works. The exception is a read-only replica: the same host
        // name may lead to another server, the primary, by now.
        let good = match &answer {
            Ok(_) => true,
            Err(error) => {
                matches!(error.kind(), ErrorKind::Server(kind) if kind != ServerErrorKind::ReadOnly)
            }
        };
        if good {
            std::mem::forget(self);
        }
        answer.map_err(|error| link.error(&error))
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.link.in_doubt.fetch_max(self.made, Ordering::Relaxed);
    }
}

fn connection_info(url: &LockUrl) -> Result<ConnectionInfo, LockError> {
    let bad = |why: &str| wrong(&url.to_string(), why);
    let [host] = url.hosts.as_slice() else { return Err(bad("it names one host")) };
    let (host, port) = match host.rsplit_once(':') {
        // The last colon of `[::1]` is inside the brackets.
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().map_err(|_| bad("its port is no number"))?),
        _ => (host.as_str(), DEFAULT_PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let db: u32 = match url.path.as_str() {
        "" => 0,
        path => path.parse().map_err(|_| bad("after the host comes the number of a database"))?,
    };
    let mut settings = RedisConnectionInfo::default().set_db(i64::from(db));
    match &url.user {
        None => {}
        Some((user, Some(password))) => {
            if !user.is_empty() {
                settings = settings.set_username(user);
            }
            settings = settings.set_password(password);
        }
        // It may be the password, so it is not shown.
        Some((_, None)) => {
            let shown = format!("{}://…@{}", url.scheme, url.hosts.join(","));
            return Err(wrong(&shown, "it has a user but no password; a password alone is written as `:password@`"));
        }
    }
    let address = match url.scheme.as_str() {
        "rediss" => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        _ => ConnectionAddr::Tcp(host, port),
    };
    let info = address.into_connection_info().map_err(|error| bad(&error.to_string()))?;
    Ok(info.set_redis_settings(settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<ConnectionInfo, LockError> {
        connection_info(&LockUrl::parse(url).unwrap())
    }

    #[test]
    fn urls_as_redis_users_write_them() {
        let info = read("redis://:p%40ss@localhost/3").unwrap();
        assert_eq!(*info.addr(), ConnectionAddr::Tcp("localhost".into(), 6379));
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (None, Some("p@ss"), 3));
        let info = read("redis://bob:x@[::1]:7000").unwrap();
        assert_eq!(*info.addr(), ConnectionAddr::Tcp("::1".into(), 7000));
        assert_eq!(info.redis_settings().username(), Some("bob"));
        assert_eq!(*read("redis://[::1]").unwrap().addr(), ConnectionAddr::Tcp("::1".into(), 6379));
        assert!(matches!(read("rediss://a:1").unwrap().addr(), ConnectionAddr::TcpTls { insecure: false, .. }));
    }

    #[test]
    fn what_is_no_url_of_a_redis() {
        for url in ["redis://", "redis://a:x", "redis://a/b", "redis://a,b", "redis://secret@a", "redis://a/-1"] {
            let error = read(url).unwrap_err();
            assert!(matches!(error, LockError::Invalid(_)) && !error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
