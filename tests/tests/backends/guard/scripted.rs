//! A lock service in memory that does what a test says at the worst moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fencepost_client::locks::{Acquired, Capabilities, Kept, Lease, Lifted, LockBackend, LockError, Wanted};
use fencepost_core::{Holder, Issuer};
use tokio::sync::oneshot;

/// Can its counter be lifted?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lift {
    Can,
    Cannot,
}

/// When the test is let in: the call waits until it has done its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The lock is granted, and the answer on its way.
    Granted,
    /// Verified, and the claim not sent yet.
    Verified,
}

#[derive(Default)]
struct State {
    counter: u64,
    holder: Option<Holder>,
    /// Who asked, with the floor given.
    asked: Vec<(Holder, u64)>,
    lifts: usize,
    pauses: Vec<(Moment, oneshot::Sender<()>, oneshot::Receiver<()>)>,
}

/// The service. Clones are the same one.
#[derive(Clone)]
pub(super) struct Scripted {
    state: Arc<Mutex<State>>,
    lift: Lift,
}

/// A pause to come.
pub(super) struct Pause {
    reached: oneshot::Receiver<()>,
    go_on: oneshot::Sender<()>,
}

impl Pause {
    /// Waits until the call is there.
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

    /// The counter, as after a restore.
    pub(super) fn set_counter(&self, counter: u64) {
        self.state.lock().unwrap().counter = counter;
    }

    /// Stops the next call that comes to this moment.
    pub(super) fn pause_at(&self, moment: Moment) -> Pause {
        let (tell, reached) = oneshot::channel();
        let (go_on, wait) = oneshot::channel();
        self.state.lock().unwrap().pauses.push((moment, tell, wait));
        Pause { reached, go_on }
    }

    /// The ttl of the holder is over.
    pub(super) fn expire(&self) {
        self.state.lock().unwrap().holder = None;
    }

    /// Who has the lock.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.state.lock().unwrap().holder.clone()
    }

    pub(super) fn asked(&self) -> Vec<(Holder, u64)> {
        self.state.lock().unwrap().asked.clone()
    }

    pub(super) fn lifts(&self) -> usize {
        self.state.lock().unwrap().lifts
    }

    async fn moment(&self, moment: Moment) {
        let paused = {
            let mut state = self.state.lock().unwrap();
            let next = state.pauses.iter().position(|(wanted, ..)| *wanted == moment);
            next.map(|next| state.pauses.remove(next))
        };
        if let Some((_, tell, wait)) = paused {
            tell.send(()).unwrap();
            // Whoever is not told to go on never does.
            if wait.await.is_err() {
                std::future::pending().await
            }
        }
    }

    fn kept(&self, lease: &Lease) -> Kept {
        match self.state.lock().unwrap().holder.as_ref() == Some(&lease.holder) {
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
            let mut state = self.state.lock().unwrap();
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
        let mut state = self.state.lock().unwrap();
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
        let mut state = self.state.lock().unwrap();
        if state.holder.as_ref() == Some(&lease.holder) {
            state.holder = None;
        }
        Ok(())
    }
}
