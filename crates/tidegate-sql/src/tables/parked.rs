//! Deltas that wait for their predecessors.

use std::time::Duration;

use sea_orm::{ConnectionTrait as _, DbErr, QueryResult, Statement, Value};
pub use tidegate_core::sequencer::Key;
use tidegate_core::{Record, TopicPartition};

use super::{Columns, Mark, millis};
use crate::{Txn, headers};

/// An entity, and a revision of it.
pub type Place<'a> = (&'a [u8], i64);

/// A record that is to be parked.
#[derive(Clone, Debug)]
pub struct Parking<'a> {
    /// Its entity.
    pub entity: &'a [u8],
    /// Its revision.
    pub revision: i64,
    /// Its message.
    pub mark: Mark,
    /// The record.
    pub record: &'a Record,
    pub(crate) headers: Option<Vec<u8>>,
}

/// A parked delta, with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Its entity.
    pub entity: Vec<u8>,
    /// Its revision.
    pub revision: i64,
    /// Its message.
    pub mark: Mark,
    /// The record.
    pub record: Record,
}

/// A parked delta, as a person looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Its entity.
    pub entity: Vec<u8>,
    /// Its revision.
    pub revision: i64,
    /// Its message.
    pub mark: Mark,
    /// Where its record was read.
    pub partition: TopicPartition,
    /// Its offset there.
    pub offset: i64,
    /// The revision that the entity waits for.
    pub expected: i64,
    /// When it was parked, in milliseconds since the Unix epoch.
    pub since: i64,
    /// Why it failed when it was tried alone. It is not tried again before it
    /// is asked for.
    pub withheld: Option<String>,
}

// ===== impl Parking =====

impl<'a> Parking<'a> {
    /// A record, and where it belongs.
    #[must_use]
    pub fn new(entity: &'a [u8], revision: i64, mark: Mark, record: &'a Record) -> Self {
        Self { entity, revision, mark, record, headers: headers::encode(&record.headers) }
    }
}

/// Reads what is parked of entities.
///
/// # Errors
///
/// When the database fails.
pub async fn keys(txn: &Txn, entities: &[&[u8]]) -> Result<Vec<Key>, DbErr> {
    let statement = txn.statements().parked(txn.namespace().number(), entities);
    let rows = txn.query_all_raw(statement).await?;
    let key = |row| {
        let mut columns = Columns::of(row);
        Ok(Key {
            entity: columns.next()?,
            revision: columns.next()?,
            mark: columns.mark()?,
            withheld: columns.next::<i32>()? != 0,
        })
    };
    rows.iter().map(key).collect()
}

/// Parks records, none of which is parked.
///
/// # Errors
///
/// When the database fails.
pub async fn park(txn: &Txn, rows: &[Parking<'_>]) -> Result<(), DbErr> {
    txn.execute_raw(txn.statements().park(txn.namespace().number(), rows)).await.map(drop)
}

/// Takes parked records out.
///
/// # Errors
///
/// When the database fails.
pub async fn take(txn: &Txn, places: &[Place<'_>]) -> Result<Vec<Parked>, DbErr> {
    let rows = txn.query_all_raw(txn.statements().take(txn.namespace().number(), places)).await?;
    rows.iter().map(parked).collect()
}

fn parked(row: &QueryResult) -> Result<Parked, DbErr> {
    let mut columns = Columns::of(row);
    let (entity, revision) = (columns.next()?, columns.next()?);
    let mark = columns.mark()?;
    let topic: String = columns.next()?;
    let record = Record {
        partition: TopicPartition::new(topic, columns.next()?),
        offset: columns.next()?,
        timestamp: columns.next()?,
        key: columns.next::<Option<Vec<u8>>>()?.map(Into::into),
        payload: columns.next::<Option<Vec<u8>>>()?.map(Into::into),
        headers: headers::decode(columns.next::<Option<Vec<u8>>>()?)?,
    };
    Ok(Parked { entity, revision, mark, record })
}

/// Says why a parked delta is not to be tried again, or, with `None`, that it
/// is. Returns whether it is parked.
///
/// # Errors
///
/// When the database fails.
pub async fn withhold(
    txn: &Txn,
    (entity, revision): Place<'_>,
    cause: Option<&str>,
) -> Result<bool, DbErr> {
    let sql = "UPDATE tidegate_parked SET withheld = $4 WHERE ns = $1 AND ent = $2 AND rev = $3";
    let values = [entity.to_vec().into(), revision.into(), cause.into()];
    Ok(txn.execute_raw(statement(txn, sql, values)).await?.rows_affected() > 0)
}

/// Counts what is parked in the namespace, up to `limit`.
///
/// # Errors
///
/// When the database fails.
pub async fn count(txn: &Txn, limit: i64) -> Result<i64, DbErr> {
    let sql = "SELECT count(*) FROM (
            SELECT 1 AS one FROM tidegate_parked WHERE ns = $1 LIMIT $2
        ) AS parked";
    let row = txn.query_one_raw(statement(txn, sql, [limit.into()])).await?;
    row.ok_or(DbErr::RecordNotInserted)?.try_get_by_index(0)
}

/// Entities, in their order and behind one of them, whose next delta is parked
/// and not withheld.
///
/// # Errors
///
/// When the database fails.
pub async fn ready(txn: &Txn, after: &[u8], limit: i64) -> Result<Vec<Vec<u8>>, DbErr> {
    let sql = "SELECT p.ent FROM tidegate_parked p
        JOIN tidegate_entity e ON e.ns = p.ns AND e.ent = p.ent AND p.rev = e.rev + 1
        WHERE p.ns = $1 AND p.ent > $2 AND p.withheld IS NULL
        ORDER BY p.ent LIMIT $3";
    entities(txn, sql, [after.to_vec().into(), limit.into()]).await
}

/// Entities, in their order and behind one of them, of which something has been
/// parked for longer than `age`.
///
/// # Errors
///
/// When the database fails.
pub async fn aged(
    txn: &Txn,
    age: Duration,
    after: &[u8],
    limit: i64,
) -> Result<Vec<Vec<u8>>, DbErr> {
    let ago = txn.dialect().ago("$4");
    let sql = format!(
        "SELECT DISTINCT ent FROM tidegate_parked
        WHERE ns = $1 AND ent > $2 AND at <= {ago} ORDER BY ent LIMIT $3"
    );
    entities(txn, &sql, [after.to_vec().into(), limit.into(), millis(age).into()]).await
}

/// Whether something has been parked of an entity for longer than `age`.
///
/// # Errors
///
/// When the database fails.
pub async fn is_aged(txn: &Txn, entity: &[u8], age: Duration) -> Result<bool, DbErr> {
    let ago = txn.dialect().ago("$3");
    let sql =
        format!("SELECT count(*) FROM tidegate_parked WHERE ns = $1 AND ent = $2 AND at <= {ago}");
    let values = [entity.to_vec().into(), millis(age).into()];
    let row = txn.query_one_raw(statement(txn, &sql, values)).await?;
    Ok(row.ok_or(DbErr::RecordNotInserted)?.try_get_by_index::<i64>(0)? > 0)
}

async fn entities<const N: usize>(
    txn: &Txn,
    sql: &str,
    values: [Value; N],
) -> Result<Vec<Vec<u8>>, DbErr> {
    let rows = txn.query_all_raw(statement(txn, sql, values)).await?;
    rows.iter().map(|row| row.try_get_by_index(0)).collect()
}

/// Parked deltas, in the order of entity and revision, behind a place.
///
/// # Errors
///
/// When the database fails.
pub async fn list(
    txn: &Txn,
    (entity, revision): Place<'_>,
    limit: i64,
) -> Result<Vec<Waiting>, DbErr> {
    let at = txn.dialect().at_millis();
    let sql = format!(
        "SELECT p.ent, p.rev, p.id, p.fp, topic, part, record_offset, e.rev, {at}, withheld
        FROM tidegate_parked p JOIN tidegate_entity e ON e.ns = p.ns AND e.ent = p.ent
        WHERE p.ns = $1 AND (p.ent, p.rev) > ($2, $3) ORDER BY p.ent, p.rev LIMIT $4"
    );
    let values = [entity.to_vec().into(), revision.into(), limit.into()];
    let rows = txn.query_all_raw(statement(txn, &sql, values)).await?;
    let waiting = |row| {
        let mut columns = Columns::of(row);
        let (entity, revision, mark) = (columns.next()?, columns.next()?, columns.mark()?);
        let topic: String = columns.next()?;
        Ok(Waiting {
            entity,
            revision,
            mark,
            partition: TopicPartition::new(topic, columns.next()?),
            offset: columns.next()?,
            expected: columns.next::<i64>()?.saturating_add(1),
            since: columns.next()?,
            withheld: columns.next()?,
        })
    };
    rows.iter().map(waiting).collect()
}

fn statement<const N: usize>(txn: &Txn, sql: &str, values: [Value; N]) -> Statement {
    let values = [txn.namespace().number().into()].into_iter().chain(values).collect::<Vec<_>>();
    Statement::from_sql_and_values(txn.get_database_backend(), sql, values)
}
