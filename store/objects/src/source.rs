//! Where the bytes of a write come from: the body of a request, another object, or the parts of an upload (in
//! `completion`). Each is staged before anything is decided.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use crate::checksum::Algorithm;
use crate::digest::{Measure, Measured, Promised};
use crate::error::ObjectError;
use crate::layout::{Ref, Staging};
use crate::open_object::OpenObject;
use crate::service::Objects;
use crate::staged::{Staged, Unclaimed};

/// A body that pauses for so long gives its memory back.
const PAUSE: Duration = Duration::from_millis(100);

/// Staging writes as soon as it has about this much.
const GATHERED: usize = 256 * 1024;

/// Bytes that are read at a time to measure what was put together.
const CHUNK: u64 = 1 << 20;

/// Where the bytes of a write come from.
pub trait Source: Send {
    /// Takes them into fresh staging, where they are durable and nothing points to them.
    fn stage(self, objects: &Objects) -> impl Future<Output = Result<Staged, ObjectError>> + Send;
}

/// Asked after the body for the checksums that come behind it.
pub type Trailer = Box<dyn FnOnce() -> Vec<(Algorithm, String)> + Send>;

/// Bytes that arrive in a stream.
pub struct Body<B> {
    /// What the sender says of them.
    pub promised: Promised,
    /// As they arrive.
    pub bytes: B,
    /// What was announced to come after them.
    pub trailer: Trailer,
}

impl<B: Stream<Item = Result<Bytes, ObjectError>> + Send + Unpin> Source for Body<B> {
    /// What arrives must be what was promised.
    async fn stage(self, objects: &Objects) -> Result<Staged, ObjectError> {
        let Body { mut promised, bytes: mut body, trailer } = self;
        let (bytes, mut staging) = objects.fresh_staging(promised.length).await?;
        let mut measure = Measure::new(promised.algorithms());
        // What is gathered counts against its sender's share of memory as long as it is held here.
        let (mut held, mut gathered) = (Vec::new(), 0);
        loop {
            let chunk = match tokio::time::timeout(PAUSE, body.next()).await {
                Ok(next) => next,
                // Others may need the memory before this one goes on; it may even wait for them.
                Err(_) => {
                    staging.rest().await?;
                    (held, gathered) = (Vec::new(), 0);
                    body.next().await
                }
            };
            let Some(chunk) = chunk.transpose()? else { break };
            measure.update(&chunk);
            gathered += chunk.len();
            held.push(chunk.clone());
            if gathered >= GATHERED {
                (held, gathered) = (Vec::new(), 0);
            }
            if measure.length() > promised.limit {
                return Err(ObjectError::TooLarge { limit: promised.limit });
            }
            staging.write(chunk).await?;
        }
        let measured = measure.finish();
        promised.checksums.extend(trailer());
        promised.complete()?;
        measured.keeps(&promised)?;
        Ok(Staged::measured(bytes, staging.seal().await?, measured))
    }
}

/// Bytes of another object.
pub struct ObjectCopy {
    from: OpenObject,
    range: Range<u64>,
    algorithms: Vec<Algorithm>,
}

impl ObjectCopy {
    /// A whole object. The copy gets a checksum by the algorithm asked for, or by those of its source.
    pub fn whole(from: OpenObject, asked: Option<Algorithm>) -> ObjectCopy {
        let kept = |algorithm: &Algorithm| from.object.attributes.iter().any(|(name, _)| name == algorithm.header());
        let algorithms = match asked {
            Some(algorithm) => vec![algorithm],
            None => Algorithm::ALL.into_iter().filter(kept).collect(),
        };
        ObjectCopy { range: 0..from.object.size, from, algorithms }
    }

    /// Some of its bytes, with a checksum by an algorithm, if one is named.
    pub(crate) fn part(from: OpenObject, range: Range<u64>, algorithm: Option<Algorithm>) -> ObjectCopy {
        ObjectCopy { from, range, algorithms: Vec::from_iter(algorithm) }
    }
}

impl Source for ObjectCopy {
    async fn stage(self, objects: &Objects) -> Result<Staged, ObjectError> {
        let ObjectCopy { from, range: Range { start, end }, algorithms } = self;
        // No length is announced: the storage may be able to share the bytes instead of copying them.
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
    /// New staging under a ref that was never used, for so many bytes, as far as that is known.
    pub(crate) async fn fresh_staging(
        &self,
        length: Option<u64>,
    ) -> Result<(Unclaimed, Box<dyn Staging>), ObjectError> {
        let bytes = Unclaimed::new(self.refs.next(&self.store).await?, &self.layout);
        let staging = self.layout.stage(bytes.id(), length).await?;
        Ok((bytes, staging))
    }

    /// Reads what was put together, once: what is published is what was measured.
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
