//! Disturbances of the resource during a case.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Ended, Trial};
use crate::answer::Answer;
use crate::history::{Event, Mark, Operation, Time};
use crate::manifest::Kill;
use crate::op::{Op, Verb};
use crate::random::Random;
use crate::subject::{Hook, Route};
use crate::wait;

/// A start is killed after a random time, at most as long as a whole start takes: that bound is at least this, in
/// milliseconds, …
const SOON: u64 = 40;

/// … and at most this.
const LONGEST: u64 = 2_000;

/// The load lasts for up to this many requests before a kill.
const LOAD: u64 = 40;

/// How long to wait for the load.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to check whether the load has ended by itself.
const LOOK: Duration = Duration::from_millis(20);

/// How many kills of a case are followed by a check that no answer comes; each check may take a whole timeout.
const ASKED: u64 = 3;

impl Trial<'_> {
    /// Stops the process gracefully and starts it again. No request is in flight meanwhile.
    pub fn restart(&self) -> Result<(), Ended> {
        self.go_on()?;
        let _closed = self.gate.close()?;
        self.mark(self.now(), Event::Stopped);
        self.subject.hook(Hook::Restart)?;
        self.mark(self.now(), Event::Restarted);
        Ok(())
    }

    /// Kills the process with all requests in flight, and starts it again.
    pub fn crash(&self) -> Result<(), Ended> {
        self.crash_with(|| Ok(()))
    }

    /// The same, and this many starts are killed as well, each after a random time.
    pub fn crash_again(&self, interrupted: u64, random: &mut Random) -> Result<(), Ended> {
        // Measure an uninterrupted start first, so that the kills cover every part of it.
        let began = Instant::now();
        self.crash()?;
        let most = u64::try_from(began.elapsed().as_millis()).unwrap_or(LONGEST).clamp(SOON, LONGEST);
        self.crash_with(|| {
            for _ in 0..interrupted {
                self.subject.hook(Hook::Start)?;
                wait::pause(Duration::from_millis(random.below(most)));
                self.mark(self.now(), Event::Killed);
                self.subject.hook(Hook::Kill)?;
            }
            Ok(())
        })
    }

    /// Kills the process and starts it again at a random moment while clients 0 to `clients` − 1 repeat `work`. They
    /// make no request after that.
    pub fn crash_under_load(
        &self,
        clients: u32,
        random: &mut Random,
        work: impl Fn(u32) -> Result<(), Ended> + Sync,
    ) -> Result<(), Ended> {
        let begun = self.begun() + u64::from(clients) + random.below(LOAD);
        let moment = random.draw();
        self.parallel(clients + 1, |client| {
            if client == clients {
                let deadline = Instant::now() + PATIENCE;
                while !self.wait_for_flight(begun, LOOK) && Instant::now() < deadline {
                    if self.over.load(Ordering::Acquire) {
                        return Ok(());
                    }
                }
                self.pause_within_a_call(moment);
                return self.crash_with(|| {
                    self.over.store(true, Ordering::Release);
                    Ok(())
                });
            }
            while !self.over.load(Ordering::Acquire) {
                match work(client) {
                    Err(Ended::Unknown(_)) if self.over.load(Ordering::Acquire) => {}
                    result => result?,
                }
            }
            Ok(())
        })?;
        self.over.store(false, Ordering::Release);
        Ok(())
    }

    /// Waits for up to the duration of the latest call, so that kills hit every phase of a call.
    fn pause_within_a_call(&self, moment: u64) {
        let answered =
            |latest: &Operation| (latest.returned != Time::MAX).then(|| latest.returned.saturating_sub(latest.called));
        let latest = self.recorded().operations.iter().rev().find_map(answered);
        let part = Duration::from_nanos(moment % latest.unwrap_or(1).clamp(1, 20_000_000));
        // A shorter sleep would overrun its time.
        if part > Duration::from_micros(60) {
            wait::pause(part);
        }
    }

    fn crash_with(&self, while_down: impl FnOnce() -> Result<(), Ended>) -> Result<(), Ended> {
        self.go_on()?;
        self.gate.ending();
        let crashed = self.kill_and_start(while_down);
        self.gate.settled();
        crashed
    }

    fn kill_and_start(&self, while_down: impl FnOnce() -> Result<(), Ended>) -> Result<(), Ended> {
        self.mark(self.now(), Event::Killed);
        self.subject.hook(Hook::Kill)?;
        if let Some(proxy) = self.subject.proxy() {
            // Held bytes would arrive after the crash.
            proxy.cut();
        }
        // Calls in flight have got an error by now; new calls wait.
        let _closed = self.gate.close()?;
        if self.manifest().kill == Kill::Everything {
            self.bury(self.now());
        }
        self.ask_the_dead()?;
        while_down()?;
        self.subject.hook(Hook::Restart)?;
        self.mark(self.now(), Event::Restarted);
        Ok(())
    }

    /// Checks whether the killed process still answers.
    fn ask_the_dead(&self) -> Result<(), Ended> {
        if self.asked_dead.load(Ordering::Relaxed) == ASKED {
            return Ok(());
        }
        self.asked_dead.fetch_add(1, Ordering::Relaxed);
        let res = self.resource();
        let op = if self.has(Verb::Read) { Op::read(&res) } else { self.write_op(0, &res, 1) };
        let answer = self.subject.call(&self.request(self.unwritten(), 0, Route::Direct, &op))?;
        let answered = !answer.is_unknown() && answer != Answer::Unsupported;
        self.dead_answered.fetch_add(u64::from(answered), Ordering::Relaxed);
        Ok(())
    }

    /// A message if the resource answered after every kill: then the kills did not work, and nothing is shown.
    pub fn survived(&self) -> Option<String> {
        let asked = self.asked_dead.load(Ordering::Relaxed);
        let answered = self.dead_answered.load(Ordering::Relaxed);
        (asked > 0 && answered == asked).then(|| {
            format!(
                "the resource still answered after the `kill` hook, each of the {asked} times that it was asked, before \
                 anything was started again: does the hook end the process that answers?"
            )
        })
    }

    /// Marks unknown outcomes: they have taken effect by now, or never will.
    fn bury(&self, dead: Time) {
        let mut recorded = self.recorded();
        for operation in &mut recorded.operations {
            if operation.answer.is_unknown() && operation.dead_by.is_none() {
                operation.dead_by = Some(dead);
            }
        }
    }

    /// Pauses the process, as a long stall does.
    pub fn pause(&self) -> Result<(), Ended> {
        self.go_on()?;
        self.mark(self.now(), Event::Paused);
        Ok(self.subject.hook(Hook::Pause)?)
    }

    /// Resumes the process.
    pub fn resume(&self) -> Result<(), Ended> {
        self.subject.hook(Hook::Resume)?;
        self.mark(self.now(), Event::Resumed);
        Ok(())
    }

    /// Records what the process was about to do when it was killed last.
    pub fn killed_before(&self, step: Option<String>) {
        let mut recorded = self.recorded();
        if let Some(mark) = recorded.marks.iter_mut().rev().find(|mark| mark.event == Event::Killed) {
            mark.before = step;
        }
    }

    pub(super) fn mark(&self, at: Time, event: Event) {
        self.recorded().marks.push(Mark::new(at, event));
    }
}
