//! Reads what an adapter prints and matches it to the waiting requests.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::lines::{self, LONGEST, Line, Tail, shown};
use super::protocol::{self, Asked, Reply};
use crate::adapters::patience::Patience;
use crate::subject::Broken;

/// How long the last output of an ended process may take to arrive.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

/// How many lines of standard error are echoed.
const ECHOED: u32 = 1000;

/// A sentence for messages: where the protocol is documented.
pub(super) const BOOK: &str = "The protocol is in docs/conformance/exec.md.";

/// The requests to one adapter and its answers; shared by the waiting callers and the reading threads.
pub(super) struct Listener {
    pub(super) instance: usize,
    pub(super) state: Mutex<State>,
    /// Notified when a pipe has ended.
    pub(super) ended: Condvar,
}

/// The listener's state, under one lock.
#[derive(Default)]
pub(super) struct State {
    /// The number of the latest request.
    pub(super) latest: u64,
    /// Requests without an answer, including those whose callers gave up.
    pub(super) pending: BTreeMap<u64, Pending>,
    /// The suite killed or stopped it: its end is expected.
    pub(super) doomed: bool,
    /// Its process is stopped.
    pub(super) paused: bool,
    pub(super) silence: Silence,
    /// It has answered a request, perhaps after the caller gave up.
    pub(super) answers: bool,
    pub(super) stdout: Pipe,
    pub(super) stderr: Pipe,
    pub(super) tail: Tail,
}

impl State {
    /// The oldest request without an answer, in a sentence.
    pub(super) fn oldest(&self) -> String {
        self.pending.iter().next().map_or_else(String::new, |(id, Pending { asked, .. })| {
            let (name, example) = (asked.name(), asked.example(*id));
            format!(" The oldest request without an answer is {id}, a {name}: expected {example}.")
        })
    }
}

/// A request that waits for its answer.
pub(super) struct Pending {
    pub(super) asked: Asked,
    pub(super) waiting: SyncSender<Reply>,
}

/// The state of the pipe that answers are read from.
#[derive(Default)]
pub(super) enum Pipe {
    #[default]
    Open,
    /// Ended, perhaps in the middle of a line.
    Ended(Option<String>),
    /// A line could not be parsed.
    Broken(Broken),
}

/// Requests given up since the latest answer.
#[derive(Default)]
pub(super) struct Silence {
    pub(super) count: u32,
    pub(super) last: Option<Instant>,
}

impl Listener {
    /// The listener of a new process.
    pub(super) fn new(instance: usize) -> Listener {
        Listener { instance, state: Mutex::default(), ended: Condvar::new() }
    }

    /// The adapter's name in messages.
    pub(super) fn name(&self) -> String {
        format!("the adapter (instance {})", self.instance)
    }

    /// Waits briefly for a state that is expected soon.
    pub(super) fn wait_for(&self, there: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut patience = Patience::of(LAST_WORDS);
        let mut state = self.state.lock();
        while !there(&state) && !patience.is_over() {
            patience.wait(|slice| self.ended.wait_for(&mut state, slice));
        }
        state
    }

    /// Reads answers until the pipe ends or a line cannot be parsed.
    pub(super) fn read(&self, pipe: impl Read) {
        let mut pipe = BufReader::new(pipe);
        let mut number = 0u64;
        let end = loop {
            number += 1;
            match lines::next(&mut pipe, LONGEST) {
                Line::End => break Pipe::Ended(None),
                Line::Half(line) => break Pipe::Ended(Some(shown(&line))),
                Line::TooLong(start) => {
                    let why = format!("it is longer than {} MiB and goes on", LONGEST >> 20);
                    break Pipe::Broken(self.complain(number, &start, &why, None));
                }
                Line::Whole(line) => {
                    if let Err(broken) = self.hear(number, &line) {
                        break Pipe::Broken(broken);
                    }
                }
            }
        };
        self.end(end);
    }

    /// Records that no more answers come and fails the waiting callers. The first cause recorded is kept.
    pub(super) fn end(&self, how: Pipe) {
        let mut state = self.state.lock();
        if matches!(state.stdout, Pipe::Open) {
            state.stdout = how;
        }
        state.pending.clear();
        self.ended.notify_all();
    }

    fn hear(&self, number: u64, line: &[u8]) -> Result<(), Broken> {
        let (id, fields) = protocol::numbered(line).map_err(|why| self.complain(number, line, &why, None))?;
        let mut state = self.state.lock();
        if !matches!(state.stdout, Pipe::Open) {
            // It was killed, and another process still holds its pipe.
            return Ok(());
        }
        let Some(asked) = state.pending.get(&id).map(|pending| pending.asked) else {
            let why = match id {
                1.. if id <= state.latest => format!("request {id} was answered before; each is answered once"),
                _ => format!("nobody asked request {id}; the latest is {}", state.latest),
            };
            return Err(self.complain(number, line, &why, None));
        };
        let reply = asked.understand(fields).map_err(|why| self.complain(number, line, &why, Some((asked, id))))?;
        state.silence = Silence::default();
        state.answers |= asked != Asked::Init;
        if let Some(Pending { waiting, .. }) = state.pending.remove(&id) {
            // The caller may have given up.
            let _ = waiting.try_send(reply);
        }
        Ok(())
    }

    fn complain(&self, number: u64, line: &[u8], why: &str, asked: Option<(Asked, u64)>) -> Broken {
        let expected = match asked {
            Some((asked, id)) => format!("an answer to {}, like {}", asked.name(), asked.example(id)),
            None => "an answer to a request, one JSON object in one line, like {\"id\":2,\"result\":\"ok\",\"high\":\"42\"}; \
                     everything else belongs on standard error"
                .to_owned(),
        };
        Broken(format!(
            "{} printed a wrong line {number}:\n  {}\nWhat is wrong: {why}.\nExpected: {expected}. {BOOK}",
            self.name(),
            shown(line)
        ))
    }

    /// Reads standard error, so that the adapter never blocks on it, and keeps its last lines.
    pub(super) fn read_stderr(&self, pipe: impl Read, echo: bool) {
        let mut pipe = BufReader::new(pipe);
        let mut echoed = 0;
        loop {
            let line = match lines::next(&mut pipe, LONGEST) {
                Line::End => break,
                Line::Whole(line) | Line::Half(line) => line,
                Line::TooLong(start) => {
                    // Keep reading in pieces, so that the adapter never blocks on an overlong line.
                    self.state.lock().tail.push(&start);
                    continue;
                }
            };
            if echo && echoed < ECHOED {
                echoed += 1;
                eprintln!("adapter {}: {}", self.instance, shown(&line));
            }
            self.state.lock().tail.push(&line);
        }
        self.state.lock().stderr = Pipe::Ended(None);
        self.ended.notify_all();
    }
}
