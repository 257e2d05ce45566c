//! PgBouncer in front of a server: several clients share a server process, one transaction each.

use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use super::{Postgres, as_its_user, directory};
use crate::servers::{ServerProcess, free_port, loopback, program};

/// A transaction pool, stopped when it is dropped.
pub struct Pool {
    _process: ServerProcess,
    _home: TempDir,
    port: u16,
}

impl Pool {
    /// Starts a pool in front of a server.
    pub fn start(server: &Postgres) -> Pool {
        let (home, port) = (directory(), free_port());
        let (users, settings) = (home.path().join("users"), home.path().join("pool.ini"));
        fs::write(&users, "\"postgres\" \"\"\n").expect("a temporary directory can be written");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n",
            server.address().port(),
            users.display()
        );
        fs::write(&settings, text).expect("a temporary directory can be written");
        let mut command = as_its_user(&program("pgbouncer", &["/usr/sbin"]));
        command.arg(&settings);
        Pool { _process: ServerProcess::start(command, port), _home: home, port }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// The URL of the database `postgres` behind it, for the administrator.
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }
}
