//! The inventory example: with the fence exactly the stock is sold, without it more.
use std::path::Path;
use std::process::Command;

use fencepost_harness::budget;
use fencepost_harness::process::binary;

/// The number that follows a word.
fn after(line: &str, word: &str) -> u64 {
    let rest = line.split(word).nth(1).unwrap_or_else(|| panic!("`{word}` is not in {line:?}"));
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn workers_with_pauses_longer_than_their_leases_sell_exactly_the_stock() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/inventory/inventory.py");
    let stock = budget::pick(40, 200);
    let output = Command::new("python3")
        .arg(script)
        .args(["--fencepost", binary().to_str().unwrap(), "--stock", &stock.to_string(), "--workers", "32"])
        .output()
        .unwrap_or_else(|error| panic!("python3 cannot be started: {error}; `scripts/setup test` installs it"));
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}{wrong}");
    assert!(output.status.success(), "{said}{wrong}");
    let line = |mode: &str| said.lines().find(|line| line.starts_with(mode)).unwrap().to_owned();
    let (enforced, observed) = (line("enforce"), line("observe"));
    assert_eq!(after(&enforced, "sold"), stock);
    assert!(after(&enforced, "lease,") > 0, "nobody was late, so nothing was shown");
    assert!(after(&observed, "sold") > stock, "the run without a fence did not oversell");
}
