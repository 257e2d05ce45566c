//! Makes batches of the queued commands.
//!
//! It runs on a dedicated thread, because commits of an embedded engine block. That engine gets one batch after another. A
//! shared engine is some milliseconds away, so several batches are under way there, each in a lane of its own. What they read
//! and write does not overlap, and commands about one key keep their order.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use foldhash::HashSet;
use futures_util::StreamExt;
use futures_util::future::{Either, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::batch_size::{BatchSize, Bounds};
use crate::command::Command;
use crate::lane::Lane;
use crate::pending::{Chosen, Pending};
use crate::poison::Poison;
use crate::sequencer::Sequencer;
use crate::waiting::Waiting;

/// How long a command waits for others to share its batch, while others are under way: half the time that batches take, within
/// these bounds.
const GATHERING: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(10);

/// Commands that wait for a batch: as many as in so many batches.
const PENDING_BATCHES: usize = 4;

/// Commands about one key may be this part of those that wait. So one key whose commit is slow leaves room for the others.
const KEY_SHARE: usize = 2;

pub(crate) struct Dispatcher {
    pub(crate) sequencer: Sequencer,
    pub(crate) bounds: Bounds,
    /// On a shared engine.
    pub(crate) lanes: Vec<Lane>,
    /// How many commands were taken from the queue and are in no batch yet.
    pub(crate) pending: Arc<AtomicUsize>,
}

impl Dispatcher {
    /// Starts the thread. It ends when every sender is gone and the queue is empty.
    pub(crate) fn start(
        self,
        poison: Poison,
        runtime: &Handle,
        queue: mpsc::Receiver<Command>,
    ) -> std::io::Result<JoinHandle<()>> {
        let runtime = runtime.clone();
        std::thread::Builder::new().name("fp-committer".into()).spawn(move || {
            let mut unexpected = PoisonUnlessDone { poison, done: false };
            runtime.block_on(self.run(queue));
            unexpected.done = true;
        })
    }

    async fn run(mut self, queue: mpsc::Receiver<Command>) {
        match self.lanes.len() {
            0 | 1 => {
                let lane = self.lanes.pop();
                self.one_by_one(lane, queue).await;
            }
            _ => self.side_by_side(queue).await,
        }
    }

    /// One batch after another.
    async fn one_by_one(self, mut lane: Option<Lane>, mut queue: mpsc::Receiver<Command>) {
        let mut drained = Vec::with_capacity(self.bounds.commands);
        while queue.recv_many(&mut drained, self.bounds.commands).await > 0 {
            let mut rest = drained.drain(..).peekable();
            while rest.peek().is_some() {
                let mut size = BatchSize::default();
                let mut commands: Vec<Command> = Vec::new();
                while let Some(command) = rest.next_if(|next| size.has_room_for(next, &self.bounds)) {
                    size.add(&command, &self.bounds);
                    commands.push(command);
                }
                self.sequencer.batch(lane.as_mut(), Waiting { commands }).await;
            }
        }
        if let Some(lane) = &lane {
            lane.leave(self.sequencer.engine.as_ref()).await;
        }
    }

    /// As many batches at once as there are lanes.
    async fn side_by_side(self, mut queue: mpsc::Receiver<Command>) {
        let Dispatcher { sequencer, bounds, lanes, pending: count } = self;
        let mut lanes = Lanes { idle: lanes, ..Lanes::default() };
        let most_pending = PENDING_BATCHES * bounds.commands;
        let mut pending = Pending::new(most_pending / KEY_SHARE);
        let mut under_way = FuturesUnordered::new();
        let mut drained = Vec::with_capacity(bounds.commands);
        let mut is_open = true;
        loop {
            // At the end a lane in doubt stays idle, for a batch that finds no other.
            while is_open && let Some(work) = lanes.settlement(&sequencer) {
                under_way.push(work);
            }
            let room = most_pending.saturating_sub(pending.len());
            pending.extend((0..room).map_while(|_| queue.try_recv().ok()));
            let mut later = None;
            while let Some(next) = lanes.next(&mut pending, &bounds) {
                match next {
                    Next::Batch(lane, commands, keys) => under_way.push(batch(&sequencer, lane, commands, keys)),
                    Next::Later(instant) => {
                        later = Some(instant);
                        break;
                    }
                }
            }
            count.store(pending.len(), Ordering::Relaxed);
            let room = most_pending.saturating_sub(pending.len());
            if !is_open && under_way.is_empty() && pending.len() == 0 {
                break;
            }
            let gathered = match later {
                Some(instant) => Either::Left(sleep_until(instant)),
                None => Either::Right(std::future::pending()),
            };
            tokio::select! {
                biased;
                Some(finished) = under_way.next(), if !under_way.is_empty() => lanes.finished(finished),
                taken = queue.recv_many(&mut drained, room), if is_open && room > 0 => {
                    is_open = taken > 0;
                    pending.extend(drained.drain(..));
                }
                () = gathered => {}
            }
        }
        for lane in &lanes.idle {
            lane.leave(sequencer.engine.as_ref()).await;
        }
    }
}

/// The lanes, and what is under way in them.
#[derive(Default)]
struct Lanes {
    idle: Vec<Lane>,
    /// How many batches are under way.
    batches: usize,
    /// How many lanes are busy finding out what became of an earlier commit.
    settling: usize,
    /// What the batches under way read and write.
    keys: HashSet<u64>,
    /// How many commands they have together.
    commands: usize,
    /// How long batches take, smoothed.
    pace: Duration,
}

/// What to do next with the commands that wait.
enum Next {
    Batch(Lane, Vec<Command>, Vec<u64>),
    /// More may come until then.
    Later(Instant),
}

/// A lane that is idle again.
struct Finished {
    lane: Lane,
    /// `None`: it found out what became of an earlier commit.
    batch: Option<Done>,
}

/// A batch that was answered.
struct Done {
    commands: usize,
    /// These are free again.
    keys: Vec<u64>,
    took: Duration,
}

impl Lanes {
    /// A batch, if there is a lane and it is time. `None`: nothing can be done now.
    fn next(&mut self, pending: &mut Pending, bounds: &Bounds) -> Option<Next> {
        let (at, oldest, is_alone) = (self.healthy()?, pending.oldest()?, self.batches == 0);
        // Many small batches cost the server more than a few large ones, so each has as many commands as are under way.
        let is_due = |commands, since| is_alone || commands >= self.commands || self.gathered(since) <= Instant::now();
        // It need not be asked which of so few can go.
        if !is_due(pending.len(), oldest) {
            return Some(Next::Later(self.gathered(oldest)));
        }
        let Chosen { places, keys, since } = pending.choose(&self.keys, is_alone, bounds)?;
        if !is_due(places.len(), since) {
            return Some(Next::Later(self.gathered(since)));
        }
        let commands = pending.take(&places);
        self.batches += 1;
        self.commands += commands.len();
        self.keys.extend(&keys);
        Some(Next::Batch(self.idle.swap_remove(at), commands, keys))
    }

    /// Until when a command waits for others that came at this time.
    fn gathered(&self, since: Instant) -> Instant {
        since + (self.pace / 2).clamp(*GATHERING.start(), *GATHERING.end())
    }

    /// A lane for a batch. One that is in doubt is taken only if there is no other: its batch has to wait.
    fn healthy(&self) -> Option<usize> {
        let healthy = self.idle.iter().position(|lane| !lane.is_in_doubt());
        healthy.or_else(|| (self.batches == 0 && self.settling == 0 && !self.idle.is_empty()).then_some(0))
    }

    /// Finds out what became of a lane's commit, while batches go on in others.
    fn settlement<'s>(&mut self, sequencer: &'s Sequencer) -> Option<LocalBoxFuture<'s, Finished>> {
        let has_healthy = self.batches > 0 || self.idle.iter().any(|lane| !lane.is_in_doubt());
        let at = self.idle.iter().position(Lane::is_in_doubt).filter(|_| has_healthy)?;
        let mut lane = self.idle.swap_remove(at);
        self.settling += 1;
        Some(Box::pin(async move {
            sequencer.settle(&mut lane).await;
            Finished { lane, batch: None }
        }))
    }

    fn finished(&mut self, Finished { lane, batch }: Finished) {
        self.idle.push(lane);
        let Some(Done { commands, keys, took }) = batch else {
            self.settling -= 1;
            return;
        };
        self.batches -= 1;
        self.commands -= commands;
        self.pace = (3 * self.pace + took) / 4;
        for key in keys {
            self.keys.remove(&key);
        }
    }
}

fn batch(
    sequencer: &Sequencer,
    mut lane: Lane,
    commands: Vec<Command>,
    keys: Vec<u64>,
) -> LocalBoxFuture<'_, Finished> {
    Box::pin(async move {
        let (begun, count) = (Instant::now(), commands.len());
        sequencer.batch(Some(&mut lane), Waiting { commands }).await;
        Finished { lane, batch: Some(Done { commands: count, keys, took: begun.elapsed() }) }
    })
}

/// Poisons writes if the thread panics. Otherwise the panic would look like an overload.
struct PoisonUnlessDone {
    poison: Poison,
    done: bool,
}

impl Drop for PoisonUnlessDone {
    fn drop(&mut self) {
        if !self.done {
            self.poison.set("the committer thread ended unexpectedly".into());
        }
    }
}
