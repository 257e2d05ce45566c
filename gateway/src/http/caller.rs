//! The caller of a request, and its share of the memory for answers.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::answer::Answer;
use super::body::{ByteBudget, hold, hold_anyway};
use super::permit::Identity;
use super::problem::Problem;
use super::waiters::ConnectionWaits;
use crate::config::Limits;
use crate::peer::PeerAddress;

/// The caller of a request. All requests of a connection have the same caller.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(super) identity: Identity,
    pub(super) peer: PeerAddress,
    /// Its requests that wait for a lock.
    pub(super) waits: Arc<ConnectionWaits>,
    /// Its share of the memory for answers.
    pub(super) share: Arc<AnswerShare>,
}

/// A caller's share of the memory for answers: a quarter. Answers count until the caller has received them. Callers on
/// this machine have a share per connection, others per address.
pub(crate) struct AnswerShare {
    answers: Arc<ByteBudget>,
    /// Limits the requests whose answers hold values and must be sent.
    makers: Semaphore,
}

/// Smaller answers are not counted; each request has at most one.
const SMALL: u64 = 4 << 10;

impl AnswerShare {
    pub(super) fn new(limits: &Limits) -> Arc<AnswerShare> {
        let share = (limits.bodies / 4).max(limits.body);
        let makers = Semaphore::new((share / limits.body.max(1)).clamp(1, super::MAX_MAKERS));
        Arc::new(AnswerShare { answers: ByteBudget::new(share), makers })
    }

    /// Waits for the caller's turn to make an answer that must be sent. Refused while its earlier answers fill its
    /// share.
    pub(super) async fn turn(&self) -> Result<Option<SemaphorePermit<'_>>, Problem> {
        // The semaphore is never closed.
        let turn = self.makers.acquire().await.ok();
        hold(Bytes::from_static(b"{}"), &self.answers).map(|_| turn)
    }

    /// Counts an answer until the caller has received it. A read may be refused if the share is full; any other call
    /// has already been executed, and is answered.
    pub(super) fn hold(&self, method: &Method, answer: Answer) -> Result<Answer, Problem> {
        if answer.length() <= SMALL {
            return Ok(answer);
        }
        answer.map_body(|bytes| match *method {
            Method::GET => hold(bytes, &self.answers),
            _ => Ok(hold_anyway(bytes, &self.answers)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s04_a_caller_that_takes_no_answers_uses_up_its_own_share() {
        let limits = Limits { body: 8 << 10, bodies: 64 << 10, ..Limits::default() };
        let share = AnswerShare::new(&limits);
        let read = |share: &AnswerShare| {
            share
                .hold(&Method::GET, Answer::new(200).body(Bytes::from(vec![0; 8 << 10])))
                .map_err(|problem| problem.kind())
        };
        let held = [read(&share), read(&share)];
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(read(&share).err(), Some(fencepost_core::ProblemKind::Overloaded));
        assert!(share.turn().await.is_err(), "nor is anything begun whose answer must be sent");
        let sent = share.hold(&Method::POST, Answer::new(200).body(Bytes::from(vec![0; 8 << 10])));
        assert!(sent.is_ok(), "what was done is answered");
        assert!(read(&AnswerShare::new(&limits)).is_ok(), "others have their own share");
        drop((held, sent));
        assert!(read(&share).is_ok() && share.turn().await.is_ok());
    }
}
