//! The samples of a run: for each row those of every round, and the ratios between rows.

use fencepost_gateway::bench::Workload;

use crate::bars::{Bar, Figure};
use crate::figures::Rounds;

/// The result of one measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    /// CPU seconds of the peer per 100,000 answers.
    pub(crate) cpu: f64,
    /// Bytes that the peer wrote to the disk per answer.
    pub(crate) written: f64,
    /// The same two of the server behind it; 0 if there is none.
    pub(crate) cpu_behind: f64,
    pub(crate) written_behind: f64,
    /// The peer's resident memory in MiB.
    pub(crate) memory: f64,
}

/// A row of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) workload: Workload,
    pub(crate) connections: usize,
    pub(crate) peer: &'static str,
}

/// Samples by row, in the order in which the rows were first measured.
pub(crate) struct Samples<T>(Vec<(Row, Vec<T>)>);

impl<T> Samples<T> {
    pub(crate) fn new() -> Samples<T> {
        Samples(Vec::new())
    }

    pub(crate) fn add(&mut self, row: Row, sample: T) {
        match self.0.iter_mut().find(|(known, _)| *known == row) {
            Some((_, samples)) => samples.push(sample),
            None => self.0.push((row, vec![sample])),
        }
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        self.0.iter().map(|(row, _)| *row)
    }

    /// One figure of a row in every round; none if the row was not measured.
    pub(crate) fn of(&self, row: Row, figure: impl Fn(&T) -> f64) -> Rounds {
        let found = self.0.iter().find(|(known, _)| *known == row);
        found.into_iter().flat_map(|(_, samples)| samples).map(figure).collect()
    }
}

impl Samples<Sample> {
    pub(crate) fn rate(&self, row: Row) -> f64 {
        self.of(row, |sample| sample.rate).median()
    }

    pub(crate) fn cpu(&self, row: Row) -> f64 {
        self.of(row, |sample| sample.cpu).median()
    }

    /// What a bar is about: ours divided by the peer's, as medians; NaN if one was not measured.
    pub(crate) fn ratio(&self, bar: &Bar) -> f64 {
        let row = |peer| Row { workload: bar.workload, connections: bar.connections, peer };
        let of = |peer| match bar.figure {
            Figure::Rate => self.rate(row(peer)),
            Figure::Cpu => self.cpu(row(peer)),
            Figure::P99 => self.of(row(peer), |sample| sample.p99).median(),
        };
        of(bar.ours) / of(bar.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians_and_of_the_figure_of_the_bar() {
        let mut samples = Samples::new();
        let row = |peer| Row { workload: Workload::Put, connections: 64, peer };
        for (peer, rate, p99) in [("ours", 30.0, 3.0), ("ours", 10.0, 1.0), ("ours", 20.0, 2.0), ("other", 5.0, 4.0)] {
            samples.add(row(peer), Sample { rate, p99, ..Sample::default() });
        }
        let bar = |figure, peer| Bar { ours: "ours", figure, workload: Workload::Put, connections: 64, peer, bar: 1.0 };
        assert_eq!(samples.ratio(&bar(Figure::Rate, "other")), 4.0);
        assert_eq!(samples.ratio(&bar(Figure::P99, "other")), 0.5);
        assert!(samples.ratio(&bar(Figure::Rate, "nobody")).is_nan());
        assert_eq!(samples.rows().map(|row| row.peer).collect::<Vec<_>>(), ["ours", "other"]);
    }
}
