//! An effect on whole batches: one `INSERT` for all transfers of a transaction.
//!
//! `cargo run --release -p example-batch`
//!
//! The queue forms the batches, of what waits when a lane is free. Compare with
//! `effect_fn`, whose statements are one a record in the same transactions.

mod entry;

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sea_orm::{
    ActiveValue::Set, ColumnTrait as _, EntityTrait as _, PaginatorTrait as _, QuerySelect as _,
};
use tidegate::prelude::*;
use tidegate_testkit::{Broker, BrokerConfig, LedgerConfig, NewRecord, Transfer};
use tokio::time::Instant;
use tower::ServiceBuilder;

const RECORDS: usize = 20_000;
const PARTITIONS: i32 = 4;

/// Writes an entry for each transfer, and counts the batches.
struct Entries {
    batches: Arc<AtomicUsize>,
}

impl EffectBatch<Transfer> for Entries {
    type Error = DbErr;

    async fn apply(&self, txn: &Txn, transfers: &[&Transfer]) -> Result<(), DbErr> {
        let entries = transfers.iter().map(|transfer| entry::ActiveModel {
            account: Set(transfer.account.clone()),
            revision: Set(transfer.revision),
            amount: Set(transfer.amount),
            ..Default::default()
        });
        entry::Entity::insert_many(entries).exec(txn).await?;
        self.batches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let broker =
        Arc::new(Broker::start(BrokerConfig::default().with_topic("transfers", PARTITIONS))?);
    let mut config = LedgerConfig::new(7, RECORDS);
    config.partitions = PARTITIONS;
    (config.poison, config.refused, config.conflicts) = (0, 0, 0);
    let ledger = config.generate();
    broker.begin_group("batch", ["transfers"])?;
    broker.produce("transfers", ledger.records.iter().map(NewRecord::from))?;

    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}?mode=rwc", folder.path().join("batch.db").display());
    Database::migrate(url.as_str()).await?;
    let database = Database::open(url).await?;
    database.connection().execute_unprepared(entry::TABLE).await?;

    let batches = Arc::new(AtomicUsize::new(0));
    let effect = effect_batch(Entries { batches: Arc::clone(&batches) });
    let inbox = Inbox::new(database.clone());
    let sequencer = Sequencer::parking(Json::<Transfer>::default());
    let source = KafkaConfig::new(broker.bootstrap(), "batch")
        .property("group.protocol", "consumer")
        .group_session(Duration::from_secs(3), Duration::from_millis(100));
    let started = Instant::now();
    let serve = KafkaSource::new(source)?.subscribe(["transfers"]).serve(move |assignment| {
        ServiceBuilder::new()
            .layer(FrontierLayer::new(assignment.frontier()))
            .layer(FenceLayer::new(assignment.lease()))
            .layer(DecodeLayer::json::<Transfer>())
            .layer(QueueLayer::new(QueueConfig::default()))
            .layer(RetryLayer::new(Backoff::default()))
            .layer(InboxLayer::new(inbox.clone()))
            .layer(SequencerLayer::new(sequencer.clone()))
            .service(effect.clone())
    });
    let done = Arc::clone(&broker);
    serve
        .with_graceful_shutdown(async move {
            let consumed = done.consumed("batch", "transfers", Duration::from_secs(60)).await;
            consumed.expect("it takes a few seconds");
        })
        .await?;
    report(&database, started.elapsed(), batches.load(Ordering::Relaxed)).await?;
    let balances: i64 = ledger.accounts.values().map(|account| account.balance).sum();
    if sum(&database).await? == balances { Ok(()) } else { Err("a transfer is missing".into()) }
}

#[expect(clippy::print_stdout, reason = "an example talks to its terminal")]
async fn report(database: &Database, took: Duration, batches: usize) -> Result<(), DbErr> {
    let entries = entry::Entity::find().count(database.connection()).await?;
    let rate = entries as f64 / took.as_secs_f64();
    println!("{entries} entries in {batches} batches, {rate:.0} a second");
    Ok(())
}

async fn sum(database: &Database) -> Result<i64, DbErr> {
    let sum = entry::Entity::find()
        .select_only()
        .column_as(entry::Column::Amount.sum(), "sum")
        .into_tuple()
        .one(database.connection())
        .await?;
    Ok(sum.unwrap_or_default())
}
