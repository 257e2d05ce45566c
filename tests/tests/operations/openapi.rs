//! The API document matches the gateway: Schemathesis sends what it allows and what it forbids, and checks every answer
//! against it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_conformance::wait;
use fencepost_harness::fresh::Fresh;
use fencepost_harness::http::Client;
use fencepost_harness::{budget, venv};
use serde_json::{Value, json};
use tempfile::TempDir;

/// One guard for each rule, so that each can refuse. `hooks.py` knows these names.
const GUARDS: &str = r#"
[[guard]]
keys = "orders/*/**"
resource = "orders/*"

[[guard]]
keys = "claimed/**"
resource = "claimed"
claim = "required"

[[guard]]
keys = "issued/**"
resource = "issued"
issuer = "required"

[[guard]]
keys = "observed/**"
resource = "observed"
mode = "observe"

[[guard]]
keys = "once/**"
resource = "once"
equal = "reject"
max_jump = 1_000
"#;

/// No 5xx; no undocumented status, media type, header or body; no invalid request is accepted.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance";

fn document(client: &mut Client) -> Value {
    let answer = client.request("GET", "/openapi.json", &[], b"");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    answer.json()
}

/// Runs Schemathesis. Returns whether it found nothing, and its output.
fn run(location: &str, arguments: &[&str]) -> (bool, String) {
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi");
    // Its caches are removed with the directory.
    let dir = TempDir::new().unwrap();
    let said = dir.path().join("said");
    let output = File::create(&said).unwrap();
    let mut child = Command::new(venv::program("schemathesis"))
        .args(["run", location, "--no-color", "--warnings", "off", "--workers", "1", "--request-timeout", "20"])
        .args(["--suppress-health-check", "all"])
        .args(["--seed", "7", "--generation-deterministic", "--mode", "all", "--checks", CHECKS])
        .args(arguments)
        .current_dir(dir.path())
        .env("PYTHONPATH", &hooks)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .expect("Schemathesis can be started");
    let limit = budget::pick(Duration::from_secs(300), Duration::from_secs(1800));
    let deadline = Instant::now() + limit;
    let status = wait::until("Schemathesis to end", limit + Duration::from_secs(10), || {
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        child.try_wait().unwrap()
    });
    (status.success(), std::fs::read_to_string(&said).unwrap())
}

/// The last lines: the number of requests, and the duration.
fn summary(said: &str) -> &str {
    said.find("Test cases:").map_or(said, |at| &said[at..])
}

/// A TCP address for the administrator's socket, for clients without Unix sockets.
fn admin_address(gateway: &Fresh) -> String {
    fn copy(mut from: impl io::Read, mut to: impl io::Write, end: impl FnOnce()) {
        // Either side may close first.
        let _ = io::copy(&mut from, &mut to);
        end();
    }
    let socket = gateway.data().join("admin.sock");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server): (TcpStream, _) = (client.unwrap(), UnixStream::connect(&socket).unwrap());
            let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (client_end, server_end) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || copy(client, server, || drop(server_end.shutdown(Shutdown::Write))));
            std::thread::spawn(move || copy(server_too, client_too, || drop(client_end.shutdown(Shutdown::Both))));
        }
    });
    address
}

#[test]
fn the_document_has_the_right_shape_and_answers_head() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let document = document(&mut client);
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["title"], "Fencepost");
    for (path, method) in [("/v1/kv/{key}", "put"), ("/v1/kv/{key}", "head"), ("/v1/txn", "post")] {
        let operation = &document["paths"][path][method];
        assert!(operation["responses"]["400"]["description"].as_str().unwrap().contains("`malformed-"), "{operation}");
    }
    let get = client.request("GET", "/openapi.json", &[], b"");
    let head = client.request("HEAD", "/openapi.json", &[], b"");
    assert_eq!((head.status, head.header("content-type")), (200, Some("application/json")));
    assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()));
    assert!(head.body.is_empty());
}

#[test]
fn every_answer_is_as_documented() {
    let gateway = Fresh::configured(GUARDS, &[]);
    let examples = budget::pick("30", "300");
    let location = format!("{}/openapi.json", gateway.url());
    let (passed, said) = run(&location, &["--phases", "examples,coverage,fuzzing", "--max-examples", examples]);
    assert!(passed, "{said}\nThe gateway said:\n{}", gateway.stderr());
    println!("{}", summary(&said));
    assert_eq!(gateway.client().request("GET", "/readyz", &[], b"").status, 200, "it is still well");
}

#[test]
fn every_answer_to_an_administrator_is_as_documented() {
    let gateway = Fresh::configured(GUARDS, &[]);
    let mut client = gateway.client();
    for key in ["orders/1", "free"] {
        assert_eq!(client.put(key, "34", "v").status, 204);
    }
    for lock in ["locks/a", "locks/b"] {
        let wanted = br#"{"holder": "worker-a#9f2c", "ttl_ms": 600000}"#;
        assert_eq!(client.request("POST", &format!("/v1/locks/{lock}"), &[], wanted).status, 201);
    }
    let examples = budget::pick("30", "300");
    let location = format!("http://{}/openapi.json", admin_address(&gateway));
    let only = ["--include-tag", "admin", "--phases", "examples,coverage,fuzzing", "--max-examples", examples];
    let (passed, said) = run(&location, &only);
    assert!(passed, "{said}\nThe gateway said:\n{}", gateway.stderr());
    println!("{}", summary(&said));
}

#[test]
fn a_false_document_is_found_out() {
    let gateway = Fresh::configured(GUARDS, &[]);
    let truth = document(&mut gateway.client());
    let dir = TempDir::new().unwrap();
    type Lie = fn(&mut Value);
    let lies: [(&str, Lie, &str); 4] = [
        ("200", |answers| answers["200"]["content"]["application/json"]["schema"] = json!({"type": "array"}), "schema"),
        ("400", |answers| drop(answers.as_object_mut().unwrap().remove("400")), "Undocumented status code"),
        (
            "type",
            |answers| {
                let schema = "/400/content/application~1problem+json/schema/allOf/1/properties/type/enum";
                *answers.pointer_mut(schema).unwrap() = json!(["urn:fencepost:problem:stale"]);
            },
            "schema",
        ),
        ("header", |answers| answers["200"]["headers"]["x-absent"] = json!({"required": true}), "required headers"),
    ];
    for (name, lie, found) in lies {
        let mut document = truth.clone();
        lie(&mut document["paths"]["/v1/fences/{resource}"]["get"]["responses"]);
        let file = dir.path().join(format!("{name}.json"));
        std::fs::write(&file, document.to_string()).unwrap();
        let only = ["--include-operation-id", "getFence", "--phases", "coverage", "--url", gateway.url()];
        let (passed, said) = run(file.to_str().unwrap(), &only);
        assert!(!passed && said.contains(found), "a lie about {name} was believed, or not understood:\n{said}");
    }
}

/// Sends every documented body, in a sensible order, with the other parameters and the expected status of the call.
#[test]
fn every_example_is_accepted() {
    const TOKEN: &[(&str, &str)] =
        &[("fencing-token", "34"), ("fencing-holder", "worker-a#9f2c"), ("fencing-issuer", "etcd:4711")];
    let gateway = Fresh::with_s3(GUARDS, &[]);
    let (mut public, mut admin) = (gateway.client(), Client::connect(&admin_address(&gateway)));
    let document = document(&mut public);
    let mut sent = BTreeSet::new();
    let mut lease = None;
    for (method, template, name, headers, status) in [
        ("POST", "/v1/txn", "", &[("idempotency-key", "pay-42")][..], 200),
        ("POST", "/v1/claim/{resource}", "orders%2F123", TOKEN, 200),
        ("POST", "/v1/s3/credentials", "", TOKEN, 200),
        ("PUT", "/v1/kv/{key}", "orders%2F123", TOKEN, 204),
        ("POST", "/v1/locks/{name}", "jobs/nightly", &[], 201),
        ("POST", "/v1/locks/{name}/renew", "jobs/nightly", &[], 200),
        ("POST", "/v1/outcomes/{key}/abandon", "pay-42", &[], 200),
        ("POST", "/v1/admin/locks/{name}/force-release", "jobs/nightly", &[], 200),
        ("POST", "/v1/admin/fences/{resource}/rotate", "orders/123", &[], 200),
        ("POST", "/v1/admin/rotate-prefix", "", &[], 200),
        ("POST", "/v1/admin/rotate-all", "", &[], 200),
        ("POST", "/v1/admin/reload", "", &[], 200),
        ("POST", "/v1/admin/objects/check", "", &[], 200),
        ("POST", "/v1/admin/objects/collect", "", &[], 200),
    ] {
        let body = &document["paths"][template][method.to_ascii_lowercase()]["requestBody"]["content"];
        let (media_type, content) = body.as_object().unwrap().iter().next().unwrap();
        let mut example = content["example"].clone();
        if template.ends_with("/renew") {
            // Only the gateway knows the lease.
            example["lease"] = lease.clone().unwrap();
        }
        let body = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
        let path = match template.split_once('{') {
            Some((before, rest)) => format!("{before}{name}{}", rest.split_once('}').unwrap().1),
            None => template.to_owned(),
        };
        let headers = [headers, &[("content-type", media_type.as_str())]].concat();
        if template.starts_with("/v1/admin/") {
            let refused = public.request(method, &path, &headers, body.as_bytes());
            assert_eq!((refused.status, refused.problem().as_str()), (403, "admin-only"), "{method} {path}");
        }
        let client = if template.starts_with("/v1/admin/") { &mut admin } else { &mut public };
        let answer = client.request(method, &path, &headers, body.as_bytes());
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.text());
        if template == "/v1/locks/{name}" {
            lease = Some(answer.json()["lease"].clone());
        }
        sent.insert(format!("{} {template}", method.to_ascii_lowercase()));
    }
    let documented = document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let with_body =
            methods.as_object().unwrap().iter().filter(|(_, operation)| operation["requestBody"].is_object());
        with_body.map(move |(method, _)| format!("{method} {path}"))
    });
    assert_eq!(sent, documented.collect(), "every documented body is sent here");
}
