//! Standbys: servers that follow another one, and may take over from it.

use fencepost_conformance::wait;

use super::{PATIENCE, Postgres, as_its_user, directory, programs, run};

impl Postgres {
    /// Starts a standby that follows this server, and answers reads.
    pub fn standby(&self) -> Postgres {
        self.standby_with(&[])
    }

    /// Starts a standby with settings, each `name=value`.
    pub fn standby_with(&self, settings: &[&str]) -> Postgres {
        let home = directory();
        let mut backup = as_its_user(&programs().join("pg_basebackup"));
        backup.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]);
        backup.args(["-R", "-c", "fast", "-X", "stream"]);
        run(backup.arg("-D").arg(home.path().join("data")));
        Postgres::in_directory(home, settings)
    }

    /// Waits until a standby has applied everything that this server has written so far.
    pub fn wait_for(&self, standby: &Postgres) {
        let written = self.sql("select pg_current_wal_flush_lsn()");
        let reached = format!("select pg_last_wal_replay_lsn() >= '{written}'");
        wait::until("the standby to be in step", PATIENCE, || (standby.sql(&reached) == "t").then_some(()));
    }

    /// From now on, a commit waits for a standby. One must follow this server already.
    pub fn demand_standby(&self) {
        self.sql("alter system set synchronous_standby_names = '*'");
        self.sql("select pg_reload_conf()");
        let standbys = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        wait::until("a synchronous standby", PATIENCE, || (self.sql(standbys) == "1").then_some(()));
    }

    /// Makes this standby a primary.
    pub fn promote(&self) {
        assert_eq!(self.sql("select pg_promote()"), "t", "the standby was not promoted in time");
    }
}
