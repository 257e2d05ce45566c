//! One and two gateways on a server that they share, compared with the server's own fenced write, on this machine and
//! in one run.

mod report;

use std::path::Path;
use std::time::Duration;

use fencepost_gateway::bench::Workload;
use report::Report;

use crate::etcd::{ETCD, Etcd};
use crate::gateway::Gateways;
use crate::postgres::{POSTGRESQL, Postgres};
use crate::{Peer, Timing, machine, measure_each};

/// The teams that the bars are about.
pub(crate) const ON_POSTGRESQL: &str = "one gateway on PostgreSQL";
pub(crate) const ON_ETCD: &str = "one gateway on etcd";

/// Gateways that share a store on a server, which is a peer itself.
struct Team {
    name: &'static str,
    gateways: usize,
    server: &'static str,
    /// The schema or the prefix of their store.
    store: &'static str,
}

const TEAMS: &[Team] = &[
    Team { name: ON_POSTGRESQL, gateways: 1, server: POSTGRESQL, store: "one" },
    Team { name: "two gateways on PostgreSQL", gateways: 2, server: POSTGRESQL, store: "two" },
    Team { name: ON_ETCD, gateways: 1, server: ETCD, store: "one" },
    Team { name: "two gateways on etcd", gateways: 2, server: ETCD, store: "two" },
];

/// The rows to measure.
const ROWS: &[(Workload, usize)] = &[
    (Workload::Put, 1),
    (Workload::Put, 64),
    (Workload::Put, 256),
    (Workload::Stale, 64),
    (Workload::Get, 64),
    (Workload::Claim, 64),
];

/// Measures, prints the tables and writes the document.
pub(crate) fn compare(rounds: usize, duration: Duration) -> Result<(), String> {
    machine::raise_open_files();
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut peers = peers(home.path())?;
    let time = Timing { warm_up: Duration::from_secs(1), duration };
    let mut report = Report::new(home.path(), rounds, time);
    for round in 1..=rounds {
        let progress = format!("round {round} of {rounds}");
        measure_each(&mut peers, ROWS, time, &progress, |row, sample| report.add(row, sample))?;
    }
    let text = report.markdown();
    println!("{text}");
    report.write(&text)
}

/// Each server after the gateways on it, so that they are stopped first.
fn peers(home: &Path) -> Result<Vec<Box<dyn Peer>>, String> {
    let postgres = Postgres::start(home)?;
    let mut peers = gateways_on(home, &postgres, |schema| postgres.url(schema))?;
    peers.push(Box::new(postgres));
    let etcd = Etcd::start(home)?;
    peers.extend(gateways_on(home, &etcd, |prefix| etcd.url(prefix))?);
    peers.push(Box::new(etcd));
    Ok(peers)
}

/// The teams of a server.
fn gateways_on(home: &Path, server: &dyn Peer, url: impl Fn(&str) -> String) -> Result<Vec<Box<dyn Peer>>, String> {
    let mut peers: Vec<Box<dyn Peer>> = Vec::new();
    for Team { name, gateways, store, .. } in TEAMS.iter().filter(|team| team.server == server.name()) {
        peers.push(Box::new(Gateways::over(home, name, *gateways, &url(store), server.processes())?));
    }
    Ok(peers)
}

/// The server that a peer's records are on; none for a server itself.
fn server_of(peer: &str) -> Option<&'static str> {
    TEAMS.iter().find(|team| team.name == peer).map(|team| team.server)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::SHARED_BARS;

    #[test]
    fn every_bar_compares_a_team_with_its_own_server_in_a_row_that_is_measured() {
        for bar in SHARED_BARS {
            assert_eq!(server_of(bar.ours), Some(bar.peer), "{}", bar.ours);
            assert!(ROWS.contains(&(bar.workload, bar.connections)), "{} at {}", bar.workload, bar.connections);
        }
    }

    #[test]
    fn teams_of_one_server_have_stores_of_their_own() {
        for (at, team) in TEAMS.iter().enumerate() {
            let mut others = TEAMS[at + 1..].iter().filter(|other| other.server == team.server);
            assert!(others.all(|other| other.store != team.store && other.name != team.name), "{}", team.name);
        }
    }
}
