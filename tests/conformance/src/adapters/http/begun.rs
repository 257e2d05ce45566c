//! A request that was sent only in part.

use std::time::{Duration, Instant};

use super::client::{Connection, Endpoint};
use super::outcome::Outcomes;
use super::reply::Lost;
use super::shape::Message;
use crate::answer::Answer;
use crate::subject::{Begun, Broken, Part};
use crate::wait;

/// How long to wait before retrying a failed connection.
const AGAIN: Duration = Duration::from_millis(50);

/// The rest of a request and its connection; or the reason why there is no connection, and then the rest is never sent.
pub(super) struct HalfSent {
    connection: Result<Connection, Lost>,
    rest: Vec<u8>,
    head: bool,
    outcomes: Outcomes,
    timeout: Duration,
}

impl HalfSent {
    /// Sends the first part on a connection of its own. If there is no body, the empty line that ends the head is held
    /// back.
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

/// Retries once: nothing was sent yet, and a listener may have been busy for a moment.
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
        // The service may have answered and stopped reading before this.
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
