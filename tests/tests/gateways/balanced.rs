//! Gateways of one store on a server of its own, behind a balancer, as the conformance suite sees them.

use std::path::Path;
use std::thread;

use fencepost_conformance::adapters::http::{HooksOfMap, HttpSubject, Overrides, open};
use fencepost_conformance::random::Random;
use fencepost_conformance::wait::{self, PATIENCE};

use crate::balancer::Balancer;
use crate::team::{Gateway, On, Place};

/// The gateways. They have numbers, from 0.
pub(crate) struct Balanced {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) balancer: Balancer,
    /// Dropped last.
    place: Place,
}

impl Balanced {
    /// Starts this many gateways of one store.
    pub(crate) fn start(on: On, count: usize, random: Random) -> Balanced {
        let place = Place::alone(on, "balanced");
        let engines: Vec<String> = (0..count).map(|at| place.engine_of(at)).collect();
        Balanced::over(place, &engines, random)
    }

    /// Starts two gateways of two stores behind one balancer, which is wrong: what one knows the other does not.
    pub(crate) fn torn(on: On, random: Random) -> Balanced {
        let place = Place::alone(on, "balanced");
        let engines = [place.engine_of(0), place.beside("another_store").engine_of(1)];
        Balanced::over(place, &engines, random)
    }

    fn over(place: Place, engines: &[String], random: Random) -> Balanced {
        let gateways: Vec<Gateway> = engines.iter().map(|engine| Gateway::with(engine, &["--log", "warn"])).collect();
        let addresses: Vec<&str> = gateways.iter().map(|gateway| gateway.address()).collect();
        let balancer = Balancer::start(&addresses, random);
        Balanced { balancer, gateways, place }
    }

    /// The resource that they are together, by the example map of our gateway. The suite runs no hooks.
    pub(crate) fn open(&self) -> HttpSubject {
        let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/conformance/gateway/fencepost.toml");
        // As many instances as there are gateways, all at the same address: a request to each may reach any of them.
        let base = vec![self.balancer.url(); self.gateways.len()];
        // A long timeout, because every one of very many requests must be answered.
        open(&map, &Overrides { base, timeout: Some(PATIENCE), hooks: HooksOfMap::Ignore }).unwrap()
    }

    /// Sends SIGKILL to these gateways.
    pub(crate) fn kill(&mut self, victims: &[usize]) {
        // Somebody else may listen there soon.
        victims.iter().for_each(|at| self.balancer.limit(*at, 0));
        for at in victims {
            if self.gateways[*at].is_running() {
                self.gateways[*at].kill();
            }
        }
    }

    /// Waits until the server has done what killed gateways had sent, and their clients know that they are gone. Nothing
    /// else is under way. From then on no request that they had in hand takes effect.
    pub(crate) fn wait_for_dead(&self, victims: &[usize]) {
        self.place.wait_for_dead(victims);
        let in_hand = || victims.iter().map(|at| self.balancer.in_hand(*at)).sum::<usize>();
        wait::until("requests of dead gateways to end", PATIENCE, || (in_hand() == 0).then_some(()));
    }

    /// Starts those that do not run, and waits until all of them serve.
    pub(crate) fn restart(&mut self) {
        thread::scope(|scope| {
            for gateway in self.gateways.iter_mut().filter(|gateway| !gateway.is_running()) {
                scope.spawn(|| {
                    gateway.restart();
                    gateway.wait_until_ready();
                });
            }
        });
        for (at, gateway) in self.gateways.iter().enumerate() {
            self.balancer.moved(at, gateway.address());
            self.balancer.limit(at, usize::MAX);
        }
    }

    /// Stops those that run, as an operator does.
    pub(crate) fn stop(&mut self) {
        thread::scope(|scope| {
            for gateway in self.gateways.iter_mut().filter(|gateway| gateway.is_running()) {
                scope.spawn(|| gateway.stop());
            }
        });
    }
}
