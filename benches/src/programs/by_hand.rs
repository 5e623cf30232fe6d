//! A transaction for each record, by hand: a task and a connection for each
//! partition, and the statements that a stack runs for a record.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rdkafka::{
    Message as _,
    consumer::{Consumer as _, StreamConsumer, stream_consumer::StreamPartitionQueue},
};
use sqlx::{Connection as _, PgConnection};
use tokio::{task::JoinSet, time::sleep};

use super::by_hand_read::{commit, config};
use crate::{job::Job, meter::Meter, schema, transfer::Transfer};

/// One partition's part.
pub(super) struct Part {
    pub(super) job: Job,
    pub(super) meter: Meter,
    pub(super) consumer: Arc<StreamConsumer>,
    pub(super) queue: StreamPartitionQueue<rdkafka::consumer::DefaultConsumerContext>,
    pub(super) partition: i32,
}

pub(super) async fn run(job: &Job, meter: &Meter) -> Result<()> {
    each_partition(job, meter, work).await
}

/// Runs a task for each partition, as the documentation of
/// `split_partition_queue` has it.
pub(super) async fn each_partition<F>(
    job: &Job,
    meter: &Meter,
    work: impl Fn(Part) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let consumer: StreamConsumer = config(job).set("enable.auto.offset.store", "false").create()?;
    let consumer = Arc::new(consumer);
    let mut tasks = JoinSet::new();
    for partition in 0..job.partitions {
        let queue = consumer.split_partition_queue(&job.topic, partition);
        let queue = queue.context("the queue of a partition")?;
        let (job, meter, consumer) = (job.clone(), meter.clone(), Arc::clone(&consumer));
        let part = Part { job, meter, consumer, queue, partition };
        tasks.spawn(work(part));
    }
    consumer.subscribe(&[&job.topic])?;
    tokio::select! {
        Some(ended) = tasks.join_next() => ended??,
        // Rebalances and errors come here, and no records.
        message = consumer.recv() => ensure!(message.is_err(), "a record in the main queue"),
        () = meter.done() => {}
    }
    // What goes on would be done and not counted.
    tasks.shutdown().await;
    commit(&consumer);
    Ok(())
}

async fn work(part: Part) -> Result<()> {
    let Part { job, meter, consumer, queue, partition } = part;
    let mut connection = PgConnection::connect(&job.database).await?;
    let source = schema::source(&mut connection, &job.topic, partition).await?;
    loop {
        let message = queue.recv().await?;
        let payload = message.payload().context("a record has a payload")?;
        let transfer: Transfer = serde_json::from_slice(payload)?;
        apply(&mut connection, &job, source, &transfer, partition, message.offset()).await?;
        // Fails when the partition was taken away meanwhile. Its next owner then
        // does the record again, and finds that it was done.
        drop(consumer.store_offset(&job.topic, partition, message.offset()));
        meter.batch();
        meter.note_at(partition, message.offset());
    }
}

async fn apply(
    connection: &mut PgConnection,
    job: &Job,
    source: i32,
    transfer: &Transfer,
    partition: i32,
    offset: i64,
) -> Result<()> {
    let mut txn = connection.begin().await?;
    let new = sqlx::query(
        "INSERT INTO tidegate_inbox (ns, id, fp, source, record_offset)
        VALUES (1, $1, '', $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(u128::from(transfer.id).to_be_bytes())
    .bind(source)
    .bind(offset)
    .execute(&mut *txn)
    .await?;
    if new.rows_affected() == 1 {
        let next = sqlx::query(
            "INSERT INTO tidegate_entity AS e (ns, ent, slot, rev, held) VALUES (1, $1, 0, $2, 0)
            ON CONFLICT (ns, ent) DO UPDATE SET rev = excluded.rev WHERE e.rev = excluded.rev - 1",
        )
        .bind(transfer.account.as_bytes())
        .bind(transfer.revision)
        .execute(&mut *txn)
        .await?;
        ensure!(next.rows_affected() == 1, "revisions of {} are out of order", transfer.account);
        sqlx::query(
            "INSERT INTO entry
            (id, account, revision, amount, topic, part, record_offset, worker, epoch)
            VALUES ($1, $2, $3, $4, $5, $6, $7, 'bench', 1)",
        )
        .bind(transfer.id.cast_signed())
        .bind(&transfer.account)
        .bind(transfer.revision)
        .bind(transfer.amount)
        .bind(&job.topic)
        .bind(partition)
        .bind(offset)
        .execute(&mut *txn)
        .await?;
        if !job.work.is_zero() {
            sleep(job.work).await;
        }
    }
    txn.commit().await?;
    Ok(())
}
