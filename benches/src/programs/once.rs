//! The whole stack: each record has its effect once, in order per account.

use std::{collections::HashMap, time::Duration};

use anyhow::Result;
use sea_orm::Value;
use tidegate::{prelude::*, sql::EffectService};
use tokio::time::sleep;
use tower::ServiceBuilder;

use super::metered::Metered;
use crate::{job::Job, meter::Meter, transfer::Entry};

/// Writes an entry for each record.
struct Each {
    topic: String,
    work: Duration,
}

/// Writes the entries of a batch at once.
struct Whole {
    topic: String,
}

impl Effect<Entry> for Each {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, entry: &Entry) -> Result<(), DbErr> {
        let sql = "INSERT INTO entry
            (id, account, revision, amount, topic, part, record_offset, worker, epoch)
            VALUES ($1, $2, $3, $4, $5, $6, $7, 'bench', 1)";
        let values = [
            entry.id().into(),
            entry.transfer.account.as_str().into(),
            entry.transfer.revision.into(),
            entry.transfer.amount.into(),
            self.topic.as_str().into(),
            entry.partition.into(),
            entry.offset.into(),
        ];
        let backend = txn.get_database_backend();
        txn.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await?;
        if !self.work.is_zero() {
            sleep(self.work).await;
        }
        Ok(())
    }
}

impl EffectBatch<Entry> for Whole {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, entries: &[&Entry]) -> Result<(), DbErr> {
        let sql = "INSERT INTO entry
            (id, account, revision, amount, topic, part, record_offset, worker, epoch)
            SELECT id, account, revision, amount, $6, $7, pos, 'bench', 1
            FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[])
                AS r (id, account, revision, amount, pos)";
        let column = |of: fn(&Entry) -> i64| -> Value {
            entries.iter().map(|entry| of(entry)).collect::<Vec<_>>().into()
        };
        let accounts: Vec<_> = entries.iter().map(|it| it.transfer.account.clone()).collect();
        let values = [
            column(Entry::id),
            accounts.into(),
            column(|entry| entry.transfer.revision),
            column(|entry| entry.transfer.amount),
            column(|entry| entry.offset),
            self.topic.as_str().into(),
            entries[0].partition.into(),
        ];
        let backend = txn.get_database_backend();
        txn.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await.map(drop)
    }
}

/// Keeps the balances of accounts.
async fn keep_balances(txn: &Txn, entries: &[&Entry]) -> Result<(), DbErr> {
    // By account: the last revision, and the sum.
    let mut sums: HashMap<&str, (i64, i64)> = HashMap::with_capacity(entries.len());
    for Entry { transfer, .. } in entries {
        let sum = sums.entry(&transfer.account).or_default();
        *sum = (transfer.revision, sum.1 + transfer.amount);
    }
    let sql = "INSERT INTO balance AS b (account, revision, amount)
        SELECT * FROM unnest($1::text[], $2::int8[], $3::int8[])
        ON CONFLICT (account) DO UPDATE
        SET revision = excluded.revision, amount = b.amount + excluded.amount";
    let accounts: Vec<_> = sums.keys().map(|account| (*account).to_owned()).collect();
    let (revisions, amounts): (Vec<_>, Vec<_>) = sums.values().copied().unzip();
    let values = [accounts.into(), revisions.into(), amounts.into()];
    let backend = txn.get_database_backend();
    txn.execute_raw(Statement::from_sql_and_values(backend, sql, values)).await.map(drop)
}

pub(super) fn balances() -> EffectService<Entry> {
    effect_batch_fn(keep_balances)
}

pub(super) fn each(job: &Job) -> EffectService<Entry> {
    effect(Each { topic: job.topic.clone(), work: job.work })
}

pub(super) fn whole(job: &Job) -> EffectService<Entry> {
    effect_batch(Whole { topic: job.topic.clone() })
}

pub(super) async fn run(job: &Job, meter: &Meter, effect: EffectService<Entry>) -> Result<()> {
    let mut options = DatabaseOptions::new(job.database.as_str());
    options.max_connections = u32::try_from(job.partitions)? * u32::try_from(job.lanes)? + 2;
    let inbox = Inbox::new(Database::open(options).await?);
    let sequencer = Sequencer::parking(Entry::decode);
    let queue = QueueConfig::default().lanes(job.lanes).batch_records(job.batch);
    let noted = meter.clone();
    KafkaSource::new(config(job))?
        .subscribe([&job.topic])
        .serve(move |assignment: Assignment| {
            let counted = noted.clone();
            let stack = ServiceBuilder::new()
                .layer(FrontierLayer::new(assignment.frontier()))
                .layer(FenceLayer::new(assignment.lease()))
                .layer(DecodeLayer::new(Entry::decode))
                .layer(QueueLayer::new(queue.clone()))
                .layer(RetryLayer::new(Backoff::default()))
                .map_request(move |batch| {
                    counted.batch();
                    batch
                })
                .layer(InboxLayer::new(inbox.clone()))
                .layer(SequencerLayer::new(sequencer.clone()))
                .service(effect.clone());
            Metered::new(stack, noted.clone())
        })
        .with_graceful_shutdown({
            let meter = meter.clone();
            async move { meter.done().await }
        })
        .await?;
    Ok(())
}

pub(super) fn config(job: &Job) -> KafkaConfig {
    let config = KafkaConfig::new(job.bootstrap.as_str(), job.group.as_str());
    let properties = job.properties.iter();
    properties.fold(config, |config, (name, value)| config.property(name, value))
}
