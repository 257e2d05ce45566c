//! Administrative operations: starting new generations.

use fencepost_core::{Access, FenceState, Issuer, Resource};

use crate::command::{Action, Judged};
use crate::failure::{Failure, Rejected};
use crate::outcome::RotateOutcome;
use crate::store::Store;

/// How many fences one rotation of a prefix examines.
pub(crate) const PAGE: usize = 1_000;

/// A request to rotate one page of fences.
#[derive(Clone, Debug)]
pub struct RotatePrefix {
    /// Selects resources that have a fence and whose names start with this prefix.
    pub prefix: String,
    /// Rotates only fences in this generation.
    pub from: u32,
    /// The lock service that numbers the rotated resources from now on.
    pub issuer: Option<Issuer>,
    /// Continues after this name.
    pub after: Option<String>,
}

/// The result of rotating a page of fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixRotated {
    /// Number of fences rotated.
    pub rotated: usize,
    /// Number of fences skipped because they are in another generation.
    pub left: usize,
    /// The name to continue after; `None` if this was the last page.
    pub next: Option<String>,
}

impl Store {
    /// Ends a resource's generation, if it is `from`.
    pub async fn rotate(
        &self,
        resource: &Resource,
        from: u32,
        issuer: Option<Issuer>,
    ) -> Result<RotateOutcome, Failure> {
        let judged = Judged { guarded: self.resource(resource)?, presented: None, access: Access::Claim };
        self.entry.submit(vec![judged], None, |reply| Action::Rotate { from, issuer, reply }).await
    }

    /// Ends the generation of every resource, if the store's base generation is `from`.
    pub async fn rotate_all(&self, from: u32) -> Result<RotateOutcome, Failure> {
        self.rotate_all_to(from, 0).await
    }

    /// Like [`Store::rotate_all`], with a lower bound for the new generation.
    pub async fn rotate_all_to(&self, from: u32, at_least: u32) -> Result<RotateOutcome, Failure> {
        self.entry.submit(Vec::new(), None, |reply| Action::RotateAll { from, at_least, reply }).await
    }

    /// Rotates a page of existing fences. Resources without a fence are not covered.
    pub async fn rotate_prefix(&self, asked: RotatePrefix) -> Result<PrefixRotated, Failure> {
        let RotatePrefix { prefix, from, issuer, after } = asked;
        let page = self.fences(&prefix, after.as_deref(), PAGE).await;
        let page = page.map_err(|error| Rejected::Unavailable(error.to_string()))?;
        let mut done = PrefixRotated { rotated: 0, left: 0, next: page.next };
        self.rotate_fences(&page.entries, from, issuer.as_ref(), &mut done).await?;
        Ok(done)
    }

    /// Rotates those of these fences that are in this generation, and adds to what is done.
    pub(crate) async fn rotate_fences(
        &self,
        fences: &[(Resource, FenceState)],
        from: u32,
        issuer: Option<&Issuer>,
        done: &mut PrefixRotated,
    ) -> Result<(), Failure> {
        // Enough at a time to share commits, but few enough to leave room in the queue for writers.
        let at_once = (self.entry.queue.max_capacity() / 4).clamp(1, 64);
        for resources in fences.chunks(at_once) {
            let mut running = tokio::task::JoinSet::new();
            for (resource, state) in resources {
                match self.resource(resource) {
                    Ok(guarded) if state.generation == from => {
                        let judged = Judged { guarded, presented: None, access: Access::Claim };
                        let (entry, issuer) = (self.entry.clone(), issuer.cloned());
                        running.spawn(async move {
                            entry.submit(vec![judged], None, |reply| Action::Rotate { from, issuer, reply }).await
                        });
                    }
                    // A fence left behind by an older mapping protects nothing.
                    _ => done.left += 1,
                }
            }
            let mut failed = None;
            while let Some(ended) = running.join_next().await {
                match ended {
                    Ok(Ok(RotateOutcome::Rotated { .. })) => done.rotated += 1,
                    Ok(Ok(_)) => done.left += 1,
                    Ok(Err(failure)) => failed = Some(failure.to_string()),
                    Err(error) => failed = Some(error.to_string()),
                }
            }
            if let Some(why) = failed {
                let so_far = done.rotated;
                return Err(Failure::Unknown(format!(
                    "{so_far} fences of this page were rotated, then: {why}; repeat it, what is done is left alone"
                )));
            }
        }
        Ok(())
    }
}
