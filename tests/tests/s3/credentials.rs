//! `POST /v1/s3/credentials`: a claim, answered with credentials that carry its token.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fencepost_client::{ErrorKind, Loss};
use fencepost_conformance::wait;
use fencepost_core::Timestamp;
use fencepost_harness::fresh::{Fresh, write_config};
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::{GatewayProcess, binary};
use serde_json::{Value, json};
use tempfile::TempDir;

const PATH: &str = "/v1/s3/credentials";

fn ask(client: &mut Client, token: &str, body: &Value) -> Answer {
    client.request("POST", PATH, &[("fencing-token", token)], body.to_string().as_bytes())
}

/// The bytes in an access key id, without the MAC.
fn bytes(answer: &Answer) -> Vec<u8> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.json()["access_key_id"].as_str().unwrap().to_owned();
    data_encoding::BASE32_NOPAD.decode(id.strip_prefix("FP").unwrap().as_bytes()).unwrap()[..38].to_vec()
}

fn now_s() -> u64 {
    Timestamp::now().0 / 1000
}

/// Asserts that credentials, requested at `asked_s` or later, expire this many seconds after they were issued, by their
/// own data.
fn assert_lasts(answer: &Answer, asked_s: u64, seconds: u64) {
    let issued = asked_s..=now_s();
    let expires = u64::from_be_bytes(bytes(answer)[30..38].try_into().unwrap());
    let text = Timestamp(expires * 1000).to_string();
    assert_eq!(answer.json()["expiration"], text, "the access key id says the same");
    assert!(issued.contains(&(expires - seconds)), "issued in {issued:?} for {seconds} s, they end at {expires}");
}

/// Lists buckets with an access key id and its secret, as any S3 client does. Returns the status and the body.
fn list_buckets(endpoint: &str, id: &str, secret: &str) -> (String, String) {
    let user = format!("{id}:{secret}");
    let arguments = ["-sS", "--max-time", "20", "-w", "\n%{http_code}", "--aws-sigv4", "aws:amz:us-east-1:s3"];
    let empty = "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let output = Command::new("curl").args(arguments).args(["--user", &user, "-H", empty, endpoint]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.to_owned(), body.to_owned())
}

/// The same with issued credentials.
fn used(answer: &Answer) -> (String, String) {
    let json = answer.json();
    let member = |name: &str| json[name].as_str().unwrap();
    list_buckets(&format!("{}/", member("endpoint")), member("access_key_id"), member("secret_access_key"))
}

fn reload(gateway: &Fresh) -> Answer {
    Client::connect_unix(&gateway.data().join("admin.sock")).request("POST", "/v1/admin/reload", &[], b"")
}

#[test]
fn issuing_raises_the_fence_before_the_first_write() {
    let gateway = Fresh::with_s3("", &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("reports/daily", "33", "old").status, 204);
    let headers = [("fencing-token", "34"), ("fencing-holder", "b#1"), ("fencing-issuer", "etcd:7")];
    let body = json!({"resource": "reports/daily", "ttl_s": 3600});
    let asked = now_s();
    let answer = client.request("POST", PATH, &headers, body.to_string().as_bytes());
    assert_eq!((answer.status, answer.header("fence")), (200, Some("34")), "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let json = answer.json();
    assert_eq!((&json["resource"], &json["token"]), (&"reports/daily".into(), &"34".into()));
    assert_eq!(json["access_key_id"].as_str().unwrap().len(), 89);
    assert_eq!(json["secret_access_key"].as_str().unwrap().len(), 64);
    assert!(json["endpoint"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{json}");
    assert_eq!(json.as_object().unwrap().len(), 6, "and no session token: {json}");
    let bytes = bytes(&answer);
    assert_eq!(bytes[..2], [1, 0], "format 1, the gateway's own key");
    assert_eq!(bytes[18..30], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 34], "generation and number");
    assert_lasts(&answer, asked, 3600);

    let late = client.put("reports/daily", "33", "late");
    assert_eq!((late.status, late.problem().as_str()), (409, "stale"), "nothing was written by 34 yet");
    let fence = client.request("GET", "/v1/fences/reports/daily", &[], b"").json();
    assert_eq!((&fence["fence"]["holder"], &fence["fence"]["issuer"]), (&"b#1".into(), &"etcd:7".into()));
    let metrics = client.request("GET", "/metrics", &[], b"").text();
    assert!(metrics.contains("fencepost_claims_total{outcome=\"applied\"} 1"), "counted like a claim: {metrics}");
}

#[test]
fn the_same_lease_gets_credentials_again() {
    let gateway = Fresh::with_s3("", &[]);
    let mut client = gateway.client();
    let headers = |holder| [("fencing-token", "34"), ("fencing-holder", holder)];
    let body = json!({"resource": "a"}).to_string();
    let first = client.request("POST", PATH, &headers("a#1"), body.as_bytes());
    let again = client.request("POST", PATH, &headers("a#1"), body.as_bytes());
    assert_eq!(bytes(&first)[..30], bytes(&again)[..30], "same key, resource and token");
    let other = client.request("POST", PATH, &headers("b#2"), body.as_bytes());
    assert_eq!((other.status, other.problem().as_str()), (409, "collision"), "one token, two holders");
    let nobody = client.request("POST", PATH, &[("fencing-token", "34")], body.as_bytes());
    assert_eq!(nobody.status, 200, "who does not say who they are is not told apart");
}

#[test]
fn credentials_are_refused_like_a_claim() {
    let gateway = Fresh::with_s3("[[guard]]\nkeys = 'reports/*/**'\nresource = 'reports/*'\n", &[]);
    let mut client = gateway.client();
    let daily = json!({"resource": "reports/daily"});
    let missing = client.post(PATH, &daily);
    assert_eq!((missing.status, missing.problem().as_str()), (428, "missing-token"));
    assert_eq!(ask(&mut client, "34", &daily).status, 200);
    let stale = ask(&mut client, "33", &daily);
    assert_eq!((stale.status, stale.problem().as_str(), stale.header("fence")), (409, "stale", Some("34")));
    let generation = ask(&mut client, "1:35", &daily);
    assert_eq!((generation.status, generation.problem().as_str()), (409, "unknown-generation"));
    let key = ask(&mut client, "34", &json!({"resource": "reports/daily/1.csv"}));
    assert_eq!((key.status, key.problem().as_str()), (400, "not-a-resource"));
    assert!(key.text().contains("`reports/daily`"), "names the right one: {}", key.text());
    let zero = ask(&mut client, "0", &daily);
    assert_eq!((zero.status, zero.problem().as_str()), (400, "malformed-token"));
    let get = client.request("GET", PATH, &[], b"");
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
}

#[test]
fn a_bad_request_raises_nothing() {
    let gateway = Fresh::with_s3("", &["--s3-credentials-max-ttl", "2min"]);
    let mut client = gateway.client();
    for body in [
        "",
        "{}",
        "[]",
        r#"["a", 60]"#,
        r#"{"resource": "a", "ttl": 60}"#,
        r#"{"resource": "a//b"}"#,
        r#"{"resource": "a", "ttl_s": 0}"#,
        r#"{"resource": "a", "ttl_s": -1}"#,
        r#"{"resource": "a", "ttl_s": 1.5}"#,
        r#"{"resource": "a", "ttl_s": "60"}"#,
        r#"{"resource": "a", "ttl_s": 121}"#,
        r#"{"resource": "a"} x"#,
    ] {
        let answer = client.request("POST", PATH, &[("fencing-token", "34")], body.as_bytes());
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed-body"), "{body}");
    }
    let long = ask(&mut client, "34", &json!({"resource": "a", "ttl_s": 121})).text();
    assert!(long.contains("121") && long.contains("1 to 120 s"), "{long}");
    for header in [("idempotency-key", "7"), ("if-match", "*"), ("content-encoding", "gzip")] {
        let answer = client.request("POST", PATH, &[("fencing-token", "34"), header], br#"{"resource": "a"}"#);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "unsupported-header"), "{header:?}");
    }
    assert_eq!(client.fence("a"), None);
    // Without a requested lifetime, the credentials get the longest one allowed.
    for (body, seconds) in [
        (json!({"resource": "a", "ttl_s": 120}), 120),
        (json!({"resource": "a"}), 120),
        (json!({"resource": "a", "ttl_s": 5}), 5),
    ] {
        let asked = now_s();
        assert_lasts(&ask(&mut client, "34", &body), asked, seconds);
    }
}

#[test]
fn without_an_s3_face_there_are_no_credentials_and_no_claim() {
    let gateway = Fresh::memory(&[]);
    let mut client = gateway.client();
    let answer = ask(&mut client, "34", &json!({"resource": "a"}));
    assert_eq!((answer.status, answer.problem().as_str()), (404, "no-s3-face"));
    assert!(answer.text().contains("--s3-listen"), "{}", answer.text());
    assert_eq!(client.fence("a"), None);
}

#[test]
fn where_a_guard_observes_a_stale_token_gets_credentials_and_no_token_does_not() {
    let gateway = Fresh::with_s3("[[guard]]\nkeys = 'a'\nmode = 'observe'\n", &[]);
    let mut client = gateway.client();
    assert_eq!(ask(&mut client, "34", &json!({"resource": "a"})).status, 200);
    let stale = ask(&mut client, "33", &json!({"resource": "a"}));
    assert_eq!((stale.status, stale.header("fencing-observed")), (200, Some("stale")));
    assert_eq!((bytes(&stale)[29], client.fence("a").as_deref()), (33, Some("34")));
    let missing = client.post(PATH, &json!({"resource": "a"}));
    assert_eq!((missing.status, missing.problem().as_str()), (428, "missing-token"));
}

#[test]
fn credentials_end_by_the_gateways_clock_and_the_same_token_gets_new_ones() {
    let gateway = Fresh::with_s3("", &[]);
    let mut client = gateway.client();
    let brief = ask(&mut client, "34", &json!({"resource": "a", "ttl_s": 2}));
    let body = wait::until("the end of the credentials", wait::PATIENCE, || {
        let (status, body) = used(&brief);
        (status != "200").then_some(body)
    });
    assert!(body.contains("ExpiredToken"), "{body}");
    let again = ask(&mut client, "34", &json!({"resource": "a"}));
    assert_eq!(used(&again).0, "200");
    let id = again.json()["access_key_id"].as_str().unwrap().to_owned();
    let other = if id.ends_with("AA") { "EA" } else { "AA" };
    let forged = format!("{}{other}", &id[..id.len() - 2]);
    let (status, body) = list_buckets(
        &format!("{}/", again.json()["endpoint"].as_str().unwrap()),
        &forged,
        again.json()["secret_access_key"].as_str().unwrap(),
    );
    assert!(status == "403" && body.contains("InvalidAccessKeyId"), "{status} {body}");
}

#[test]
fn clients_are_told_the_endpoint_of_the_operator() {
    let gateway = Fresh::with_s3("", &["--s3-endpoint", "https://files.example:9443/"]);
    let answer = ask(&mut gateway.client(), "34", &json!({"resource": "a"}));
    assert_eq!(answer.json()["endpoint"], "https://files.example:9443");
}

#[test]
fn the_gateways_own_key_survives_a_restart_and_is_its_own_only() {
    let dir = TempDir::new().unwrap();
    let (data, objects) = (dir.path().join("data"), dir.path().join("objects"));
    std::fs::create_dir(&objects).unwrap();
    let place = format!("dir:{}", objects.display());
    let front_end = ["--s3-listen", "127.0.0.1:0", "--objects", &place];
    let key = data.join("s3-mac.key");

    let gateway = GatewayProcess::start(&data, &[]);
    gateway.kill();
    assert!(!key.exists(), "without an S3 front end none is made");
    let gateway = GatewayProcess::start(&data, &front_end);
    assert_eq!(ask(&mut gateway.client(), "34", &json!({"resource": "a"})).status, 200);
    let made = std::fs::read_to_string(&key).unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    gateway.kill();
    let gateway = GatewayProcess::start(&data, &front_end);
    assert_eq!(std::fs::read_to_string(&key).unwrap(), made);
    let stale = ask(&mut gateway.client(), "33", &json!({"resource": "a"}));
    assert_eq!(stale.problem(), "stale", "what was answered was durable");
    gateway.kill();

    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let said = refused_start(&data, &front_end);
    assert!(said.contains("s3-mac.key") && said.contains("chmod 600") && !said.contains(made.trim()), "{said}");
}

/// The output of a gateway that does not start.
fn refused_start(data: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
    match GatewayProcess::spawn(command) {
        Ok(_) => panic!("the gateway started with {arguments:?}"),
        Err(said) => said,
    }
}

#[test]
fn half_a_face_does_not_start() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    for (arguments, words) in [
        (&["--s3-listen", "127.0.0.1:0"][..], "give --objects"),
        (&["--objects", "dir:x"], "give --s3-listen"),
        (&["--s3-listen", "127.0.0.1:0", "--objects", "s3://bucket"], "write dir:PATH"),
    ] {
        let said = refused_start(&data, arguments);
        assert!(said.starts_with("exit status: 2") && said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!data.exists(), "nothing was touched");
}

#[test]
fn mac_keys_are_rotated_by_reload() {
    let keys = TempDir::new().unwrap();
    let file = |id: u8| {
        let path = keys.path().join(format!("mac-{id}.key"));
        std::fs::write(&path, format!("{id:02x}").repeat(32)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        format!("{{ id = {id}, key_file = '{}' }}", path.display())
    };
    let (one, two) = (file(1), file(2));
    let gateway = Fresh::with_s3(&format!("[s3]\nmac_keys = [{one}]\n"), &[]);
    let mut client = gateway.client();
    let old = ask(&mut client, "34", &json!({"resource": "a"}));
    assert_eq!(used(&old).0, "200");
    let mut signed_by = || bytes(&ask(&mut client, "34", &json!({"resource": "a"})))[1];
    let directory = gateway.data().parent().unwrap().to_owned();
    assert_eq!(signed_by(), 1);
    assert!(!gateway.data().join("s3-mac.key").exists(), "it has others");
    write_config(&directory, &format!("[s3]\nmac_keys = [{two}, {one}]\n"));
    assert_eq!(reload(&gateway).json(), json!({"changed": ["s3.mac_keys: 1 -> 2, 1"], "needs_restart": []}));
    assert_eq!(signed_by(), 2);
    assert_eq!(used(&old).0, "200", "what the old key signed is still good");
    let reader = "[[s3.key]]\naccess_key_id = 'reader'\nsecret_access_key = '0123456789abcdef'\n";
    write_config(&directory, &format!("[s3]\nmac_keys = [{two}]\ncreate_buckets = true\n{reader}"));
    let both = json!({"changed": ["s3.mac_keys: 2, 1 -> 2", "s3.key: none -> reader"], "needs_restart": ["s3.create_buckets true"]});
    assert_eq!(reload(&gateway).json(), both);
    let (status, body) = used(&old);
    assert!(status == "403" && body.contains("InvalidAccessKeyId") && body.contains("MAC key 1"), "{status} {body}");
    let endpoint = old.json()["endpoint"].as_str().unwrap().to_owned() + "/";
    assert_eq!(list_buckets(&endpoint, "reader", "0123456789abcdef").0, "200");
    assert_eq!(list_buckets(&endpoint, "reader", "fedcba9876543210").0, "403");

    for (broken, words) in [
        (format!("[s3]\nmac_keys = [{two}, {{ id = 3, key_file = '/nowhere/at/all' }}]\n"), "/nowhere/at/all"),
        (format!("[s3]\nmac_keys = [{two}, {two}]\n"), "two MAC keys have the id 2"),
        ("[[s3.key]]\naccess_key_id = 'r'\nsecret_access_key = '0123456789abcdef'\n".to_owned(), "access key id `r`"),
    ] {
        write_config(&directory, &broken);
        let refused = reload(&gateway);
        assert_eq!((refused.status, refused.problem().as_str()), (422, "reload-refused"), "{broken}");
        assert!(refused.text().contains(words) && !refused.text().contains("0123456789abcdef"), "{}", refused.text());
    }
    assert_eq!(signed_by(), 2, "the old ones stay");
    write_config(&directory, "[s3]\nmac_keys = []\nsecret = '0123456789abcdef'\n");
    assert_eq!(reload(&gateway).status, 422);
    write_config(&directory, "");
    assert_eq!(reload(&gateway).json()["changed"], json!(["s3.mac_keys: 2 -> 0", "s3.key: reader -> none"]));
    assert_eq!(signed_by(), 0, "its own");
    assert!(!gateway.stderr().contains("0123456789abcdef"), "{}", gateway.stderr());
}

#[test]
fn secrets_are_not_logged() {
    let gateway = Fresh::with_s3("", &["--log", "trace"]);
    let answer = ask(&mut gateway.client(), "34", &json!({"resource": "a"})).json();
    let secret = answer["secret_access_key"].as_str().unwrap();
    let made = std::fs::read_to_string(gateway.data().join("s3-mac.key")).unwrap();
    // The answer comes after the log line, so the log is complete.
    assert_eq!(gateway.client().request("GET", "/healthz", &[], b"").status, 200);
    let log = gateway.stderr();
    assert!(log.contains("serving") && !log.contains(secret) && !log.contains(made.trim()), "{log}");
}

#[tokio::test]
async fn a_guard_gets_credentials_again_until_the_fence_refuses() {
    let gateway = Fresh::with_s3("", &[]);
    let locks = fencepost_client::Client::builder()
        .gateway_url(gateway.url())
        .lock_service_url(format!("fencepost://{}", gateway.address()))
        .connect()
        .await
        .unwrap();
    let guard = locks.acquire("reports").await.unwrap();
    let first = guard.s3_credentials(Some(Duration::from_secs(60))).await.unwrap();
    let again = guard.s3_credentials(None).await.unwrap();
    assert_eq!((first.token, again.token), (guard.token(), guard.token()), "nothing is acquired for it");
    assert!(first.expiration < again.expiration);
    assert_eq!(gateway.client().claim("reports", "99").status, 200, "taken over");
    let refused = guard.s3_credentials(None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused:?}");
    assert_eq!(guard.loss(), Some(Loss::TakenOver));
    assert_eq!(gateway.client().fence("reports").as_deref(), Some("99"));
}
