//! Kills a writing process repeatedly and opens its directory: it must always open, and nothing acknowledged may be
//! lost.
//!
//! Buffers are small, so that kills also hit flushes, compactions and log switches.
//! Budget: CI 25 kills, full 1,000.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};

use crate::testbed::directory::{Positions, budget};
use crate::testbed::{applied, body, put, read, together, token};
use fencepost_store::engines::EngineOptions;
use tempfile::TempDir;

const KEYS: u64 = 64;
const AT_ONCE: u64 = 8;

/// The test starts itself again with these variables set; that process writes until it is killed.
const DIR: &str = "FENCEPOST_TEST_WRITE_TO";
const FROM: &str = "FENCEPOST_TEST_FIRST_TOKEN";

fn options() -> EngineOptions {
    EngineOptions {
        cache_bytes: 64 << 10,
        write_buffer_bytes: 32 << 10,
        free_space_floor: 0,
        ..EngineOptions::default()
    }
}

/// Writes under growing tokens, and prints each one after it was acknowledged.
async fn write_for_ever(dir: &Path, from: u64) {
    let store = crate::testbed::directory::open(dir, &options()).await;
    for round in 0.. {
        let numbers: Vec<u64> = (0..AT_ONCE).map(|n| from + round * AT_ONCE + n).collect();
        let store = &store;
        let puts = numbers.iter().map(|number| -> Pin<Box<dyn Future<Output = ()> + '_>> {
            Box::pin(async move {
                let text = format!("{number}:{}", "v".repeat((number % 500) as usize));
                applied(put(store, &format!("k{}", number % KEYS), token(&number.to_string()), &text).await);
            })
        });
        together(puts.collect()).await;
        let mut out = std::io::stdout().lock();
        for number in numbers {
            writeln!(out, "answered {number}").unwrap();
        }
        out.flush().unwrap();
    }
}

/// Starts a writer, kills it after this many acknowledgements, and returns the highest acknowledged token of each key.
fn write_and_kill(dir: &Path, from: u64, answers: usize) -> BTreeMap<u64, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::every_answer_survives_a_kill", "--nocapture"])
        .env(DIR, dir)
        .env(FROM, from.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answered = BTreeMap::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let numbers = lines.filter_map(|line| line.strip_prefix("answered ")?.parse::<u64>().ok());
    for (count, number) in numbers.enumerate() {
        answered.insert(number % KEYS, number);
        // Keep reading: acknowledgements printed before the kill took effect count too.
        if count + 1 == answers {
            child.kill().unwrap();
        }
    }
    let output = child.wait_with_output().unwrap();
    assert!(!answered.is_empty(), "it answered nothing: {}", String::from_utf8_lossy(&output.stderr));
    answered
}

#[tokio::test]
async fn every_answer_survives_a_kill() {
    if let Some(dir) = std::env::var_os(DIR) {
        let from = std::env::var(FROM).unwrap().parse().unwrap();
        return write_for_ever(Path::new(&dir), from).await;
    }
    let dir = TempDir::new().unwrap();
    let (mut answered, mut random): (BTreeMap<u64, u64>, _) = (BTreeMap::new(), Positions(2024));
    for kill in 0..budget(25, 1_000) {
        // Tokens in flight at the last kill may be stored, so the next tokens start above them.
        let from = answered.values().max().unwrap_or(&0) + 1 + AT_ONCE;
        answered.extend(write_and_kill(dir.path(), from, 1 + random.below(800)));
        let store = crate::testbed::directory::open(dir.path(), &options()).await;
        for (key, token) in &answered {
            let read = read(&store, &format!("k{key}")).await;
            let fence = read.state.high.unwrap().get();
            assert!(fence >= *token, "kill {kill}: the fence of k{key} is {fence}, and {token} was answered");
            let value = read.value.unwrap().1;
            let text = body(&value);
            assert_eq!(
                text.split(':').next(),
                Some(fence.to_string().as_str()),
                "kill {kill}: fence and value of k{key} are of one commit (G3)"
            );
        }
        store.close().await;
    }
}
