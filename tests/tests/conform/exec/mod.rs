//! Adapters over JSON lines: the protocol, everything an adapter can do wrong, and the example that needs no server.

mod backups;
mod book;
mod broken;
mod clock;
mod examples;
mod hooks;
mod protocol;

use std::time::Duration;

use fencepost_conformance::adapters::exec::Options;
use fencepost_conformance::subject::{Broken, Request, Route, Subject};
use fencepost_conformance::{Answer, Op};

use crate::marked::Marked;

/// Short timeouts, for adapters that are not busy.
fn quick() -> Options {
    Options { timeout: Duration::from_millis(200), ..Options::default() }
}

fn call(subject: &dyn Subject, client: u32, op: &Op) -> Result<Answer, Broken> {
    subject.call(&Request { case: "X01", seed: 7, id: 41, client, route: Route::Direct, op })
}

fn read(subject: &dyn Subject, client: u32, res: &str) -> Result<Answer, Broken> {
    call(subject, client, &Op::read(res))
}

fn value(answer: Result<Answer, Broken>) -> String {
    let answer = answer.unwrap();
    answer.value().flatten().unwrap_or_else(|| panic!("no value: {answer:?}")).to_owned()
}
