//! Who partitions belong to.

use sea_orm::{ConnectionTrait as _, DbErr, Statement, Value};
use tidegate_core::{Epoch, TopicPartition};

use super::Columns;
use crate::{Txn, guard::Owner};

/// Reads whose a partition of a group is, and keeps that from being changed
/// until the transaction ends.
pub(crate) async fn check(
    txn: &Txn,
    group: &str,
    partition: &TopicPartition,
) -> Result<Option<Owner>, DbErr> {
    read(txn, group, partition, txn.dialect().for_share()).await
}

/// As [`check`], for a transaction that changes it.
pub(crate) async fn lock(
    txn: &Txn,
    group: &str,
    partition: &TopicPartition,
) -> Result<Option<Owner>, DbErr> {
    read(txn, group, partition, txn.dialect().for_update()).await
}

async fn read(
    txn: &Txn,
    group: &str,
    partition: &TopicPartition,
    lock: &str,
) -> Result<Option<Owner>, DbErr> {
    let sql = format!(
        "SELECT incarnation, generation, member FROM tidegate_owner
        WHERE grp = $1 AND topic = $2 AND part = $3{lock}"
    );
    let row = txn.query_one_raw(statement(txn, group, partition, &sql, [])).await?;
    let owner = |row| {
        let mut columns = Columns::of(row);
        let (incarnation, generation) = (columns.next()?, columns.next()?);
        let member: String = columns.next()?;
        Ok(Owner { incarnation, epoch: Epoch::new(generation, member) })
    };
    row.as_ref().map(owner).transpose()
}

/// Gives a partition that nobody had, and returns whether nobody did.
pub(crate) async fn insert(
    txn: &Txn,
    group: &str,
    partition: &TopicPartition,
    owner: &Owner,
) -> Result<bool, DbErr> {
    let sql = "INSERT INTO tidegate_owner (grp, topic, part, incarnation, generation, member)
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (grp, topic, part) DO NOTHING";
    let inserted = txn.execute_raw(statement(txn, group, partition, sql, columns(owner))).await?;
    Ok(inserted.rows_affected() > 0)
}

/// Gives a partition to somebody else.
pub(crate) async fn update(
    txn: &Txn,
    group: &str,
    partition: &TopicPartition,
    owner: &Owner,
) -> Result<(), DbErr> {
    let sql = "UPDATE tidegate_owner
        SET incarnation = $4, generation = $5, member = $6, at = DEFAULT_NOW
        WHERE grp = $1 AND topic = $2 AND part = $3";
    let sql = sql.replace("DEFAULT_NOW", &txn.dialect().ago("0"));
    txn.execute_raw(statement(txn, group, partition, &sql, columns(owner))).await.map(drop)
}

fn columns(owner: &Owner) -> [Value; 3] {
    let Epoch { generation, member } = &owner.epoch;
    [owner.incarnation.into(), (*generation).into(), (**member).into()]
}

fn statement<const N: usize>(
    txn: &Txn,
    group: &str,
    partition: &TopicPartition,
    sql: &str,
    more: [Value; N],
) -> Statement {
    super::of_partition(txn.get_database_backend(), group.into(), partition, sql, more)
}
