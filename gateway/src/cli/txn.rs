//! `fencepost txn` and `fencepost outcome`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fencepost_core::IdempotencyKey;
use fencepost_core::wire::{OutcomeAnswer, OutcomeState, TxnRequest};

use super::connect::{Connect, OnceArgs, input};
use super::exit::Failed;

#[derive(Args)]
pub(super) struct Txn {
    /// File with the transaction in JSON; standard input if `-` or absent
    file: Option<PathBuf>,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    connect: Connect,
}

impl Txn {
    pub(super) fn run(self) -> Result<(), Failed> {
        let file = self.file.filter(|path| path.as_os_str() != "-");
        let transaction: TxnRequest = serde_json::from_slice(&input(file)?)
            .map_err(|error| Failed::usage(format!("this is not a transaction: {error}; see docs/transactions.md")))?;
        let once = self.once.key();
        let answer = self.connect.call(async |gateway| gateway.transact(&transaction, once.as_ref()).await)?;
        if self.connect.json {
            return super::print(&serde_json::to_string(&answer).map_err(Failed::other)?);
        }
        for result in &answer.results {
            let version = result.etag.as_ref().map(|etag| format!(", version {etag}")).unwrap_or_default();
            let value = match (&result.value, &result.read) {
                (Some(sum), _) => format!(": {}", sum.0),
                (None, Some(read)) => format!(": {}", serde_json::to_string(&read.value).map_err(Failed::other)?),
                (None, None) if result.absent => ": no value".to_owned(),
                (None, None) => String::new(),
            };
            super::print(&format!("{}{version}{value}", result.key))?;
        }
        Ok(())
    }
}

#[derive(Subcommand)]
pub(super) enum Outcome {
    /// Show what became of a request
    Show(One),
    /// Make sure that a request is never applied, unless it has been
    Abandon(One),
}

#[derive(Args)]
pub(super) struct One {
    /// Idempotency key of the request
    #[arg(value_parser = IdempotencyKey::new)]
    key: IdempotencyKey,
    #[command(flatten)]
    connect: Connect,
}

impl Outcome {
    pub(super) fn run(self) -> Result<(), Failed> {
        let (connect, answer) = match self {
            Outcome::Show(One { key, connect }) => {
                let answer = connect.call(async |gateway| gateway.outcome(&key).await)?;
                (connect, answer)
            }
            Outcome::Abandon(One { key, connect }) => {
                let answer = connect.call(async |gateway| gateway.abandon(&key).await)?;
                (connect, answer)
            }
        };
        if connect.json {
            return super::print(&serde_json::to_string(&answer).map_err(Failed::other)?);
        }
        let OutcomeAnswer { key, outcome, problem, token, recorded_at, .. } = answer;
        let at = recorded_at.map(|at| format!(" at {at}")).unwrap_or_default();
        super::print(&match outcome {
            OutcomeState::Applied => {
                let token = token.map(|token| format!(", token {token}")).unwrap_or_default();
                format!("{key}: applied{at}{token}")
            }
            OutcomeState::Failed => format!("{key}: failed{at} ({})", problem.unwrap_or_default()),
            OutcomeState::NotRecorded => {
                format!("{key}: not recorded; it may still arrive, unless you abandon it")
            }
        })
    }
}
