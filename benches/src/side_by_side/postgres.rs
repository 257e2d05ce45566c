//! PostgreSQL with a fenced upsert as a prepared statement, measured by pgbench.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fencepost_gateway::bench::{Workload, text};

use crate::figures::quantile;
use crate::server::{Server, free_port};
use crate::{Outcome, Peer, RESOURCES, Timing, VALUE};

/// One statement: PostgreSQL locks the row, checks its fence and writes it.
const TABLE: &str = "create table fenced (key text primary key, fence bigint not null, value text not null)";

/// Its name in the table.
pub(crate) const POSTGRESQL: &str = "PostgreSQL";

pub(crate) struct Postgres {
    server: Server,
    programs: PathBuf,
    home: PathBuf,
}

/// PostgreSQL refuses to run as root, so the command runs as another user in that case.
fn as_its_user(program: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--pdeathsig", "keep", "--"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// The directory of the newest PostgreSQL's programs.
pub(crate) fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions.filter_map(Result::ok).map(|version| version.path().join("bin")).max()
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

impl Postgres {
    pub(crate) fn start(home: &Path) -> Result<Postgres, String> {
        let programs = programs().ok_or("PostgreSQL is missing")?;
        let (port, home) = (free_port()?, home.join("postgres"));
        fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        if rustix::process::geteuid().is_root() {
            run(Command::new("chmod").arg("o+x").arg(home.parent().unwrap_or(&home)))?;
            run(Command::new("chown").arg("postgres").arg(&home))?;
        }
        let data = home.join("data");
        run(as_its_user(&programs.join("initdb")).args(["--auth=trust", "--username=postgres", "-D"]).arg(&data))?;
        let mut command = as_its_user(&programs.join("postgres"));
        command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k"]).arg(&home);
        for setting in ["listen_addresses=127.0.0.1", "max_connections=400", "fsync=on", "synchronous_commit=on"] {
            command.args(["-c", setting]);
        }
        command.args(["-c", "log_min_messages=fatal", "-c", "max_wal_size=4GB"]);
        let server = Server::start(command, port)?;
        let postgres = Postgres { server, programs, home };
        let fill = format!(
            "{TABLE}; insert into fenced select 'bench/' || n, 1000000, '{}' from generate_series(0, {}) n",
            text(0, VALUE),
            RESOURCES - 1
        );
        crate::server::pause(std::time::Duration::from_secs(1));
        run(postgres.client("psql").args(["-q", "-c", &fill]))?;
        Ok(postgres)
    }

    /// The URL of a schema in it, for a gateway.
    pub(crate) fn url(&self, schema: &str) -> String {
        format!("postgres://postgres@{}/postgres?schema={schema}", self.server.address)
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.server.address.port().to_string()]);
        if program == "psql" {
            command.args(["-d", "postgres", "-v", "ON_ERROR_STOP=1"]);
        }
        command
    }
}

impl Peer for Postgres {
    fn name(&self) -> &'static str {
        POSTGRESQL
    }

    fn offers(&self, workload: Workload) -> bool {
        matches!(workload, Workload::Put | Workload::Stale | Workload::Get)
    }

    fn measure(&mut self, workload: Workload, connections: usize, time: Timing) -> Result<Outcome, String> {
        let token = if workload == Workload::Stale { 999_999 } else { 1_000_000 };
        let statement = match workload {
            Workload::Get => "select value, fence from fenced where key = 'bench/' || :n".to_owned(),
            _ => format!(
                "insert into fenced values ('bench/' || :n, {token}, '{}') on conflict (key) do update \
                 set fence = excluded.fence, value = excluded.value where fenced.fence <= excluded.fence",
                text(0, VALUE)
            ),
        };
        let script = format!("\\set n random(0, {})\n{statement};\n", RESOURCES - 1);
        let logs = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = logs.path().join("script.sql");
        fs::write(&file, script).map_err(|error| error.to_string())?;
        let pgbench = |seconds: u64, log: bool| -> Result<String, String> {
            let mut command = self.client("pgbench");
            command.args([
                "-n",
                "-M",
                "prepared",
                "-j",
                "1",
                "-c",
                &connections.to_string(),
                "-T",
                &seconds.to_string(),
            ]);
            command.arg("-f").arg(&file).current_dir(logs.path());
            if log {
                command.arg("-l");
            }
            run(command.arg("postgres"))
        };
        pgbench(time.warm_up.as_secs().max(1), false)?;
        let said = pgbench(time.duration.as_secs().max(1), true)?;
        let rate = said.split("tps = ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let mut latencies = latencies(logs.path())?;
        latencies.sort_unstable();
        let millis = |part: f64| quantile(&latencies, part) as f64 / 1000.0;
        Ok(Outcome {
            rate: rate.ok_or(format!("pgbench said {said}"))?,
            p50: millis(0.5),
            p99: millis(0.99),
            p999: millis(0.999),
            answers: latencies.len() as f64,
        })
    }

    fn http(&self) -> Option<std::net::SocketAddr> {
        None
    }

    fn processes(&self) -> Vec<u32> {
        vec![self.server.process()]
    }
}

/// The latency of every transaction in microseconds, from pgbench's log.
fn latencies(directory: &Path) -> Result<Vec<u64>, String> {
    let mut latencies = Vec::new();
    for file in fs::read_dir(directory).map_err(|error| error.to_string())?.filter_map(Result::ok) {
        if file.file_name().to_string_lossy().starts_with("pgbench_log") {
            let text = fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
            latencies.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok()));
        }
    }
    Ok(latencies)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its children exit only on a graceful stop.
        self.server.terminate();
        let _ = fs::remove_dir_all(&self.home);
    }
}
