//! Guards that name engines: resources spread over RocksDB, PostgreSQL and etcd behind one gateway.

use std::path::PathBuf;
use std::process::Output;

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::fresh::write_config;
use fencepost_harness::http::{Answer, Client};
use fencepost_harness::process::{GatewayProcess, run};
use fencepost_harness::servers::postgres::Postgres;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::team::{Gateway, On, Place, engine, own_server, serve, shared_server, txn};

/// `orders` are on the engine `pg`, `stock` on `kv`, all else on the engine without a name.
const GUARDS: &str = "
[[guard]]
keys = 'orders/*/**'
resource = 'orders/*'
engine = 'pg'

[[guard]]
keys = 'stock/**'
engine = 'kv'
";

/// One key for each engine.
const KEYS: [&str; 3] = ["else/1", "orders/1/lines", "stock/1"];

/// A configuration file, and the servers that it names.
struct Spread {
    dir: TempDir,
    pg: Place,
    kv: Place,
}

impl Spread {
    fn new(name: &str) -> Spread {
        let spread =
            Spread { dir: TempDir::new().unwrap(), pg: Place::new(On::Postgres, name), kv: Place::new(On::Etcd, name) };
        spread.write(&spread.engines(), GUARDS);
        spread
    }

    fn engines(&self) -> String {
        engines(&[("pg", &self.pg.engine()), ("kv", &self.kv.engine())])
    }

    fn write(&self, engines: &str, guards: &str) {
        write_config(self.dir.path(), &format!("{engines}{guards}"));
    }

    fn config(&self) -> String {
        self.dir.path().join("fencepost.toml").to_str().unwrap().to_owned()
    }

    /// Starts a gateway with RocksDB as the engine without a name.
    fn start(&self) -> Gateway {
        Gateway::with("rocksdb", &["--config", &self.config()])
    }

    /// What a gateway says that does not start again with its data.
    fn refused(&self, gateway: &Gateway, more: &[&str]) -> String {
        let config = self.config();
        match GatewayProcess::spawn(serve(&gateway.data(), &[&["--config", config.as_str()], more].concat())) {
            Ok(_) => panic!("a gateway that should be refused has started"),
            Err(said) => said,
        }
    }

    /// `fencepost COMMAND …` for the stopped stores of a gateway.
    fn command(&self, command: &str, gateway: &Gateway, more: &[&str]) -> Output {
        let (data, config) = (gateway.data(), self.config());
        run(&[&[command, "--data", data.to_str().unwrap(), "--config", &config], more].concat())
    }
}

/// The table of engines.
fn engines(list: &[(&str, &str)]) -> String {
    let lines: String = list.iter().map(|(name, url)| format!("{name} = '{url}'\n")).collect();
    format!("[engines]\n{lines}")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn put_once(client: &mut Client, key: &str, token: &str, once: &str) -> Answer {
    let headers = [("fencing-token", token), ("idempotency-key", once)];
    client.request("PUT", &format!("/v1/kv/{key}"), &headers, b"once")
}

fn outcome(client: &mut Client, once: &str) -> Value {
    client.request("GET", &format!("/v1/outcomes/{once}"), &[], b"").json()
}

fn generation(client: &mut Client, resource: &str) -> u64 {
    client.request("GET", &format!("/v1/fences/{resource}"), &[], b"").json()["generation"].as_u64().unwrap()
}

/// The names of one kind on all pages of a list.
fn listed(client: &mut Client, path: &str, kind: &str, name: &str, limit: usize) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.request("GET", &format!("{path}?limit={limit}&after={after}"), &[], b"").json();
        let entries = page[kind].as_array().unwrap();
        assert!(entries.len() <= limit, "{page}");
        names.extend(entries.iter().map(|entry| entry[name].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => return names,
        }
    }
}

/// How many records of a schema have this text in their keys.
fn records(server: &Postgres, schema: &str, text: &str) -> usize {
    server
        .sql(&format!("select count(*) from {schema}.records where position('{text}'::bytea in key) > 0"))
        .parse()
        .unwrap()
}

#[test]
fn resources_are_kept_where_their_guard_says() {
    let spread = Spread::new("spread_kept");
    let gateway = spread.start();
    let mut client = gateway.client();
    for key in KEYS {
        let written = client.put(key, "34", key);
        assert_eq!(written.status, 204, "{key}: {}", written.text());
        assert_eq!(client.get(key).text(), key);
        assert_eq!(client.put(key, "33", "late").problem(), "stale", "{key}");
    }
    assert_eq!(client.claim("orders/1", "35").status, 200);
    assert_eq!(client.put("orders/1/head", "34", "late").problem(), "stale", "the fence of the resource");
    let server = shared_server();
    assert!(records(&server, "spread_kept", "orders/1") >= 2, "a fence and a value");
    assert_eq!(records(&server, "spread_kept", "stock/1") + records(&server, "spread_kept", "else/1"), 0);

    // Another gateway would have fences of its own for all that no guard sends elsewhere.
    let other = Gateway::refused("rocksdb", &["--config", &spread.config()]);
    assert!(other.contains("the engine without a name has no store") && other.contains("has fences"), "{other}");
}

#[test]
fn a_transaction_is_on_one_engine() {
    let spread = Spread::new("spread_txn");
    let gateway = spread.start();
    let mut client = gateway.client();
    let body = |other: &str| json!({"tokens": {"orders/1": "5", other: "5"}, "then": [{"put": "orders/1/lines", "text": "x"}, {"put": other, "text": "x"}]});
    for (other, on) in [("stock/1", "kv"), ("else/1", "default")] {
        let refused = txn(&mut client, &body(other));
        assert_eq!((refused.status, refused.problem().as_str()), (400, "several-engines"), "{}", refused.text());
        let facts = refused.json();
        let detail = facts["detail"].as_str().unwrap();
        assert!(detail.contains("`orders/1/lines` is kept on the engine `pg`"), "{detail}");
        assert!(detail.contains(&format!("`{other}` on the engine `{on}`")), "{detail}");
        assert_eq!((&facts["outcome"], &facts["key"]), (&"not-applied".into(), &other.into()), "{facts}");
        assert_eq!((client.fence("orders/1"), client.fence(other)), (None, None), "nothing was judged");
    }
    let condition = json!({"if": [{"key": "stock/1", "absent": true}], "then": [{"get": "else/1"}]});
    assert_eq!(txn(&mut client, &condition).problem(), "several-engines");
    let keys = json!({"keys": ["orders/1/lines", "stock/1"]}).to_string();
    let claim = client.request("POST", "/v1/claim/orders/1", &[("fencing-token", "5")], keys.as_bytes());
    assert_eq!((claim.problem().as_str(), client.fence("orders/1")), ("several-engines", None));
    let one = json!({"tokens": {"orders/1": "5", "orders/2": "6"}, "then": [{"put": "orders/1/lines", "text": "x"}, {"put": "orders/2/lines", "text": "x"}]});
    assert_eq!(txn(&mut client, &one).status, 200, "of several resources on one engine");
}

#[test]
fn lists_are_in_the_order_of_names_over_all_engines() {
    let spread = Spread::new("spread_lists");
    let gateway = spread.start();
    let mut client = gateway.client();
    let mut names: Vec<String> = Vec::new();
    for n in 0..4 {
        for name in [format!("orders/{n}"), format!("stock/{n}"), format!("p{n}"), format!("t{n}")] {
            assert_eq!(client.put(&name, "1", "v").status, 204, "{name}");
            names.push(name);
        }
    }
    names.sort();
    for limit in [1, 3, 5, 16, 100] {
        assert_eq!(listed(&mut client, "/v1/kv", "keys", "key", limit), names, "{limit} at a time");
        assert_eq!(listed(&mut client, "/v1/fences", "fences", "resource", limit), names, "{limit} at a time");
    }
    let mut locks = ["orders/9", "p9", "stock/9"].map(str::to_owned).to_vec();
    for lock in &locks {
        assert_eq!(client.acquire(lock, "worker#1", 60_000).status, 201, "{lock}");
    }
    locks.sort();
    assert_eq!(listed(&mut client, "/v1/locks", "locks", "name", 2), locks);
    let lease = client.acquire("orders/8", "worker#1", 60_000).json()["lease"].as_str().unwrap().to_owned();
    assert_eq!(client.renew("orders/8", &lease, 60_000).status, 200);
    assert_eq!(client.release("orders/8", &lease).status, 204);
}

#[test]
fn g7_outcomes_are_found_and_abandoned_on_every_engine() {
    let spread = Spread::new("spread_outcomes");
    let gateway = spread.start();
    let mut client = gateway.client();
    for (n, key) in KEYS.into_iter().enumerate() {
        let (done, left) = (format!("done-{n}"), format!("left-{n}"));
        assert_eq!(outcome(&mut client, &done)["outcome"], "not-recorded");
        assert_eq!(put_once(&mut client, key, "1", &done).status, 204);
        assert_eq!(outcome(&mut client, &done)["outcome"], "applied", "{key}");
        let abandoned = client.request("POST", &format!("/v1/outcomes/{done}/abandon"), &[], b"");
        assert_eq!(abandoned.json()["outcome"], "applied", "what was done stays done");
        let abandoned = client.request("POST", &format!("/v1/outcomes/{left}/abandon"), &[], b"");
        assert_eq!((abandoned.status, &abandoned.json()["outcome"]), (200, &"failed".into()), "{}", abandoned.text());
        assert_eq!(outcome(&mut client, &left)["problem"], "abandoned");
        let late = put_once(&mut client, key, "1", &left);
        assert_eq!((late.status, late.problem().as_str()), (422, "abandoned"), "{key}");
    }
}

#[test]
fn g1_everything_is_rotated_on_every_engine() {
    let spread = Spread::new("spread_rotate");
    let gateway = spread.start();
    let mut client = gateway.client();
    for key in KEYS {
        assert_eq!(client.put(key, "34", "v").status, 204);
    }
    let rotated = gateway.admin("fence rotate --prefix o --from 0 --reason test");
    assert!(said(&rotated).contains("1 resource rotated"), "{rotated:?}");
    assert_eq!(client.put("orders/1/lines", "34", "zombie").problem(), "retired-generation");
    assert_eq!(client.put("stock/1", "34", "v").status, 204, "another prefix");
    let one = gateway.admin("fence rotate stock/1 --from 0 --reason test");
    assert!(one.status.success(), "{one:?}");
    assert_eq!((generation(&mut client, "stock/1"), generation(&mut client, "stock/2")), (1, 0));

    let all = gateway.admin("fence rotate --all --from 0 --reason test");
    assert!(all.status.success(), "{all:?}");
    for engine in ["default", "kv", "pg"] {
        assert!(said(&all).contains(&format!("engine {engine}: rotated")), "{all:?}");
    }
    for key in KEYS.into_iter().chain(["orders/never", "stock/never", "never"]) {
        assert_eq!(client.put(key, "1:99", "zombie").problem(), "retired-generation", "{key}");
    }
    let base = generation(&mut client, "never");
    assert_eq!((generation(&mut client, "orders/never"), generation(&mut client, "stock/never")), (base, base));
    let again = gateway.admin("fence rotate --all --from 0 --reason retry");
    assert_eq!(again.status.code(), Some(4), "a retry does not rotate twice: {again:?}");
}

/// One database is down: its resources are answered 503, and all others are served.
#[test]
fn an_engine_that_is_down_stops_only_its_own_resources() {
    let mut server = own_server();
    let dir = TempDir::new().unwrap();
    let url = engine(&server.url(), "schema=down");
    let config = write_config(
        dir.path(),
        &format!("{}{}", engines(&[("pg", &url)]), &GUARDS[..GUARDS.find("[[guard]]\nkeys = 'stock").unwrap()]),
    );
    let gateway = Gateway::with("rocksdb", &["--config", config.to_str().unwrap()]);
    let mut client = gateway.client();
    let ready = client.request("GET", "/readyz", &[], b"");
    assert_eq!((ready.status, ready.text().as_str()), (200, "ready\n"));
    assert_eq!(client.put("orders/1/lines", "1", "v").status, 204);
    assert_eq!(put_once(&mut client, "else/1", "1", "applied").status, 204);

    server.kill();
    let down = wait::until("the gateway to notice", PATIENCE, || {
        let answer = client.request("GET", "/readyz", &[], b"");
        (answer.status == 503).then_some(answer)
    });
    let detail = down.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.starts_with("engine `pg` is not ready") && detail.ends_with("engine `default` is ready"),
        "{detail}"
    );
    let mut ask = |engine: &str| client.request("GET", &format!("/readyz?engine={engine}"), &[], b"").status;
    assert_eq!((ask("default"), ask("pg"), ask("other")), (200, 503, 400));
    let metrics = client.request("GET", "/metrics", &[], b"").text();
    for engine in ["default", "pg"] {
        assert!(metrics.contains(&format!("fencepost_engine_ready{{engine=\"{engine}\"}} 1")), "{metrics}");
        assert!(metrics.contains(&format!("fencepost_engine_queue_depth{{engine=\"{engine}\"}} ")), "{metrics}");
    }
    assert_eq!(client.put("else/1", "2", "served").status, 204);
    assert_eq!(client.get("else/1").text(), "served");
    let refused = client.put("orders/1/lines", "2", "x");
    assert_eq!((refused.status, &refused.json()["outcome"]), (503, &"not-applied".into()), "{}", refused.text());
    assert_eq!(outcome(&mut client, "applied")["outcome"], "applied", "that is final");
    let unknown = client.request("GET", "/v1/outcomes/other", &[], b"");
    assert_eq!(unknown.status, 503, "it may be recorded there: {}", unknown.text());
    let abandoned = client.request("POST", "/v1/outcomes/other/abandon", &[], b"");
    assert_eq!(abandoned.status, 503, "{}", abandoned.text());
    assert_eq!(client.request("GET", "/v1/kv", &[], b"").status, 503, "no list is complete without it");
    let partly = gateway.admin("fence rotate --all --from 0 --reason test");
    assert_eq!(partly.status.code(), Some(7), "{partly:?}");
    assert!(said(&partly).contains("`default` was rotated") && said(&partly).contains("engine `pg`"), "{partly:?}");

    server.restart();
    gateway.wait_until_ready();
    assert_eq!(generation(&mut client, "orders/1"), 0);
    let repeated = gateway.admin("fence rotate --all --from 0 --reason test");
    assert!(repeated.status.success(), "{repeated:?}");
    assert!(said(&repeated).contains("engine default: left as it is"), "{repeated:?}");
    assert!(said(&repeated).contains("engine pg: rotated"), "{repeated:?}");
    assert_eq!(client.put("orders/1/lines", "2", "zombie").problem(), "retired-generation");
}

#[test]
fn t32_a_guard_that_moves_to_another_engine_is_refused_until_a_remap() {
    let spread = Spread::new("spread_moved");
    let mut gateway = spread.start();
    for key in KEYS {
        assert_eq!(gateway.client().put(key, "34", "v").status, 204);
    }
    let moved = GUARDS.replace("'kv'", "'pg'");
    spread.write(&engines(&[("pg", &spread.pg.engine())]), &moved);
    let reloaded = gateway.admin("reload");
    assert_eq!(reloaded.status.code(), Some(1), "{reloaded:?}");
    assert!(said(&reloaded).contains("the guard mapping differs"), "{reloaded:?}");
    assert_eq!(gateway.client().put("stock/1", "33", "late").problem(), "stale", "the old rules stay");
    gateway.stop();
    let refused = spread.refused(&gateway, &[]);
    assert!(refused.contains("on engine kv") && refused.contains("fencepost remap"), "{refused}");

    let asked = spread.command("remap", &gateway, &[]);
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
    assert!(said(&asked).contains("every gateway on this server"), "{asked:?}");
    let retire = format!("--retire=kv={}", spread.kv.engine());
    let done = spread.command("remap", &gateway, &["--yes", &retire]);
    assert!(done.status.success() && said(&done).contains("engine pg: mapping changed"), "{done:?}");
    gateway.restart();
    let mut client = gateway.client();
    for key in KEYS {
        let zombie = client.put(key, "35", "zombie");
        assert_eq!(zombie.problem(), "retired-generation", "{key}");
    }
    let base = generation(&mut client, "stock/1");
    assert_eq!(base, generation(&mut client, "else/1"));
    assert_eq!(client.put("stock/1", &format!("{base}:1"), "new").status, 204);
    assert!(records(&shared_server(), "spread_moved", "stock/1") >= 2, "on its new engine");
}

/// A store from before has no engines in its mapping.
#[test]
fn t32_the_first_named_engine_comes_with_a_remap() {
    let spread = Spread::new("spread_first");
    let mut gateway = Gateway::with("rocksdb", &[]);
    assert_eq!(gateway.client().put("stock/1", "34", "v").status, 204);
    gateway.stop();
    let refused = spread.refused(&gateway, &[]);
    assert!(refused.contains("the guard mapping differs") && refused.contains("fencepost remap"), "{refused}");
    let done = spread.command("remap", &gateway, &["--yes"]);
    assert!(done.status.success() && said(&done).contains("engine kv: store made"), "{done:?}");
    let again = spread.command("remap", &gateway, &["--yes"]);
    assert!(again.status.success() && said(&again).contains("engine kv: nothing to do"), "{again:?}");
    let config = spread.config();
    let process = GatewayProcess::start(&gateway.data(), &["--config", &config]);
    assert_eq!(process.client().put("stock/1", "35", "zombie").problem(), "retired-generation");
}

#[test]
fn engines_that_change_places_are_refused() {
    let spread = Spread::new("spread_swapped");
    let mut gateway = spread.start();
    gateway.stop();
    spread.write(&engines(&[("pg", &spread.kv.engine()), ("kv", &spread.pg.engine())]), GUARDS);
    let refused = spread.refused(&gateway, &[]);
    assert!(refused.contains("engine `kv`: the guard mapping differs"), "{refused}");
    assert!(refused.contains("[engine pg]") && refused.contains("[engine kv]"), "{refused}");
}

/// An empty database in the place of one that was used has forgotten its fences.
#[test]
fn g1_an_engine_without_its_store_is_refused() {
    let (spread, empty) = (Spread::new("spread_lost"), Place::new(On::Postgres, "spread_empty"));
    let mut gateway = spread.start();
    assert_eq!(gateway.client().put("orders/1/lines", "34", "v").status, 204);
    gateway.stop();
    spread.write(&engines(&[("pg", &empty.engine()), ("kv", &spread.kv.engine())]), GUARDS);
    let refused = spread.refused(&gateway, &[]);
    assert!(refused.contains("the engine `pg` has no store on") && refused.contains("spread_empty"), "{refused}");
    let done = spread.command("remap", &gateway, &["--yes"]);
    assert!(said(&done).contains("engine pg: store made"), "{done:?}");
    gateway.restart();
    assert_eq!(gateway.client().put("orders/1/lines", "35", "zombie").problem(), "retired-generation");
}

/// The same for the engine without a name, while another one has fences.
#[test]
fn g1_a_lost_store_beside_a_named_engine_is_refused() {
    let spread = Spread::new("spread_beside");
    let mut gateway = spread.start();
    assert_eq!(gateway.client().put("orders/1/lines", "34", "v").status, 204);
    gateway.stop();
    let config = spread.config();
    let refused = Gateway::refused("rocksdb", &["--config", &config]);
    assert!(
        refused.contains("the engine without a name has no store") && refused.contains("`pg` has fences"),
        "{refused}"
    );
}

/// A gateway that was forgotten serves nothing on an engine that no guard names any more.
#[test]
fn t32_an_engine_that_is_dropped_serves_nothing() {
    let spread = Spread::new("spread_dropped");
    let mut gateway = spread.start();
    assert_eq!(gateway.client().put("orders/1/lines", "34", "v").status, 204);
    gateway.stop();
    let left = GUARDS.replace("engine = 'pg'", "");
    assert_ne!(left, GUARDS);
    spread.write(&engines(&[("kv", &spread.kv.engine())]), &left);
    let asked = spread.command("remap", &gateway, &["--yes"]);
    assert!(!asked.status.success() && said(&asked).contains("--retire pg=URL"), "{asked:?}");
    let retire = format!("--retire=pg={}", spread.pg.engine());
    let done = spread.command("remap", &gateway, &["--yes", &retire]);
    assert!(done.status.success() && said(&done).contains("engine pg: mapping changed"), "{done:?}");
    gateway.restart();
    assert_eq!(gateway.client().put("orders/1/lines", "35", "zombie").problem(), "retired-generation");
    gateway.stop();
    spread.write(&spread.engines(), GUARDS);
    let forgotten = spread.refused(&gateway, &["--engine", "memory"]);
    assert!(forgotten.contains("has fences") || forgotten.contains("guard mapping differs"), "{forgotten}");
}

#[test]
fn two_engines_on_one_store_are_refused() {
    let spread = Spread::new("spread_twice");
    let twice = engines(&[("pg", &spread.pg.engine()), ("kv", &spread.pg.engine())]);
    spread.write(&twice, GUARDS);
    let config = spread.config();
    let refused = Gateway::refused("rocksdb", &["--config", &config]);
    // The second finds the mapping of the first.
    assert!(refused.contains("guard mapping differs") || refused.contains("one and the same store"), "{refused}");
    assert!(refused.contains("`pg`"), "{refused}");
}

#[test]
fn a_stopped_store_is_chosen_by_the_name_of_its_engine() {
    let spread = Spread::new("spread_restored");
    let state = TempDir::new().unwrap();
    let state = state.path().to_str().unwrap();
    let config = spread.config();
    let migrated = spread.command("migrate", &Gateway::with("memory", &[]), &["--engine-name", "pg"]);
    assert!(migrated.status.success(), "{migrated:?}");
    let mut gateway = Gateway::with("rocksdb", &["--config", &config, "--state-dir", state]);
    for key in KEYS {
        assert_eq!(gateway.client().put(key, "34", "v").status, 204);
    }
    gateway.stop();
    let notes: Vec<PathBuf> = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(notes.len(), 3, "one for each store: {notes:?}");
    let unknown = spread.command("restored", &gateway, &["--yes", "--engine-name", "other"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let done = spread.command("restored", &gateway, &["--yes", "--engine-name", "pg"]);
    assert!(done.status.success(), "{done:?}");
    gateway.restart();
    let mut client = gateway.client();
    assert_eq!(client.put("orders/1/lines", "35", "zombie").problem(), "retired-generation");
    assert_eq!((client.put("stock/1", "35", "v").status, client.put("else/1", "35", "v").status), (204, 204));
}

#[test]
fn objects_stay_on_the_engine_without_a_name() {
    let spread = Spread::new("spread_objects");
    let objects = TempDir::new().unwrap();
    let (config, place) = (spread.config(), format!("dir:{}", objects.path().display()));
    let s3 = ["--s3-listen", "127.0.0.1:0", "--objects", &place];
    std::fs::create_dir(objects.path().join("reports")).unwrap();
    let mut gateway = Gateway::with("rocksdb", &[&["--config", config.as_str()], s3.as_slice()].concat());
    let asked = json!({"resource": "orders/1"}).to_string();
    let issued = gateway.client().request("POST", "/v1/s3/credentials", &[("fencing-token", "1")], asked.as_bytes());
    assert_eq!(issued.problem(), "malformed-name", "{}", issued.text());
    assert!(issued.text().contains("kept on the engine `pg`"), "{}", issued.text());
    gateway.stop();
    std::fs::create_dir(objects.path().join("orders")).unwrap();
    let refused = spread.refused(&gateway, &s3);
    assert!(refused.contains("guard 1 (`orders/*/**`)") && refused.contains("the bucket `orders`"), "{refused}");
    std::fs::remove_dir(objects.path().join("orders")).unwrap();
    gateway.restart();
    gateway.stop();
    let mut gateway = Gateway::with("rocksdb", &[]);
    gateway.stop();
    let fresh = Place::new(On::Etcd, "spread_archive");
    spread.write(&engines(&[("kv", &fresh.engine())]), "[[guard]]\nkeys = '*/archive/**'\nengine = 'kv'\n");
    let done = spread.command("remap", &gateway, &["--yes"]);
    assert!(done.status.success(), "{done:?}");
    let empty = TempDir::new().unwrap();
    let place = format!("dir:{}", empty.path().display());
    let refused = spread.refused(&gateway, &["--s3-listen", "127.0.0.1:0", "--objects", &place]);
    assert!(refused.contains("guard 1") && refused.contains("objects of any bucket"), "{refused}");
}

/// All engines are shared ones, so any gateway serves every resource.
#[test]
fn g2_two_gateways_over_two_schemas_respect_each_other() {
    let server = shared_server();
    let url = |schema: &str| engine(&server.url(), &format!("schema={schema}"));
    let dir = TempDir::new().unwrap();
    let list = engines(&[("pg", &url("spread_two_b")), ("kv", &url("spread_two_c"))]);
    let config = write_config(dir.path(), &format!("{list}{GUARDS}"));
    let config = config.to_str().unwrap();
    let starting: Vec<_> = (0..3)
        .map(|_| {
            let (url, config) = (url("spread_two_a"), config.to_owned());
            std::thread::spawn(move || Gateway::with(&url, &["--config", &config]))
        })
        .collect();
    let gateways: Vec<Gateway> = starting.into_iter().map(|gateway| gateway.join().unwrap()).collect();
    for key in KEYS {
        assert_eq!(gateways[0].client().put(key, "34", key).status, 204);
        for gateway in &gateways {
            let mut client = gateway.client();
            assert_eq!(
                (client.put(key, "33", "late").problem().as_str(), client.get(key).text().as_str()),
                ("stale", key)
            );
        }
    }
    let printed = gateways[0].stdout();
    assert!(printed.contains("pg on postgres://") && printed.contains("schema=spread_two_b"), "{printed}");
}
