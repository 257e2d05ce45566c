//! Why a connection or a statement failed.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::tls::Terms;

/// The error of a connection or a statement.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Trouble {
    /// The server's error code; `None` if the server did not answer.
    code: Option<SqlState>,
    why: String,
    /// Not an answer of the server, but permanent nevertheless.
    lasting: bool,
    /// The server ended the session with it.
    fatal: bool,
}

impl Trouble {
    pub(super) fn asking(error: &Error) -> Trouble {
        let severity = error.as_db_error().and_then(DbError::parsed_severity);
        let fatal = matches!(severity, Some(Severity::Fatal | Severity::Panic));
        Trouble { code: error.code().cloned(), why: explained(error), lasting: false, fatal }
    }

    /// Network errors are transient. A server without TLS where it is required, an untrusted certificate, or a missing
    /// password are permanent.
    pub(super) fn connecting(error: &Error, terms: Terms) -> Trouble {
        if let Some(why) = terms.refusal(error) {
            return Trouble { code: None, why, lasting: true, fatal: false };
        }
        let network = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).next();
        let passes = network.is_some_and(|cause| cause.kind() != io::ErrorKind::InvalidData);
        Trouble { lasting: !passes && !error.is_closed(), ..Trouble::asking(error) }
    }

    pub(super) fn unanswered(limit: Duration) -> Trouble {
        let why = format!("no answer within {} s", limit.as_secs());
        Trouble { code: None, why, lasting: false, fatal: false }
    }

    /// The answer is none that the server should give, so what it did is unknown.
    pub(super) fn garbled(why: &str) -> Trouble {
        Trouble { code: None, why: why.to_owned(), lasting: false, fatal: false }
    }

    /// The server's error code; `None` if the server did not answer.
    pub fn code(&self) -> Option<&SqlState> {
        self.code.as_ref()
    }

    /// The error text: the server's message with its hint, or the error of the connection with its causes.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// True if the error is an answer of the server.
    pub fn is_an_answer(&self) -> bool {
        self.code.is_some()
    }

    /// True if the server answered with this code.
    pub fn is(&self, code: &SqlState) -> bool {
        self.code.as_ref() == Some(code)
    }

    /// The connection broke, or the server closed it: whether the statement was executed is unknown.
    pub fn is_broken(&self) -> bool {
        match &self.code {
            None => !self.lasting,
            Some(code) => code.code().starts_with("08") || code.code().starts_with("57P"),
        }
    }

    /// The server ended the session. That does not say whether it had executed the statement.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// The server rolled the statement back, and asks to repeat it.
    pub fn is_conflict(&self) -> bool {
        self.is(&SqlState::T_R_SERIALIZATION_FAILURE) || self.is(&SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// No connection was made, for a reason other than an answer of the server, and trying again does not help.
    pub fn is_lasting(&self) -> bool {
        self.lasting && self.code.is_none()
    }
}

/// An error with its causes: the outer text alone has little information.
pub fn explained(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return match said.hint() {
            Some(hint) => format!("{} ({hint})", said.message()),
            None => said.message().to_owned(),
        };
    }
    causes(error).fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}
