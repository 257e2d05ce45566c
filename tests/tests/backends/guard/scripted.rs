//! A lock service in memory that pauses at the worst moment, as a test scripts it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencepost_client::locks::{Acquired, Capabilities, Kept, Lease, Lifted, LockBackend, LockError, Wanted};
use fencepost_core::{Holder, Issuer};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Can its counter be raised?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lift {
    Can,
    Cannot,
}

/// The moment at which a call pauses until the test lets it continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The lock is granted, and the answer is on its way.
    Granted,
    /// The lease is verified, and the claim is not sent yet.
    Verified,
}

#[derive(Default)]
struct State {
    counter: u64,
    holder: Option<Holder>,
    /// The holders that asked, each with the floor it gave.
    asked: Vec<(Holder, u64)>,
    lifts: usize,
    pauses: Vec<(Moment, oneshot::Sender<()>, oneshot::Receiver<()>)>,
}

/// The service. Clones share its state.
#[derive(Clone)]
pub(super) struct Scripted {
    state: Arc<Mutex<State>>,
    lift: Lift,
}

/// A pause that a later call will reach.
pub(super) struct Pause {
    reached: oneshot::Receiver<()>,
    go_on: oneshot::Sender<()>,
}

impl Pause {
    /// Waits until the call has reached the pause.
    pub(super) async fn reached(&mut self) {
        (&mut self.reached).await.unwrap();
    }

    pub(super) fn go_on(self) {
        self.go_on.send(()).unwrap();
    }
}

impl Scripted {
    pub(super) fn new(lift: Lift) -> Scripted {
        Scripted { state: Arc::default(), lift }
    }

    /// Sets the counter, as after a restore.
    pub(super) fn set_counter(&self, counter: u64) {
        self.state.lock().counter = counter;
    }

    /// Pauses the next call that reaches this moment.
    pub(super) fn pause_at(&self, moment: Moment) -> Pause {
        let (tell, reached) = oneshot::channel();
        let (go_on, wait) = oneshot::channel();
        self.state.lock().pauses.push((moment, tell, wait));
        Pause { reached, go_on }
    }

    /// Ends the holder's lease, as if its ttl had run out.
    pub(super) fn expire(&self) {
        self.state.lock().holder = None;
    }

    /// The current holder.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.state.lock().holder.clone()
    }

    pub(super) fn asked(&self) -> Vec<(Holder, u64)> {
        self.state.lock().asked.clone()
    }

    pub(super) fn lifts(&self) -> usize {
        self.state.lock().lifts
    }

    async fn moment(&self, moment: Moment) {
        let paused = {
            let mut state = self.state.lock();
            let next = state.pauses.iter().position(|(wanted, ..)| *wanted == moment);
            next.map(|next| state.pauses.remove(next))
        };
        if let Some((_, tell, wait)) = paused {
            tell.send(()).unwrap();
            // If the test drops its end, the call stays paused for ever.
            if wait.await.is_err() {
                std::future::pending().await
            }
        }
    }

    fn kept(&self, lease: &Lease) -> Kept {
        match self.state.lock().holder.as_ref() == Some(&lease.holder) {
            true => Kept::Kept,
            false => Kept::Lost,
        }
    }
}

#[async_trait]
impl LockBackend for Scripted {
    fn capabilities(&self) -> Capabilities {
        let lift = self.lift == Lift::Can;
        Capabilities { fair: false, watch: false, floor: false, lift, min_ttl: Duration::ZERO, detachable: false }
    }

    async fn acquire(&self, wanted: &Wanted<'_>) -> Result<Acquired, LockError> {
        let since = fencepost_client::Moment::now();
        let number = {
            let mut state = self.state.lock();
            state.asked.push((wanted.holder.clone(), wanted.floor));
            if state.holder.is_some() {
                return Ok(Acquired::Busy);
            }
            state.holder = Some(wanted.holder.clone());
            state.counter += 1;
            state.counter
        };
        self.moment(Moment::Granted).await;
        Ok(Acquired::Held(Lease {
            name: wanted.name.clone(),
            holder: wanted.holder.clone(),
            number: number.try_into().unwrap(),
            generation: None,
            issuer: Issuer::new("scripted:9f2c6d1e").unwrap(),
            ttl: wanted.ttl,
            since,
            handle: String::new(),
            session: None,
        }))
    }

    async fn verify(&self, lease: &Lease) -> Result<Kept, LockError> {
        let kept = self.kept(lease);
        self.moment(Moment::Verified).await;
        Ok(kept)
    }

    async fn renew(&self, lease: &Lease) -> Result<Kept, LockError> {
        self.verify(lease).await
    }

    async fn lift(&self, lease: &mut Lease, floor: u64) -> Result<Lifted, LockError> {
        let mut state = self.state.lock();
        state.lifts += 1;
        if self.lift == Lift::Cannot {
            return Ok(Lifted::Unsupported);
        }
        if state.holder.as_ref() != Some(&lease.holder) {
            return Ok(Lifted::Lost);
        }
        state.counter = state.counter.max(floor) + 1;
        lease.number = state.counter.try_into().unwrap();
        Ok(Lifted::Lifted)
    }

    async fn release(&self, lease: Lease) -> Result<(), LockError> {
        let mut state = self.state.lock();
        if state.holder.as_ref() == Some(&lease.holder) {
            state.holder = None;
        }
        Ok(())
    }
}
