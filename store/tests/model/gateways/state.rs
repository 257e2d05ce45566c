//! Everything at one moment: the engine, both gateways, and commits on their way.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::engine::{Batch, Engine};
use super::event::{Event, Source};
use super::gateway::{Gateway, Work};
use super::mistake::Mistake;
use super::names::{Named, Names};
use super::promise::Height;
use super::request::{Kind, REQUESTS};
use super::world::World;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) engine: Engine,
    pub(super) gateways: [Gateway; 2],
    /// Commits that were not answered, and may still be applied.
    pub(super) late: Vec<Batch>,
    /// The requests that were sent; a bit for each.
    pub(super) sent: u16,
    pub(super) losses: u8,
    pub(super) kills: u8,
    pub(super) stops: u8,
    /// The records of a server that was replaced, and still answers loads.
    pub(super) deposed: Option<Box<Engine>>,
    /// The records of a standby that lags.
    pub(super) standby: Option<Box<Engine>>,
    pub(super) has_failed_over: bool,
    pub(super) highest: Height,
    pub(super) lanes: u8,
}

impl State {
    pub(super) fn new(world: &World) -> State {
        let engine = Engine::new();
        State {
            highest: engine.fence_now().height(),
            engine,
            gateways: [Gateway::new(0), Gateway::new(1)],
            late: Vec::new(),
            sent: 0,
            losses: world.losses,
            kills: world.kills,
            stops: world.stops,
            deposed: None,
            standby: None,
            has_failed_over: false,
            lanes: 2,
        }
    }

    pub(super) fn source(&self, source: Source) -> &Engine {
        match (source, &self.deposed) {
            (Source::Deposed, Some(deposed)) => deposed,
            _ => &self.engine,
        }
    }

    /// A lane that was not used before.
    pub(super) fn new_lane(&mut self) -> u8 {
        self.lanes += 1;
        self.lanes - 1
    }

    /// What can happen next.
    pub(super) fn events(&self, world: &World, events: &mut Vec<Event>) {
        let deposed = self.deposed.is_some().then_some(Source::Deposed);
        let sources = || [Source::Present].into_iter().chain(deposed);
        for gateway in 0..2u8 {
            let state = &self.gateways[usize::from(gateway)];
            for request in self.requests(world) {
                let kind = REQUESTS[usize::from(request)].kind;
                let is_refused = state.refuses_at_once(kind, world).is_some() && state.work != Work::Poisoned;
                if state.work == Work::Idle || is_refused {
                    events.push(Event::Begin { gateway, request });
                }
            }
            match &state.work {
                Work::Idle | Work::Poisoned => {}
                Work::Load(_) => events.extend(sources().map(|from| Event::Load { gateway, from })),
                Work::Look(_) => events.extend(sources().map(|from| Event::Look { gateway, from })),
                Work::Commit(..) | Work::Bump(..) | Work::Prove(..) => {
                    events.extend(sources().map(|from| Event::Commit { gateway, from }));
                    if self.losses > 0 {
                        events.push(Event::Lose { gateway });
                    }
                }
            }
            if let Work::Look(_) | Work::Bump(..) = state.work {
                events.push(Event::GiveUp { gateway });
            }
            if self.kills > 0 && state.work != Work::Poisoned {
                events.push(Event::Kill { gateway, is_sent: false });
                if let Work::Commit(..) | Work::Bump(..) = state.work {
                    events.push(Event::Kill { gateway, is_sent: true });
                }
            }
            if self.stops > 0 && state.work == Work::Idle {
                events.push(Event::Stop { gateway });
            }
        }
        events.extend((0..self.late.len() as u8).map(|at| Event::Deliver { at }));
        if world.is_deposed && self.deposed.is_none() {
            events.push(Event::Depose);
        }
        if world.fails_over {
            events.extend(match (&self.standby, self.has_failed_over, self.engine.is_another_history) {
                (None, false, _) => Some(Event::Lag),
                (Some(_), _, _) => Some(Event::FailOver),
                (None, true, true) => Some(Event::Accept),
                (None, true, false) => None,
            });
        }
    }

    /// The requests that can be sent.
    fn requests(&self, world: &World) -> impl Iterator<Item = u8> {
        let (sent, is_full) = (self.sent, self.sent.count_ones() >= world.requests);
        let can_be_sent = move |(at, after): (usize, Option<u8>)| {
            let is_next = sent & (1 << at) == 0 && after.is_none_or(|after| sent & (1 << after) != 0);
            (is_next && !is_full).then_some(at as u8)
        };
        REQUESTS.iter().map(|request| request.after).enumerate().filter_map(can_be_sent)
    }

    /// Whether a request is under way, and nothing happens to it any more.
    pub(super) fn is_stuck(&self, events: &[Event]) -> bool {
        let is_working = |gateway: &Gateway| !matches!(gateway.work, Work::Idle | Work::Poisoned);
        self.gateways.iter().any(is_working) && events.is_empty()
    }

    /// Removes late commits that cannot be applied any more.
    pub(super) fn drop_what_is_too_late(&mut self, world: &World) {
        let (engine, gateways) = (&self.engine, &self.gateways);
        let is_removable =
            |lane: u8| world.has(Mistake::LaneRemovedInDoubt) && gateways.iter().any(|gateway| gateway.lane.id == lane);
        self.late.retain(|batch| !engine.is_too_late(batch, is_removable(batch.lane)));
    }

    /// States that differ only in the names of versions, lanes and gateways have the same fingerprint.
    pub(super) fn fingerprint(&self) -> u128 {
        let mut swapped = self.clone();
        swapped.gateways.swap(0, 1);
        self.clone().named_fingerprint().min(swapped.named_fingerprint())
    }

    fn named_fingerprint(mut self) -> u128 {
        let mut names = Names::new();
        for gateway in &mut self.gateways {
            gateway.name(&mut names);
        }
        for batch in &mut self.late {
            batch.name(&mut names);
        }
        self.engine.name(&mut names);
        for other in [&mut self.deposed, &mut self.standby].into_iter().flatten() {
            other.name(&mut names);
        }
        self.lanes = 0;
        let half = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            self.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }

    pub(super) fn kind(request: u8) -> Kind {
        REQUESTS[usize::from(request)].kind
    }
}
