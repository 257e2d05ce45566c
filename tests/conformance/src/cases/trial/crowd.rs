//! Several clients at once.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Ended, Trial};
use crate::answer::Answer;
use crate::op::Op;
use crate::subject::Route;
use crate::wait;

/// How often to check whether a condition holds.
const LOOK: Duration = Duration::from_millis(1);

/// How often a released client looks for the others before it proceeds.
const LOOKS: usize = 100;

impl Trial<'_> {
    /// Makes one request of each of these clients, all released at the same moment. Answers come in the same order. The
    /// call time is when a request is sent, not when it is released: a late one does not overlap those answered before.
    pub fn race(&self, requests: Vec<(u32, Op)>) -> Result<Vec<Answer>, Ended> {
        self.go_on()?;
        let inside = self.gate.enter_all(requests.len())?;
        let (ready, released) = (Barrier::new(requests.len()), AtomicUsize::new(0));
        let (ready, released, all) = (&ready, &released, requests.len());
        thread::scope(|scope| {
            let running: Vec<_> = (requests.iter().zip(inside))
                .map(|((client, op), inside)| {
                    scope.spawn(move || {
                        ready.wait();
                        // Some threads wake up later than others.
                        released.fetch_add(1, Ordering::AcqRel);
                        for _ in 0..LOOKS {
                            if released.load(Ordering::Acquire) == all {
                                break;
                            }
                            thread::yield_now();
                        }
                        let id = self.called(*client, op, None);
                        self.send(inside, id, *client, Route::Direct, op)
                    })
                })
                .collect();
            let joined: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
            joined.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    /// Runs clients 0 to `clients` − 1 at once, each as long as it needs. The first that ends with an error ends the
    /// case: the others can make no more requests.
    pub fn parallel(&self, clients: u32, client: impl Fn(u32) -> Result<(), Ended> + Sync) -> Result<(), Ended> {
        let first: Mutex<Option<Ended>> = Mutex::new(None);
        let ready = Barrier::new(clients as usize);
        let (client, first, ready) = (&client, &first, &ready);
        let run = move |number| {
            ready.wait();
            let result = catch_unwind(AssertUnwindSafe(|| client(number)));
            if !matches!(result, Ok(Ok(()))) {
                self.over.store(true, Ordering::Release);
            }
            if let Err(ended) = result.unwrap_or_else(|panic| resume_unwind(panic)) {
                let mut first = first.lock();
                // A broken rule takes precedence over an answer that was lost before it.
                if first.is_none() || matches!(ended, Ended::Failed(_)) && !matches!(*first, Some(Ended::Failed(_))) {
                    *first = Some(ended);
                }
            }
        };
        thread::scope(|scope| {
            let running: Vec<_> = (0..clients).map(|number| scope.spawn(move || run(number))).collect();
            let joined: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
            joined.into_iter().for_each(|result| result.unwrap_or_else(|panic| resume_unwind(panic)));
        });
        let ended = first.lock().take();
        ended.map_or(Ok(()), Err)
    }

    /// Makes one request of each of these clients, and runs something else while they are in flight.
    pub fn meanwhile<T>(
        &self,
        requests: Vec<(u32, Op)>,
        route: Route,
        act: impl FnOnce() -> Result<T, Ended>,
    ) -> Result<(Vec<Answer>, T), Ended> {
        thread::scope(|scope| {
            let running: Vec<_> = requests
                .into_iter()
                .map(|(client, op)| scope.spawn(move || self.call_by(client, op, route, None)))
                .collect();
            let acted = act();
            let joined: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
            let answers: Result<Vec<_>, Ended> =
                joined.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect();
            let acted = acted?;
            Ok((answers?.into_iter().map(|(_, answer)| answer).collect(), acted))
        })
    }

    /// Waits for a condition, at most `limit`. `false`: it did not occur.
    pub fn until(&self, limit: Duration, condition: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if condition() {
                return true;
            }
            if Instant::now() > deadline || self.go_on().is_err() {
                return false;
            }
            wait::pause(LOOK);
        }
    }

    /// How many requests were begun so far.
    pub fn begun(&self) -> u64 {
        self.gate.entered()
    }

    /// Waits until this many requests were begun and one is in flight, at most `limit`.
    pub fn wait_for_flight(&self, begun: u64, limit: Duration) -> bool {
        self.gate.wait_for_flight(begun, limit)
    }
}
