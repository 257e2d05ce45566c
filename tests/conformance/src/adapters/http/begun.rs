//! A request that was sent in part.

use std::time::{Duration, Instant};

use super::client::{Connection, Endpoint};
use super::outcome::Outcomes;
use super::reply::Lost;
use super::shape::Message;
use crate::answer::Answer;
use crate::subject::{Begun, Broken, Part};
use crate::wait;

/// How long after a connection that could not be made the next one is tried.
const AGAIN: Duration = Duration::from_millis(50);

/// The rest of a request, and the connection it waits on; or why there is none, and then nobody ever gets it.
pub(super) struct HalfSent {
    connection: Result<Connection, Lost>,
    rest: Vec<u8>,
    head: bool,
    outcomes: Outcomes,
    timeout: Duration,
}

impl HalfSent {
    /// Sends the first part on a connection of its own. Without a body, the empty line that ends the head is kept back.
    pub(super) fn begin(
        endpoint: &Endpoint,
        head: &[u8],
        message: &Message,
        part: Part,
        outcomes: Outcomes,
        timeout: Duration,
    ) -> HalfSent {
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(&message.body);
        let sent = match (part, message.body.len()) {
            (_, 0) => head.len() - 2,
            (Part::Head, _) => head.len(),
            (Part::HalfBody, length) => head.len() + length / 2,
        };
        let rest = bytes.split_off(sent);
        let deadline = Instant::now() + timeout;
        let connection = twice(|| endpoint.connect(deadline)).and_then(|connection| {
            connection.send(&bytes, deadline)?;
            Ok(connection)
        });
        HalfSent { connection, rest, head: message.is_head(), outcomes, timeout }
    }
}

/// Once more if it fails: nothing was sent yet, and a listener may have been busy for a moment.
fn twice<T>(mut attempt: impl FnMut() -> Result<T, Lost>) -> Result<T, Lost> {
    attempt().or_else(|_| {
        wait::pause(AGAIN);
        attempt()
    })
}

impl Begun for HalfSent {
    fn finish(self: Box<Self>) -> Result<Answer, Broken> {
        let connection = match &self.connection {
            Ok(connection) => connection,
            Err(Lost(why)) => return Ok(Answer::unknown(format!("its first part could not be sent: {why}"))),
        };
        let deadline = Instant::now() + self.timeout;
        // It may have answered, and stopped listening, before this.
        let sent = connection.send(&self.rest, deadline);
        let reply = connection.receive(self.head, deadline);
        Ok(match (reply, sent) {
            (Ok(reply), _) => self.outcomes.answer(&reply),
            (Err(_), Err(Lost(why))) | (Err(Lost(why)), Ok(_)) => Answer::unknown(why),
        })
    }

    fn abandon(self: Box<Self>) {
        if let Ok(connection) = self.connection {
            connection.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lost, twice};

    #[test]
    fn a_connection_is_tried_once_more() {
        for (failures, good) in [(0, true), (1, true), (2, false)] {
            let mut left = failures;
            let made = twice(|| {
                let fails = left > 0;
                left -= u32::from(fails);
                if fails { Err(Lost("refused".to_owned())) } else { Ok(()) }
            });
            assert_eq!(made.is_ok(), good, "after {failures} failures");
        }
    }
}
