//! Accounts of the database: who makes the schema, what serving needs, and passwords that nobody sees.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use fencepost_harness::fresh::write_config;
use fencepost_harness::process::{GatewayProcess, binary, run};
use tempfile::TempDir;

use crate::team::{Gateway, engine, own_server, serve, shared_server};

const PASSWORD: &str = "hunter2-in-the-url";

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The statements of docs/postgres.md that grant what serving needs, for this schema and account.
fn documented_grants(schema: &str, account: &str) -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/postgres.md")).unwrap();
    let block = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has grants");
    let adapted = |line: &str| {
        line.replace("fencepost.", &format!("{schema}."))
            .replace("schema fencepost ", &format!("schema {schema} "))
            .replace("to gateway", &format!("to {account}"))
    };
    block.lines().map(adapted).collect()
}

#[test]
fn a_gateway_serves_with_an_account_that_has_the_documented_rights() {
    let (server, schema, account) = (shared_server(), "granted", "granted_gateway");
    server.sql(&format!("create role {account} login"));
    let (admin, own) = (
        engine(&server.url(), &format!("schema={schema}")),
        engine(&server.url_for(account), &format!("schema={schema}")),
    );
    let said = Gateway::refused(&own, &[]);
    assert!(said.contains("permission denied"), "{said}");

    let migrated = run(&["migrate", "--engine", &admin]);
    assert!(migrated.status.success() && text(&migrated).contains("the schema was made"), "{}", text(&migrated));
    let again = run(&["migrate", "--engine", &admin]);
    assert!(again.status.success() && text(&again).contains("nothing was changed"), "{}", text(&again));
    // A new function may be executed by everybody; here the grant has to be what allows it.
    server.sql(&format!("revoke execute on all functions in schema {schema} from public"));
    let said = Gateway::refused(&own, &[]);
    assert!(said.contains("lacks a right") && said.contains("docs/postgres.md"), "{said}");

    let grants = documented_grants(schema, account);
    assert!(grants.len() >= 4, "{grants:?}");
    for grant in &grants {
        server.sql(grant);
    }
    let gateway = Gateway::start(&own);
    let mut client = gateway.client();
    assert_eq!(client.put("orders/1", "33", "paid").status, 204);
    assert_eq!(client.acquire("jobs/1", "a#1", 60_000).status, 201);
    assert_eq!(client.delete("orders/1", "33").status, 204);
    assert_eq!(gateway.admin("fence rotate orders/1 --from 0 --reason test").status.code(), Some(0));
    assert_eq!(client.put("orders/1", "33", "zombie").problem(), "retired-generation");
}

#[test]
fn migrate_needs_a_database() {
    let refused = run(&["migrate", "--engine", "memory"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused).contains("--engine postgres://user@host:port/database"), "{}", text(&refused));
    let unreachable = run(&["migrate", "--engine", "postgres://nobody@127.0.0.1:1/none"]);
    assert_eq!(unreachable.status.code(), Some(1), "{unreachable:?}");
    assert!(text(&unreachable).contains("cannot use postgres://nobody@127.0.0.1:1/none"), "{}", text(&unreachable));
}

#[test]
fn a_password_is_used_and_never_shown() {
    let server = own_server();
    server.sql(&format!("create role keeper superuser login password '{PASSWORD}'"));
    server.demand_password("keeper");
    let url = format!("postgres://keeper:{PASSWORD}@{}/postgres", server.address());
    let dir = TempDir::new().unwrap();
    let mut command = serve(&dir.path().join("data"), &["--log", "debug"]);
    let gateway = GatewayProcess::spawn({
        command.env("FENCEPOST_ENGINE", &url);
        command
    })
    .unwrap();
    assert_eq!(gateway.client().put("orders/1", "33", "paid").status, 204);
    let shown = format!("keeper:…@{}", server.address());
    assert!(gateway.stdout().contains(&shown), "{}", gateway.stdout());
    for said in [gateway.stdout(), gateway.stderr()] {
        assert!(!said.contains(PASSWORD), "{said}");
    }
    let checked = Command::new(binary()).args(["config", "check"]).env("FENCEPOST_ENGINE", &url).output().unwrap();
    assert!(!text(&checked).contains(PASSWORD), "{}", text(&checked));

    let wrong = url.replace(PASSWORD, "wrong-and-secret");
    let mut command = serve(&dir.path().join("other"), &[]);
    command.env("FENCEPOST_ENGINE", &wrong);
    let Err(said) = GatewayProcess::spawn(command) else { panic!("it serves with a wrong password") };
    assert!(said.contains("password authentication failed") && !said.contains("wrong-and-secret"), "{said}");
}

#[test]
fn a_file_with_a_password_belongs_to_its_owner_alone() {
    let dir = TempDir::new().unwrap();
    let url = format!("postgres://keeper:{PASSWORD}@127.0.0.1:1/postgres");
    let file = write_config(dir.path(), &format!("engine = \"{url}\"\n"));
    let check = |mode: u32| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        run(&["config", "check", "--config", file.to_str().unwrap()])
    };
    let refused = check(0o644);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused).contains("chmod 600") && !text(&refused).contains(PASSWORD), "{}", text(&refused));
    let accepted = check(0o600);
    assert!(accepted.status.success() && !text(&accepted).contains(PASSWORD), "{}", text(&accepted));
}
