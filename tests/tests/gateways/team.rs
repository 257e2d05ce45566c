//! Gateways on a server, each with a data directory of its own.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::{GatewayProcess, binary};
use fencepost_harness::servers::etcd::Etcd;
use fencepost_harness::servers::postgres::Postgres;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server of its own, which a test may kill. The engine refuses one without fsync.
pub(crate) fn own_server() -> Postgres {
    Postgres::with(&["fsync=on"])
}

/// The server of all tests that do it no harm. It ends with the last of them.
pub(crate) fn shared_server() -> Arc<Postgres> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(own_server());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// The etcd server of all tests that do it no harm. It ends with the last of them.
pub(crate) fn shared_etcd() -> Arc<Etcd> {
    static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Etcd::start());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// The engines over which several gateways serve one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Etcd,
    Postgres,
}

/// Makes a test of each case for each of these engines.
macro_rules! on_each {
    ($($case:ident),+ $(,)?) => {$(
        mod $case {
            #[test]
            fn on_etcd() {
                super::$case(crate::team::On::Etcd);
            }

            #[test]
            fn on_postgres() {
                super::$case(crate::team::On::Postgres);
            }
        }
    )+};
}
pub(crate) use on_each;

/// The server of a store.
#[derive(Clone)]
enum Server {
    Etcd(Arc<Etcd>),
    Postgres(Arc<Postgres>),
}

/// A store of its own on a shared server: a prefix, or a schema.
pub(crate) struct Place {
    name: String,
    server: Server,
}

impl Place {
    pub(crate) fn new(on: On, name: &str) -> Place {
        let server = match on {
            On::Etcd => Server::Etcd(shared_etcd()),
            On::Postgres => Server::Postgres(shared_server()),
        };
        Place { name: name.to_owned(), server }
    }

    /// The same on a server of its own.
    pub(crate) fn alone(on: On, name: &str) -> Place {
        let server = match on {
            On::Etcd => Server::Etcd(Arc::new(Etcd::start())),
            On::Postgres => Server::Postgres(Arc::new(own_server())),
        };
        Place { name: name.to_owned(), server }
    }

    /// Another store on the same server.
    pub(crate) fn beside(&self, name: &str) -> Place {
        Place { name: name.to_owned(), server: self.server.clone() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match &self.server {
            Server::Etcd(etcd) => etcd.address(),
            Server::Postgres(postgres) => postgres.address(),
        }
    }

    /// The URL of the engine.
    pub(crate) fn engine(&self) -> String {
        self.engine_at(self.address())
    }

    /// The same for one of several gateways that the server can tell apart.
    pub(crate) fn engine_of(&self, gateway: usize) -> String {
        match &self.server {
            Server::Etcd(_) => self.engine(),
            Server::Postgres(_) => format!("{}&application_name={}", self.engine(), self.application(gateway)),
        }
    }

    fn application(&self, gateway: usize) -> String {
        format!("{}_{gateway}", self.name)
    }

    /// Waits until the server, which is this place's own, has done whatever killed gateways had sent. Nothing else is under
    /// way.
    pub(crate) fn wait_for_dead(&self, gateways: &[usize]) {
        match &self.server {
            Server::Etcd(etcd) => etcd.wait_for_dead_clients(),
            Server::Postgres(postgres) => {
                let names: Vec<String> = gateways.iter().map(|at| format!("'{}'", self.application(*at))).collect();
                let names = names.join(", ");
                let open = format!("select count(*) from pg_stat_activity where application_name in ({names})");
                wait::until("the connections of dead gateways to end", PATIENCE, || {
                    (postgres.sql(&open) == "0").then_some(())
                });
            }
        }
    }

    /// The URL of the engine, by way of this address.
    pub(crate) fn engine_at(&self, address: impl Display) -> String {
        let name = &self.name;
        match &self.server {
            Server::Etcd(_) => format!("etcd://{address}/{name}"),
            Server::Postgres(_) => {
                engine(&format!("postgres://postgres@{address}/postgres"), &format!("schema={name}"))
            }
        }
    }
}

/// The URL of an engine, with settings as in a query string. Without TLS, a commit is one packet.
pub(crate) fn engine(url: &str, settings: &str) -> String {
    format!("{url}?sslmode=disable&{settings}")
}

/// The URL of whichever of two servers is the primary.
pub(crate) fn either(first: &Postgres, second: &Postgres, settings: &str) -> String {
    engine(&format!("postgres://postgres@{},{}/postgres", first.address(), second.address()), settings)
}

/// `fencepost serve` on a free port, prepared but not started.
pub(crate) fn serve(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
    command
}

/// A gateway that may be stopped and started again.
pub(crate) struct Gateway {
    process: Option<GatewayProcess>,
    dir: TempDir,
    arguments: Vec<String>,
}

impl Gateway {
    /// Starts a gateway on the engine with this URL.
    pub(crate) fn start(engine: &str) -> Gateway {
        Gateway::with(engine, &[])
    }

    /// The same, with further arguments.
    pub(crate) fn with(engine: &str, arguments: &[&str]) -> Gateway {
        let arguments = ["--engine", engine].iter().chain(arguments).map(|&argument| argument.to_owned()).collect();
        let mut gateway = Gateway { process: None, dir: TempDir::new().unwrap(), arguments };
        gateway.restart();
        gateway
    }

    /// Tries to start a gateway, and returns what it said if it exited instead.
    pub(crate) fn refused(engine: &str, arguments: &[&str]) -> String {
        let dir = TempDir::new().unwrap();
        let command = serve(&dir.path().join("data"), &[&["--engine", engine], arguments].concat());
        match GatewayProcess::spawn(command) {
            Ok(_) => panic!("a gateway that should be refused has started"),
            Err(said) => said,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Begins to start it again, and waits for nothing. It is to be killed before `restart`.
    pub(crate) fn begin_to_start(&self) -> Child {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut command = serve(&self.data(), &arguments);
        command.env("FENCEPOST_STATE_DIR", "off").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Starts it again, with the same data directory.
    pub(crate) fn restart(&mut self) {
        assert!(self.process.is_none(), "the gateway runs already");
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.process = Some(GatewayProcess::start(&self.data(), &arguments));
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("the gateway runs").kill();
    }

    /// Sends SIGTERM, and waits until it has ended as it should.
    pub(crate) fn stop(&mut self) {
        let process = self.process.take().expect("the gateway runs");
        process.signal(Signal::TERM);
        assert_eq!(process.wait(PATIENCE).code(), Some(0));
    }

    /// Stops its process (SIGSTOP), and waits until it stands still.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid());
        wait::until("the gateway to stand still", PATIENCE, || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            // The field after the name, which may contain spaces.
            stat.rsplit(')').next()?.split_whitespace().next().filter(|state| *state == "T").map(drop)
        });
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// `fencepost …` at this gateway's socket for administrators.
    pub(crate) fn admin(&self, line: &str) -> Output {
        let mut command = Command::new(binary());
        command.args(line.split_whitespace()).env("FENCEPOST_ADMIN_SOCKET", self.data().join("admin.sock"));
        command.output().unwrap()
    }

    /// The status of `GET /readyz`.
    pub(crate) fn readiness(&self) -> u16 {
        self.client().request("GET", "/readyz", &[], b"").status
    }

    /// Waits until it takes writes.
    pub(crate) fn wait_until_ready(&self) {
        wait::until("the gateway to be ready", PATIENCE, || (self.readiness() == 200).then_some(()));
    }
}

impl Deref for Gateway {
    type Target = GatewayProcess;

    fn deref(&self) -> &GatewayProcess {
        self.process.as_ref().expect("the gateway runs")
    }
}

/// Two gateways over one store of a shared server.
pub(crate) struct Pair {
    pub(crate) a: Gateway,
    pub(crate) b: Gateway,
    /// Dropped last.
    pub(crate) _place: Place,
}

impl Pair {
    /// Starts both. The store is this test's own.
    pub(crate) fn start(on: On, name: &str) -> Pair {
        let place = Place::new(on, name);
        Pair { a: Gateway::start(&place.engine()), b: Gateway::start(&place.engine()), _place: place }
    }
}

/// POST /v1/txn.
pub(crate) fn txn(client: &mut Client, body: &Value) -> Answer {
    client.post("/v1/txn", body)
}

/// A transaction that adds to a number under the token 1.
pub(crate) fn add(key: &str, by: i64) -> Value {
    json!({"tokens": {key: "1"}, "then": [{"add": key, "by": by}]})
}

/// The bytes of a PUT.
pub(crate) fn put_request(key: &str, token: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("PUT /v1/kv/{key} HTTP/1.1\r\nhost: localhost\r\nfencing-token: {token}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// The bytes of a transaction.
pub(crate) fn txn_request(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!("POST /v1/txn HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Returns whether an answer is a recorded one.
pub(crate) fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}

/// A server whose processes are all stopped. They go on when this is dropped.
pub(crate) struct Frozen(Vec<Pid>);

impl Frozen {
    pub(crate) fn freeze(server: &Postgres) -> Frozen {
        let file = std::fs::read_to_string(server.data().join("postmaster.pid")).unwrap();
        let main = file.lines().next().unwrap().trim().to_owned();
        let children = std::fs::read_to_string(format!("/proc/{main}/task/{main}/children")).unwrap();
        let pids = std::iter::once(main.as_str()).chain(children.split_whitespace());
        let frozen = Frozen(pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect());
        frozen.signal(Signal::STOP);
        frozen
    }

    fn signal(&self, signal: Signal) {
        for pid in &self.0 {
            // A process of the server may have ended by itself.
            let _ = kill_process(*pid, signal);
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
    }
}

/// Sets a flag when it is dropped, also by a test that fails.
pub(crate) struct AtEnd<'f>(pub(crate) &'f AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
