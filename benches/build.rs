//! Passes the compiler's version to the program that records instruction counts.

use std::process::Command;

fn main() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(compiler).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=BENCH_COMPILER={}", said.unwrap_or_else(|_| "an unknown compiler".to_owned()));
    println!("cargo::rerun-if-changed=build.rs");
}
