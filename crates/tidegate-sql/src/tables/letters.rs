//! Records that cannot be applied.

use std::collections::BTreeSet;

use sea_orm::{ConnectionTrait, DbErr, Statement, Value};
use tidegate_core::{MessageId, Record, TopicPartition};

use super::{Columns, parked::Place};
use crate::{Txn, headers};

/// A dead letter, as a person looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Letter {
    /// The record.
    pub record: Record,
    /// Its message, if it was parked before it was buried.
    pub id: Option<MessageId>,
    /// The class of its failure.
    pub class: String,
    /// The failure, with all its causes.
    pub cause: String,
    /// When it was buried, in milliseconds since the Unix epoch.
    pub since: i64,
}

/// Stores a record, and returns whether it was not stored before.
///
/// # Errors
///
/// When the database fails.
pub async fn bury(txn: &Txn, record: &Record, (class, cause): (&str, &str)) -> Result<bool, DbErr> {
    let sql = "INSERT INTO tidegate_dead_letter (ns, topic, part, record_offset, record_ts,
            record_key, payload, headers, class, cause)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (ns, topic, part, record_offset) DO NOTHING";
    let values = [
        record.offset.into(),
        record.timestamp.into(),
        record.key.as_deref().map(Vec::from).into(),
        record.payload.as_deref().map(Vec::from).into(),
        headers::encode(&record.headers).into(),
        class.into(),
        cause.into(),
    ];
    let ns = txn.namespace().number();
    let statement = of_partition(txn, ns, &record.partition, sql, values);
    Ok(txn.execute_raw(statement).await?.rows_affected() > 0)
}

/// Moves what is parked of an entity, below a revision, to the dead letters,
/// and returns how many deltas that were.
///
/// Two statements.
///
/// # Errors
///
/// When the database fails.
pub async fn bury_parked(
    txn: &Txn,
    (entity, below): Place<'_>,
    (class, cause): (&str, &str),
) -> Result<u64, DbErr> {
    let ns = txn.namespace().number();
    let place = [ns.into(), entity.to_vec().into(), below.into()];
    let sql = "INSERT INTO tidegate_dead_letter (ns, topic, part, record_offset, record_ts, id,
            record_key, payload, headers, class, cause)
        SELECT ns, topic, part, record_offset, record_ts, id, record_key, payload, headers,
            CAST($4 AS text), CASE WHEN withheld IS NULL THEN CAST($5 AS text)
                ELSE CAST($5 AS text) || ': ' || withheld END
        FROM tidegate_parked WHERE ns = $1 AND ent = $2 AND rev < $3
        ON CONFLICT (ns, topic, part, record_offset) DO NOTHING";
    let values: Vec<_> = place.iter().cloned().chain([class.into(), cause.into()]).collect();
    txn.execute_raw(Statement::from_sql_and_values(txn.get_database_backend(), sql, values))
        .await?;
    let sql = "DELETE FROM tidegate_parked WHERE ns = $1 AND ent = $2 AND rev < $3";
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, place);
    Ok(txn.execute_raw(statement).await?.rows_affected())
}

/// The offsets of a partition, from `from` on, whose records are stored.
pub(crate) async fn buried(
    connection: &impl ConnectionTrait,
    ns: i32,
    partition: &TopicPartition,
    from: i64,
) -> Result<BTreeSet<i64>, DbErr> {
    let sql = "SELECT record_offset FROM tidegate_dead_letter
        WHERE ns = $1 AND topic = $2 AND part = $3 AND record_offset >= $4";
    let statement = of_partition(connection, ns, partition, sql, [from.into()]);
    let rows = connection.query_all_raw(statement).await?;
    rows.iter().map(|row| row.try_get_by_index(0)).collect()
}

/// The dead letters of a partition, from `from` on.
pub(crate) async fn list(
    txn: &Txn,
    partition: &TopicPartition,
    from: i64,
    limit: i64,
) -> Result<Vec<Letter>, DbErr> {
    let at = txn.dialect().at_millis();
    let sql = format!(
        "SELECT record_offset, record_ts, record_key, payload, headers, id, class, cause, {at}
        FROM tidegate_dead_letter
        WHERE ns = $1 AND topic = $2 AND part = $3 AND record_offset >= $4
        ORDER BY record_offset LIMIT $5"
    );
    let ns = txn.namespace().number();
    let statement = of_partition(txn, ns, partition, &sql, [from.into(), limit.into()]);
    let rows = txn.query_all_raw(statement).await?;
    let letter = |row| {
        let mut columns = Columns::of(row);
        let record = Record {
            partition: partition.clone(),
            offset: columns.next()?,
            timestamp: columns.next()?,
            key: columns.next::<Option<Vec<u8>>>()?.map(Into::into),
            payload: columns.next::<Option<Vec<u8>>>()?.map(Into::into),
            headers: headers::decode(columns.next::<Option<Vec<u8>>>()?)?,
        };
        let id = columns.digest()?.map(MessageId::from);
        let (class, cause, since) = (columns.next()?, columns.next()?, columns.next()?);
        Ok(Letter { record, id, class, cause, since })
    };
    rows.iter().map(letter).collect()
}

/// Removes a dead letter, with the marker of its message if it was parked, and
/// returns whether there was one.
///
/// Two statements.
pub(crate) async fn remove(
    txn: &Txn,
    partition: &TopicPartition,
    offset: i64,
) -> Result<bool, DbErr> {
    let ns = txn.namespace().number();
    let sql = "DELETE FROM tidegate_inbox WHERE ns = $1 AND id = (
            SELECT id FROM tidegate_dead_letter
            WHERE ns = $1 AND topic = $2 AND part = $3 AND record_offset = $4
        )";
    txn.execute_raw(of_partition(txn, ns, partition, sql, [offset.into()])).await?;
    let sql = "DELETE FROM tidegate_dead_letter
        WHERE ns = $1 AND topic = $2 AND part = $3 AND record_offset = $4";
    let removed = txn.execute_raw(of_partition(txn, ns, partition, sql, [offset.into()])).await?;
    Ok(removed.rows_affected() > 0)
}

fn of_partition<const N: usize>(
    connection: &impl ConnectionTrait,
    ns: i32,
    partition: &TopicPartition,
    sql: &str,
    more: [Value; N],
) -> Statement {
    super::of_partition(connection.get_database_backend(), ns.into(), partition, sql, more)
}
