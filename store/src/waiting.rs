//! The commands of a batch that wait for their answers.

use crate::command::Command;
use crate::engine::{Purpose, Version};
use crate::failure::Failure;
use crate::lock_queue::Locks;
use crate::overlay::Overlay;

/// The commands of a batch, in their order.
pub(crate) struct Waiting {
    pub(crate) commands: Vec<Command>,
}

impl Waiting {
    pub(crate) fn answer_all(&mut self, failure: &Failure) {
        for command in &mut self.commands {
            command.fail(failure);
        }
    }

    /// The purpose of the whole batch: it frees space only if each of its commands does.
    pub(crate) fn purpose(&self) -> Purpose {
        match self.commands.iter().all(|command| command.purpose() == Purpose::Free) {
            true => Purpose::Free,
            false => Purpose::Store,
        }
    }

    /// Answers all commands that store something with this failure.
    pub(crate) fn answer_those_that_store(&mut self, failure: &Failure) {
        for command in self.commands.iter_mut().filter(|command| command.purpose() == Purpose::Store) {
            command.fail(failure);
        }
    }

    /// Moves the commands from this index on to the front of `wait`.
    pub(crate) fn put_off(&mut self, from: usize, wait: &mut Option<Waiting>) {
        let mut commands = self.commands.split_off(from);
        if let Some(behind) = wait.take() {
            commands.extend(behind.commands);
        }
        *wait = Some(Waiting { commands });
    }

    /// Returns whether a command has not been answered yet.
    pub(crate) fn is_awaited(&mut self) -> bool {
        self.commands.iter_mut().any(Command::is_awaited)
    }

    /// Keeps only the commands that are not answered yet, to be judged again.
    pub(crate) fn keep_unanswered(&mut self) {
        self.commands.retain_mut(Command::is_awaited);
        self.commands.iter_mut().for_each(Command::forget_outcome);
    }

    /// Judges every command in order. Outcomes that durable records alone justify are answered at once.
    pub(crate) fn judge(&mut self, overlay: &mut Overlay) {
        for command in &mut self.commands {
            overlay.judge(command);
        }
    }

    /// Answers the commands that waited for the commit.
    pub(crate) fn settle(&mut self, first: Option<Version>, locks: &Locks) {
        for command in &mut self.commands {
            command.settle(first, locks);
        }
    }
}
