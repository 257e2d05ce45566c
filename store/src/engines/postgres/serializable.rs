//! The serializable dialect, for servers that speak PostgreSQL's protocol and whose locks do not protect what is compared. What
//! a SERIALIZABLE transaction has read holds in the order of commits. That order may differ from the order in which they are
//! answered, so what is compared and present is locked, too: a commit that was judged on it must not come after one that
//! changed it.
//!
//! A commit is one message with several statements, so one round trip: the transaction begins, ends and commits with it, and a
//! gateway that stops cannot leave one open. A comparison that fails is an error, because the statements behind it are then
//! not executed. The message has no parameters, so keys and bytes are written as hexadecimal digits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bytes::Bytes;
use fencepost_remote::postgres::{SqlState, ToSql, Trouble, Type};

use super::COMMIT_PATIENCE;
use super::connection::Connection;
use super::dialect::Product;
use super::locking::most;
use super::range::Range;
use super::server::Server;
use super::trouble::{self, Fate};
use crate::engine::{Batch, Change, Limits, Record, Scan, Scanned, Version, Wanted};
use crate::record::RecordKey;

/// What one commit may hold. Large transactions are slow on these servers, and messages bounded.
pub(super) const LIMITS: Limits = Limits { lanes: super::LANES, records: 4_096, bytes: 1 << 20 };

/// What a commit begins with.
const BEGIN: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE; ";

/// What it begins with on PostgreSQL, and on servers that are made of its code. Rows are found by the index: a scan of the whole
/// table would conflict with every other commit.
const BEGIN_ON_POSTGRES: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL lock_timeout = '2s'; \
    SET LOCAL synchronous_commit = on; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; \
    SET LOCAL enable_mergejoin = off; ";

/// Loads are repeated this often if records change so that others have to come with their bytes.
const MOST_LOADS: usize = 5;

/// The name of the schema, and the statements with it.
pub(super) struct Statements {
    schema: String,
    load: String,
    scan: String,
}

impl Statements {
    pub(super) fn of(schema: &str) -> Statements {
        // Bounded records come with their bytes as long as they and all bounded ones before them fit.
        let load = format!(
            "SELECT at, version, size, CASE WHEN most IS NULL OR (size <= most AND before + size <= $4) THEN bytes END FROM (\
             SELECT k.at, k.most, r.version, r.bytes, octet_length(r.bytes)::bigint AS size, \
             coalesce(sum(CASE WHEN octet_length(r.bytes) <= k.most THEN octet_length(r.bytes) ELSE 0 END) \
             OVER (ORDER BY k.at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before \
             FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS k(key, most, at) \
             JOIN {schema}.records r ON r.key = k.key) f"
        );
        // Up to the record behind the one that reaches the limit of bytes.
        let scan = format!(
            "SELECT key, version, bytes FROM (\
             SELECT key, version, bytes, sum(octet_length(key) + octet_length(bytes)) \
             OVER (ORDER BY key ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS before FROM (\
             SELECT r.key, r.version, r.bytes FROM {schema}.records r \
             WHERE r.key >= $1 AND ($2 OR r.key > $1) AND ($3::bytea IS NULL OR r.key < $3) ORDER BY r.key LIMIT $4) l) f \
             WHERE before IS NULL OR before <= $5 ORDER BY key"
        );
        Statements { schema: schema.to_owned(), load, scan }
    }
}

/// Sends one commit. `None`: a compared version differs.
pub(super) async fn apply(server: &Server, connection: &Connection, batch: &Batch) -> Result<Option<Version>, Trouble> {
    let begin = match connection.product {
        Product::PostgreSql | Product::YugabyteDb => BEGIN_ON_POSTGRES,
        Product::CockroachDb => BEGIN,
    };
    let message = message(begin, &server.serializable.schema, batch);
    match connection.session.number_within(COMMIT_PATIENCE, &message).await {
        Ok(first) => Ok(Some(Version(first.unsigned_abs()))),
        Err(trouble) => {
            // The transaction is over, or waits for its end.
            if trouble.is_an_answer() && connection.session.batch("ROLLBACK").await.is_err() {
                connection.session.doubt();
            }
            let differs = [SqlState::DIVISION_BY_ZERO, SqlState::UNIQUE_VIOLATION].iter().any(|code| trouble.is(code));
            if differs { Ok(None) } else { Err(trouble) }
        }
    }
}

/// What became of a commit that failed. Other servers than PostgreSQL may fail in the middle of a commit, so only errors of which
/// it is known say that nothing was written.
pub(super) fn fate(trouble: &Trouble) -> Fate {
    // Data, constraints, transaction state, accounts, syntax and rights, missing things, and no space.
    const BEFORE_THE_COMMIT: [&str; 8] = ["22", "23", "25", "28", "3D", "3F", "42", "53"];
    let code = trouble.code().map_or("", SqlState::code);
    match trouble::fate(trouble) {
        Fate::Nothing(why) if !BEFORE_THE_COMMIT.iter().any(|class| code.starts_with(class)) => Fate::Unknown(why),
        fate => fate,
    }
}

/// The statements of a commit. The first that returns a row returns the version of change 0.
fn message(begin: &str, schema: &str, batch: &Batch) -> String {
    let changes: BTreeMap<&RecordKey, (usize, &Change)> =
        batch.changes.iter().enumerate().map(|(at, (key, change))| (key, (at, change))).collect();
    let mut puts = Vec::new();
    let mut gone = Vec::new();
    for (key, (at, change)) in &changes {
        match change {
            Change::Put(bytes) => puts.push((*key, *at, bytes)),
            Change::Delete => gone.push(*key),
        }
    }
    let written: usize = batch.changes.iter().map(|(_, change)| 100 + 2 * size(change)).sum();
    let mut text = String::with_capacity(1_000 + written + 150 * (batch.shared.len() + batch.compare.len()));
    text.push_str(begin);
    compare(&mut text, schema, batch);
    // The store's own record is shared, unless it is changed.
    let (own, others): (Vec<&RecordKey>, Vec<&RecordKey>) = locked(batch, &changes)
        .into_iter()
        .partition(|key| !changes.contains_key(key) && batch.shared.iter().any(|(shared, _)| shared == *key));
    lock(&mut text, schema, &own, "SHARE");
    lock(&mut text, schema, &others, "UPDATE");
    if !puts.is_empty() {
        let _ = write!(
            text,
            "INSERT INTO {schema}.records (key, version, bytes) \
             SELECT p.key, (currval('{schema}.commits') << {}) + p.at, p.bytes FROM (VALUES ",
            super::PLACE_BITS
        );
        list(&mut text, &puts, |text, (key, at, bytes)| {
            text.push('(');
            hexadecimal(text, key.as_bytes());
            let _ = write!(text, ", {at}::bigint, ");
            hexadecimal(text, bytes);
            text.push(')');
        });
        text.push_str(
            ") AS p(key, at, bytes) ON CONFLICT (key) DO UPDATE SET version = excluded.version, bytes = excluded.bytes; ",
        );
    }
    if !gone.is_empty() {
        let _ = write!(text, "DELETE FROM {schema}.records WHERE key IN (");
        list(&mut text, &gone, |text, key| hexadecimal(text, key.as_bytes()));
        text.push_str("); ");
    }
    text.push_str("COMMIT");
    text
}

/// The records that are compared as present, or written, in the order of keys.
fn locked<'b>(batch: &'b Batch, changes: &BTreeMap<&'b RecordKey, (usize, &'b Change)>) -> BTreeSet<&'b RecordKey> {
    let present = batch.compared().filter(|(_, version)| version.is_some()).map(|(key, _)| key);
    present.chain(changes.keys().copied()).collect()
}

/// Locks those of these records that exist. One that was changed since the transaction began fails it.
fn lock(text: &mut String, schema: &str, keys: &[&RecordKey], strength: &str) {
    if !keys.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(text, "SELECT 1 FROM {schema}.records WHERE key IN (");
        list(text, keys, |text, key| hexadecimal(text, key.as_bytes()));
        let _ = write!(text, ") ORDER BY key FOR {strength}; ");
    }
}

/// Compares the versions, and fails with a division by zero if one differs, or if the transaction is not serializable.
fn compare(text: &mut String, schema: &str, batch: &Batch) {
    // Writing to a string cannot fail.
    let _ = write!(text, "SELECT nextval('{schema}.commits') << {}, 1 / (CASE WHEN ", super::PLACE_BITS);
    let compared: Vec<(&RecordKey, Option<Version>)> = batch.compared().collect();
    if !compared.is_empty() {
        text.push_str("count(*) = 0 AND ");
    }
    text.push_str("current_setting('transaction_isolation') = 'serializable' THEN 1 ELSE 0 END)");
    if !compared.is_empty() {
        text.push_str(" FROM (VALUES ");
        list(text, &compared, |text, (key, version)| {
            text.push('(');
            hexadecimal(text, key.as_bytes());
            let _ = match version {
                Some(version) => write!(text, ", {}::bigint)", version.0),
                None => write!(text, ", NULL::bigint)"),
            };
        });
        let _ = write!(
            text,
            ") AS w(key, version) LEFT JOIN {schema}.records r ON r.key = w.key \
             WHERE r.version IS DISTINCT FROM w.version"
        );
    }
    text.push_str("; ");
}

/// Writes items with commas between them.
fn list<T>(text: &mut String, items: impl IntoIterator<Item = T>, item: impl Fn(&mut String, T)) {
    for (at, one) in items.into_iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        item(text, one);
    }
}

/// Writes bytes so that no server reads them as anything else.
fn hexadecimal(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push_str("decode('");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push_str("', 'hex')");
}

fn size(change: &Change) -> usize {
    match change {
        Change::Put(bytes) => bytes.len(),
        Change::Delete => 0,
    }
}

/// Loads records as of one instant.
pub(super) async fn load(
    server: &Server,
    connection: &Connection,
    wanted: &[Wanted],
    spare: usize,
) -> Result<Vec<Option<Record>>, Trouble> {
    let mut most: Vec<Option<i64>> = wanted.iter().map(|wanted| most(wanted.want)).collect();
    let mut records = Vec::new();
    for _ in 0..MOST_LOADS {
        records = load_once(server, connection, wanted, &most, spare).await?;
        if !assign(wanted, spare, &mut records, &mut most) {
            break;
        }
    }
    Ok(records)
}

/// Takes the bytes of records away that `spare` does not allow. Returns whether a record lacks bytes that it allows: a record
/// before it took them in the server's sum, and has too many of its own. That one is not asked for again.
fn assign(wanted: &[Wanted], spare: usize, records: &mut [Option<Record>], most: &mut [Option<i64>]) -> bool {
    let (mut left, mut lacks) = (spare, false);
    for ((wanted, record), most) in wanted.iter().zip(records).zip(most) {
        let Some(found) = record else { continue };
        if wanted.want.takes(found.size, &mut left) {
            lacks |= !found.is_whole();
        } else {
            *most = Some(-1);
            *found = Record::head(found.version, found.size);
        }
    }
    lacks
}

async fn load_once(
    server: &Server,
    connection: &Connection,
    wanted: &[Wanted],
    most: &[Option<i64>],
    spare: usize,
) -> Result<Vec<Option<Record>>, Trouble> {
    let keys: Vec<&[u8]> = wanted.iter().map(|wanted| wanted.key.as_bytes()).collect();
    let places: Vec<i64> = (0..).take(keys.len()).collect();
    let spare = i64::try_from(spare).unwrap_or(i64::MAX);
    let values: [(&(dyn ToSql + Sync), Type); 4] =
        [(&keys, Type::BYTEA_ARRAY), (&most, Type::INT8_ARRAY), (&places, Type::INT8_ARRAY), (&spare, Type::INT8)];
    let mut records = vec![None; wanted.len()];
    for row in connection.session.query(&server.serializable.load, &values).await? {
        let (at, version, size): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let bytes: Option<&[u8]> = row.get(3);
        let version = Version(version.unsigned_abs());
        let record = match bytes {
            Some(bytes) => Record::whole(version, Bytes::copy_from_slice(bytes)),
            None => Record::head(version, usize::try_from(size).unwrap_or(usize::MAX)),
        };
        if let Some(place) = usize::try_from(at).ok().and_then(|at| records.get_mut(at)) {
            *place = Some(record);
        }
    }
    Ok(records)
}

/// Scans a range of records.
pub(super) async fn scan(server: &Server, connection: &Connection, scan: &Scan) -> Result<Scanned, Trouble> {
    let Range { from, inclusive, before } = Range::of(scan);
    let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
    let (records, bytes) = (limit(scan.limit.saturating_add(1)), limit(scan.max_bytes));
    let values: [(&(dyn ToSql + Sync), Type); 5] = [
        (&from, Type::BYTEA),
        (&inclusive, Type::BOOL),
        (&before, Type::BYTEA),
        (&records, Type::INT8),
        (&bytes, Type::INT8),
    ];
    let (mut scanned, mut taken) = (Scanned::default(), 0);
    for row in connection.session.query(&server.serializable.scan, &values).await? {
        let (key, version, bytes): (&[u8], i64, &[u8]) = (row.get(0), row.get(1), row.get(2));
        let record = Record::whole(Version(version.unsigned_abs()), Bytes::copy_from_slice(bytes));
        if !scanned.push(scan, &mut taken, key.to_vec(), record) {
            break;
        }
    }
    Ok(scanned)
}

#[cfg(test)]
mod tests {
    use fencepost_core::Key;

    use super::*;
    use crate::engine::{AsOf, Purpose, Want};

    fn key(name: &str) -> RecordKey {
        RecordKey::value(&Key::new(name).unwrap())
    }

    fn put(name: &str, bytes: &'static [u8]) -> (RecordKey, Change) {
        (key(name), Change::Put(Bytes::from_static(bytes)))
    }

    fn written(compare: Vec<(RecordKey, Option<Version>)>, changes: Vec<(RecordKey, Change)>) -> String {
        message(BEGIN, "s", &Batch { as_of: AsOf(0), shared: Vec::new(), compare, changes, purpose: Purpose::Store })
    }

    #[test]
    fn a_commit_is_one_message() {
        // `k`, the kind of a value, is 6b.
        let text = written(vec![(key("a"), Some(Version(7))), (key("b"), None)], vec![put("b", b"\x00'\xff")]);
        assert_eq!(
            text,
            "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT nextval('s.commits') << 16, 1 / (CASE WHEN count(*) = 0 AND \
             current_setting('transaction_isolation') = 'serializable' THEN 1 ELSE 0 END) FROM (VALUES \
             (decode('6b61', 'hex'), 7::bigint), (decode('6b62', 'hex'), NULL::bigint)) AS w(key, version) \
             LEFT JOIN s.records r ON r.key = w.key WHERE r.version IS DISTINCT FROM w.version; \
             SELECT 1 FROM s.records WHERE key IN (decode('6b61', 'hex'), decode('6b62', 'hex')) ORDER BY key FOR UPDATE; \
             INSERT INTO s.records (key, version, bytes) SELECT p.key, (currval('s.commits') << 16) + p.at, p.bytes FROM \
             (VALUES (decode('6b62', 'hex'), 0::bigint, decode('0027ff', 'hex'))) AS p(key, at, bytes) \
             ON CONFLICT (key) DO UPDATE SET version = excluded.version, bytes = excluded.bytes; COMMIT"
        );
    }

    #[test]
    fn the_last_change_of_a_record_wins_and_keeps_its_place() {
        let changes = vec![put("b", b"1"), (key("b"), Change::Delete), put("a", b"1"), put("b", b"2"), put("a", b"2")];
        let text = written(Vec::new(), changes);
        let puts = "(VALUES (decode('6b61', 'hex'), 4::bigint, decode('32', 'hex')), \
                    (decode('6b62', 'hex'), 3::bigint, decode('32', 'hex')))";
        assert!(text.contains(puts), "{text}");
        assert!(!text.contains("DELETE") && !text.contains("count(*)"), "{text}");
    }

    #[test]
    fn the_stores_own_record_is_shared_unless_it_is_changed() {
        let shared = vec![(key("own"), Version(5))];
        let of = |changes| {
            let (as_of, compare, purpose) = (AsOf(0), Vec::new(), Purpose::Store);
            message(BEGIN, "s", &Batch { as_of, shared: shared.clone(), compare, changes, purpose })
        };
        let own = "SELECT 1 FROM s.records WHERE key IN (decode('6b6f776e', 'hex')) ORDER BY key FOR ";
        assert!(of(vec![put("a", b"1")]).contains(&format!("{own}SHARE; ")));
        assert!(of(vec![put("own", b"1")]).contains(&format!("{own}UPDATE; ")));
    }

    #[test]
    fn what_is_written_and_removed_is_locked_in_the_order_of_keys_first() {
        let text = written(Vec::new(), vec![put("b", b""), (key("c"), Change::Delete), (key("a"), Change::Delete)]);
        let (lock, insert) = (text.find("FOR UPDATE").unwrap(), text.find("INSERT").unwrap());
        assert!(lock < insert && insert < text.find("DELETE").unwrap(), "{text}");
        let keys =
            "key IN (decode('6b61', 'hex'), decode('6b62', 'hex'), decode('6b63', 'hex')) ORDER BY key FOR UPDATE";
        assert!(text.contains(keys), "{text}");
        assert!(
            text.ends_with("DELETE FROM s.records WHERE key IN (decode('6b61', 'hex'), decode('6b63', 'hex')); COMMIT")
        );
    }

    #[test]
    fn what_spare_allows_is_asked_for_again_without_what_it_does_not_allow() {
        let wanted: Vec<Wanted> =
            ["a", "b", "c"].map(|name| Wanted { key: key(name), want: Want::UpTo(100) }).into_iter().collect();
        let whole = |size: usize| Some(Record::whole(Version(1), vec![0; size].into()));
        let head = |size: usize| Some(Record::head(Version(1), size));
        // The server's sum leaves out `c`, because `b` is in it.
        let (mut records, mut most) = (vec![whole(40), head(80), head(50)], vec![Some(100); 3]);
        assert!(assign(&wanted, 100, &mut records, &mut most));
        assert_eq!(most, [Some(100), Some(-1), Some(100)]);
        let mut records = vec![whole(40), head(80), whole(50)];
        assert!(!assign(&wanted, 100, &mut records, &mut most));
        assert_eq!(records, [whole(40), head(80), whole(50)]);
        // Records may have grown meanwhile.
        let mut records = vec![whole(90), None, whole(50)];
        assert!(!assign(&wanted, 100, &mut records, &mut most));
        assert_eq!(records, [whole(90), None, head(50)]);
    }
}
