//! The locking dialect: a commit is one call of one function, so one round trip, one transaction and one sync of the server's
//! log. The function locks what is compared in the order of keys, so E2 holds until the commit and commits hardly ever deadlock;
//! one that does is tried again. `schema.sql` has it.

use bytes::Bytes;
use fencepost_remote::postgres::{ToSql, Trouble, Type};

use super::COMMIT_PATIENCE;
use super::arguments::Arguments;
use super::connection::Connection;
use super::range::Range;
use super::server::{Durability, Server};
use crate::engine::{Batch, Limits, Record, Scan, Scanned, Version, Want, Wanted};

/// What one commit may hold: a batch in one message, and places that fit below the low bits of a version.
pub(super) const LIMITS: Limits = Limits { lanes: super::LANES, records: 16_384, bytes: 8 << 20 };

/// The statements, with the name of the schema.
pub(super) struct Statements {
    apply: String,
    apply_alone: String,
    load: String,
    scan: String,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Statements {
        let places: Vec<String> = (1..=14).map(|at| format!("${at}")).collect();
        let apply = |name| format!("SELECT {schema}.{name}({})", places.join(", "));
        Statements {
            apply: apply("apply_1"),
            apply_alone: apply("apply_alone_1"),
            load: format!("SELECT at, version, size, bytes FROM {schema}.load_1($1, $2, $3, $4)"),
            scan: format!("SELECT key, version, bytes FROM {schema}.scan_1($1, $2, $3, $4, $5, $6)"),
        }
    }
}

/// Sends one commit. `None`: a compared version differs.
pub(super) async fn apply(server: &Server, connection: &Connection, batch: &Batch) -> Result<Option<Version>, Trouble> {
    let arguments = Arguments::of(batch);
    let function = if arguments.alone { &server.locking.apply_alone } else { &server.locking.apply };
    let standby = server.durability == Durability::Standby;
    let values = arguments.values(&connection.history, &standby);
    let rows = connection.session.query_within(COMMIT_PATIENCE, function, &values).await?;
    let first: Option<i64> = rows.first().and_then(|row| row.get(0));
    Ok(first.map(|first| Version(first.unsigned_abs())))
}

/// Loads records as of one instant.
pub(super) async fn load(
    server: &Server,
    connection: &Connection,
    wanted: &[Wanted],
    spare: usize,
) -> Result<Vec<Option<Record>>, Trouble> {
    let keys: Vec<&[u8]> = wanted.iter().map(|wanted| wanted.key.as_bytes()).collect();
    let most: Vec<Option<i64>> = wanted.iter().map(|wanted| most(wanted.want)).collect();
    let spare = i64::try_from(spare).unwrap_or(i64::MAX);
    let values: [(&(dyn ToSql + Sync), Type); 4] = [
        (&keys, Type::BYTEA_ARRAY),
        (&most, Type::INT8_ARRAY),
        (&spare, Type::INT8),
        (&connection.history, Type::TEXT),
    ];
    let mut records = vec![None; wanted.len()];
    for row in connection.session.query(&server.locking.load, &values).await? {
        let (at, version, size): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let bytes: Option<&[u8]> = row.get(3);
        let version = Version(version.unsigned_abs());
        let record = match bytes {
            Some(bytes) => Record::whole(version, Bytes::copy_from_slice(bytes)),
            None => Record::head(version, usize::try_from(size).unwrap_or(usize::MAX)),
        };
        if let Some(place) = usize::try_from(at - 1).ok().and_then(|at| records.get_mut(at)) {
            *place = Some(record);
        }
    }
    Ok(records)
}

/// Scans a range of records.
pub(super) async fn scan(server: &Server, connection: &Connection, scan: &Scan) -> Result<Scanned, Trouble> {
    let Range { from, inclusive, before } = Range::of(scan);
    let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
    let (records, bytes) = (limit(scan.limit), limit(scan.max_bytes));
    let values: [(&(dyn ToSql + Sync), Type); 6] = [
        (&from, Type::BYTEA),
        (&inclusive, Type::BOOL),
        (&before, Type::BYTEA),
        (&records, Type::INT8),
        (&bytes, Type::INT8),
        (&connection.history, Type::TEXT),
    ];
    let mut scanned = Scanned::default();
    for row in connection.session.query(&server.locking.scan, &values).await? {
        let key: Option<&[u8]> = row.get(0);
        let Some(key) = key else {
            scanned.more = true;
            break;
        };
        let (version, bytes): (i64, &[u8]) = (row.get(1), row.get(2));
        let record = Record::whole(Version(version.unsigned_abs()), Bytes::copy_from_slice(bytes));
        scanned.records.push((key.to_vec(), record));
    }
    Ok(scanned)
}

/// The bytes up to which a record is wanted whole, as `load` takes them.
pub(super) fn most(want: Want) -> Option<i64> {
    match want {
        Want::Version => Some(-1),
        Want::UpTo(most) => Some(i64::try_from(most).unwrap_or(i64::MAX)),
        Want::Bytes => None,
    }
}
