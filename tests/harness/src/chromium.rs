//! Chromium without a window.

use std::path::Path;
use std::process::{Command, Stdio};

/// Opens a page with further arguments, waits until Chromium exits, and returns its standard output. The profile is a
/// directory that need not exist yet.
pub fn open(profile: &Path, arguments: &[&str], page: &str) -> String {
    let output = Command::new("timeout")
        .args(["--kill-after=5", "90", "chromium", "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(page)
        .stdin(Stdio::null())
        .output()
        .expect("chromium is installed (scripts/setup test)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
