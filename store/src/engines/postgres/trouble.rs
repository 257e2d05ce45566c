//! What an error of the server means for a commit.

use fencepost_remote::postgres::{SqlState, Trouble};

/// What became of the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing was written; judged again it may succeed.
    Conflict,
    /// Nothing was written.
    Nothing(String),
    /// It may have been written.
    Unknown(String),
}

/// An absent record is there: raised by our function.
const THERE: &str = "FP001";
/// The isolation is not READ COMMITTED: raised by our function.
const ISOLATION: &str = "FP002";
/// The server has another timeline than the records, or is a standby: raised by our functions.
const TIMELINE: &str = "FP003";
/// No standby is synchronous, and one must have every commit: raised by our function.
const NO_STANDBY: &str = "FP004";

/// CockroachDB: the server itself does not know.
const COMPLETION_UNKNOWN: &str = "40003";

pub(super) fn fate(trouble: &Trouble) -> Fate {
    let Some(code) = trouble.code() else { return Fate::Unknown(trouble.why().to_owned()) };
    let why = trouble.why();
    match code.code() {
        THERE => Fate::Conflict,
        _ if trouble.is_conflict() || *code == SqlState::LOCK_NOT_AVAILABLE => Fate::Conflict,
        COMPLETION_UNKNOWN => Fate::Unknown(why.to_owned()),
        // The session or the server ended, or failed inside.
        broken
            if trouble.is_fatal()
                || trouble.is_broken()
                || ["XX", "58"].iter().any(|class| broken.starts_with(class)) =>
        {
            Fate::Unknown(why.to_owned())
        }
        _ => Fate::Nothing(explained(trouble)),
    }
}

/// The error and what to do about it.
pub(super) fn explained(trouble: &Trouble) -> String {
    let (why, code) = (trouble.why(), trouble.code().map_or("", SqlState::code));
    let advice = match code {
        ISOLATION => "set default_transaction_isolation of the role and the database to 'read committed'",
        NO_STANDBY => "set synchronous_standby_names on the server",
        "25006" => "it is a standby, or was made read-only: name the primary, or all servers: postgres://a,b/database",
        "42501" => "the account lacks a right; docs/postgres.md lists what it needs",
        "53100" => "the server's disk is full: make room there",
        "53300" => "raise max_connections on the server, or use fewer gateways",
        _ if is_missing_schema(code) => "run `fencepost migrate` with an account that may change the schema",
        _ => return why.to_owned(),
    };
    format!("{why}; {advice}")
}

fn is_missing_schema(code: &str) -> bool {
    ["3F000", "42P01", "42883"].contains(&code)
}

/// Whether it says that this server is not the one to commit on, so that a new connection may find the right one.
pub(super) fn is_of_the_server(trouble: &Trouble) -> bool {
    trouble.code().is_some_and(|code| [TIMELINE, NO_STANDBY, "25006"].contains(&code.code()))
}
