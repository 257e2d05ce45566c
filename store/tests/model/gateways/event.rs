//! One step: a gateway or the engine does something, or something happens to them.

use super::engine::{Batch, Engine, LaneChange, Version};
use super::gateway::{Gateway, Lane, Task, Work};
use super::mistake::Mistake;
use super::promise::{Broken, check_answer, check_commit, check_fence, check_read, says_not_applied};
use super::request::{Answer, Fence, READS, Reason};
use super::state::State;
use super::trace::Trace;
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Begin {
        gateway: u8,
        request: u8,
    },
    Load {
        gateway: u8,
        from: Source,
    },
    /// The engine answers a commit. After a conflict, the gateway looks at its lane.
    Commit {
        gateway: u8,
        from: Source,
    },
    /// A commit is sent, and its answer is lost. It may be applied later.
    Lose {
        gateway: u8,
    },
    Look {
        gateway: u8,
        from: Source,
    },
    GiveUp {
        gateway: u8,
    },
    Kill {
        gateway: u8,
        is_sent: bool,
    },
    Stop {
        gateway: u8,
    },
    /// A late commit reaches the engine.
    Deliver {
        at: u8,
    },
    Depose,
    Lag,
    FailOver,
    /// An operator accepts the history.
    Accept,
}

/// Which server answers a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Present,
    Deposed,
}

/// A state while one event happens to it.
pub(super) struct Step<'w> {
    pub(super) state: State,
    pub(super) world: &'w World,
    pub(super) trace: Trace,
    pub(super) answer: Option<Answer>,
}

pub(super) type Kept = Result<(), Broken>;

pub(super) fn name(gateway: u8) -> char {
    char::from(b'A' + gateway)
}

impl Step<'_> {
    pub(super) fn take(&mut self, event: Event) -> Kept {
        match event {
            Event::Begin { gateway, request } => self.begin(gateway, request)?,
            Event::Load { gateway, from } => self.load(gateway, from)?,
            Event::Commit { gateway, from } => self.commit(gateway, from)?,
            Event::Lose { gateway } => self.lose(gateway),
            Event::Look { gateway, from } => self.look(gateway, from)?,
            Event::GiveUp { gateway } => self.give_up(gateway)?,
            Event::Kill { gateway, is_sent } => self.kill(gateway, is_sent),
            Event::Stop { gateway } => self.stop(gateway),
            Event::Deliver { at } => {
                let batch = self.state.late.remove(usize::from(at));
                let is_applied = self.state.engine.holds(&batch);
                self.trace.say(|| format!("a late commit of lane {} arrives: {}", batch.lane, fate(is_applied)));
                if is_applied {
                    self.apply(&batch)?;
                }
            }
            Event::Depose => {
                self.trace.say(|| "another server takes over; the old one still answers loads".to_owned());
                self.state.deposed = Some(Box::new(self.state.engine.clone()));
            }
            Event::Lag => {
                self.trace.say(|| "the standby begins to lag".to_owned());
                self.state.standby = Some(Box::new(self.state.engine.clone()));
            }
            Event::FailOver => self.fail_over(),
            Event::Accept => self.accept(),
        }
        self.state.drop_what_is_too_late(self.world);
        Ok(())
    }

    pub(super) fn gateway(&mut self, gateway: u8) -> &mut Gateway {
        &mut self.state.gateways[usize::from(gateway)]
    }

    /// Takes the gateway's work away; it is idle unless it gets new work.
    pub(super) fn work(&mut self, gateway: u8) -> Work {
        std::mem::replace(&mut self.gateway(gateway).work, Work::Idle)
    }

    /// Whatever is late of this request was declared not to be applied.
    pub(super) fn give_up_commits(&mut self, request: u8) {
        let late = self.state.late.iter_mut().filter(|batch| batch.request == Some(request));
        late.for_each(|batch| batch.is_given_up = true);
    }

    fn kill(&mut self, gateway: u8, is_sent: bool) {
        self.trace.say(|| format!("{} is killed{}", name(gateway), if is_sent { " while it commits" } else { "" }));
        if let (Work::Commit(_, batch, _) | Work::Bump(_, batch, _), true) = (self.work(gateway), is_sent) {
            self.state.late.push(batch);
        }
        self.state.kills -= 1;
        *self.gateway(gateway) = Gateway::new(self.state.new_lane());
    }

    /// A gateway that stops takes the record of its lane along.
    fn stop(&mut self, gateway: u8) {
        let lane = self.gateway(gateway).lane;
        let stays = lane.is_in_doubt && !self.world.has(Mistake::LaneRemovedInDoubt);
        self.trace.say(|| format!("{} stops in order, and is started anew", name(gateway)));
        if lane.version.is_some() && !stays {
            let batch = lane.over(lane.version, 0, self.world);
            let batch = Batch { lane_change: LaneChange::Remove, ..batch };
            if self.state.engine.holds(&batch) {
                self.state.engine.apply(&batch);
            }
        }
        self.state.stops -= 1;
        *self.gateway(gateway) = Gateway::new(self.state.new_lane());
    }

    fn fail_over(&mut self) {
        let Some(standby) = self.state.standby.take() else { return };
        self.trace.say(|| format!("the standby is promoted; its fence is {}", standby.fence_now()));
        self.state.engine.replaced_by(*standby);
        self.state.has_failed_over = true;
        // They were sent to the other server.
        self.state.late.clear();
        for gateway in &mut self.state.gateways {
            let number = |lane: &Lane| self.state.engine.lane(lane.id).map_or(0, |record| record.of);
            let lanes = [Some(gateway.lane), gateway.former];
            gateway.has_lost_commits = lanes.iter().flatten().any(|lane| number(lane) < lane.number);
            if let Some(task) = gateway.task_mut() {
                task.go_back(&self.state.engine);
            }
        }
    }

    /// Every gateway is stopped; then the history is accepted, in a generation above every one ever used.
    fn accept(&mut self) {
        let is_raised = !self.world.has(Mistake::HistoryAcceptedInOldGeneration);
        let base = is_raised.then_some(self.state.highest.0 + 1);
        self.trace.say(|| "all gateways are stopped, the history is accepted, and they are started".to_owned());
        self.state.engine.accept_history(base);
        for gateway in 0..2 {
            *self.gateway(gateway) = Gateway::new(self.state.new_lane());
        }
        self.state.highest = self.state.highest.max(self.state.engine.fence_now().height());
    }

    /// Whether a gateway refuses to use these records.
    pub(super) fn is_refused(&self, engine: &Engine) -> bool {
        engine.is_another_history && !self.world.lanes_alone && !self.world.has(Mistake::HistoryNotNamed)
    }

    /// Applies a batch whose comparison holds.
    pub(super) fn apply(&mut self, batch: &Batch) -> Result<Version, Broken> {
        check_commit(&self.state.engine, batch)?;
        let version = self.state.engine.apply(batch);
        if batch.request.is_some() && !self.world.lanes_alone {
            check_fence(&self.state.engine, self.state.highest)?;
        }
        self.state.highest = self.state.highest.max(self.state.engine.fence_now().height());
        for gateway in &mut self.state.gateways {
            if let Some(task) = gateway.task_mut() {
                task.widen(&self.state.engine);
            }
        }
        Ok(version)
    }

    pub(super) fn answer(&mut self, gateway: u8, task: &Task, answer: Answer) -> Kept {
        self.trace.say(|| format!("{} answers `{}`: {answer}", name(gateway), task.kind()));
        self.answer = Some(answer);
        let mut task = *task;
        task.widen(&self.state.engine);
        check_answer(&self.state.engine, self.state.highest, &task, answer)?;
        if says_not_applied(answer) {
            self.give_up_commits(task.request);
        }
        Ok(())
    }

    /// Checked reads at either gateway, which change nothing. Where loads are no proof a value may be old, but a refusal is final.
    pub(super) fn reads(&mut self) -> Kept {
        let sources = [Some(Source::Present), self.state.deposed.is_some().then_some(Source::Deposed)];
        for (source, gateway) in sources.into_iter().flatten().flat_map(|source| [(source, 0), (source, 1)]) {
            let loaded = self.state.source(source);
            let base = match self.world.has(Mistake::ReadUnderKnownBase) {
                true => self.state.gateways[usize::from(gateway)].known_base().unwrap_or(loaded.meta.of),
                false => loaded.meta.of,
            };
            let (fence, value) = (Fence::under(loaded.fence.map(|record| record.of), base), loaded.value_now());
            for token in READS {
                let answer = fence.admit(token).map(|_| value);
                let is_promised = match answer {
                    Err(Reason::Stale | Reason::RetiredGeneration) => true,
                    Err(Reason::UnknownGeneration)
                        if self.world.has(Mistake::UnprovedReadRefusesUnknownGenerations) =>
                    {
                        true
                    }
                    Ok(_) if self.world.has(Mistake::UnprovedReadTakenForProof) => true,
                    Ok(_) | Err(Reason::UnknownGeneration) => source == Source::Present,
                };
                if is_promised {
                    self.trace.reads(|| format!("{} reads with token {token} at {}", name(gateway), server(source)));
                    check_read(&self.state.engine, self.state.highest, token, answer)?;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn fate(is_applied: bool) -> &'static str {
    if is_applied { "applied" } else { "conflict" }
}

pub(super) fn server(source: Source) -> &'static str {
    match source {
        Source::Present => "the engine",
        Source::Deposed => "the old server",
    }
}
