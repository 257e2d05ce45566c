//! What an adapter says.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::lines::{self, LONGEST, Line, Tail, shown};
use super::protocol::{self, Asked, Reply};
use crate::adapters::patience::Patience;
use crate::subject::Broken;

/// How long the last words of a process that has ended may be on their way.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

/// How many lines of standard error are passed on.
const ECHOED: u32 = 1000;

/// Where the protocol is written down.
pub(super) const BOOK: &str = "The protocol is in docs/conformance/exec.md.";

/// What one adapter was asked and has said; shared by those who wait and the threads that read.
pub(super) struct Listener {
    pub(super) instance: usize,
    pub(super) state: Mutex<State>,
    /// A pipe has ended.
    pub(super) ended: Condvar,
}

/// All of it, under one lock.
#[derive(Default)]
pub(super) struct State {
    /// The number of the latest request.
    pub(super) latest: u64,
    /// Requests that were not answered yet, also those that nobody waits for any more.
    pub(super) pending: BTreeMap<u64, Pending>,
    /// It was killed or stopped from here: its end is no surprise.
    pub(super) doomed: bool,
    /// Its process is stopped.
    pub(super) paused: bool,
    pub(super) silence: Silence,
    /// It has answered a request, perhaps too late for whoever waited.
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

/// Where the answers come from.
#[derive(Default)]
pub(super) enum Pipe {
    #[default]
    Open,
    /// Ended, perhaps in the middle of a line.
    Ended(Option<String>),
    /// What came cannot be understood.
    Broken(Broken),
}

/// Requests that were given up since anything was answered.
#[derive(Default)]
pub(super) struct Silence {
    pub(super) count: u32,
    pub(super) last: Option<Instant>,
}

impl Listener {
    /// Of a new process.
    pub(super) fn new(instance: usize) -> Listener {
        Listener { instance, state: Mutex::default(), ended: Condvar::new() }
    }

    /// As messages call the adapter.
    pub(super) fn name(&self) -> String {
        format!("the adapter (instance {})", self.instance)
    }

    /// Waits a little for a state that must come soon.
    pub(super) fn wait_for(&self, there: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut patience = Patience::of(LAST_WORDS);
        let mut state = lock(&self.state);
        while !there(&state) && !patience.is_over() {
            let waited = patience.wait(|slice| self.ended.wait_timeout(state, slice));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Reads answers until there are no more, or one cannot be understood.
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

    /// Nothing more is heard: whoever waits sees that, and what ended it first counts.
    pub(super) fn end(&self, how: Pipe) {
        let mut state = lock(&self.state);
        if matches!(state.stdout, Pipe::Open) {
            state.stdout = how;
        }
        state.pending.clear();
        self.ended.notify_all();
    }

    fn hear(&self, number: u64, line: &[u8]) -> Result<(), Broken> {
        let (id, fields) = protocol::numbered(line).map_err(|why| self.complain(number, line, &why, None))?;
        let mut state = lock(&self.state);
        if !matches!(state.stdout, Pipe::Open) {
            // It was killed, and somebody else still holds its pipe.
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
            // Nobody waits any more if it came too late.
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

    /// Reads standard error, so that it never blocks, and keeps its end.
    pub(super) fn read_stderr(&self, pipe: impl Read, echo: bool) {
        let mut pipe = BufReader::new(pipe);
        let mut echoed = 0;
        loop {
            let line = match lines::next(&mut pipe, LONGEST) {
                Line::End => break,
                Line::Whole(line) | Line::Half(line) => line,
                Line::TooLong(start) => {
                    // Read on, in pieces, so that it is never blocked by what nobody wants to see.
                    lock(&self.state).tail.push(&start);
                    continue;
                }
            };
            if echo && echoed < ECHOED {
                echoed += 1;
                eprintln!("adapter {}: {}", self.instance, shown(&line));
            }
            lock(&self.state).tail.push(&line);
        }
        lock(&self.state).stderr = Pipe::Ended(None);
        self.ended.notify_all();
    }
}

/// A lock that a panic elsewhere does not close.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
