//! The gateway from outside, in a few calls.

use fencepost_harness::process::GatewayProcess;

#[test]
fn a_newer_token_writes_and_an_older_one_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let gateway = GatewayProcess::start(data.path(), &[]);
    let mut client = gateway.client();
    assert_eq!(client.put("orders/123", "34", "paid").status, 204);
    let refused = client.put("orders/123", "33", "too late");
    assert_eq!((refused.status, refused.problem().as_str()), (409, "stale"));
    assert_eq!(client.get("orders/123").text(), "paid");
    gateway.kill();
    let gateway = GatewayProcess::start(data.path(), &[]);
    assert_eq!(gateway.client().put("orders/123", "33", "too late").status, 409);
}
