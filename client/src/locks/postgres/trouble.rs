//! Errors of statements, as callers of the lock service get them.

use fencepost_remote::postgres::{SqlState, Trouble};

use super::{LockError, exhausted};

/// The error of the lock service for a failed connection or statement.
pub(super) fn lock_error(trouble: &Trouble, service: &str) -> LockError {
    let (service, why) = (service.to_owned(), trouble.why().to_owned());
    let Some(code) = trouble.code() else {
        return match trouble.is_lasting() {
            true => LockError::Failed { service, why },
            false => LockError::Unreachable { service, why },
        };
    };
    if *code == SqlState::NUMERIC_VALUE_OUT_OF_RANGE {
        return exhausted(&service);
    }
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        let why = format!("{why}; it is a standby, or was made read-only: connect to the primary");
        return LockError::Unreachable { service, why };
    }
    if *code == SqlState::INVALID_PASSWORD || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        let why = format!(
            "{why}; check user, password and certificate (`sslcert`, `sslkey`) in the URL, and the server's pg_hba.conf"
        );
        return LockError::Failed { service, why };
    }
    // Connection, resources, rollback, lock timeout, operator intervention: transient.
    let passing = ["08", "53", "40", "55P03", "57"].iter().any(|class| code.code().starts_with(class));
    match passing {
        true => LockError::Unreachable { service, why },
        false => LockError::Failed { service, why: format!("{why} (SQLSTATE {})", code.code()) },
    }
}
