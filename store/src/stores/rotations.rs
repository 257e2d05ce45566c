//! New generations in all stores. A call that failed in the middle can be repeated: what is done is left alone.

use super::{Stores, not_read, on_engine};
use crate::admin::{PAGE, PrefixRotated, RotatePrefix};
use crate::failure::Failure;
use crate::outcome::RotateOutcome;
use crate::store::Store;

/// What a rotation of everything did in one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRotated {
    /// The name of the engine.
    pub engine: String,
    /// The store's base generation now.
    pub generation: u32,
    /// Whether it was rotated. Otherwise it was above `from` already.
    pub rotated: bool,
}

impl Stores {
    /// Ends the generation of every resource. In a single store that is done if the base generation is `from`. Of
    /// several stores, those that are at `from` or below are rotated, and the others are left alone; the outcome is that
    /// of the highest. `at_least` is a lower bound for the new generation.
    pub async fn rotate_all(
        &self,
        from: u32,
        mut at_least: u32,
    ) -> Result<(RotateOutcome, Vec<EngineRotated>), Failure> {
        if self.is_one() {
            return Ok((self.unnamed.rotate_all_to(from, at_least).await?, Vec::new()));
        }
        at_least = at_least.max(from.saturating_add(1));
        let mut done: Vec<EngineRotated> = Vec::new();
        for (engine, store) in self.each() {
            let (generation, rotated) = match rotate_up_to(store, from, at_least).await {
                Ok(RotateOutcome::Rotated { generation }) => (generation, true),
                Ok(RotateOutcome::OtherGeneration { found }) => (found, false),
                Ok(exhausted @ RotateOutcome::Exhausted(_)) if !done.iter().any(|done| done.rotated) => {
                    return Ok((exhausted, Vec::new()));
                }
                Ok(RotateOutcome::Exhausted(_)) => {
                    return Err(partly(&done, engine, "there is no generation left"));
                }
                Err(failure) if !done.iter().any(|done| done.rotated) => return Err(on_engine(engine, failure)),
                Err(failure) => return Err(partly(&done, engine, &failure.to_string())),
            };
            // The same generation everywhere, if possible: the next rotation names one.
            at_least = at_least.max(generation);
            done.push(EngineRotated { engine: engine.to_owned(), generation, rotated });
        }
        let highest = done.iter().map(|done| done.generation).max().unwrap_or(from);
        let outcome = match done.iter().any(|done| done.rotated) {
            true => RotateOutcome::Rotated { generation: highest },
            false => RotateOutcome::OtherGeneration { found: highest },
        };
        Ok((outcome, done))
    }

    /// Rotates a page of existing fences, in the order of names over all stores.
    pub async fn rotate_prefix(&self, asked: RotatePrefix) -> Result<PrefixRotated, Failure> {
        if self.is_one() {
            return self.unnamed.rotate_prefix(asked).await;
        }
        let RotatePrefix { prefix, from, issuer, after } = asked;
        let page = self.fences(&prefix, after.as_deref(), PAGE).await.map_err(not_read)?;
        let mut done = PrefixRotated { rotated: 0, left: 0, next: page.next };
        for (engine, store) in self.each() {
            let kept = page.entries.iter().filter(|(resource, _)| self.find(resource.as_str()).0 == engine);
            let kept: Vec<_> = kept.cloned().collect();
            let rotated = store.rotate_fences(&kept, from, issuer.as_ref(), &mut done).await;
            rotated.map_err(|failure| on_engine(engine, failure))?;
        }
        Ok(done)
    }
}

/// Rotates a store whose base generation is `from` or below. `OtherGeneration`: it is above.
async fn rotate_up_to(store: &Store, from: u32, at_least: u32) -> Result<RotateOutcome, Failure> {
    let mut expected = from;
    loop {
        match store.rotate_all_to(expected, at_least).await? {
            // Only others were restored or rotated before. Each round finds a higher one.
            RotateOutcome::OtherGeneration { found } if found <= from && found != expected => expected = found,
            outcome => return Ok(outcome),
        }
    }
}

fn partly(done: &[EngineRotated], engine: &str, why: &str) -> Failure {
    let rotated: Vec<&str> = done.iter().filter(|done| done.rotated).map(|done| done.engine.as_str()).collect();
    Failure::Unknown(format!(
        "the engine `{}` was rotated, then engine `{engine}`: {why}; repeat it with the same `from`, what is done is left \
         alone",
        rotated.join("`, `")
    ))
}
