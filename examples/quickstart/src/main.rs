//! The README's program: transfers in, balances out. `cargo run -p example-quickstart`
#![expect(clippy::print_stdout, reason = "an example talks to its terminal")]
use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use tidegate::prelude::*;
use tidegate_testkit::{Broker, BrokerConfig, NewRecord};
use tower::ServiceBuilder;

#[derive(Deserialize)]
struct Transfer {
    id: u64,
    account: String,
    amount: i64,
}

impl Identified for Transfer {
    fn message_id(&self) -> MessageId {
        u128::from(self.id).into()
    }
}

async fn apply(txn: &Txn, transfer: &Transfer) -> Result<(), DbErr> {
    println!("{} {:+}", transfer.account, transfer.amount);
    let sql = "INSERT INTO balance VALUES ($1, $2) ON CONFLICT (account)
        DO UPDATE SET amount = balance.amount + excluded.amount";
    let values = [transfer.account.as_str().into(), transfer.amount.into()];
    let statement = Statement::from_sql_and_values(txn.get_database_backend(), sql, values);
    txn.execute_raw(statement).await.map(drop)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A broker in this process; its producer has written one transfer twice.
    let broker = Arc::new(Broker::start(BrokerConfig::default().with_topic("transfers", 1))?);
    let write = |id, amount| format!(r#"{{"id":{id},"account":"alice","amount":{amount}}}"#);
    let payloads = [write(1, 100), write(2, -30), write(1, 100)];
    broker.produce("transfers", payloads.map(|payload| NewRecord::new(0, payload)))?;
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}/quickstart.db?mode=rwc", folder.path().display());
    Database::migrate(url.as_str()).await?;
    let database = Database::open(url).await?;
    let table = "CREATE TABLE balance (account TEXT PRIMARY KEY, amount INTEGER NOT NULL)";
    database.connection().execute_unprepared(table).await?;

    let kafka = KafkaConfig::new(broker.bootstrap(), "demo").property("group.protocol", "consumer");
    let inbox = Inbox::new(database);
    let serve = KafkaSource::new(kafka)?.subscribe(["transfers"]).serve(move |assignment| {
        ServiceBuilder::new()
            .layer(FrontierLayer::new(assignment.frontier()))
            .layer(FenceLayer::new(assignment.lease()))
            .layer(DecodeLayer::json::<Transfer>())
            .layer(QueueLayer::by_key(QueueConfig::default()))
            .layer(InboxLayer::new(inbox.clone()))
            .service(effect_fn(apply))
    });
    let (done, time) = (Arc::clone(&broker), Duration::from_secs(60));
    let done = async move { done.consumed("demo", "transfers", time).await.expect("in time") };
    Ok(serve.with_graceful_shutdown(done).await?)
}
