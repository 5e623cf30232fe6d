//! A transaction for all that is there, by hand: as fast as the tables allow.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use futures_util::StreamExt as _;
use rdkafka::{Message as _, consumer::Consumer as _, message::BorrowedMessage};
use sqlx::{Connection as _, PgConnection};

use super::by_hand::{Part, each_partition};
use crate::{job::Job, meter::Meter, schema, transfer::Transfer};

/// The columns of a batch.
#[derive(Default)]
struct Columns {
    ids: Vec<[u8; 16]>,
    numbers: Vec<i64>,
    accounts: Vec<String>,
    revisions: Vec<i64>,
    amounts: Vec<i64>,
    offsets: Vec<i64>,
}

/// Accounts, and the first and the last revision of each.
type Runs<'a> = (Vec<&'a [u8]>, Vec<i64>, Vec<i64>);

pub(super) async fn run(job: &Job, meter: &Meter) -> Result<()> {
    each_partition(job, meter, work).await
}

async fn work(part: Part) -> Result<()> {
    let Part { job, meter, consumer, queue, partition } = part;
    let mut connection = PgConnection::connect(&job.database).await?;
    let source = schema::source(&mut connection, &job.topic, partition).await?;
    let mut chunks = queue.stream().ready_chunks(job.batch);
    while let Some(chunk) = chunks.next().await {
        let mut columns = Columns::default();
        for message in chunk {
            columns.push(&message?)?;
        }
        columns.apply(&mut connection, (&job.topic, partition), source).await?;
        let last = columns.offsets[columns.offsets.len() - 1];
        consumer.store_offset(&job.topic, partition, last)?;
        meter.batch();
        for offset in columns.offsets {
            meter.note_at(partition, offset);
        }
    }
    Ok(())
}

// ===== impl Columns =====

impl Columns {
    fn push(&mut self, message: &BorrowedMessage<'_>) -> Result<()> {
        let transfer: Transfer = serde_json::from_slice(message.payload().unwrap_or_default())?;
        self.ids.push(u128::from(transfer.id).to_be_bytes());
        self.numbers.push(transfer.id.cast_signed());
        self.accounts.push(transfer.account);
        self.revisions.push(transfer.revision);
        self.amounts.push(transfer.amount);
        self.offsets.push(message.offset());
        Ok(())
    }

    async fn apply(
        &self,
        connection: &mut PgConnection,
        (topic, partition): (&str, i32),
        source: i32,
    ) -> Result<()> {
        let mut txn = connection.begin().await?;
        let new = sqlx::query(
            "INSERT INTO tidegate_inbox (ns, id, fp, source, record_offset)
            SELECT 1, id, '', $3, pos FROM unnest($1::bytea[], $2::int8[]) AS r (id, pos)
            ON CONFLICT DO NOTHING",
        )
        .bind(&self.ids)
        .bind(&self.offsets)
        .bind(source)
        .execute(&mut *txn)
        .await?;
        let count = u64::try_from(self.ids.len())?;
        ensure!(new.rows_affected() == count, "a record came twice: no case of this loop");
        let (entities, first, last) = self.runs()?;
        let moved = sqlx::query(
            "MERGE INTO tidegate_entity e
            USING unnest($1::bytea[], $2::int8[], $3::int8[]) AS r (ent, first, last)
            ON e.ns = 1 AND e.ent = r.ent
            WHEN MATCHED AND e.rev = r.first - 1 THEN UPDATE SET rev = r.last
            WHEN NOT MATCHED AND r.first = 1 THEN
                INSERT (ns, ent, slot, rev, held) VALUES (1, r.ent, 0, r.last, 0)",
        )
        .bind(&entities)
        .bind(&first)
        .bind(&last)
        .execute(&mut *txn)
        .await?;
        let count = u64::try_from(entities.len())?;
        ensure!(moved.rows_affected() == count, "revisions are out of order");
        sqlx::query(
            "INSERT INTO entry
            (id, account, revision, amount, topic, part, record_offset, worker, epoch)
            SELECT id, account, revision, amount, $6, $7, pos, 'bench', 1
            FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[])
                AS r (id, account, revision, amount, pos)",
        )
        .bind(&self.numbers)
        .bind(&self.accounts)
        .bind(&self.revisions)
        .bind(&self.amounts)
        .bind(&self.offsets)
        .bind(topic)
        .bind(partition)
        .execute(&mut *txn)
        .await?;
        txn.commit().await?;
        Ok(())
    }

    /// The accounts, each with its first and its last revision.
    fn runs(&self) -> Result<Runs<'_>> {
        let mut runs: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (account, revision) in self.accounts.iter().zip(&self.revisions) {
            let run = runs.entry(account).or_insert((*revision, revision - 1));
            ensure!(run.1 == revision - 1, "revisions of {account} are out of order");
            run.1 = *revision;
        }
        let entities = runs.keys().map(|account| account.as_bytes()).collect();
        let (first, last) = runs.values().copied().unzip();
        Ok((entities, first, last))
    }
}
