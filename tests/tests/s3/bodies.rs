//! Bodies that never arrive: a silent client holds no resources for long, whatever it requested.

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::http::Client;

use crate::parsing::{code, element};
use crate::signing::Signer;
use crate::world::until_nothing_is_staged;

fn impatient() -> Bucketed {
    Bucketed::with(&["--body-timeout", "1s", "--max-bodies", "8MiB"])
}

#[test]
fn a_form_is_refused_before_its_body() {
    let gateway = impatient();
    let mut client = Client::connect(&gateway.s3().to_string());
    client.set_timeout(PATIENCE);
    let head = "POST /reports HTTP/1.1\r\nhost: localhost\r\ncontent-type: Multipart/Form-Data; boundary=b\r\ncontent-length: 60000\r\n\r\n--b";
    client.send(head.as_bytes()).unwrap();
    let answer = client.receive().unwrap();
    assert_eq!((answer.status, code(&answer).as_str()), (501, "NotImplemented"), "{}", answer.text());
}

#[test]
fn a_body_that_stops_coming_ends_its_request() {
    let gateway = impatient();
    let signer = Signer::holder(&gateway, "reports", "33");
    for (method, target, wanted) in [
        ("PUT", "/reports/x", (400, Some("IncompleteBody"))),
        ("POST", "/reports?delete=", (400, Some("IncompleteBody"))),
        // Answered without reading the body.
        ("POST", "/reports/x?uploads=", (200, None)),
    ] {
        let mut silent = signer.begin(method, target, &[], 1 << 20);
        silent.set_timeout(PATIENCE);
        silent.send(&vec![b'x'; 1000]).unwrap();
        let answer = silent.receive().unwrap();
        let found = (answer.status, element(&answer.text(), "Code"));
        assert_eq!((found.0, found.1.as_deref()), wanted, "{method} {target}: {}", answer.text());
        if wanted.0 == 400 {
            assert!(answer.text().contains("nothing of it arrived for 1 s"), "{}", answer.text());
        }
    }
    until_nothing_is_staged(&gateway.objects());
    assert!(gateway.files().is_empty());
}

/// 8 MiB are enough for two lists.
#[test]
fn lists_in_memory_have_a_budget() {
    let gateway = Bucketed::with(&["--body-timeout", "10min", "--max-bodies", "8MiB"]);
    let signer = Signer::holder(&gateway, "reports", "33");
    let begin = || {
        let mut silent = signer.begin("POST", "/reports?delete=", &[], 1 << 20);
        silent.send(b"<Delete>").unwrap();
        silent
    };
    // Requests are refused while all places are taken; that can also happen to the silent clients, because this loop's
    // own request takes a place.
    let mut held = Vec::new();
    let full = wait::until("all places to be taken", PATIENCE, || {
        held.push(begin());
        let answer = signer.delete_all("reports", &["x"]);
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(code(&full), "SlowDown", "{}", full.text());
    assert_eq!(signer.put("reports/x", b"x").status, 200, "what streams needs no place");
    drop(held);
    wait::until("the places to be free", PATIENCE, || {
        (signer.delete_all("reports", &["x"]).status == 200).then_some(())
    });
}

#[test]
fn as_many_files_may_be_open_as_the_system_allows() {
    let gateway = Bucketed::start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}
