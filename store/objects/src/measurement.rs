//! The measurement of a body beside its arrival and its writing. MD5 takes longer than either.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::checksum::Algorithm;
use crate::digest::{Measure, Measured};
use crate::layout::LayoutError;
use crate::pieces::Pieces;

/// A measurement in progress. What is too short for a piece is measured by the caller, without another thread.
pub(crate) struct Measurement {
    /// One piece is measured at a time, so the lock is always free.
    measure: Arc<Mutex<Measure>>,
    pieces: Pieces,
}

impl Measurement {
    /// See [`Measure::new`].
    pub(crate) fn new(algorithms: impl Iterator<Item = Algorithm>) -> Measurement {
        Measurement { measure: Arc::new(Mutex::new(Measure::new(algorithms))), pieces: Pieces::default() }
    }

    /// Adds the next bytes.
    pub(crate) async fn add(&mut self, bytes: Bytes) -> Result<(), LayoutError> {
        let measure = self.measure.clone();
        let work = move |piece: Vec<Bytes>| {
            update(&measure, &piece);
            Ok(())
        };
        self.pieces.add(bytes, work).await
    }

    /// Measures what has arrived, and frees its memory.
    pub(crate) async fn rest(&mut self) -> Result<(), LayoutError> {
        self.pieces.settle().await?;
        update(&self.measure, &self.pieces.take());
        Ok(())
    }

    /// Ends the measurement.
    pub(crate) async fn finish(mut self) -> Result<Measured, LayoutError> {
        self.rest().await?;
        let measure = std::mem::replace(&mut *self.measure.lock(), Measure::new(std::iter::empty()));
        Ok(measure.finish())
    }
}

fn update(measure: &Mutex<Measure>, piece: &[Bytes]) {
    let mut measure = measure.lock();
    piece.iter().for_each(|bytes| measure.update(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::PIECE;

    #[tokio::test]
    async fn pieces_are_measured_like_the_whole() {
        let bodies: [&[usize]; 4] = [&[], &[5, 0, 70_000], &[PIECE - 1, 1, 3 * PIECE, 7], &[80_000; 30]];
        for lengths in bodies {
            let mut measurement = Measurement::new(Algorithm::ALL.into_iter());
            let mut whole = Measure::new(Algorithm::ALL.into_iter());
            for (at, length) in lengths.iter().enumerate() {
                let bytes: Vec<u8> = (0..*length).map(|byte| (byte % 251 + at) as u8).collect();
                whole.update(&bytes);
                measurement.add(bytes.into()).await.unwrap();
                if at == 2 {
                    measurement.rest().await.unwrap();
                }
            }
            let (found, whole) = (measurement.finish().await.unwrap(), whole.finish());
            assert_eq!((found.length, found.md5), (whole.length, whole.md5));
            assert_eq!(found.checksums, whole.checksums);
        }
    }
}
