//! PostgreSQL servers: the cluster is initialised once, and every server gets a copy.

mod pool;
mod standby;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::certificates::{Certificates, Clients};
use super::{ServerProcess, free_port, loopback};
use fencepost_conformance::wait;

pub use pool::Pool;

/// The time limit for a server to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with its own data; both are removed when it is dropped.
pub struct Postgres {
    process: Option<ServerProcess>,
    home: TempDir,
    port: u16,
    settings: Vec<String>,
}

/// The directory of PostgreSQL's programs.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is missing: run `scripts/setup test`");
    let programs = versions.filter_map(Result::ok).map(|version| version.path().join("bin"));
    programs.filter(|bin| bin.join("initdb").is_file()).max().expect("PostgreSQL is missing: run `scripts/setup test`")
}

/// PostgreSQL refuses to run as root, so the command runs as another user in that case.
fn as_its_user(program: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes PostgreSQL's user the owner of a file.
fn as_owner(path: &Path) {
    if rustix::process::geteuid().is_root() {
        run(Command::new("chown").arg("postgres").arg(path));
    }
}

/// A directory that PostgreSQL's user may write to.
fn directory() -> TempDir {
    let home = TempDir::new().expect("a temporary directory can be made");
    as_owner(home.path());
    home
}

/// An empty database cluster, created once per target directory; every server gets a copy of it.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let programs = programs();
        let version = programs.parent().and_then(Path::file_name).expect("programs lie in version/bin");
        let test = std::env::current_exe().expect("a test knows its own path");
        let target = test.ancestors().nth(3).expect("tests run from target/release/deps").join("tmp");
        let template = target.join(format!("postgres-{}", version.display()));
        if !template.exists() {
            // Created where its user may write, copied next to its destination, and moved there atomically: other
            // processes may do the same.
            let home = directory();
            let mut initdb = as_its_user(&programs.join("initdb"));
            initdb.args(["--auth=trust", "--username=postgres", "--no-sync", "--no-locale", "-E", "UTF8", "-D"]);
            run(initdb.arg(home.path().join("data")));
            fs::create_dir_all(&target).expect("the target directory can be written");
            let beside = TempDir::new_in(&target).expect("the target directory can be written");
            run(Command::new("cp").arg("-a").arg(home.path().join("data")).arg(beside.path()));
            if let Err(error) = fs::rename(beside.path().join("data"), &template) {
                assert!(template.exists(), "{}: {error}", template.display());
            }
        }
        template
    })
}

impl Postgres {
    /// Starts an empty server.
    pub fn start() -> Postgres {
        Postgres::with(&[])
    }

    /// Starts an empty server with settings, each `name=value`.
    pub fn with(settings: &[&str]) -> Postgres {
        Postgres::in_directory(Postgres::fresh(), settings)
    }

    /// Starts an empty server with TLS. With [`Clients::Known`] there is a user `worker`, who needs a certificate of
    /// that name.
    pub fn with_certificates(certificates: &Certificates, clients: Clients) -> Postgres {
        let home = Postgres::fresh();
        let data = home.path().join("data");
        let server = certificates.server();
        let files =
            [(&certificates.root(), "root.crt"), (&server.certificate, "server.crt"), (&server.key, "server.key")];
        for (file, name) in files {
            let copy = data.join(name);
            fs::copy(file, &copy).expect("a file can be copied");
            as_owner(&copy);
        }
        run(Command::new("chmod").arg("600").arg(data.join("server.key")));
        if clients == Clients::Known {
            let (file, rule) =
                (data.join("pg_hba.conf"), "hostssl all worker 127.0.0.1/32 cert\nhost all worker all reject\n");
            let rules = fs::read_to_string(&file).expect("the server has rules");
            fs::write(&file, format!("{rule}{rules}")).expect("rules can be written");
        }
        let postgres = Postgres::in_directory(home, &["ssl=on", "ssl_ca_file=root.crt"]);
        if clients == Clients::Known {
            postgres.sql("create role worker login superuser");
        }
        postgres
    }

    fn fresh() -> TempDir {
        let home = directory();
        run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(template()).arg(home.path().join("data")));
        home
    }

    fn in_directory(home: TempDir, settings: &[&str]) -> Postgres {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut postgres = Postgres { process: None, home, port: free_port(), settings };
        postgres.launch();
        postgres
    }

    fn launch(&mut self) {
        let mut command = as_its_user(&programs().join("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string(), "-k"]).arg(self.home.path());
        // Unsynced writes survive the death of a process, though not of the machine.
        let usual = ["listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=16MB", "max_connections=200"];
        for setting in usual.into_iter().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        self.process = Some(ServerProcess::start(command, self.port));
        wait::until("PostgreSQL to answer", PATIENCE, || {
            self.psql("select 1").output().ok()?.status.success().then_some(())
        });
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// The URL of its database `postgres`, for the administrator.
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// The URL of its database `postgres`, for another user without a password.
    pub fn url_for(&self, user: &str) -> String {
        format!("postgres://{user}@{}/postgres", self.address())
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn psql(&self, statement: &str) -> Command {
        let mut command = Command::new(programs().join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-U", "postgres", "-d", "postgres"]);
        command.args(["-v", "ON_ERROR_STOP=1", "-p", &self.port.to_string(), "-c", statement]);
        command
    }

    /// Runs a statement as an administrator, and returns its output.
    pub fn sql(&self, statement: &str) -> String {
        run(&mut self.psql(statement)).trim().to_owned()
    }

    /// The same, for a session that may be ended by the server.
    pub fn try_sql(&self, statement: &str) -> Result<String, String> {
        let output = self.psql(statement).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Requires a password of this user from now on.
    pub fn demand_password(&self, user: &str) {
        let file = self.data().join("pg_hba.conf");
        let rules = fs::read_to_string(&file).expect("the server has rules");
        fs::write(&file, format!("host all {user} 127.0.0.1/32 scram-sha-256\n{rules}")).expect("rules can be written");
        self.sql("select pg_reload_conf()");
        wait::until("the new rules", PATIENCE, || {
            let seen = self.sql("select count(*) from pg_hba_file_rules where auth_method = 'scram-sha-256'");
            (seen == "1").then_some(())
        });
    }

    /// `kill -9` of all its processes.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let main = process.pid().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{main}/task/{main}/children")).unwrap_or_default();
        process.kill();
        for child in children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)) {
            // Most exit by themselves when the main process is gone.
            let _ = kill_process(child, Signal::KILL);
            wait::until("a process of PostgreSQL to end", PATIENCE, || {
                (!Path::new(&format!("/proc/{}", child.as_raw_nonzero())).exists()).then_some(())
            });
        }
    }

    /// `kill -9`, then starts it again with the same data at the same address.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}
