//! From a lock to a claimed token: read the fence, acquire, verify, claim.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::wire::FenceAnswer;
use fencepost_core::{Holder, Presented, ProblemDocument, ProblemKind, Resource, Token};

use super::Locks;
use crate::locks::{Acquired, Kept, Lease, Lifted, LockBackend, LockError, Wanted};
use crate::random::{self, jittered};
use crate::transport::Missed;
use crate::{CallError, Clock, Moment};

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Somebody else holds the lock.
    #[error("the lock `{0}` is held by somebody else")]
    Busy(Resource),
    /// The lock was lost again before its token could be claimed.
    #[error("the lock `{0}` was lost before its token was claimed; acquire it again")]
    Lost(Resource),
    /// The lock service handed out a number that is not above the fence, and cannot be told to.
    #[error(
        "the lock service went backwards: it handed out {number} for `{resource}`, whose fence is {fence}. Was it \
         restored from a backup, or did it fail over to a replica that missed writes? Nothing was written. When you are \
         sure that no holder of an older token is still at work, run: fencepost fence rotate {resource} --from {generation} \
         --reason '…'"
    )]
    WentBackwards {
        /// The resource.
        resource: Resource,
        /// What was handed out.
        number: u64,
        /// What it should be above.
        fence: Token,
        /// The generation to end.
        generation: u32,
    },
    /// The resource is bound to another lock service, or to another incarnation of this one.
    #[error(
        "`{resource}` is bound to the lock service `{bound}`, and this is `{ours}`: another service, or the same one \
         wiped or replaced. Their numbers cannot be compared. Nothing was written. When you are sure that no holder of an \
         older token is still at work, run: fencepost fence rotate {resource} --from {generation} --reason '…'"
    )]
    ForeignIssuer {
        /// The resource.
        resource: Resource,
        /// What it is bound to.
        bound: String,
        /// What handed out our number.
        ours: String,
        /// The generation to end.
        generation: u32,
    },
    /// The token was given with its generation, and the resource is in another one.
    #[error(
        "token {token} is of generation {}, and `{resource}` is in generation {generation}. Nothing was written. A number \
         without a generation means generation 0. Tokens from before a rotation stay refused: acquire the lock again; a \
         number that was handed out after it is written {generation}:{}", .token.generation(), .token.number()
    )]
    OtherGeneration {
        /// The resource.
        resource: Resource,
        /// What was given.
        token: Token,
        /// The generation of the resource.
        generation: u32,
    },
    /// The gateway refused the claim for another reason.
    #[error("{}", .0.detail)]
    Refused(Box<ProblemDocument>),
    /// The lock service.
    #[error(transparent)]
    Service(#[from] LockError),
    /// The gateway.
    #[error(transparent)]
    Gateway(#[from] CallError),
}

impl AcquireError {
    /// Could neither the lock service nor the gateway say anything? Then it may be tried again.
    pub fn is_transient(&self) -> bool {
        match self {
            AcquireError::Service(error) => error.is_transient(),
            AcquireError::Gateway(error) => matches!(
                error,
                CallError::Unknown(_) | CallError::Unreachable { .. } | CallError::NotApplied(_) | CallError::Failed(_)
            ),
            _ => false,
        }
    }
}

/// Nobody waits longer.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Before the steps are gone through once more.
const AGAIN: Duration = Duration::from_millis(10);

/// A lease whose token is claimed.
pub(super) struct Claimed {
    pub(super) lease: Lease,
    pub(super) presented: Presented,
    /// Until when the lease is surely ours.
    pub(super) valid_until: Moment,
}

/// How long a lease is surely ours: its ttl from before it was asked for, less what clocks may differ by.
pub(super) fn validity(since: Moment, ttl: Duration) -> Moment {
    since + (ttl - ttl / 100).saturating_sub(Duration::from_millis(2))
}

/// How often the steps are gone through if the generation changes on the way, whether there is time to wait or not.
const GENERATIONS: usize = 3;

/// What one attempt came to.
enum Attempt {
    Claimed(Claimed),
    /// Lost before it was claimed: from the start.
    Lost,
    /// The generation that was read has ended, or is not known where the claim arrived: from the start.
    OtherGeneration(Box<ProblemDocument>),
}

impl Locks {
    /// The four steps, again from the first if the lock is lost on the way and there is time left, or if the
    /// generation changes.
    pub(super) async fn claimed(&self, resource: &Resource) -> Result<Claimed, AcquireError> {
        let deadline = Instant::now() + self.options.wait.min(LONGEST_WAIT);
        let mut generations = 1;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.attempt(resource, left).await? {
                Attempt::Claimed(claimed) => return Ok(claimed),
                Attempt::Lost if Instant::now() >= deadline => return Err(AcquireError::Lost(resource.clone())),
                Attempt::Lost => {}
                Attempt::OtherGeneration(problem) if generations == GENERATIONS => {
                    return Err(AcquireError::Refused(problem));
                }
                Attempt::OtherGeneration(_) => generations += 1,
            }
            tokio::time::sleep(jittered(AGAIN)).await;
        }
    }

    async fn attempt(&self, resource: &Resource, wait: Duration) -> Result<Attempt, AcquireError> {
        let backend = self.backend.as_ref();
        // Before acquiring (T30): a generation learned later could lift a zombie's old number over its successor's.
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
            Acquired::Busy => return Err(AcquireError::Busy(resource.clone())),
        };
        // It may be lost already (T23). After a long wait, a renewal also tells how long it is surely ours.
        let Some(mut valid_until) = sure(backend, &self.options.clock, &lease).await? else {
            return Ok(Attempt::Lost);
        };
        let mut lifted = false;
        loop {
            // A generation that came with the number is presented as it stands, also if it is not the current one (T39).
            let token = Token::from_parts(lease.generation.unwrap_or(fence.generation), lease.number);
            let presented = Presented { token, holder: Some(lease.holder.clone()), issuer: Some(lease.issuer.clone()) };
            let problem = match self.claim(resource, &presented, valid_until).await {
                Ok(()) => return Ok(Attempt::Claimed(Claimed { lease: lease.take(), presented, valid_until })),
                Err(CallError::Fenced(problem)) => problem,
                Err(error) => {
                    lease.give_back().await;
                    return Err(error.into());
                }
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
                        Lifted::Unsupported => return self.backwards(resource, lease, *problem).await,
                    }
                }
                Some(ProblemKind::Stale | ProblemKind::Collision) => {
                    return self.backwards(resource, lease, *problem).await;
                }
                Some(ProblemKind::RetiredGeneration | ProblemKind::UnknownGeneration) => {
                    let given = token.generation() != fence.generation;
                    lease.give_back().await;
                    // Another attempt helps only if the generation changed during this one.
                    if given {
                        let generation = problem.generation.unwrap_or(fence.generation);
                        return Err(AcquireError::OtherGeneration { resource: resource.clone(), token, generation });
                    }
                    return Ok(Attempt::OtherGeneration(problem));
                }
                Some(ProblemKind::ForeignIssuer) => {
                    let ours = lease.issuer.to_string();
                    lease.give_back().await;
                    let bound = problem.issuer.map(|issuer| issuer.to_string()).unwrap_or_default();
                    let generation = fence.generation;
                    return Err(AcquireError::ForeignIssuer { resource: resource.clone(), bound, ours, generation });
                }
                _ => {
                    lease.give_back().await;
                    return Err(AcquireError::Refused(problem));
                }
            }
        }
    }

    /// Refused as stale: taken over since, or the service went backwards. Whoever does not hold the lock any more was
    /// taken over.
    async fn backwards(
        &self,
        resource: &Resource,
        lease: Unclaimed,
        problem: ProblemDocument,
    ) -> Result<Attempt, AcquireError> {
        let backend = self.backend.as_ref();
        if backend.verify(&lease).await? == Kept::Lost {
            return Ok(Attempt::Lost);
        }
        let number = lease.number.get();
        lease.give_back().await;
        let Some(fence) = problem.fence else { return Err(AcquireError::Refused(problem.into())) };
        Err(AcquireError::WentBackwards { resource: resource.clone(), number, fence, generation: fence.generation() })
    }

    /// Reads the fence; once more if the connection was an old one that broke.
    async fn fence(&self, resource: &Resource) -> Result<FenceAnswer, CallError> {
        match self.gateway.fence(resource).await {
            Err(CallError::Failed(_)) => self.gateway.fence(resource).await,
            read => read,
        }
    }

    /// Claims, again while the answer is lost and the lease is surely ours: a claim may be repeated.
    async fn claim(&self, resource: &Resource, presented: &Presented, until: Moment) -> Result<(), CallError> {
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

    /// `name#nonce`: unique per acquisition, so that a number given twice is seen.
    fn new_holder(&self) -> Result<Holder, AcquireError> {
        let nonce = random::number();
        let nonce = nonce.map_err(|error| LockError::Invalid(format!("there are no random numbers: {error}")))?;
        let holder = format!("{}#{nonce:016x}", self.options.name);
        Holder::new(&holder).map_err(|error| LockError::Invalid(format!("holder `{holder}`: {error}")).into())
    }
}

/// Until when the lease is surely ours, if it is.
async fn sure(backend: &dyn LockBackend, clock: &Clock, lease: &Lease) -> Result<Option<Moment>, LockError> {
    let asked = clock.now();
    let late = asked.since(lease.since) > lease.ttl / 4;
    let kept = if late { backend.renew(lease).await? } else { backend.verify(lease).await? };
    Ok(match kept {
        Kept::Kept => Some(validity(if late { asked } else { lease.since }, lease.ttl)),
        Kept::Lost => None,
    })
}

/// A lease on its way to its claim. Dropped before, by an error or with the whole acquisition, it is given back.
struct Unclaimed {
    backend: Arc<dyn LockBackend>,
    /// `None` once it is taken.
    lease: Option<Lease>,
}

impl Unclaimed {
    fn take(mut self) -> Lease {
        self.lease.take().unwrap_or_else(|| unreachable!("taken only here and at the end"))
    }

    /// Best effort: a lock that is not given back ends with its ttl.
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
