//! What can happen in one exploration, and which mistakes the gateways make.

use super::mistake::Mistake;

#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) name: &'static str,
    /// How many requests are sent.
    pub(super) requests: u32,
    /// How many commits are not answered.
    pub(super) losses: u8,
    /// How many gateways are killed, and started anew.
    pub(super) kills: u8,
    /// How many gateways are stopped in order, and started anew.
    pub(super) stops: u8,
    /// Whether a load proves what is committed.
    pub(super) load_is_proof: bool,
    /// A server is replaced, and goes on answering loads.
    pub(super) is_deposed: bool,
    /// A standby that lags is promoted.
    pub(super) fails_over: bool,
    /// Histories have no names, so other gateways do not notice that one was replaced, and fences may fall.
    pub(super) lanes_alone: bool,
    pub(super) mistakes: &'static [Mistake],
}

impl World {
    /// An engine whose loads prove what is committed (etcd).
    pub(super) const PROVED: World = World {
        name: "loads are proof",
        requests: 3,
        losses: 2,
        kills: 0,
        stops: 0,
        load_is_proof: true,
        is_deposed: false,
        fails_over: false,
        lanes_alone: false,
        mistakes: &[],
    };

    /// One gateway is killed.
    pub(super) const KILLS: World = World { name: "a gateway is killed", losses: 1, kills: 1, ..World::PROVED };

    /// One gateway is stopped in order.
    pub(super) const STOPS: World = World { name: "a gateway is stopped", losses: 1, stops: 1, ..World::PROVED };

    /// An engine whose loads may be answered by a server that was replaced (PostgreSQL).
    pub(super) const UNPROVED: World = World {
        name: "a server that was replaced answers loads",
        losses: 1,
        load_is_proof: false,
        is_deposed: true,
        ..World::PROVED
    };

    /// Everything that can happen to gateways and commits, with fewer requests.
    pub(super) const EVERY_FAULT: World =
        World { name: "every fault", requests: 2, losses: 2, kills: 1, stops: 1, ..World::PROVED };

    /// The same where loads are no proof.
    pub(super) const EVERY_FAULT_UNPROVED: World = World {
        name: "every fault, and loads are no proof",
        requests: 1,
        losses: 2,
        kills: 1,
        stops: 1,
        ..World::UNPROVED
    };

    /// A standby that lacks commits is promoted, and accepted by an operator.
    pub(super) const FAILOVER: World = World {
        name: "a standby that lags is promoted",
        losses: 1,
        fails_over: true,
        load_is_proof: false,
        ..World::PROVED
    };

    /// The same, but only lanes notice it.
    pub(super) const LANES_ALONE: World = World {
        name: "a standby that lags is promoted, and only lanes notice it",
        lanes_alone: true,
        ..World::FAILOVER
    };

    pub(super) fn has(&self, mistake: Mistake) -> bool {
        self.mistakes.contains(&mistake)
    }
}
