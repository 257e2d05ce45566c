//! The bars that the gateway is to reach, and whether a run reached them.

use std::fmt::Write as _;

use fencepost_gateway::bench::Workload;

use crate::etcd::ETCD;
use crate::gateway::EMBEDDED;
use crate::postgres::POSTGRESQL;
use crate::shared::{ON_ETCD, ON_POSTGRESQL};

/// What is compared with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Answers per second: at least the bar.
    Rate,
    /// CPU time of the server per answer: at most the bar.
    Cpu,
    /// The latency that 99 of 100 answers keep: at most the bar.
    P99,
}

/// A ratio that the gateway is to reach against a peer.
pub(crate) struct Bar {
    pub(crate) ours: &'static str,
    pub(crate) figure: Figure,
    pub(crate) workload: Workload,
    pub(crate) connections: usize,
    pub(crate) peer: &'static str,
    pub(crate) bar: f64,
}

const fn bar(figure: Figure, workload: Workload, connections: usize, peer: &'static str, bar: f64) -> Bar {
    Bar { ours: EMBEDDED, figure, workload, connections, peer, bar }
}

/// A bar of one gateway on PostgreSQL against PostgreSQL itself.
const fn on_postgresql(figure: Figure, connections: usize, bar: f64) -> Bar {
    Bar { ours: ON_POSTGRESQL, figure, workload: Workload::Put, connections, peer: POSTGRESQL, bar }
}

/// A bar of one gateway on etcd against etcd itself.
const fn on_etcd(figure: Figure, connections: usize, bar: f64) -> Bar {
    Bar { ours: ON_ETCD, figure, workload: Workload::Put, connections, peer: ETCD, bar }
}

const HYPER: &str = "bare hyper";

/// The bars of the gateway on its embedded engine, CPU time first: a busy machine disturbs it less.
pub(crate) const BARS: &[Bar] = &[
    bar(Figure::Cpu, Workload::Put, 64, HYPER, 1.9),
    bar(Figure::Cpu, Workload::Stale, 64, HYPER, 1.25),
    bar(Figure::Cpu, Workload::Get, 64, HYPER, 1.3),
    bar(Figure::Cpu, Workload::CheckedGet, 64, HYPER, 1.3),
    bar(Figure::Cpu, Workload::Claim, 64, HYPER, 1.9),
    bar(Figure::Rate, Workload::Put, 1, "Redis", 0.95),
    bar(Figure::Rate, Workload::Put, 64, "Redis", 1.5),
    bar(Figure::Rate, Workload::Put, 256, "Redis", 1.2),
    bar(Figure::Rate, Workload::Put, 64, POSTGRESQL, 3.0),
    bar(Figure::Rate, Workload::Put, 256, POSTGRESQL, 5.0),
    bar(Figure::Rate, Workload::Put, 64, HYPER, 0.6),
    bar(Figure::Rate, Workload::Put, 256, HYPER, 0.65),
    bar(Figure::Rate, Workload::Stale, 64, HYPER, 0.85),
    bar(Figure::Rate, Workload::Stale, 256, HYPER, 0.85),
    bar(Figure::Rate, Workload::Get, 64, HYPER, 0.85),
    bar(Figure::Rate, Workload::CheckedGet, 64, HYPER, 0.85),
];

/// The bars of gateways on a server.
pub(crate) const SHARED_BARS: &[Bar] = &[
    on_postgresql(Figure::Rate, 64, 2.0),
    on_postgresql(Figure::Rate, 256, 3.0),
    on_postgresql(Figure::P99, 64, 3.0),
    on_etcd(Figure::Rate, 64, 2.0),
    on_etcd(Figure::Rate, 256, 2.0),
];

impl Bar {
    /// Whether this ratio, ours divided by the peer's, reaches the bar.
    fn is_reached_by(&self, ratio: f64) -> bool {
        match self.figure {
            Figure::Rate => ratio >= self.bar,
            Figure::Cpu | Figure::P99 => ratio <= self.bar,
        }
    }
}

/// A table of bars. `ratio` is ours divided by the peer's; NaN if it was not measured.
pub(crate) fn table(bars: &[Bar], ratio: impl Fn(&Bar) -> f64) -> String {
    let mut text = "## The bars\n\nWhat the gateway is to reach, as ratios of medians: the gateway divided by the peer.\n\n\
                    | | figure | workload | connections | against | bar | seen | |\n| --- | --- | --- | --: | --- | --: | --: | --- |\n"
        .to_owned();
    for bar in bars {
        let (figure, sign) = match bar.figure {
            Figure::Rate => ("answers/s", '≥'),
            Figure::Cpu => ("CPU per answer", '≤'),
            Figure::P99 => ("p99", '≤'),
        };
        let ratio = ratio(bar);
        let word = if bar.is_reached_by(ratio) { "reached" } else { "missed" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {figure} | {} | {} | {} | {sign} {} | {ratio:.2} | {word} |",
            bar.ours, bar.workload, bar.connections, bar.peer, bar.bar
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_rates_is_a_least_and_one_for_cpu_a_most() {
        let rate = bar(Figure::Rate, Workload::Put, 64, HYPER, 0.6);
        let cpu = bar(Figure::Cpu, Workload::Put, 64, HYPER, 1.9);
        assert!(rate.is_reached_by(0.6) && !rate.is_reached_by(0.59) && !rate.is_reached_by(f64::NAN));
        assert!(cpu.is_reached_by(1.9) && !cpu.is_reached_by(1.91) && !cpu.is_reached_by(f64::NAN));
        let text = table(BARS, |bar| if bar.figure == Figure::Rate { 9.0 } else { 1.0 });
        assert_eq!((text.matches("| reached |").count(), text.matches("missed").count()), (BARS.len(), 0));
    }
}
