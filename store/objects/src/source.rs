//! The sources of a write's bytes: the body of a request, another object, or the parts of an upload (in
//! `completion`). The bytes are staged before anything is decided.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use crate::checksum::Algorithm;
use crate::digest::{Measure, Measured, Promised};
use crate::error::ObjectError;
use crate::layout::{Ref, Staging};
use crate::measurement::Measurement;
use crate::open_object::OpenObject;
use crate::service::Objects;
use crate::staged::{Staged, Unclaimed};

/// A body that pauses for this long has its buffered bytes written and their memory freed.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes read at a time to measure joined parts.
const CHUNK: u64 = 1 << 20;

/// A source of the bytes of a write.
pub trait Source: Send {
    /// Stages the bytes durably under a fresh ref. No record refers to them yet.
    fn stage(self, objects: &Objects) -> impl Future<Output = Result<Staged, ObjectError>> + Send;
}

/// Returns the checksums that follow the body. Called after its last byte.
pub type Trailer = Box<dyn FnOnce() -> Vec<(Algorithm, String)> + Send>;

/// Bytes that arrive as a stream.
pub struct Body<B> {
    /// What the sender promised about them.
    pub promised: Promised,
    /// The stream of bytes.
    pub bytes: B,
    /// Returns the announced trailing checksums.
    pub trailer: Trailer,
}

impl<B: Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin> Source for Body<B> {
    /// Fails unless the bytes match what was promised.
    async fn stage(self, objects: &Objects) -> Result<Staged, ObjectError> {
        let Body { mut promised, bytes: mut body, trailer } = self;
        let (bytes, mut staging) = objects.fresh_staging(promised.length).await?;
        let mut measurement = Measurement::new(promised.algorithms());
        let mut length = 0;
        loop {
            let chunk = match tokio::time::timeout(PAUSE, body.next()).await {
                Ok(next) => next,
                // Free the memory: other senders may need it, and this sender may even be waiting for them.
                Err(_) => {
                    staging.rest().await?;
                    measurement.rest().await?;
                    body.next().await
                }
            };
            let Some(chunk) = chunk.transpose()? else { break };
            length += chunk.len() as u64;
            if length > promised.limit {
                return Err(ObjectError::TooLarge { limit: promised.limit });
            }
            // Bytes are written and measured while the next ones arrive, and count against the sender's share of memory
            // until both are done. The write is handed over first, because it takes less time.
            staging.write(chunk.clone()).await?;
            measurement.add(chunk).await?;
        }
        let measured = measurement.finish().await?;
        promised.checksums.extend(trailer());
        promised.complete()?;
        measured.keeps(&promised)?;
        Ok(Staged::measured(bytes, staging.seal().await?, measured))
    }
}

/// The bytes of another object.
pub struct ObjectCopy {
    from: OpenObject,
    range: Range<u64>,
    algorithms: Vec<Algorithm>,
}

impl ObjectCopy {
    /// Copies a whole object. The copy gets a checksum by the requested algorithm, or by those of its source.
    pub fn whole(from: OpenObject, asked: Option<Algorithm>) -> ObjectCopy {
        let kept = |algorithm: &Algorithm| from.object.attributes.iter().any(|(name, _)| name == algorithm.header());
        let algorithms = match asked {
            Some(algorithm) => vec![algorithm],
            None => Algorithm::ALL.into_iter().filter(kept).collect(),
        };
        ObjectCopy { range: 0..from.object.size, from, algorithms }
    }

    /// Copies a range of an object, with a checksum if an algorithm is given.
    pub(crate) fn part(from: OpenObject, range: Range<u64>, algorithm: Option<Algorithm>) -> ObjectCopy {
        ObjectCopy { from, range, algorithms: Vec::from_iter(algorithm) }
    }
}

impl Source for ObjectCopy {
    async fn stage(self, objects: &Objects) -> Result<Staged, ObjectError> {
        let ObjectCopy { from, range: Range { start, end }, algorithms } = self;
        // No length is announced, because the storage may share the bytes instead of copying them.
        let (bytes, mut staging) = objects.fresh_staging(None).await?;
        if start < end {
            staging.append(from.opened(), start, end - start).await?;
        }
        let mark = staging.seal().await?;
        let measured = objects.measure(bytes.id(), mark.size, algorithms).await?;
        Ok(Staged::measured(bytes, mark, measured))
    }
}

impl Objects {
    /// Creates staging under a ref that was never used, for `length` bytes if that is known.
    pub(crate) async fn fresh_staging(
        &self,
        length: Option<u64>,
    ) -> Result<(Unclaimed, Box<dyn Staging>), ObjectError> {
        let bytes = Unclaimed::new(self.refs.next(&self.store).await?, &self.layout);
        let staging = self.layout.stage(bytes.id(), length).await?;
        Ok((bytes, staging))
    }

    /// Measures joined parts by reading them once, so that exactly the published bytes are verified.
    pub(crate) async fn measure(
        &self,
        id: Ref,
        size: u64,
        algorithms: impl IntoIterator<Item = Algorithm>,
    ) -> Result<Measured, ObjectError> {
        let opened = self.layout.open_staged(id).await?;
        let mut measure = Measure::new(algorithms.into_iter());
        while measure.length() < size {
            let bytes = opened.read(measure.length(), CHUNK.min(size - measure.length()) as usize).await?;
            if bytes.is_empty() {
                return Err(ObjectError::Incomplete { expected: size, found: measure.length() });
            }
            measure.update(&bytes);
        }
        Ok(measure.finish())
    }
}
