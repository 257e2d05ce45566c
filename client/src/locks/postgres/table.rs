//! The table of locks, and its first row, which identifies the table.

use fencepost_remote::postgres::{Session, SqlState, Trouble, Type, Values};

use super::LockError;
use super::settings::{Mode, Settings};
use super::trouble::lock_error;

/// The key of an advisory lock held while the table is created, because concurrent creations fail in the catalogue. An
/// arbitrary number that other programs are unlikely to use.
const SETTING_UP: i64 = 0x6665_6e63_6570_6f73;

/// The name of the table, quoted.
pub(super) struct Table(String);

impl Table {
    /// `name` or `schema.name`.
    pub(super) fn named(name: &str) -> Result<Table, String> {
        let plain = |part: &str| {
            let mut letters = part.bytes();
            letters.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
                && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
                && part.len() < 64
        };
        let parts: Vec<_> = name.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| plain(part)) {
            return Err(format!("`{name}` is not a plain name, or schema.name, of small letters, digits and `_`"));
        }
        Ok(Table(format!("\"{}\"", parts.join("\".\""))))
    }

    /// A statement with the table's name in the place of `LOCKS`.
    pub(super) fn in_sql(&self, statement: &str) -> String {
        statement.replace("LOCKS", &self.0)
    }
}

/// One row per lock. The row with the empty name, which no lock can have, records the mode of the table and its
/// incarnation.
const CREATE: &str = "create table if not exists LOCKS (name text collate \"C\" primary key, token bigint not null, \
                      holder text, expires timestamptz)";

const IDENTIFY: &str = "insert into LOCKS (name, token, holder) values ('', 0, 'MODE/' || gen_random_uuid()) \
                        on conflict do nothing";

const WHICH: &str = "select holder from LOCKS where name = ''";

/// Creates the table and its first row if they are missing, and returns the table's incarnation.
pub(super) async fn set_up(session: &Session, settings: &Settings) -> Result<String, LockError> {
    let (service, table) = (settings.service(), &settings.table);
    for _ in 0..2 {
        let which = session.query(&table.in_sql(WHICH), NOTHING).await;
        let identify = table.in_sql(&IDENTIFY.replace("MODE", settings.mode.name()));
        let create = table.in_sql(CREATE);
        let missing = match which {
            Ok(rows) => match rows.first().map(|row| row.try_get::<_, Option<String>>(0)) {
                Some(Ok(Some(which))) => return incarnation(settings, &which),
                Some(_) => return Err(edited(service)),
                None => identify.clone(),
            },
            Err(trouble) if trouble.is(&SqlState::UNDEFINED_TABLE) => format!("{create}; {identify}"),
            Err(trouble) => return Err(lock_error(&trouble, service)),
        };
        let made = session.batch(&format!("select pg_advisory_xact_lock({SETTING_UP}); {missing}")).await;
        made.map_err(|trouble| refused(&trouble, service, &format!("{create}; {identify}"), &table.0))?;
    }
    Err(edited(service))
}

const NOTHING: &Values<'static> = &[];

fn refused(trouble: &Trouble, service: &str, sql: &str, table: &str) -> LockError {
    let denied = trouble.is(&SqlState::INSUFFICIENT_PRIVILEGE) || trouble.is(&SqlState::INVALID_SCHEMA_NAME);
    match lock_error(trouble, service) {
        LockError::Failed { service, why } if denied => {
            let why = format!(
                "{why}. The table of locks is missing, and this user may not make it. Let one who may run: {sql}; \
                 grant select, insert, update on {table} to …"
            );
            LockError::Failed { service, why }
        }
        error => error,
    }
}

/// The incarnation recorded in the first row, if the row has our mode.
pub(super) fn incarnation(settings: &Settings, which: &str) -> Result<String, LockError> {
    let (ours, service) = (settings.mode.name(), settings.service());
    match which.split_once('/') {
        Some((mode, incarnation)) if mode == ours => Ok(incarnation.to_owned()),
        Some((mode, _)) if [Mode::Lease, Mode::Advisory].iter().any(|known| known.name() == mode) => {
            Err(LockError::Failed {
                service: service.to_owned(),
                why: format!(
                    "its table {} is used with mode={mode}, and the two modes do not see each other's holders: \
                     use mode={mode} everywhere, or another table (table=…) for mode={ours}",
                    settings.table.0
                ),
            })
        }
        _ => Err(edited(service)),
    }
}

fn edited(service: &str) -> LockError {
    LockError::Failed {
        service: service.to_owned(),
        why: "the first row of its table of locks, the one with an empty name, makes no sense; was it edited?"
            .to_owned(),
    }
}

/// The types of name and holder.
pub(super) const TEXT: Type = Type::TEXT;
/// The type of numbers and times.
pub(super) const INT8: Type = Type::INT8;
