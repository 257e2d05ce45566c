//! The steps from a lock to a claimed token: read the fence, acquire, verify, claim.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::wire::FenceAnswer;
use fencepost_core::{Holder, Presented, ProblemDocument, ProblemKind, Resource, Token};

use super::Client;
use crate::error::{Cause, Error, Refusal};
use crate::locks::{Acquired, Kept, Lease, Lifted, LockBackend, LockError, Wanted};
use crate::random::{self, jittered};
use crate::transport::Missed;
use crate::{Clock, Moment};

/// An upper bound on waiting, so that the deadline does not overflow.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The pause before the steps are repeated.
const AGAIN: Duration = Duration::from_millis(10);

/// A lease whose token is claimed.
pub(crate) struct Claimed {
    pub(crate) lease: Lease,
    pub(crate) presented: Presented,
    /// The lease is surely held until this moment.
    pub(crate) valid_until: Moment,
}

/// When a lease stops being surely held: its ttl counted from before the request was sent, less the drift of clocks.
pub(crate) fn validity(since: Moment, ttl: Duration) -> Moment {
    since + (ttl - ttl / 100).saturating_sub(Duration::from_millis(2))
}

/// How often the steps are repeated if the generation changes in between, whether there is time to wait or not.
const GENERATIONS: usize = 3;

/// The result of one attempt.
enum Attempt {
    Claimed(Claimed),
    /// The lock was lost before it was claimed: start over.
    Lost,
    /// The generation that was read has ended, or the gateway that got the claim does not know it: start over.
    OtherGeneration(Box<ProblemDocument>),
}

impl Client {
    /// Runs the four steps. Starts over if the lock is lost in between and there is time left, or if the generation
    /// changes.
    pub(super) async fn claimed(&self, resource: &Resource) -> Result<Claimed, Error> {
        let deadline = Instant::now() + self.options.wait.min(LONGEST_WAIT);
        let mut generations = 1;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.attempt(resource, left).await? {
                Attempt::Claimed(claimed) => return Ok(claimed),
                Attempt::Lost if Instant::now() >= deadline => {
                    return Err(Cause::LostBeforeClaim(resource.clone()).into());
                }
                Attempt::Lost => {}
                Attempt::OtherGeneration(problem) if generations == GENERATIONS => {
                    return Err(Cause::Plain(*problem).into());
                }
                Attempt::OtherGeneration(_) => generations += 1,
            }
            tokio::time::sleep(jittered(AGAIN)).await;
        }
    }

    async fn attempt(&self, resource: &Resource, wait: Duration) -> Result<Attempt, Error> {
        let backend = self.backend.as_ref();
        // Read the fence before acquiring (T30): a generation learned later could lift a zombie's old number over its
        // successor's.
        let fence = self.fence(resource).await?;
        let floor = fence.fence.as_ref().map_or(0, |fence| fence.token.number().get());
        let holder = self.new_holder()?;
        let wanted = Wanted {
            name: resource,
            holder: &holder,
            ttl: self.options.ttl,
            wait,
            floor,
            generation: fence.generation,
        };
        let mut lease = match backend.acquire(&wanted).await? {
            Acquired::Held(lease) => Unclaimed { backend: self.backend.clone(), lease: Some(lease) },
            Acquired::Busy => return Err(Cause::Busy(resource.clone()).into()),
        };
        // The lock may be lost already (T23). After a long wait, a renewal also shows how long it is surely held.
        let Some(mut valid_until) = sure(backend, &self.options.clock, &lease).await? else {
            return Ok(Attempt::Lost);
        };
        let mut lifted = false;
        loop {
            // A generation that came with the number is presented unchanged, even if it is not the current one (T39).
            let token = Token::from_parts(lease.generation.unwrap_or(fence.generation), lease.number);
            let presented = Presented { token, holder: Some(lease.holder.clone()), issuer: Some(lease.issuer.clone()) };
            let problem = match self.claim(resource, &presented, valid_until).await {
                Ok(()) => return Ok(Attempt::Claimed(Claimed { lease: lease.take(), presented, valid_until })),
                Err(error) => match error.into_refused() {
                    Ok(problem) => problem,
                    Err(error) => {
                        lease.give_back().await;
                        return Err(error);
                    }
                },
            };
            match problem.kind() {
                Some(ProblemKind::Stale | ProblemKind::Collision) if !lifted => {
                    lifted = true;
                    let fence = problem.fence.map_or(floor, |fence| fence.number().get());
                    match backend.lift(&mut lease, fence).await? {
                        Lifted::Lifted => match sure(backend, &self.options.clock, &lease).await? {
                            Some(until) => valid_until = until,
                            None => return Ok(Attempt::Lost),
                        },
                        Lifted::Lost => return Ok(Attempt::Lost),
                        Lifted::Unsupported => return self.backwards(resource, lease, problem).await,
                    }
                }
                Some(ProblemKind::Stale | ProblemKind::Collision) => {
                    return self.backwards(resource, lease, problem).await;
                }
                Some(ProblemKind::RetiredGeneration | ProblemKind::UnknownGeneration) => {
                    let given = token.generation() != fence.generation;
                    lease.give_back().await;
                    // Another attempt helps only if the generation changed during this one.
                    if given {
                        let generation = problem.generation.unwrap_or(fence.generation);
                        let (resource, refusal) = (resource.clone(), Refusal::of(&problem));
                        return Err(Cause::OtherGeneration { resource, token, generation, refusal }.into());
                    }
                    return Ok(Attempt::OtherGeneration(problem.into()));
                }
                Some(ProblemKind::ForeignIssuer) => {
                    let ours = lease.issuer.clone();
                    lease.give_back().await;
                    let refusal = Refusal { presented_issuer: Some(ours.clone()), ..Refusal::of(&problem) };
                    let bound = problem.issuer.map(|issuer| issuer.to_string()).unwrap_or_default();
                    let (resource, generation) = (resource.clone(), fence.generation);
                    return Err(Cause::ForeignIssuer { resource, bound, ours, generation, refusal }.into());
                }
                _ => {
                    lease.give_back().await;
                    return Err(Cause::Plain(problem).into());
                }
            }
        }
    }

    /// The claim was refused as stale: either the lock was taken over, or the service's numbers went backwards. A lease
    /// that no longer holds the lock was taken over.
    async fn backwards(
        &self,
        resource: &Resource,
        lease: Unclaimed,
        problem: ProblemDocument,
    ) -> Result<Attempt, Error> {
        let backend = self.backend.as_ref();
        if backend.verify(&lease).await? == Kept::Lost {
            return Ok(Attempt::Lost);
        }
        let number = lease.number.get();
        lease.give_back().await;
        let Some(fence) = problem.fence else { return Err(Cause::Plain(problem).into()) };
        let (resource, refusal) = (resource.clone(), Refusal::of(&problem));
        Err(Cause::WentBackwards { resource, number, fence, refusal }.into())
    }

    /// Reads the fence. Retries once, in case a pooled connection was stale.
    async fn fence(&self, resource: &Resource) -> Result<FenceAnswer, Error> {
        match self.gateway.fence(resource).await {
            Err(error) if error.is_failed_read() => self.gateway.fence(resource).await,
            read => read,
        }
    }

    /// Claims, and repeats the claim while its answer is lost and the lease is surely held. A claim may be repeated.
    async fn claim(&self, resource: &Resource, presented: &Presented, until: Moment) -> Result<(), Error> {
        let mut pause = Duration::from_millis(10);
        loop {
            match self.gateway.claim(resource, presented, Some(Vec::new())).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let Missed { error, repeatable, .. } = error.into();
                    if !repeatable || self.options.clock.now() + pause >= until {
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// `name#nonce`: unique per acquisition, so that a number handed out twice is detected.
    fn new_holder(&self) -> Result<Holder, Error> {
        let nonce = random::number();
        let nonce = nonce.map_err(|error| LockError::Invalid(format!("there are no random numbers: {error}")))?;
        let holder = format!("{}#{nonce:016x}", self.options.name);
        Holder::new(&holder).map_err(|error| LockError::Invalid(format!("holder `{holder}`: {error}")).into())
    }
}

/// The moment until which the lease is surely held; `None` if it is lost.
async fn sure(backend: &dyn LockBackend, clock: &Clock, lease: &Lease) -> Result<Option<Moment>, LockError> {
    let asked = clock.now();
    let late = asked.since(lease.since) > lease.ttl / 4;
    let kept = if late { backend.renew(lease).await? } else { backend.verify(lease).await? };
    Ok(match kept {
        Kept::Kept => Some(validity(if late { asked } else { lease.since }, lease.ttl)),
        Kept::Lost => None,
    })
}

/// A lease that is not claimed yet. If it is dropped, by an error or with the whole acquisition, the lock is released.
struct Unclaimed {
    backend: Arc<dyn LockBackend>,
    /// `None` once the lease has been moved out.
    lease: Option<Lease>,
}

impl Unclaimed {
    fn take(mut self) -> Lease {
        self.lease.take().unwrap_or_else(|| unreachable!("taken only here and at the end"))
    }

    /// Best effort: a lock that is not released ends with its ttl.
    async fn give_back(self) {
        let (backend, lease) = (self.backend.clone(), self.take());
        release(backend, lease).await;
    }
}

impl Deref for Unclaimed {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        self.lease.as_ref().unwrap_or_else(|| unreachable!("taken only at the end"))
    }
}

impl DerefMut for Unclaimed {
    fn deref_mut(&mut self) -> &mut Lease {
        self.lease.as_mut().unwrap_or_else(|| unreachable!("taken only at the end"))
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let (Some(lease), Ok(runtime)) = (self.lease.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(release(self.backend.clone(), lease));
        }
    }
}

async fn release(backend: Arc<dyn LockBackend>, lease: Lease) {
    let name = lease.name.clone();
    if let Err(error) = backend.release(lease).await {
        tracing::debug!(lock = %name, %error, "a lock could not be given back; it ends with its ttl");
    }
}
