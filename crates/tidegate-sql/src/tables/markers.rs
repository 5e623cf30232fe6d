//! The markers of an inbox, and the partitions that they come from.

use std::time::Duration;

use sea_orm::{ConnectionTrait as _, DbErr, SqlErr, Statement, Value};
pub use tidegate_core::inbox::{History, Marker, Pruned};
use tidegate_core::{TopicId, TopicPartition};

use super::{Columns, Mark, millis};
use crate::{Txn, dialect::Dialect};

/// What a claim met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The offsets whose markers are pruned. Nothing in them was claimed.
    pub pruned: Pruned,
    /// The id of the topic that the partition belongs to, if it is known.
    pub topic_id: Option<TopicId>,
    /// The messages that were claimed before, as they were then.
    pub before: Vec<Mark>,
}

/// A partition that a namespace has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The number that stands for it.
    pub number: i32,
    /// How it was read.
    pub history: History,
}

/// Reads which offsets of a partition are pruned, keeps that from being changed
/// until the transaction ends, and claims the markers that lie outside.
///
/// The markers are sorted by id. `None` is a partition that [`enter`] has not made
/// known yet.
///
/// One statement; a second one where a message was claimed before.
///
/// # Errors
///
/// When the database fails.
pub async fn claim(
    txn: &Txn,
    partition: &TopicPartition,
    markers: &[&Marker],
) -> Result<Option<Claim>, DbErr> {
    let statement = txn.statements().claim(txn.namespace().number(), partition, markers);
    met(txn, statement).await
}

/// As [`claim`], for messages that are expected to be new: it costs less, and may
/// fail where one was claimed before, or is there twice: [`is_repeat`]. The
/// transaction has failed then, and another one claims.
///
/// # Errors
///
/// When the database fails, or a message is not new.
pub async fn claim_new(
    txn: &Txn,
    partition: &TopicPartition,
    markers: &[&Marker],
) -> Result<Option<Claim>, DbErr> {
    let statement = txn.statements().claim_new(txn.namespace().number(), partition, markers);
    met(txn, statement).await
}

/// Whether [`claim_new`] failed by a unique constraint: a message is not new, or
/// there is one that is not ours. [`claim`] finds out.
#[must_use]
pub fn is_repeat(error: &DbErr) -> bool {
    matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_)))
}

async fn met(txn: &Txn, statement: Statement) -> Result<Option<Claim>, DbErr> {
    let rows = txn.query_all_raw(statement).await?;
    let mut claim: Option<Claim> = None;
    let mut unread = Vec::new();
    for row in &rows {
        let mut columns = Columns::of(row);
        let pruned = Pruned { low: columns.next()?, floor: columns.next()? };
        let topic_id = columns.next::<Option<String>>()?.map(TopicId::new);
        let claim = claim.get_or_insert_with(|| Claim { pruned, topic_id, before: Vec::new() });
        let (id, fingerprint) = (columns.digest()?, columns.digest()?);
        match (id, fingerprint) {
            (Some(id), Some(fingerprint)) => {
                claim.before.push(Mark { id: id.into(), fingerprint: fingerprint.into() });
            }
            (Some(id), None) => unread.push(id),
            (None, _) => {}
        }
    }
    if let Some(claim) = claim.as_mut().filter(|_| !unread.is_empty()) {
        // A statement of its own: the last one did not see rows that were
        // committed while it waited for them.
        claim.before = seen(txn, &unread).await?;
    }
    Ok(claim)
}

async fn seen(txn: &Txn, ids: &[[u8; 16]]) -> Result<Vec<Mark>, DbErr> {
    let ids: Vec<&[u8]> = ids.iter().map(<[u8; 16]>::as_slice).collect();
    let statement = txn.statements().seen(txn.namespace().number(), &ids);
    let rows = txn.query_all_raw(statement).await?;
    rows.iter().map(|row| Columns::of(row).mark()).collect()
}

/// Reads how a partition was read so far.
///
/// # Errors
///
/// When the database fails.
pub async fn source(txn: &Txn, partition: &TopicPartition) -> Result<Option<Source>, DbErr> {
    read(txn, partition, "").await
}

/// As [`source`], for a transaction that changes it: all others wait.
///
/// Two statements on PostgreSQL.
///
/// # Errors
///
/// When the database fails.
pub async fn lock_source(txn: &Txn, partition: &TopicPartition) -> Result<Option<Source>, DbErr> {
    if txn.dialect() == Dialect::Postgres {
        // The gate of the claims, see there.
        let gate = "SELECT pg_advisory_xact_lock(1953064037, source) FROM tidegate_source
            WHERE ns = $1 AND topic = $2 AND part = $3";
        txn.query_all_raw(of_partition(txn, partition, gate, [])).await?;
    }
    read(txn, partition, txn.dialect().for_update()).await
}

async fn read(txn: &Txn, partition: &TopicPartition, lock: &str) -> Result<Option<Source>, DbErr> {
    let sql = format!(
        "SELECT source, topic_id, low, floor, gap, resumed, reached FROM tidegate_source
        WHERE ns = $1 AND topic = $2 AND part = $3{lock}"
    );
    let row = txn.query_one_raw(of_partition(txn, partition, &sql, [])).await?;
    let source = |row| {
        let mut columns = Columns::of(row);
        let number = columns.next()?;
        let history = History {
            topic_id: columns.next::<Option<String>>()?.map(TopicId::new),
            pruned: Pruned { low: columns.next()?, floor: columns.next()? },
            gap: columns.next()?,
            resumed: columns.next()?,
            reached: columns.next()?,
        };
        Ok(Source { number, history })
    };
    row.as_ref().map(source).transpose()
}

/// Makes a partition known, which is read from `start` on.
///
/// If somebody else does so at the same time, this waits, and changes
/// nothing.
///
/// # Errors
///
/// When the database fails.
pub async fn enter(
    txn: &Txn,
    partition: &TopicPartition,
    topic_id: Option<&TopicId>,
    start: i64,
) -> Result<(), DbErr> {
    let sql = "INSERT INTO tidegate_source
            (ns, topic, part, topic_id, low, floor, gap, resumed, reached)
        VALUES ($1, $2, $3, $4, $5, $5, $5, $5, $5) ON CONFLICT (ns, topic, part) DO NOTHING";
    let values = [topic_id.map(TopicId::as_str).into(), start.into()];
    txn.execute_raw(of_partition(txn, partition, sql, values)).await.map(drop)
}

/// Writes how a partition was read.
///
/// # Errors
///
/// When the database fails.
pub async fn update_source(txn: &Txn, source: &Source) -> Result<(), DbErr> {
    let sql = "UPDATE tidegate_source
        SET topic_id = $2, low = $3, floor = $4, gap = $5, resumed = $6, reached = $7
        WHERE source = $1";
    let Source { number, history } = source;
    let History { topic_id, pruned, gap, resumed, reached } = history;
    let values: [Value; 7] = [
        (*number).into(),
        topic_id.as_ref().map(TopicId::as_str).into(),
        pruned.low.into(),
        pruned.floor.into(),
        (*gap).into(),
        (*resumed).into(),
        (*reached).into(),
    ];
    txn.execute_raw(Statement::from_sql_and_values(txn.get_database_backend(), sql, values))
        .await
        .map(drop)
}

/// The highest offset of a partition, from `from` on, that has a marker.
///
/// # Errors
///
/// When the database fails.
pub async fn last_marked(txn: &Txn, source: i32, from: i64) -> Result<Option<i64>, DbErr> {
    let sql = "SELECT max(record_offset) FROM tidegate_inbox
        WHERE source = $1 AND record_offset >= $2";
    let values = [source.into(), from.into()];
    let row = txn
        .query_one_raw(Statement::from_sql_and_values(txn.get_database_backend(), sql, values))
        .await?;
    row.map_or(Ok(None), |row| row.try_get_by_index(0))
}

/// The markers that lie in a range of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// How many they are.
    pub count: i64,
    /// The first offset of one that is younger than the age asked for.
    pub young: Option<i64>,
}

/// Counts the markers of a range of offsets, and looks for one that is younger
/// than `age`. Without an age, none is.
///
/// # Errors
///
/// When the database fails.
pub async fn span(
    txn: &Txn,
    source: i32,
    (from, to): (i64, i64),
    age: Option<Duration>,
) -> Result<Span, DbErr> {
    let ago = txn.dialect().ago("$4");
    let sql = format!(
        "SELECT count(*), min(CASE WHEN at > {ago} THEN record_offset END) FROM tidegate_inbox
        WHERE source = $1 AND record_offset >= $2 AND record_offset < $3"
    );
    let age_millis = age.map_or(0, millis);
    let values = [source.into(), from.into(), to.into(), age_millis.into()];
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, values);
    let row = txn.query_one_raw(statement).await?.ok_or_else(no_row)?;
    let young: Option<i64> = row.try_get_by_index(1)?;
    Ok(Span { count: row.try_get_by_index(0)?, young: young.filter(|_| age.is_some()) })
}

/// Deletes the markers of a range of offsets, and returns how many they were.
///
/// # Errors
///
/// When the database fails.
pub async fn delete(txn: &Txn, source: i32, (from, to): (i64, i64)) -> Result<u64, DbErr> {
    let sql = "DELETE FROM tidegate_inbox
        WHERE source = $1 AND record_offset >= $2 AND record_offset < $3";
    let values = [source.into(), from.into(), to.into()];
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, values);
    Ok(txn.execute_raw(statement).await?.rows_affected())
}

fn no_row() -> DbErr {
    DbErr::RecordNotFound("a count has one row".to_owned())
}

fn of_partition<const N: usize>(
    txn: &Txn,
    partition: &TopicPartition,
    sql: &str,
    more: [Value; N],
) -> Statement {
    let ns = txn.namespace().number().into();
    super::of_partition(txn.get_database_backend(), ns, partition, sql, more)
}
