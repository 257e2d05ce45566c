//! How gateways on a server start: together, or not at all, with the reason.

use std::thread;

use fencepost_harness::fresh::write_config;
use fencepost_harness::process::run;
use serde_json::json;
use tempfile::TempDir;

use crate::team::{Gateway, engine, own_server, shared_server, txn};

#[test]
fn gateways_that_start_at_once_on_the_first_day_share_one_store() {
    let server = shared_server();
    let engine = engine(&server.url(), "schema=first_day");
    let starting: Vec<_> = (0..4)
        .map(|_| {
            let engine = engine.clone();
            thread::spawn(move || Gateway::start(&engine))
        })
        .collect();
    let gateways: Vec<Gateway> = starting.into_iter().map(|gateway| gateway.join().unwrap()).collect();
    assert_eq!(gateways[0].client().put("k", "7", "v").status, 204);
    for gateway in &gateways {
        assert_eq!(gateway.client().put("k", "6", "zombie").problem(), "stale");
    }
}

#[test]
fn what_it_prints_names_the_server_and_its_socket() {
    let server = shared_server();
    let gateway = Gateway::start(&engine(&server.url(), "schema=welcome"));
    let printed = gateway.stdout();
    assert!(printed.contains("engine postgres") && printed.contains(&server.address().to_string()), "{printed}");
    assert!(printed.contains("schema=welcome"), "the store is told apart from others: {printed}");
    assert!(gateway.data().join("admin.sock").exists());
}

#[test]
fn a_server_that_cannot_be_used_is_refused_with_the_reason() {
    let said = Gateway::refused("postgres://nobody@127.0.0.1:1/none", &[]);
    assert!(said.contains("cannot use postgres://nobody@127.0.0.1:1/none as engine"), "{said}");
    let said = Gateway::refused("postgres", &[]);
    assert!(said.contains("needs its URL") && said.contains("postgres://user@host:port/database"), "{said}");
    let said = Gateway::refused("mysql://a/b", &[]);
    assert!(said.contains("no engine `mysql`") && said.contains("rocksdb"), "{said}");
    let server = shared_server();
    let said = Gateway::refused(&format!("{}?shema=x", server.url()), &[]);
    assert!(said.contains("shema"), "{said}");
}

#[test]
fn objects_in_a_directory_are_not_served_by_several_gateways() {
    let (server, dir) = (shared_server(), TempDir::new().unwrap());
    let objects = format!("dir:{}", dir.path().display());
    let engine = engine(&server.url(), "schema=objects");
    let said = Gateway::refused(&engine, &["--s3-listen", "127.0.0.1:0", "--objects", &objects]);
    assert!(said.contains("belongs to one gateway") && said.contains("rocksdb"), "{said}");
}

#[test]
fn t32_gateways_of_one_store_have_one_mapping() {
    let (server, dir) = (own_server(), TempDir::new().unwrap());
    let engine = engine(&server.url(), "schema=mapped");
    let config = write_config(dir.path(), "[[guard]]\nkeys = \"orders/*/**\"\nresource = \"orders/*\"\n");
    let config = config.to_str().unwrap().to_owned();
    let by_key = Gateway::start(&engine);
    assert_eq!(by_key.client().put("orders/1/lines", "33", "old").status, 204);
    let said = Gateway::refused(&engine, &["--config", &config]);
    assert!(said.contains("orders/*") && said.contains("remap"), "{said}");

    let remap =
        |more: &[&str]| run(&[&["remap", "--engine", engine.as_str(), "--config", config.as_str()], more].concat());
    let asked = remap(&[]);
    assert_eq!(asked.status.code(), Some(2), "{asked:?}");
    let why = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(why.contains("every gateway on this server"), "{why}");
    let done = remap(&["--yes"]);
    assert!(done.status.success(), "{done:?}");

    // The gateway that still has the old mapping serves nothing that a fence decides.
    let refused = by_key.client().put("orders/1/lines", "33", "zombie");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("mapping"), "{}", refused.text());
    let by_order = Gateway::with(&engine, &["--config", &config]);
    let mut client = by_order.client();
    assert_eq!(client.put("orders/1/lines", "33", "zombie").problem(), "retired-generation");
    let fence = client.request("GET", "/v1/fences/orders/1", &[], b"").json();
    let token = format!("{}:1", fence["generation"]);
    let body = json!({"tokens": {"orders/1": token}, "then": [{"put": "orders/1/lines", "text": "new"}]});
    assert_eq!(txn(&mut client, &body).status, 200);
}
