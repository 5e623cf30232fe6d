//! Bulk writing with as few tables as will do: markers, and balances with
//! their revisions. Nothing knows where a marker comes from, and no record
//! waits for an earlier one.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use futures_util::StreamExt as _;
use rdkafka::{Message as _, consumer::Consumer as _};
use sqlx::{Connection as _, PgConnection};

use super::by_hand::{Part, each_partition};
use crate::{job::Job, meter::Meter, transfer::Transfer};

pub(super) async fn run(job: &Job, meter: &Meter) -> Result<()> {
    each_partition(job, meter, work).await
}

async fn work(part: Part) -> Result<()> {
    let Part { job, meter, consumer, queue, partition } = part;
    let mut connection = PgConnection::connect(&job.database).await?;
    let mut chunks = queue.stream().ready_chunks(job.batch);
    while let Some(chunk) = chunks.next().await {
        let mut transfers = Vec::with_capacity(chunk.len());
        let mut last = 0;
        for message in chunk {
            let message = message?;
            last = message.offset();
            let payload = message.payload().unwrap_or_default();
            transfers.push(serde_json::from_slice::<Transfer>(payload)?);
        }
        apply(&mut connection, &transfers).await?;
        consumer.store_offset(&job.topic, partition, last)?;
        meter.batch();
        meter.note(u64::try_from(transfers.len())?);
    }
    Ok(())
}

async fn apply(connection: &mut PgConnection, transfers: &[Transfer]) -> Result<()> {
    let ids: Vec<_> = transfers.iter().map(|transfer| transfer.id.cast_signed()).collect();
    // By account: the first and the last revision, and the sum.
    let mut sums: HashMap<&str, (i64, i64, i64)> = HashMap::with_capacity(transfers.len());
    for Transfer { account, revision, amount, .. } in transfers {
        let sum = sums.entry(account).or_insert((*revision, revision - 1, 0));
        ensure!(sum.1 == revision - 1, "revisions of {account} are out of order");
        *sum = (sum.0, *revision, sum.2 + amount);
    }
    let mut txn = connection.begin().await?;
    let new =
        sqlx::query("INSERT INTO marker (id) SELECT unnest($1::int8[]) ON CONFLICT DO NOTHING")
            .bind(&ids)
            .execute(&mut *txn)
            .await?;
    let count = u64::try_from(ids.len())?;
    ensure!(new.rows_affected() == count, "a record came twice: no case of this loop");
    let column = |of: fn(&(i64, i64, i64)) -> i64| sums.values().map(of).collect::<Vec<_>>();
    let moved = sqlx::query(
        "MERGE INTO balance b
        USING unnest($1::text[], $2::int8[], $3::int8[], $4::int8[])
            AS r (account, first, last, amount)
        ON b.account = r.account
        WHEN MATCHED AND b.revision = r.first - 1 THEN
            UPDATE SET revision = r.last, amount = b.amount + r.amount
        WHEN NOT MATCHED AND r.first = 1 THEN
            INSERT (account, revision, amount) VALUES (r.account, r.last, r.amount)",
    )
    .bind(sums.keys().copied().collect::<Vec<_>>())
    .bind(column(|sum| sum.0))
    .bind(column(|sum| sum.1))
    .bind(column(|sum| sum.2))
    .execute(&mut *txn)
    .await?;
    let count = u64::try_from(sums.len())?;
    ensure!(moved.rows_affected() == count, "revisions are out of order");
    txn.commit().await?;
    Ok(())
}
