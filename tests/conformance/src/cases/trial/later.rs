//! Operations that have begun for their client, and are sent later, wholly or in part.

use super::{Ended, Trial};
use crate::answer::Answer;
use crate::op::Op;
use crate::subject::{Begun, Part, Route};

/// An operation that its client has begun and not sent yet.
pub struct Built<'t, 'a> {
    trial: &'t Trial<'a>,
    id: u64,
    client: u32,
    op: Op,
}

/// An operation that was sent in part.
pub struct Held<'t, 'a> {
    trial: &'t Trial<'a>,
    id: u64,
    begun: Box<dyn Begun>,
}

impl<'a> Trial<'a> {
    /// Begins an operation: its call time is now, and nothing is sent yet.
    pub fn build<'t>(&'t self, client: u32, op: Op) -> Built<'t, 'a> {
        let id = self.called(client, &op, None);
        Built { trial: self, id, client, op }
    }

    /// Sends a part of a request. The case needs a wire.
    pub fn begin<'t>(&'t self, client: u32, op: &Op, part: Part) -> Result<Held<'t, 'a>, Ended> {
        let _inside = self.enter()?;
        let id = self.called(client, op, None);
        let begun = self.subject.begin(&self.request(id, client, Route::Direct, op), part);
        let begun = begun.ok_or_else(|| Ended::NotApplicable("a request cannot be sent in parts".to_owned()))??;
        Ok(Held { trial: self, id, begun })
    }
}

impl Built<'_, '_> {
    /// The number of the operation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sends it and waits for the answer.
    pub fn send(self) -> Result<Answer, Ended> {
        let inside = self.trial.enter()?;
        if let Some(operation) = self.trial.recorded().operation(self.id) {
            // A kill before it was sent does not affect it.
            operation.dead_by = None;
        }
        self.trial.send(inside, self.id, self.client, Route::Direct, &self.op)
    }
}

impl Held<'_, '_> {
    /// The number of the operation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Sends the rest and waits for the answer.
    pub fn finish(self) -> Result<Answer, Ended> {
        let answer = self.begun.finish()?;
        self.trial.returned(self.id, answer)
    }

    /// Breaks the connection.
    pub fn abandon(self) -> Result<(), Ended> {
        self.begun.abandon();
        self.trial.returned(self.id, Answer::unknown("the client broke the connection")).map(drop)
    }
}
