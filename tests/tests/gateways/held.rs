//! Two gateways of one store: one reaches the server through a proxy that can hold up what passes, the other directly.

use std::thread;

use fencepost_conformance::proxy::{Direction, Proxy, Rule};
use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::http::{Answer, Client};

use crate::team::{Gateway, On, Place};

/// A gateway behind a proxy, and one that is not.
pub(crate) struct Held {
    pub(crate) through: Gateway,
    pub(crate) direct: Gateway,
    pub(crate) proxy: Proxy,
    /// Dropped last.
    _place: Place,
}

impl Held {
    /// Starts both. Everything passes until a direction is held.
    pub(crate) fn start(on: On, name: &str) -> Held {
        let place = Place::new(on, name);
        let proxy = Proxy::start(place.address());
        let (through, direct) = (Gateway::start(&place.engine_at(proxy.address())), Gateway::start(&place.engine()));
        Held { through, direct, proxy, _place: place }
    }

    /// Puts a value through the proxy, on a thread of its own.
    pub(crate) fn put(&self, key: &str, body: &str) -> thread::JoinHandle<Answer> {
        let (mut client, key, body) = (self.through.client(), key.to_owned(), body.to_owned());
        thread::spawn(move || client.put(&key, "1", &body))
    }

    /// Sends a request to the gateway behind the proxy, and waits until something is held in this direction.
    pub(crate) fn send(&self, direction: Direction, request: &[u8]) -> Client {
        let before = self.proxy.count(direction).bytes;
        self.proxy.set(direction, Rule::Hold);
        let mut client = self.through.client();
        client.send(request).unwrap();
        wait::until("something to hold", PATIENCE, || (self.proxy.count(direction).bytes > before).then_some(()));
        client
    }

    /// Does something at the other gateway while the commit of this request is on its way to the server.
    pub(crate) fn while_held(&self, request: &[u8], meanwhile: impl FnOnce(&mut Client)) -> Answer {
        self.while_on_its_way(Direction::Up, request, meanwhile)
    }

    /// The same in either direction: down, what was loaded for the commit is on its way back.
    pub(crate) fn while_on_its_way(
        &self,
        direction: Direction,
        request: &[u8],
        meanwhile: impl FnOnce(&mut Client),
    ) -> Answer {
        let mut late = self.send(direction, request);
        // The gateway stops for good measure: it hears nothing of what happens.
        self.through.pause();
        meanwhile(&mut self.direct.client());
        self.proxy.pass();
        self.through.resume();
        late.receive().unwrap()
    }
}

/// The status of an answer, and the kind of its problem.
pub(crate) fn told(answer: &Answer) -> (u16, String) {
    (answer.status, if answer.status >= 400 { answer.problem() } else { String::new() })
}
