//! PostgreSQL: how to connect to a server, and sessions that send statements with a time limit.

mod server;
mod session;
mod tls;
mod trouble;

use std::time::Duration;

pub use server::Server;
pub use session::Session;
pub use tokio_postgres::error::SqlState;
pub use tokio_postgres::types::{FromSql, ToSql, Type};
pub use tokio_postgres::{Error, Row};
pub use trouble::{Trouble, explained};

/// The time limit of a statement, unless the caller gives another, and of a connection, unless the URL does.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Values of a statement, with the types they are sent as.
pub type Values<'a> = [(&'a (dyn ToSql + Sync), Type)];
