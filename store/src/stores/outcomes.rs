//! Outcomes over all stores. An idempotency key does not say which store its request leads to.

use fencepost_core::IdempotencyKey;

use super::{Stores, not_read, on_engine, read_on_engine};
use crate::failure::{Failure, Rejected};
use crate::outcome::FinalOutcome;
use crate::reads::{ReadError, RecordedOutcome};

impl Stores {
    /// The recorded outcome of a request; `None` if nothing is recorded, which is not final. That a key was abandoned is
    /// final only if it is recorded in every store: until then the request may still be applied in another one.
    pub async fn outcome(&self, caller: &str, key: &IdempotencyKey) -> Result<Option<RecordedOutcome>, ReadError> {
        let (mut abandoned, mut is_missing, mut failed) = (None, false, None);
        for (engine, store) in self.each() {
            match store.outcome(caller, key).await {
                Ok(Some(recorded)) if recorded.outcome == FinalOutcome::Abandoned => abandoned = Some(recorded),
                Ok(Some(recorded)) => return Ok(Some(recorded)),
                Ok(None) => is_missing = true,
                Err(error) => failed = Some(read_on_engine(engine, error)),
            }
        }
        match (failed, is_missing) {
            (Some(error), _) => Err(error),
            (None, true) => Ok(None),
            (None, false) => Ok(abandoned),
        }
    }

    /// Ensures that a request with this key is never applied, in any store. If it was applied already, returns that
    /// outcome.
    pub async fn abandon(&self, caller: &str, key: &IdempotencyKey) -> Result<FinalOutcome, Failure> {
        if self.is_one() {
            return self.unnamed.abandon(caller, key).await;
        }
        let mut failed = None;
        for (engine, store) in self.each() {
            match store.outcome(caller, key).await {
                // The store that has it proves that it is committed.
                Ok(Some(recorded)) if recorded.outcome != FinalOutcome::Abandoned => {
                    return store.abandon(caller, key).await.map_err(|failure| on_engine(engine, failure));
                }
                Ok(_) => {}
                Err(error) => failed = Some(read_on_engine(engine, error)),
            }
        }
        if let Some(error) = failed {
            return Err(not_read(error));
        }
        let mut done: Vec<&str> = Vec::new();
        for (engine, store) in self.each() {
            match store.abandon(caller, key).await {
                Ok(FinalOutcome::Abandoned) => done.push(engine),
                // It was recorded since.
                Ok(outcome) => return Ok(outcome),
                Err(failure) if done.is_empty() => return Err(on_engine(engine, failure)),
                Err(failure) => {
                    let why = format!(
                        "the key is abandoned on the engine `{}` only, and may still be applied on others: engine \
                         `{engine}`: {failure}; send it again",
                        done.join("`, `")
                    );
                    return Err(Rejected::Unavailable(why).into());
                }
            }
        }
        Ok(FinalOutcome::Abandoned)
    }
}
