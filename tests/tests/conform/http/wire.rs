//! Requests sent in parts, through the proxy, and by the other ways to write that a map names.

use std::time::Duration;

use fencepost_conformance::adapters::http::HttpSubject;
use fencepost_conformance::proxy::{Direction, Rule};
use fencepost_conformance::subject::{Around, Hook, Part, Request, Route, Subject};
use fencepost_conformance::wait;
use fencepost_conformance::{Answer, Op};

use crate::http::scripted::{Scripted, answer};
use crate::http::{MapFile, call, request, why};

const MAP: &str = r#"
map = 1

[resource]
base    = "BASE/api"
timeout = "60s"

[write]
method  = "PUT"
path    = "/kv/{res}"
headers = { Token = "{token}" }
body    = "{value}"
ok      = [204]
stale   = [409]

[read]
method = "GET"
path   = "/kv/{res}"
ok     = [204]
value  = "body"

[[mutation]]
name    = "copy"
method  = "POST"
path    = "/copy?from={res}-source&to={res}"
headers = { Token = "{token}" }
ok      = [204]
stale   = [409]

[mutation.before]
method  = "PUT"
path    = "/kv/{res}-source"
headers = { Token = "{token}" }
body    = "{value}"
"#;

fn subject(service: &Scripted) -> HttpSubject {
    MapFile::new(&MAP.replace("BASE", &service.base())).open().unwrap()
}

fn proxied(op: &Op) -> Request<'_> {
    Request { route: Route::Proxied, ..request(op) }
}

#[test]
fn a_request_waits_in_the_middle_until_it_is_finished() {
    let service = Scripted::start([("stale", answer(409, "", ""))]);
    let subject = subject(&service);
    for part in [Part::Head, Part::HalfBody] {
        let before = service.seen().len();
        let op = Op::write("stale", 5, "h", "0123456789");
        let begun = subject.begin(&request(&op), part).unwrap().unwrap();
        assert_eq!(call(&subject, &Op::write("other", 6, "h", "v")), Answer::ok());
        assert_eq!(service.seen().len(), before + 1, "the service waits for the rest");
        assert_eq!(begun.finish().unwrap(), Answer::Stale { high: None });
        assert!(service.last().ends_with("\r\n\r\n0123456789"), "{}", service.last());
    }
    // For a request without a body, the end of the head is withheld.
    let before = service.seen().len();
    let op = Op::read("r");
    let begun = subject.begin(&request(&op), Part::HalfBody).unwrap().unwrap();
    assert_eq!(call(&subject, &Op::write("other", 6, "h", "v")), Answer::ok());
    assert_eq!(service.seen().len(), before + 1);
    assert_eq!(begun.finish().unwrap(), Answer::Ok { value: Some(Some(String::new())), high: None });
}

#[test]
fn a_request_that_is_abandoned_is_reset() {
    let service = Scripted::start([]);
    let subject = subject(&service);
    let op = Op::write("r", 5, "h", "0123456789");
    subject.begin(&request(&op), Part::HalfBody).unwrap().unwrap().abandon();
    // This connection, and the first one, which carried the readiness probe.
    wait::until("the service to see the end", wait::PATIENCE, || (service.ended() == 2).then_some(()));
    assert_eq!(service.seen(), Vec::<String>::new(), "half a request is none");
}

#[test]
fn the_proxy_stands_in_front_and_a_timeout_is_unknown() {
    let service = Scripted::start([]);
    let subject = subject(&service);
    let proxy = subject.proxy().unwrap();
    let op = Op::write("r", 5, "h", "v");
    assert_eq!(subject.call(&proxied(&op)).unwrap(), Answer::ok());
    assert!(proxy.count(Direction::Up).bytes > 0);
    let through = proxy.count(Direction::Up).chunks;
    assert_eq!(call(&subject, &op), Answer::ok());
    assert_eq!(proxy.count(Direction::Up).chunks, through, "direct calls do not pass it");
    assert_eq!(service.seen().len(), 2);
    // Both answers are lost, so a short timeout suffices.
    let hasty = MapFile::new(&MAP.replace("BASE", &service.base()).replace("60s", "500ms")).open().unwrap();
    let proxy = hasty.proxy().unwrap();
    let arrives = |count| wait::until("it", Duration::from_secs(60), || (service.seen().len() == count).then_some(()));
    proxy.set(Direction::Down, Rule::Drop);
    assert_eq!(why(hasty.call(&proxied(&op)).unwrap()), "no answer in time");
    // The request took effect nevertheless.
    arrives(3);
    proxy.pass();
    // A held request arrives later, although the caller has given it up.
    proxy.set(Direction::Up, Rule::Hold);
    assert_eq!(why(hasty.call(&proxied(&op)).unwrap()), "no answer in time");
    assert_eq!(service.seen().len(), 3);
    proxy.pass();
    arrives(4);
}

#[test]
fn a_duplicates_answer_is_never_taken_for_the_next() {
    let service = Scripted::start([("stale", answer(409, "", ""))]);
    let subject = subject(&service);
    let proxy = subject.proxy().unwrap();
    for round in 1..=20 {
        proxy.set(Direction::Up, Rule::Duplicate);
        let first = subject.call(&proxied(&Op::write("stale", 5, "h", "v"))).unwrap();
        assert_eq!(first, Answer::Stale { high: None });
        proxy.pass();
        assert_eq!(subject.call(&proxied(&Op::write("r", 6, "h", "v"))).unwrap(), Answer::ok());
        wait::until("both copies", Duration::from_secs(10), || (service.seen().len() == 3 * round).then_some(()));
    }
}

#[test]
fn other_ways_are_sent_as_they_are_named() {
    let service = Scripted::start([]);
    let subject = subject(&service);
    let op = Op::write("r1", 5, "h", "v");
    let ways = subject.bypasses();
    let mut said = Vec::new();
    for (way, name) in ways.iter().map(Around::name).enumerate() {
        assert_eq!(subject.bypass(way, &request(&op)).unwrap(), Answer::ok(), "{name}");
        let sent = service.last();
        assert!(sent.contains("\r\nToken: 5\r\n"), "{name} carries the token: {sent}");
        said.push(sent.split(" HTTP/1.1").next().unwrap().replace(&service.base(), "BASE"));
    }
    assert_eq!(
        said,
        [
            "PUT /api/kv//r1",
            "PUT //api/kv/r1",
            "PUT /api/k%76/r1",
            "PUT /api/kv/r%31",
            "PUT /API/KV/r1",
            "PUT /api/kv/r1/",
            "PUT /api/kv/./r1",
            "PUT /api/kv/r1;a=b",
            "PUT BASE/api/kv/r1",
            "POST /api/kv/r1",
            "POST /api/kv/r1",
            "POST /api/kv/r1",
            "POST /api/kv/r1?_method=PUT",
            "POST /api/copy?from=r1-source&to=r1",
        ]
    );
    let seen = service.seen();
    assert!(seen[seen.len() - 2].starts_with("PUT /api/kv/r1-source HTTP/1.1\r\n"), "the request before it");
    assert!(seen[9].contains("\r\nX-HTTP-Method-Override: PUT\r\n"), "{}", seen[9]);
    let read = Op::read("r1");
    assert_eq!(subject.bypass(ways.len() - 1, &request(&read)).unwrap(), Answer::Unsupported);
    assert!(subject.bypass(ways.len(), &request(&op)).is_err());
}

#[test]
fn clients_are_spread_over_the_instances() {
    let services = [Scripted::start([]), Scripted::start([])];
    let bases: Vec<_> = services.iter().map(|service| format!("{:?}", service.base())).collect();
    let subject = MapFile::new(&MAP.replace("\"BASE/api\"", &format!("[{}]", bases.join(", ")))).open().unwrap();
    assert_eq!(subject.instances(), 2);
    let op = Op::write("r", 5, "h", "v");
    for client in 0..5 {
        assert_eq!(subject.call(&Request { client, ..request(&op) }).unwrap(), Answer::ok());
    }
    assert_eq!(services.map(|service| service.seen().len()), [3, 2]);
    for hook in Hook::ALL {
        assert_eq!(subject.has(hook), hook == Hook::Ready, "{}: nothing can be done to it from outside", hook.name());
    }
}
