//! `fencepost kv`: values.

use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, Subcommand};
use fencepost_client::{Precondition, WriteOptions, Written};
use fencepost_core::Key;
use serde_json::json;

use super::connect::{Connect, ListArgs, OnceArgs, TokenArgs, input};
use super::exit::{self, Failed};

#[derive(Subcommand)]
pub(super) enum Kv {
    /// Write a value
    Put(Put),
    /// Read a value to standard output
    Get(Get),
    /// Remove a value; the fence stays
    Delete(Delete),
    /// List keys
    List(ListArgs),
}

#[derive(Args)]
pub(super) struct Put {
    /// Key to write
    #[arg(value_parser = Key::new)]
    key: Key,
    /// Value; read from standard input if `-` or absent
    value: Option<String>,
    /// Read the value from a file
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Media type of the value
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream")]
    content_type: String,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Args)]
pub(super) struct Get {
    /// Key to read
    #[arg(value_parser = Key::new)]
    key: Key,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
pub(super) struct Delete {
    /// Key to remove
    #[arg(value_parser = Key::new)]
    key: Key,
    #[command(flatten)]
    write: WriteArgs,
}

/// What every write takes besides its key.
#[derive(Args)]
struct WriteArgs {
    #[command(flatten)]
    condition: ConditionArgs,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    connect: Connect,
}

impl WriteArgs {
    fn split(self) -> (WriteOptions, Connect) {
        let options = WriteOptions::new()
            .credentials(self.token.credentials())
            .precondition(self.condition.precondition())
            .idempotency_key(self.once.key());
        (options, self.connect)
    }
}

#[derive(Args)]
struct ConditionArgs {
    /// Only if the key's version is this, as printed by put and `get --json`; `*` for any
    #[arg(long, value_name = "ETAG", conflicts_with = "if_absent")]
    if_match: Option<String>,
    /// Only if the key has no value
    #[arg(long)]
    if_absent: bool,
}

impl ConditionArgs {
    fn precondition(self) -> Precondition {
        match (self.if_match, self.if_absent) {
            // The quotes of an ETag are easily lost in a shell.
            (Some(etag), _) if etag == "*" => Precondition::Version(etag),
            (Some(etag), _) => Precondition::Version(format!("\"{}\"", etag.trim_matches('"'))),
            (None, true) => Precondition::Absent,
            (None, false) => Precondition::Always,
        }
    }
}

impl Kv {
    pub(super) fn run(self) -> Result<(), Failed> {
        match self {
            Kv::Put(put) => put.run(),
            Kv::Get(get) => get.run(),
            Kv::Delete(delete) => delete.run(),
            Kv::List(args) => list(&args),
        }
    }
}

impl Put {
    fn run(self) -> Result<(), Failed> {
        let body = value(self.value, self.file)?;
        let (key, content_type) = (self.key, self.content_type);
        let (options, connect) = self.write.split();
        let written = connect.call(async |gateway| gateway.put(&key, body, Some(&content_type), &options).await)?;
        report("wrote", &key, &written, connect.json)
    }
}

fn value(value: Option<String>, file: Option<PathBuf>) -> Result<Bytes, Failed> {
    match (value.as_deref(), file) {
        (None | Some("-"), file) => input(file).map(Bytes::from),
        (Some(text), _) => Ok(Bytes::copy_from_slice(text.as_bytes())),
    }
}

impl Delete {
    fn run(self) -> Result<(), Failed> {
        let (key, (options, connect)) = (self.key, self.write.split());
        let written = connect.call(async |gateway| gateway.delete(&key, &options).await)?;
        report("deleted", &key, &written, connect.json)
    }
}

fn report(verb: &str, key: &Key, written: &Written, as_json: bool) -> Result<(), Failed> {
    let Written { etag, fence, observed, replayed, .. } = written;
    if as_json {
        return super::print(
            &json!({"key": key, "etag": etag, "fence": fence, "observed": observed, "replayed": replayed}).to_string(),
        );
    }
    let version = etag.as_ref().map(|etag| format!(", version {etag}")).unwrap_or_default();
    let fence = fence.map(|fence| format!(", fence {fence}")).unwrap_or_default();
    let observed =
        observed.as_ref().map(|reason| format!(" (observe mode: would be refused as {reason})")).unwrap_or_default();
    let replayed = if *replayed { " (by an earlier request with this idempotency key)" } else { "" };
    super::print(&format!("{verb} {key}{version}{fence}{observed}{replayed}"))
}

impl Get {
    fn run(self) -> Result<(), Failed> {
        let (key, credentials) = (self.key, self.token.credentials());
        let value = self.connect.call(async |gateway| gateway.get(&key, credentials.as_ref()).await)?;
        let Some(value) = value else { return Err(Failed::absent(format!("the key `{key}` has no value"))) };
        if value.unclaimed {
            exit::note("your token is above the fence: claim the resource before you rely on what you read");
        }
        if !self.connect.json {
            return exit::write(&value.body);
        }
        let body = match std::str::from_utf8(&value.body) {
            Ok(text) => json!({"text": text}),
            Err(_) => {
                use base64::Engine as _;
                json!({"base64": base64::engine::general_purpose::STANDARD.encode(&value.body)})
            }
        };
        let mut shown = json!({
            "key": key, "etag": value.etag, "content_type": value.content_type, "token": value.token,
            "fence": value.fence, "unclaimed": value.unclaimed,
        });
        if let (Some(shown), Some(body)) = (shown.as_object_mut(), body.as_object()) {
            shown.extend(body.clone());
        }
        super::print(&shown.to_string())
    }
}

fn list(list: &ListArgs) -> Result<(), Failed> {
    let page =
        list.connect.call(async |gateway| gateway.list(&list.prefix, list.after.as_deref(), list.limit).await)?;
    let mut lines = String::new();
    for entry in &page.keys {
        let token = entry.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
        lines.push_str(&format!("{}\t{} bytes\tversion {}\ttoken {token}\n", entry.key, entry.size, entry.etag));
    }
    list.print(&page, &lines, page.next.as_deref())
}
