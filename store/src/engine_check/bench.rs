//! The gateways that a case uses.

use std::sync::Arc;

use super::records::Records;
use crate::engine::Engine;

/// How many gateways use the records.
pub const GATEWAYS: usize = 3;

/// Engines over one place: one for each gateway. An engine with one owner is there several times.
pub type Gateways = [Arc<dyn Engine>; GATEWAYS];

/// Gateways over records of a case's own.
pub struct Bench {
    gateways: Gateways,
    prefix: String,
}

impl Bench {
    /// Names of records start with the prefix, which no other case has used.
    pub fn new(gateways: &Gateways, prefix: String) -> Bench {
        Bench { gateways: gateways.clone(), prefix }
    }

    /// A gateway, whatever the number.
    pub fn gateway(&self, number: usize) -> Records {
        let engine = &self.gateways[number % GATEWAYS];
        Records::new(engine.clone(), &self.prefix)
    }

    /// Two gateways.
    pub fn pair(&self) -> [Records; 2] {
        [self.gateway(0), self.gateway(1)]
    }
}
