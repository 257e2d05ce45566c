//! The meaning of statuses, bodies and broken connections.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use fencepost_conformance::adapters::http::{HttpSubject, Overrides, open};
use fencepost_conformance::run::{Options, run};
use fencepost_conformance::subject::Subject;
use fencepost_conformance::verdict::{Outcome, Status};
use fencepost_conformance::wait;
use fencepost_conformance::{Answer, Op, Token, Write, words};

use crate::http::scripted::{Act, Scripted, answer};
use crate::http::{MapFile, call, why};

const MAP: &str = r#"
map = 1

[resource]
base    = "BASE"
timeout = "60s"

[write]
method  = "PUT"
path    = "/w/{res}"
headers = { Token = "{token}", Holder = "{holder}" }
body    = "{value}"
ok      = [200, 204]
stale   = [409, { status = 400, at = "json:/type", is = "stale" }]
error   = ["4xx", 503]
high    = "header:Fence"
code    = "json:/type"

[read]
method = "GET"
path   = "/r/{res}"
ok     = [200]
absent = [404]
value  = "json:/item/value"
high   = ["json:/fence/token", "header:Fence"]

[cas]
method   = "POST"
path     = "/c/{res}"
json     = '{"token": "{token}", "expect": "{expect}", "value": "{value}"}'
ok       = [204]
stale    = [409]
mismatch = [412]
current  = "json:/current"

[batch]
method = "POST"
path   = "/b/all"
headers = { Content-Type = "application/x-ndjson" }
each   = '{{"k": "{res:json}", "t": "{token:json}", "v": "{value:json}"}}'
ok     = [204]
stale  = [409]

[delete]
method = "DELETE"
path   = "/d/{res}?token={token}&by={client}"
ok     = [204]
stale  = [409]
"#;

fn subject(service: &Scripted) -> HttpSubject {
    MapFile::new(&MAP.replace("BASE", &service.base())).open().unwrap()
}

fn write(name: &str) -> Op {
    Op::write(name, 42, "h1", "v-1")
}

#[test]
fn a_request_is_what_the_map_says_and_tells_where_it_comes_from() {
    let service = Scripted::start([]);
    let subject = subject(&service);
    assert_eq!(call(&subject, &Op::write("a/b c", 42, "h1", "v-1")), Answer::ok());
    let version = env!("CARGO_PKG_VERSION");
    let host = service.base().replace("http://", "");
    assert_eq!(
        service.last(),
        format!(
            "PUT /w/a%2Fb%20c HTTP/1.1\r\nHost: {host}\r\nUser-Agent: fencepost-conformance/{version}\r\n\
             X-Conformance: case=A01; seed=7; op=3; client=0\r\nHolder: h1\r\nToken: 42\r\nContent-Length: 3\r\n\r\nv-1"
        )
    );
    assert_eq!(call(&subject, &Op::delete("r", 5, "h")), Answer::ok());
    assert!(service.last().starts_with("DELETE /d/r?token=5&by=0 HTTP/1.1\r\n"), "{}", service.last());
    assert!(!service.last().contains("Content-Length"));
    let writes = vec![Write::new("a", 1, "h", "x\"y"), Write::new("b", 2, "h", "z")];
    assert_eq!(call(&subject, &Op::Batch { writes }), Answer::ok());
    assert!(
        service.last().ends_with(
            "\r\n\r\n{\"k\": \"a\", \"t\": \"1\", \"v\": \"x\\\"y\"}\n{\"k\": \"b\", \"t\": \"2\", \"v\": \"z\"}"
        ),
        "{}",
        service.last()
    );
    assert_eq!(call(&subject, &Op::claim("r", 1, "h")), Answer::Unsupported, "the map has no claim");
}

#[test]
fn an_absent_token_is_left_out_and_two_are_sent() {
    let service = Scripted::start([]);
    let subject = subject(&service);
    let send = |op: Op| {
        assert_eq!(call(&subject, &op), Answer::ok());
        service.last()
    };
    assert!(!send(Op::write("r", Token::Absent, "h", "v")).contains("Token:"));
    let both = Token::Both("5".into(), "9".into());
    assert!(send(Op::write("r", both.clone(), "h", "v")).contains("\r\nToken: 5\r\nToken: 9\r\n"));
    assert!(send(Op::delete("r", Token::Absent, "h")).starts_with("DELETE /d/r?by=0 "));
    assert!(send(Op::delete("r", both.clone(), "h")).starts_with("DELETE /d/r?token=5&token=9&by=0 "));
    assert!(
        send(Op::cas("r", both, "h", None, "v")).ends_with(r#"{"token":"5","token":"9","expect":null,"value":"v"}"#)
    );
    assert!(send(Op::write("r", Token::text(""), "h", "v")).contains("\r\nToken: \r\n"));
    let before = service.seen().len();
    for text in [" 5", "5 ", " ", "5\r\nToken: 9"] {
        let answer = call(&subject, &Op::write("r", Token::text(text), "h", "v"));
        let Answer::Error { definite: true, code } = answer else { panic!("{text:?}: {answer:?}") };
        assert!(code.contains("nothing was sent"), "{code}");
    }
    assert_eq!(service.seen().len(), before, "a header cannot carry these, so nothing was sent");
}

#[test]
fn statuses_mean_what_the_map_says_and_nothing_else() {
    let service = Scripted::start([
        ("ok", answer(200, "Fence: 42\r\n", "")),
        ("stale", answer(409, "Fence: 43\r\n", "")),
        ("stale-by-type", answer(400, "", r#"{"type": "stale"}"#)),
        ("bad", answer(400, "", r#"{"type": "malformed"}"#)),
        ("teapot", answer(418, "", "")),
        ("lost", answer(404, "", "\r\n no such\r\n\u{1b}[31mpath \n")),
        ("long", answer(404, "", &"x".repeat(1000))),
        ("busy", answer(503, "", "")),
        ("broken", answer(500, "", "oh no")),
        ("moved", answer(302, "", "")),
        ("strange", answer(200, "Fence: 1:42\r\n", "")),
        ("continue", Act::Send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 X\r\nFence: 7\r\n\r\n".to_vec())),
    ]);
    let subject = subject(&service);
    let write = |name: &str| call(&subject, &write(name));
    assert_eq!(write("ok"), Answer::Ok { value: None, high: Some(42) });
    assert_eq!(write("stale"), Answer::Stale { high: Some(43) });
    assert_eq!(write("stale-by-type"), Answer::Stale { high: None });
    assert_eq!(write("bad"), Answer::error("malformed"));
    assert_eq!(write("teapot"), Answer::error("status 418"));
    assert_eq!(write("lost"), Answer::error("status 404: no such ␛[31mpath"), "the start of its body, in one line");
    assert_eq!(write("long"), Answer::error(&format!("status 404: {}…", "x".repeat(119))));
    assert_eq!(write("busy"), Answer::error("status 503"), "declared");
    let broken = write("broken");
    assert_eq!(
        words::answer(&broken),
        "not answered clearly (status 500, of which the map says nothing: oh no)",
        "it was answered"
    );
    assert_eq!(why(broken), "status 500, of which the map says nothing: oh no");
    assert_eq!(why(write("moved")), "status 302, of which the map says nothing");
    assert_eq!(why(write("strange")), "status 200: its fence `1:42` is no number");
    assert_eq!(write("continue"), Answer::Ok { value: None, high: Some(7) });
}

#[test]
fn values_are_where_the_map_says() {
    let json = |body| answer(200, "", body);
    let service = Scripted::start([
        ("there", json(r#"{"item": {"value": "v-1"}, "fence": {"token": "18446744073709551615"}}"#)),
        ("number", json(r#"{"item": {"value": "v"}, "fence": {"token": 18446744073709551615}}"#)),
        ("null", json(r#"{"item": {"value": null}, "fence": {"token": null}}"#)),
        ("missing", json(r#"{"item": {}}"#)),
        ("gone", answer(404, "Fence: 9\r\n", "")),
        ("elsewhere", json(r#"{"value": "v-1"}"#)),
        ("text", json("v-1")),
        ("float", json(r#"{"item": {"value": "v"}, "fence": {"token": 1.5}}"#)),
        ("mismatch", answer(412, "", r#"{"current": "v-2"}"#)),
        ("mismatch-null", answer(412, "", r#"{"current": null}"#)),
        ("mismatch-silent", answer(412, "", "{}")),
    ]);
    let subject = subject(&service);
    let read = |name: &str| call(&subject, &Op::read(name));
    let ok = |value: Option<&str>, high| Answer::Ok { value: Some(value.map(str::to_owned)), high };
    assert_eq!(read("there"), ok(Some("v-1"), Some(u64::MAX)));
    assert_eq!(read("number"), ok(Some("v"), Some(u64::MAX)), "JSON numbers keep their 64 bits");
    assert_eq!(read("null"), ok(None, None));
    assert_eq!(read("missing"), ok(None, None));
    assert_eq!(read("gone"), ok(None, Some(9)));
    assert!(why(read("elsewhere")).contains("has no /item that could hold /item/value"), "a wrong pointer is no value");
    assert!(why(read("text")).contains("is not JSON"));
    assert!(why(read("float")).contains("`1.5` is no number"));
    let cas = |name: &str| call(&subject, &Op::cas(name, 1, "h", Some("v-1"), "v"));
    assert_eq!(cas("mismatch"), Answer::Mismatch { current: Some(Some("v-2".into())) });
    assert_eq!(cas("mismatch-null"), Answer::Mismatch { current: Some(None) });
    assert_eq!(cas("mismatch-silent"), Answer::Mismatch { current: None });
}

#[test]
fn bodies_come_with_a_length_or_in_chunks() {
    let body = r#"{"item": {"value": "v-1"}}"#;
    let chunked = format!(
        "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n{}\r\n{:x}\r\n{}\r\n0\r\nTrailer: x\r\n\r\n",
        &body[..5],
        body.len() - 5,
        &body[5..]
    );
    let service = Scripted::start([
        ("chunked", Act::Send(chunked.into_bytes())),
        ("close", Act::Close(format!("HTTP/1.1 200 X\r\n\r\n{body}").into_bytes())),
        ("half", Act::Close(format!("HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\n{body}").into_bytes())),
        ("half-chunk", Act::Close(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc".to_vec())),
        (
            "both",
            Act::Send(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n".to_vec()),
        ),
        ("endless", Act::Send([b"HTTP/1.1 200 X\r\nX: ".to_vec(), vec![b'x'; 70 << 10]].concat())),
        ("huge", Act::Send(b"HTTP/1.1 200 X\r\nContent-Length: 99999999999999\r\n\r\n".to_vec())),
        ("not-http", Act::Send(b"SSH-2.0-hello\r\n".to_vec())),
    ]);
    let subject = subject(&service);
    let read = |name: &str| call(&subject, &Op::read(name));
    assert_eq!(read("chunked"), Answer::Ok { value: Some(Some("v-1".into())), high: None });
    assert!(why(read("close")).contains("neither a length nor chunks"), "a value may have been cut short");
    assert_eq!(call(&subject, &write("close")), Answer::ok(), "a status is whole");
    for name in ["half", "half-chunk"] {
        assert_eq!(why(read(name)), "the connection was closed in the middle of the answer", "{name}");
    }
    assert!(why(read("both")).contains("both a length and chunks"));
    assert!(why(read("endless")).contains("longer than 65536 bytes"));
    assert!(why(read("huge")).contains("that is the limit"));
    assert!(why(read("not-http")).contains("is not HTTP/1.1: `SSH-2.0-hello`"));
}

#[test]
fn lost_answers_are_unknown_and_nothing_is_sent_again() {
    let service = Scripted::start([("reset", Act::Reset), ("closed", Act::Close(Vec::new())), ("silent", Act::Silent)]);
    let patient = subject(&service);
    let map = MAP.replace("BASE", &service.base()).replace("60s", "500ms");
    let hasty = MapFile::new(&map).open().unwrap();
    for (subject, name, lost) in [
        (&patient, "reset", "the connection broke: Connection reset"),
        (&patient, "closed", "the connection was closed before an answer"),
        (&hasty, "silent", "no answer in time"),
    ] {
        // On a reused connection, whose failure could be mistaken for one that was closed while idle.
        let warm = || (call(subject, &write("warm")) == Answer::ok()).then_some(());
        wait::until("an answer", Duration::from_secs(60), warm);
        let sent = || service.seen().iter().filter(|seen| seen.contains(&format!("/w/{name} "))).count();
        let began = Instant::now();
        let said = why(call(subject, &write(name)));
        assert!(said.starts_with(lost), "{name}: {said}");
        assert!(began.elapsed() < Duration::from_secs(30), "{name} took {:?}", began.elapsed());
        wait::until("it to arrive", Duration::from_secs(60), || (sent() > 0).then_some(()));
        assert_eq!(sent(), 1, "{name} was sent once");
    }
}

#[test]
fn connections_are_used_again_until_the_other_end_closes_them() {
    let service = Scripted::start([("bye", Act::Close(b"HTTP/1.1 204 X\r\n\r\n".to_vec()))]);
    let subject = subject(&service);
    for _ in 0..5 {
        assert_eq!(call(&subject, &write("r")), Answer::ok());
    }
    assert_eq!(service.connections(), 1);
    assert_eq!(call(&subject, &write("bye")), Answer::ok());
    // This connection, and the first one, which carried the readiness probe.
    wait::until("the service to close", wait::PATIENCE, || (service.ended() == 2).then_some(()));
    assert_eq!(call(&subject, &write("r")), Answer::ok(), "the closed one was replaced before anything was sent");
    assert_eq!(service.connections(), 2);
}

fn only(case: &str) -> Options {
    Options { only: vec![case.to_owned()], ..Options::default() }
}

#[test]
fn two_tokens_have_no_place_in_a_path() {
    let service = Scripted::start([]);
    let map = MAP.replace("/w/{res}", "/w/{token}/{res}").replace("Token = \"{token}\", ", "");
    let subject = MapFile::new(&map.replace("BASE", &service.base())).open().unwrap();
    let results = run(&subject, &only("B03"), &mut ());
    assert_eq!(results.cases[0].status, Status::NotApplicable, "{}", results.cases[0].reason);
}

/// A running service is not waited for; but a probe that gets no answer is repeated.
#[test]
fn a_service_may_be_busy_when_it_is_first_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let serving = thread::spawn(move || {
        let _never_answered = listener.accept().unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (&stream).write_all(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n").unwrap();
        line
    });
    MapFile::new(&MAP.replace("BASE", &base)).open().unwrap();
    assert_eq!(serving.join().unwrap(), "GET / HTTP/1.1\r\n");
}

/// As over exec: an unresponsive resource has an unknown outcome.
#[test]
fn a_service_that_hangs_is_unknown() {
    let service = Scripted::start([("silent", Act::Silent)]);
    let map = MAP.replace("BASE", &service.base()).replace("/w/{res}", "/w/silent");
    let map = MapFile::new(&map.replace("body    = \"{value}\"", "body    = \"{res} {value}\""));
    let timeout = Some(Duration::from_millis(50));
    let subject = open(&map.path(), &Overrides { timeout, ..Overrides::default() }).unwrap();
    let results = run(&subject, &only("A04"), &mut ());
    assert_eq!(results.outcome(), Outcome::Unknown);
    assert!(results.cases[0].reason.contains("no answer in time"), "{}", results.cases[0].reason);
}

/// A typo in the path of a write looks like a resource that refuses everything.
#[test]
fn where_every_write_fails_the_first_answer_is_shown_with_the_verdict() {
    let service = Scripted::start([("lost", answer(404, "", "no such path"))]);
    let map = MAP.replace("BASE", &service.base()).replace("/w/{res}", "/w/lost?of={res}");
    let subject = MapFile::new(&map).open().unwrap();
    let results = run(&subject, &only("A01"), &mut ());
    assert_eq!(results.outcome(), Outcome::NotSafe);
    let hint = "no write was ever accepted: is the map right? The first was PUT /w/lost?of=fp";
    let hinted = |warning: &&String| warning.starts_with(hint) && warning.ends_with("(status 404: no such path)");
    assert!(results.warnings.iter().any(|warning| hinted(&warning)), "{:#?}", results.warnings);
    assert!(results.cases[0].reason.ends_with("(status 404: no such path)."), "{}", results.cases[0].reason);
}

#[test]
fn places_that_never_have_anything_are_told_at_the_end() {
    let json = |body| answer(200, "", body);
    let service = Scripted::start([
        ("read", json(r#"{"item": {"value": "v-1"}}"#)),
        ("wrote", answer(200, "", "")),
        ("bad", answer(400, "", "{}")),
    ]);
    let subject = subject(&service);
    assert_eq!(subject.warnings(), Vec::<String>::new(), "nothing was asked yet");
    call(&subject, &Op::read("read"));
    call(&subject, &Op::read("read"));
    call(&subject, &write("wrote"));
    call(&subject, &write("bad"));
    let warnings = subject.warnings();
    for (table, place, answers) in [
        ("`high` of [read]", r#""json:/fence/token", "header:Fence""#, "any of 2 answers"),
        ("`high` of [write]", "header:Fence", "the only answer"),
        ("`code` of [write]", "json:/type", "the only answer"),
        ("`at` of [write]", "json:/type", "the only answer"),
    ] {
        let found = |warning: &&String| warning.contains(table) && warning.contains(place) && warning.contains(answers);
        assert!(warnings.iter().any(|warning| found(&warning)), "{table}: {warnings:#?}");
    }
    assert_eq!(warnings.len(), 4, "the value of a read was there: {warnings:#?}");
    let service = Scripted::start([("fenced", answer(200, "Fence: 42\r\n", ""))]);
    let subject = self::subject(&service);
    call(&subject, &write("fenced"));
    call(&subject, &write("silent-about-it"));
    assert_eq!(subject.warnings(), Vec::<String>::new(), "once is enough");
}
