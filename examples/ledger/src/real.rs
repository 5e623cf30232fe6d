//! A Kafka and a database that are there.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tidegate::{kafka::KafkaSource, prelude::*, sql::OpenError};
use tidegate_testkit::{Cluster, LedgerConfig, NewRecord};
use tokio::time::{Instant, sleep};

use crate::{
    Outcome,
    arguments::Arguments,
    audit::{self, Audit},
    counts::Counts,
    member::{self, Member},
    progress::{Progress, say},
    signals::told_to_end,
    tables,
};

// How long a broker may take to answer at the start.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(arguments: &Arguments, kafka: &str, counts: &Counts) -> Outcome {
    let url = arguments.database.as_deref().context("there is no `--database`")?;
    let options = || DatabaseOptions::new(url).with_namespace("ledger", arguments.generation);
    let makes = arguments.migrate || arguments.produce.is_some();
    if makes {
        Database::migrate(options()).await?;
    }
    let database = match Database::open(options()).await {
        Err(error @ OpenError::NotMigrated { .. }) => {
            return Err(anyhow::Error::new(error).context("`--migrate` makes the tables"));
        }
        opened => opened?,
    };
    if makes {
        tables::create(&database).await?;
    }
    tables::check(&database).await.context("the ledger has no tables: `--migrate` makes them")?;
    if let Some(transfers) = arguments.produce {
        produce(arguments, kafka, transfers).await?;
    }
    let config = member::config(arguments, kafka);
    KafkaSource::new(config.clone())?.subscribe([&arguments.topic]).check(PATIENCE).await?;
    if !arguments.audit {
        work(arguments, &config, &database, counts).await?;
        if !arguments.until_end {
            return Ok(None);
        }
    }
    let audit = Audit::of(arguments, kafka, url, None).await?;
    audit.report();
    Ok(Some(audit))
}

/// Writes transfers to the topic, which is made if it is not there.
async fn produce(arguments: &Arguments, kafka: &str, transfers: usize) -> anyhow::Result<()> {
    let cluster = Cluster::at(kafka);
    let is_new = cluster.create_topic(&arguments.topic, arguments.partitions).await;
    let is_new = is_new.with_context(|| format!("no topic can be made at {kafka}"))?;
    if !is_new {
        // Revisions begin at 1, so more of them would contradict what is there.
        bail!("topic `{}` is there: `--produce` fills a new one", arguments.topic);
    }
    let mut config = LedgerConfig::new(arguments.seed, transfers);
    config.partitions = arguments.partitions;
    let records: Vec<_> = config.generate().records.iter().map(NewRecord::from).collect();
    say(&format!("{} records for topic `{}`", records.len(), arguments.topic));
    cluster.produce(&arguments.topic, records).await?;
    Ok(())
}

/// Works until it is told to end, or until all is consumed.
async fn work(
    arguments: &Arguments,
    config: &KafkaConfig,
    database: &Database,
    counts: &Counts,
) -> anyhow::Result<()> {
    let name = |number| format!("{}-{number}", std::process::id());
    let start = |number| Member::start(name(number), config.clone(), arguments, database);
    let instances = arguments.instances.unwrap_or(1);
    let members = (1..=instances).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let mut told = std::pin::pin!(told_to_end());
    let mut progress = Progress::new(None);
    let started = Instant::now();
    loop {
        for member in &members {
            progress.show(&member.name, &member.status);
        }
        if members.iter().any(Member::has_ended) || (arguments.until_end && all_done(&members)) {
            break;
        }
        tokio::select! {
            () = &mut told => break,
            () = sleep(Duration::from_millis(200)) => {}
        }
    }
    let took = started.elapsed();
    members.iter().for_each(Member::stop);
    let mut ended = Ok(());
    for member in members {
        ended = ended.and(member.ended().await);
    }
    progress.finish();
    audit::report_work(counts, took);
    ended
}

/// Whether nothing is left, for the partitions of this process: those of others
/// are theirs.
fn all_done(members: &[Member]) -> bool {
    let mut partitions = members.iter().flat_map(|member| member.status.partitions()).peekable();
    partitions.peek().is_some()
        && partitions.all(|it| {
            it.lag == Some(0) && it.committed == it.frontier && it.idle > Duration::from_secs(2)
        })
}
