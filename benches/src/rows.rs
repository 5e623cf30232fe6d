//! The rows: what is compared with what, and the bars.

mod cold_start;
mod grow;
mod handover;
mod latency;
mod layer;
mod memory;
mod once;
mod once_batch;
mod once_rtt;
mod peers;
mod read;
mod sqlite;

use std::pin::Pin;

use anyhow::Result;
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use crate::{bench::Bench, report::Line};

/// Something that is measured.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: for<'a> fn(&'a Bench) -> Measuring<'a>,
}

type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Vec<Line>>> + 'a>>;

/// All of them, in the order in which they are run.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "once",
        about: "an effect on each record, against a transaction for each record",
        run: |bench| Box::pin(once::run(bench)),
    },
    Row {
        name: "layer",
        about: "the layers above a batch, in memory, against a direct call",
        run: |bench| Box::pin(layer::run(bench)),
    },
    Row {
        name: "read",
        about: "reading and decoding without a database, against a tuned loop",
        run: |bench| Box::pin(read::run(bench)),
    },
    Row {
        name: "once-batch",
        about: "an effect on whole batches, against a bulk loop on the same tables",
        run: |bench| Box::pin(once_batch::run(bench)),
    },
    Row {
        name: "sqlite",
        about: "an effect on each record on SQLite, against a transaction for each",
        run: |bench| Box::pin(sqlite::run(bench)),
    },
    Row {
        name: "once-rtt",
        about: "`once`, with a database that is 1 ms away",
        run: |bench| Box::pin(once_rtt::run(bench)),
    },
    Row {
        name: "grow-partitions",
        about: "a record's cost at 1 000 partitions, against 1",
        run: |bench| Box::pin(grow::partitions(bench)),
    },
    Row {
        name: "grow-inflight",
        about: "a record's cost with 100 000 in flight, against 10",
        run: |bench| Box::pin(grow::in_flight(bench)),
    },
    Row {
        name: "grow-inbox",
        about: "a record's cost with 10 million markers, against 100 000",
        run: |bench| Box::pin(grow::inbox(bench)),
    },
    Row {
        name: "latency",
        about: "a record into an idle partition, until its effect is committed",
        run: |bench| Box::pin(latency::idle(bench)),
    },
    Row {
        name: "handover",
        about: "a second member joins and leaves under load",
        run: |bench| Box::pin(handover::run(bench)),
    },
    Row {
        name: "memory",
        about: "what is resident with a long log and a slow effect",
        run: |bench| Box::pin(memory::run(bench)),
    },
    Row {
        name: "cold-start",
        about: "the first record of a new process, with many partitions",
        run: |bench| Box::pin(cold_start::run(bench)),
    },
    Row {
        name: "hot-partition",
        about: "latency beside a partition that is ten times as hot",
        run: |bench| Box::pin(latency::hot(bench)),
    },
    Row {
        name: PEERS,
        about: "what a user would pick instead, in Go and Java; run if asked for",
        run: |bench| Box::pin(peers::run(bench)),
    },
];

/// The row that is run only where it is asked for: by `--peers`, or by its name.
pub(crate) const PEERS: &str = "peers";

/// So many partitions, in words.
fn partitions(count: i32) -> String {
    if count == 1 { "1 partition".to_owned() } else { format!("{count} partitions") }
}

fn lanes(count: usize) -> String {
    if count == 1 { "1 lane".to_owned() } else { format!("{count} lanes") }
}

/// How long a commit that flushes takes.
pub(crate) async fn commit_millis(database: &str) -> Result<f64> {
    let mut connection = PgConnection::connect(database).await?;
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS bench_probe (n int)")
        .execute(&mut connection)
        .await?;
    let mut millis = Vec::new();
    for _ in 0..50 {
        let mut txn = connection.begin().await?;
        sqlx::query("INSERT INTO bench_probe VALUES (1)").execute(&mut *txn).await?;
        let since = Instant::now();
        txn.commit().await?;
        millis.push(since.elapsed().as_secs_f64() * 1e3);
    }
    sqlx::raw_sql("DROP TABLE bench_probe").execute(&mut connection).await?;
    connection.close().await?;
    Ok(crate::measure::quantile(&millis, 0.5))
}
