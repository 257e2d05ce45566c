//! Unfinished uploads of a fenced-off holder, which can no longer abort them.

use fencepost_conformance::wait::{self, PATIENCE};

use crate::parsing::{code, element};
use crate::world::World;

#[test]
fn b_abandoned_uploads_of_a_fenced_holder_are_collected() {
    let world = World::new();
    let running = world.start();
    let first = running.holder("33");
    let upload = first.begin_upload("reports/cut");
    assert_eq!(first.put_part("reports/cut", &upload, 1, b"part").status, 200);
    let collect = |arguments: &[&str]| {
        let (code, out, error) = world.administer(&[&["collect", "--older-than", "0s"][..], arguments].concat());
        assert_eq!(code, 0, "{out} {error}");
        out
    };
    assert!(collect(&[]).contains(" 0 unfinished uploads"), "its holder may still go on");
    let second = running.holder("34");
    let own = second.begin_upload("reports/own");
    assert_eq!(second.put_part("reports/own", &own, 1, b"part").status, 200);
    // Collected neither in a dry run nor before its time.
    assert!(collect(&["--dry-run"]).contains(" 1 unfinished uploads"));
    let (_, young, _) = world.administer(&["collect"]);
    assert!(young.contains(" 0 unfinished uploads"), "{young}");
    assert!(collect(&[]).contains(" 1 unfinished uploads"));
    assert!(collect(&[]).contains(" 0 unfinished uploads"));
    let left = second.request("GET", "/reports?uploads=", &[], b"").text();
    assert_eq!(element(&left, "UploadId"), Some(own), "{left}");
    world.no_leftovers(&second);
    let gone = second.request("GET", &format!("/reports/cut?uploadId={upload}"), &[], b"");
    assert_eq!((gone.status, code(&gone).as_str()), (404, "NoSuchUpload"));
}

/// Collected automatically after the configured time.
#[test]
fn b_abandoned_uploads_are_collected_after_the_retention() {
    let world =
        World::configured("[s3]\nupload_retention = '1s'\n[[guard]]\nkeys = 'reports/**'\nresource = 'reports'\n");
    let running = world.start();
    let first = running.holder("33");
    let upload = first.begin_upload("reports/cut");
    assert_eq!(first.put_part("reports/cut", &upload, 1, b"part").status, 200);
    let second = running.holder("34");
    wait::until("the upload to be ended", PATIENCE, || {
        let left = second.request("GET", "/reports?uploads=", &[], b"").text();
        element(&left, "UploadId").is_none().then_some(())
    });
    world.no_leftovers(&second);
}
