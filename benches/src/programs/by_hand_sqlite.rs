//! A transaction for each record, by hand, on SQLite.

use anyhow::{Context as _, Result, ensure};
use rdkafka::{
    Message as _,
    consumer::{Consumer as _, StreamConsumer},
};
use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};

use super::by_hand_read::{commit, config};
use crate::{job::Job, meter::Meter, transfer::Transfer};

pub(super) async fn run(job: &Job, meter: &Meter) -> Result<()> {
    let options: SqliteConnectOptions = job.database.parse()?;
    let mut connection = options
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .connect()
        .await?;
    let consumer: StreamConsumer = config(job).set("enable.auto.offset.store", "false").create()?;
    consumer.subscribe(&[&job.topic])?;
    let work = async {
        loop {
            let message = consumer.recv().await?;
            let payload = message.payload().context("a record has a payload")?;
            let transfer: Transfer = serde_json::from_slice(payload)?;
            let place = (message.partition(), message.offset());
            apply(&mut connection, &job.topic, &transfer, place).await?;
            consumer.store_offset_from_message(&message)?;
            meter.batch();
            meter.note_at(place.0, place.1);
        }
    };
    tokio::select! {
        failed = work => return failed,
        () = meter.done() => {}
    }
    commit(&consumer);
    Ok(())
}

async fn apply(
    connection: &mut SqliteConnection,
    topic: &str,
    transfer: &Transfer,
    (partition, offset): (i32, i64),
) -> Result<()> {
    let mut txn = connection.begin_with("BEGIN IMMEDIATE").await?;
    let new = sqlx::query(
        "INSERT INTO tidegate_inbox (ns, id, fp, source, record_offset)
        SELECT 1, $1, x'', source, $2 FROM tidegate_source WHERE ns = 1 AND topic = $3 AND part = $4
        ON CONFLICT DO NOTHING",
    )
    .bind(u128::from(transfer.id).to_be_bytes().to_vec())
    .bind(offset)
    .bind(topic)
    .bind(partition)
    .execute(&mut *txn)
    .await?;
    if new.rows_affected() == 1 {
        let next = sqlx::query(
            "INSERT INTO tidegate_entity AS e (ns, ent, rev, held) VALUES (1, $1, $2, 0)
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
        .bind(topic)
        .bind(partition)
        .bind(offset)
        .execute(&mut *txn)
        .await?;
    }
    txn.commit().await?;
    Ok(())
}
