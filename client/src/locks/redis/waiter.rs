//! Requesting a lock, and waiting for it.
//!
//! A waiter has a place in the queue, a liveness key that expires, and a list of its own that it blocks on. A client
//! that frees the lock pushes to the list of the first live waiter; only that waiter may take the lock. Each waiter
//! asks again periodically, well before its liveness key expires. That detects a holder that died, a waiter that died,
//! and a lost call. Only the first waiter watches when the lock expires.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::scripts::{Answer, Keys, millis};
use super::{ATTEMPTS, Acquired, Lease, LockError, Redis, Wanted};
use crate::locks::cleanup::Cleanup;
use crate::{Moment, random};

/// The longest time that a place in the queue lasts without being refreshed; never longer than the ttl.
const PLACE: Duration = Duration::from_secs(10);

/// The maximum number of waiters for one lock.
const MOST_WAITERS: &str = "10000";

/// How long a waiter tolerates an unreachable service.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer waits are cut to this.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// One acquisition. If it is dropped before its end, it releases what it may have been granted.
pub(super) struct Asking<'a> {
    redis: &'a Redis,
    wanted: &'a Wanted<'a>,
    keys: Keys,
    /// The incarnation to use if this lock never existed before.
    fresh: String,
    place: Duration,
    listening: Option<MultiplexedConnection>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(redis: &'a Redis, wanted: &'a Wanted<'a>) -> Result<Asking<'a>, LockError> {
        let fresh = random::uuid().map_err(|why| redis.link.failed(&format!("no random numbers: {why}")))?;
        let (keys, place) = (Keys::of(wanted.name), wanted.ttl.min(PLACE));
        Ok(Asking { redis, wanted, keys, fresh, place, listening: None })
    }

    pub(super) async fn until_answered(mut self) -> Result<Acquired, LockError> {
        let deadline = Instant::now() + self.wanted.wait.min(LONGEST_WAIT);
        // Armed before the first request, so that a grant whose answer is lost is released too.
        let undo = self.undo();
        let mut trouble = Trouble::default();
        loop {
            let since = Moment::now();
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = match self.ask(left).await {
                Ok(answer) => answer,
                // Granted or not: asking again as the same holder finds out.
                Err(error) if error.is_transient() && !trouble.is_too_much(left) => {
                    sleep(trouble.pause()).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            trouble = Trouble::default();
            match answer {
                Answer::Granted { number, incarnation } => {
                    let issuer = self.redis.issuer(&incarnation)?;
                    undo.disarm();
                    return Ok(Acquired::Held(Lease {
                        name: self.wanted.name.clone(),
                        holder: self.wanted.holder.clone(),
                        number,
                        generation: None,
                        issuer,
                        ttl: self.wanted.ttl,
                        since,
                        handle: self.wanted.holder.to_string(),
                        session: None,
                    }));
                }
                Answer::Queued { ends_in } => {
                    let again = ends_in.map_or(self.place / 3, |ends_in| ends_in.min(self.place / 3));
                    self.listen(again.min(left).max(Duration::from_millis(1))).await;
                }
                ended => {
                    undo.disarm();
                    return match ended {
                        Answer::Busy => Ok(Acquired::Busy),
                        Answer::Exhausted => Err(self.redis.exhausted(self.wanted.name, self.wanted.floor)),
                        _ => {
                            let why = format!("{MOST_WAITERS} wait for `{}` already", self.wanted.name);
                            Err(self.redis.link.failed(&why))
                        }
                    };
                }
            }
        }
    }

    /// Asks once: for the lock, or for a place in the queue if there is time left to wait.
    async fn ask(&self, left: Duration) -> Result<Answer, LockError> {
        let place = if left.is_zero() { "0".to_owned() } else { millis(self.place) };
        let wanted = self.wanted;
        let (holder, ttl, floor) = (wanted.holder.as_str(), millis(wanted.ttl), wanted.floor.to_string());
        let arguments = [holder, &ttl, &floor, &self.fresh, &place, MOST_WAITERS];
        let answer: Vec<String> = self.redis.link.run(&self.redis.scripts.acquire.on(&self.keys, &arguments)).await?;
        Answer::read(&answer).ok_or_else(|| self.redis.link.failed(&format!("it answered {answer:?} to acquire")))
    }

    /// Returns when it may be our turn, or after this time.
    async fn listen(&mut self, time: Duration) {
        let until = Instant::now() + time;
        if self.listening.is_none() {
            self.listening = timeout(time, self.redis.link.listener()).await.ok().and_then(Result::ok);
        }
        if let Some(connection) = &mut self.listening {
            // Never 0, which would mean to block forever.
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let mut call = redis::cmd("BLPOP");
            call.arg(self.keys.turn(self.wanted.holder.as_str())).arg(left.as_secs_f64());
            let called = call.query_async::<Option<(String, String)>>(connection);
            match timeout(left + Duration::from_secs(1), called).await {
                Ok(Ok(_)) => return,
                Ok(Err(_)) | Err(_) => self.listening = None,
            }
        }
        // Missed notifications are covered by the periodic re-check.
        sleep(until.saturating_duration_since(Instant::now())).await;
    }

    /// Releases what the service may have granted, unless it is disarmed.
    fn undo(&self) -> Cleanup {
        let (link, scripts) = (Arc::clone(&self.redis.link), Arc::clone(&self.redis.scripts));
        let (name, holder) = (self.wanted.name.clone(), self.wanted.holder.to_string());
        Cleanup::new(async move {
            if let Err(error) = link.run::<i64>(&scripts.release.on(&Keys::of(&name), &[&holder])).await {
                tracing::debug!(lock = %name, %error, "an unfinished acquisition ends with its ttl");
            }
        })
    }
}

/// Consecutive errors.
#[derive(Default)]
struct Trouble {
    errors: usize,
    since: Option<Instant>,
}

impl Trouble {
    fn is_too_much(&mut self, left: Duration) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.errors += 1;
        self.errors >= ATTEMPTS && (left.is_zero() || since.elapsed() >= PATIENCE)
    }

    /// Grows with each error and is randomized, so that many waiters do not come back at once.
    fn pause(&self) -> Duration {
        let mut random = [0; 1];
        // Without random bytes, all pauses have the same length.
        let _ = getrandom::fill(&mut random);
        let pause = Duration::from_millis(20 << self.errors.min(4));
        pause + pause * u32::from(random[0]) / 255
    }
}
