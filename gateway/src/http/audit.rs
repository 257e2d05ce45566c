//! The audit log: administrators' calls, one JSON object per line.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fencepost_core::Timestamp;
use serde_json::{Map, Value, json};

use super::permit::Identity;

/// Appends to a file, which is opened for each line so that it may be moved away at any time.
#[derive(Clone, Debug)]
pub struct AuditLog(PathBuf);

impl AuditLog {
    /// A log in this file, which the first line creates.
    pub fn new(path: &Path) -> AuditLog {
        AuditLog(path.to_owned())
    }

    /// Writes one line and waits until it is on the disk.
    pub(super) async fn write(&self, entry: Entry) -> io::Result<()> {
        let path = self.0.clone();
        tokio::task::spawn_blocking(move || {
            let line = format!("{}\n", Value::Object(entry.0));
            let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
            // One write, so that lines of two requests do not mix.
            file.write_all(line.as_bytes())?;
            file.sync_data()
        })
        .await
        .map_err(io::Error::other)?
    }
}

/// A line of the log.
#[derive(Clone, Debug)]
pub(super) struct Entry(Map<String, Value>);

impl Entry {
    /// A line for an action, with its caller and its request.
    pub(super) fn new(action: &str, identity: &Identity, request_id: &str) -> Entry {
        let (by, uid, pid) = match identity {
            Identity::Anonymous => ("nobody", None, None),
            Identity::Administrator(peer) => ("socket", Some(peer.uid), peer.pid),
            Identity::Signal => ("signal", None, None),
        };
        let mut entry = Map::new();
        entry.insert("at".into(), json!(Timestamp::now()));
        entry.insert("request_id".into(), json!(request_id));
        entry.insert("by".into(), json!(by));
        entry.insert("uid".into(), json!(uid));
        entry.insert("pid".into(), json!(pid));
        entry.insert("action".into(), json!(action));
        Entry(entry)
    }

    /// Adds a fact.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Entry {
        self.0.insert(name.into(), value.into());
        self
    }

    /// A later line for the same request, with its outcome.
    pub(super) fn again(mut self, outcome: &str) -> Entry {
        self.0.insert("at".into(), json!(Timestamp::now()));
        self.with("outcome", outcome)
    }
}
