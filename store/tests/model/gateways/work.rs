//! The steps of a gateway with the request that is under way: load, judge, commit, and settle what was not answered.

use super::engine::{Batch, LaneChange, Version};
use super::event::{Kept, Source, Step, fate, name, server};
use super::gateway::{Draft, Gateway, Judged, Lane, Seen, Task, Work};
use super::mistake::Mistake;
use super::promise::Broken;
use super::request::Answer;
use super::settlement::{Doubt, Looked, Meaning, check};
use super::state::State;

impl Step<'_> {
    pub(super) fn begin(&mut self, gateway: u8, request: u8) -> Kept {
        let (kind, world) = (State::kind(request), self.world);
        self.trace.say(|| format!("{} gets: {kind}", name(gateway)));
        self.state.sent |= 1 << request;
        let task = Task::new(request, &self.state.engine);
        if let Some(reason) = self.gateway(gateway).refuses_at_once(kind, world) {
            self.trace.say(|| format!("{} looks into its fence cache", name(gateway)));
            return self.answer(gateway, &task, Answer::Refused(reason));
        }
        match self.gateway(gateway).seen_before(kind) {
            Some(seen) => {
                self.trace.say(|| format!("{} judges it on records that it knows", name(gateway)));
                self.judge(gateway, task, &seen)
            }
            None => {
                self.gateway(gateway).work = Work::Load(task);
                Ok(())
            }
        }
    }

    pub(super) fn load(&mut self, gateway: u8, from: Source) -> Kept {
        let Work::Load(task) = self.work(gateway) else { return Ok(()) };
        let engine = self.state.source(from).clone();
        if self.is_refused(&engine) {
            return self.answer(gateway, &task, Answer::Rejected);
        }
        self.trace
            .say(|| format!("{} loads from {}: the fence is {}", name(gateway), server(from), engine.fence_now()));
        let world = self.world;
        let seen = self.gateway(gateway).load(&engine, task.kind(), world);
        self.judge(gateway, task, &seen)
    }

    fn judge(&mut self, gateway: u8, task: Task, seen: &Seen) -> Kept {
        let world = self.world;
        match self.gateway(gateway).judge(task.request, seen, world) {
            Judged::Answer(draft) => {
                self.gateway(gateway).cache = draft.fence.or(self.gateway(gateway).cache);
                self.answer(gateway, &task, draft.answer)
            }
            Judged::Commit(batch, draft) => {
                self.gateway(gateway).work = Work::Commit(task, batch, draft);
                Ok(())
            }
            Judged::Load => {
                self.gateway(gateway).work = Work::Load(task);
                Ok(())
            }
        }
    }

    pub(super) fn commit(&mut self, gateway: u8, from: Source) -> Kept {
        let is_refused = self.is_refused(&self.state.engine);
        match self.work(gateway) {
            Work::Commit(task, ..) | Work::Prove(task, _) if is_refused => {
                self.answer(gateway, &task, Answer::Rejected)
            }
            Work::Bump(doubt, ..) if is_refused => {
                self.gateway(gateway).work = Work::Look(doubt);
                Ok(())
            }
            Work::Commit(task, batch, draft) => {
                if self.misses_its_former_lane(gateway) {
                    return self.poison(gateway, &task, Answer::Rejected);
                }
                let is_applied = self.state.engine.holds(&batch);
                self.trace.say(|| format!("{} commits: {}", name(gateway), fate(is_applied)));
                match is_applied {
                    true => {
                        let version = self.apply(&batch)?;
                        let lane = &mut self.gateway(gateway).lane;
                        (lane.number, lane.version) = (lane.number + 1, Some(version));
                        self.gateway(gateway).former = None;
                        self.done(gateway, &task, &batch, &draft, version)
                    }
                    false => self.conflict(gateway, task, from),
                }
            }
            Work::Bump(doubt, batch, meaning) => {
                let is_applied = self.state.engine.holds(&batch);
                self.trace.say(|| format!("{} commits its lane alone: {}", name(gateway), fate(is_applied)));
                match is_applied {
                    true => {
                        let version = self.apply(&batch)?;
                        let lane = &mut self.gateway(gateway).lane;
                        let LaneChange::Put(number) = batch.lane_change else { return Ok(()) };
                        (lane.number, lane.version) = (number, Some(version));
                        self.settled(gateway, doubt, meaning)
                    }
                    false => {
                        self.gateway(gateway).work = Work::Look(doubt);
                        Ok(())
                    }
                }
            }
            Work::Prove(task, batch) => match self.state.engine.holds(&batch) {
                true => {
                    self.apply(&batch)?;
                    self.poison(gateway, &task, Answer::Rejected)
                }
                false => self.judge_again(gateway, task),
            },
            other @ (Work::Idle | Work::Poisoned | Work::Load(_) | Work::Look(_)) => {
                self.gateway(gateway).work = other;
                Ok(())
            }
        }
    }

    /// A commit was answered as done, or was found to be.
    fn done(&mut self, gateway: u8, task: &Task, batch: &Batch, draft: &Draft, version: Version) -> Kept {
        if self.gateway(gateway).has_lost_commits {
            return Err(Broken::WentOnWithoutItsCommits);
        }
        let world = self.world;
        self.gateway(gateway).note(version, &batch.changes, draft, world);
        self.answer(gateway, task, draft.answer)
    }

    fn conflict(&mut self, gateway: u8, task: Task, from: Source) -> Kept {
        if self.world.has(Mistake::LaneTakenAsFound) {
            let lane = &mut self.state.gateways[usize::from(gateway)].lane;
            let found = self.state.engine.lane(lane.id);
            (lane.number, lane.version) = (found.map_or(0, |record| record.of), found.map(|record| record.version));
            return self.judge_again(gateway, task);
        }
        let work = check(task, &self.state.gateways[usize::from(gateway)].lane, self.state.source(from), self.world);
        match work {
            Some(Work::Poisoned) => {
                self.trace.say(|| format!("{} misses its lane at {}", name(gateway), server(from)));
                self.poison(gateway, &task, Answer::Rejected)
            }
            Some(work) => {
                self.gateway(gateway).work = work;
                Ok(())
            }
            None => self.judge_again(gateway, task),
        }
    }

    fn judge_again(&mut self, gateway: u8, task: Task) -> Kept {
        let gateway = self.gateway(gateway);
        gateway.known.forget(task.kind());
        gateway.work = Work::Load(task);
        Ok(())
    }

    pub(super) fn lose(&mut self, gateway: u8) {
        let work = self.work(gateway);
        let (next, batch) = match work {
            Work::Commit(task, batch, draft) => (Work::Look(Doubt::new(task, batch.clone(), draft)), batch),
            Work::Bump(doubt, batch, _) => (Work::Look(doubt), batch),
            Work::Prove(task, batch) => (Work::Load(task), batch),
            other => {
                self.gateway(gateway).work = other;
                return;
            }
        };
        self.trace.say(|| format!("{} commits, and gets no answer", name(gateway)));
        self.state.losses -= 1;
        self.gateway(gateway).lane.is_in_doubt |= batch.compare.lane == Some(None);
        self.gateway(gateway).work = next;
        // The engine compares the history and the former lane, too.
        if !self.is_refused(&self.state.engine) && !self.misses_its_former_lane(gateway) {
            self.state.late.push(batch);
        }
    }

    pub(super) fn look(&mut self, gateway: u8, from: Source) -> Kept {
        let Work::Look(mut doubt) = self.work(gateway) else { return Ok(()) };
        let engine = self.state.source(from).clone();
        if self.is_refused(&engine) {
            self.gateway(gateway).work = Work::Look(doubt);
            return Ok(());
        }
        let lane = self.gateway(gateway).lane;
        let looked = doubt.look(&lane, &engine, self.world);
        let number = engine.lane(lane.id).map_or(0, |record| record.of);
        self.trace.say(|| format!("{} looks at its lane at {}: number {number}", name(gateway), server(from)));
        match looked {
            Looked::Settled(meaning, found) => {
                let lane = &mut self.gateway(gateway).lane;
                (lane.number, lane.version) = (found.map_or(0, |record| record.of), found.map(|record| record.version));
                self.settled(gateway, doubt, meaning)
            }
            Looked::Bump(batch, meaning) => {
                self.gateway(gateway).work = Work::Bump(doubt, batch, meaning);
                Ok(())
            }
            Looked::Patience => {
                self.gateway(gateway).work = Work::Look(doubt);
                Ok(())
            }
        }
    }

    fn settled(&mut self, gateway: u8, doubt: Doubt, meaning: Meaning) -> Kept {
        let Doubt { task, batch, draft, .. } = doubt;
        match meaning {
            Meaning::Applied(version) => {
                self.trace.say(|| format!("{} concludes that the commit was applied", name(gateway)));
                self.done(gateway, &task, &batch, &draft, version)
            }
            Meaning::Not => {
                self.trace.say(|| format!("{} concludes that the commit was not, and never will be", name(gateway)));
                self.give_up_commits(task.request);
                self.judge_again(gateway, task)
            }
            Meaning::HistoryLost => self.poison(gateway, &task, Answer::Unknown),
        }
    }

    pub(super) fn give_up(&mut self, gateway: u8) -> Kept {
        let (Work::Look(doubt) | Work::Bump(doubt, ..)) = self.work(gateway) else { return Ok(()) };
        self.trace.say(|| format!("{} cannot find out in time", name(gateway)));
        if !self.world.has(Mistake::LaneUsedAgain) {
            let lane = Gateway::new(self.state.new_lane()).lane;
            let gateway = self.gateway(gateway);
            let given_up = std::mem::replace(&mut gateway.lane, lane);
            gateway.former = gateway.former.or(Some(given_up).filter(|lane| lane.version.is_some()));
        }
        self.gateway(gateway).known.forget(doubt.task.kind());
        let answer = match self.world.has(Mistake::UnknownReportedAsNotApplied) {
            true => Answer::Rejected,
            false => Answer::Unknown,
        };
        self.answer(gateway, &doubt.task, answer)
    }

    /// Stops a gateway's writes.
    fn poison(&mut self, gateway: u8, task: &Task, answer: Answer) -> Kept {
        self.trace.say(|| format!("{} says that the database has lost commits, and stops", name(gateway)));
        if !self.gateway(gateway).has_lost_commits {
            return Err(Broken::StoppedForNothing);
        }
        self.answer(gateway, task, answer)?;
        self.gateway(gateway).work = Work::Poisoned;
        Ok(())
    }

    /// The first commit of a new lane compares the former one as it was found, which must have what was confirmed.
    fn misses_its_former_lane(&self, gateway: u8) -> bool {
        let former = self.state.gateways[usize::from(gateway)].former;
        let found = |lane: &Lane| self.state.engine.lane(lane.id).map_or(0, |record| record.of);
        former.is_some_and(|lane| found(&lane) < lane.number) && !self.world.has(Mistake::FormerLaneForgotten)
    }
}
