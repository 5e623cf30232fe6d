//! Everything in this process: broker, database file, members.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use tidegate::prelude::*;
use tidegate_testkit::{Broker, BrokerConfig, LedgerConfig, NewRecord};
use tokio::time::{Instant, sleep};

use crate::{
    Outcome,
    arguments::{Arguments, Protocol},
    audit::{self, Audit},
    counts::Counts,
    member::{self, Member},
    progress::{Progress, say},
    signals::told_to_end,
    tables,
};

const TRANSFERS: usize = 20_000;
const MEMBERS: usize = 3;

// Nothing takes so long; if it does, the audit says what is missing.
const PATIENCE: Duration = Duration::from_secs(60);

// Properties that say where another broker is.
const ELSEWHERE: &[&str] = &["bootstrap.servers", "metadata.broker.list"];

pub(crate) async fn run(arguments: &Arguments, counts: &Counts) -> Outcome {
    ensure!(
        !arguments.properties.iter().any(|(name, _)| ELSEWHERE.contains(&name.as_str())),
        "the broker is in this process: give the address of another with `--kafka`",
    );
    let mut config = LedgerConfig::new(arguments.seed, arguments.produce.unwrap_or(TRANSFERS));
    config.partitions = arguments.partitions;
    let ledger = config.generate();
    let (topic, group) = (arguments.topic.as_str(), arguments.group.as_str());
    let settings = BrokerConfig::default().with_topic(topic, arguments.partitions);
    let session = (settings.session, settings.heartbeat);
    let broker = Arc::new(Broker::start(settings)?);
    broker.begin_group(group, [topic])?;
    broker.produce(topic, ledger.records.iter().map(NewRecord::from))?;

    let folder = tempfile::tempdir().context("no folder for the database")?;
    let url = format!("sqlite://{}?mode=rwc", folder.path().join("ledger.db").display());
    let options = || DatabaseOptions::new(&url).with_namespace("ledger", arguments.generation);
    Database::migrate(options()).await?;
    let database = Database::open(options()).await?;
    tables::create(&database).await?;

    let members = arguments.instances.unwrap_or(MEMBERS);
    say(&format!(
        "{} records in {} partitions, {members} members, an embedded broker and a SQLite file",
        ledger.records.len(),
        arguments.partitions,
    ));
    let started = Instant::now();
    let start = |number: usize| {
        // The embedded broker does not tell its session, nor the ids of topics.
        let config = member::config(arguments, broker.bootstrap())
            .group_session(session.0, session.1)
            .topic_check(None)
            .commit_interval(Duration::from_millis(100));
        let config = match arguments.protocol {
            Protocol::Consumer => config,
            Protocol::Range | Protocol::CooperativeSticky => config
                .property("session.timeout.ms", "3000")
                .property("heartbeat.interval.ms", "100"),
        };
        Member::start(format!("member {number}"), config, arguments, &database)
    };
    let mut running = (1..=members).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let all = ledger.records.len() as u64;
    let mut progress = Progress::new(Some(all));
    // One leaves at a third, and comes back as another at two.
    let (mut left, mut back) = (members < 2, members < 2);
    let mut told = std::pin::pin!(told_to_end());
    let interrupted = loop {
        for member in &running {
            progress.show(&member.name, &member.status);
        }
        if !left && progress.done() > all / 3 {
            left = true;
            let member = running.remove(0);
            member.stop();
            progress.gone(&member.name);
            member.ended().await?;
        }
        if !back && progress.done() > all * 2 / 3 {
            back = true;
            running.push(start(members + 1)?);
        }
        let committed = broker.consumed(group, topic, Duration::ZERO).await.is_ok();
        if committed && left && back || progress.still() > PATIENCE {
            break false;
        }
        tokio::select! {
            () = &mut told => break true,
            () = sleep(Duration::from_millis(50)) => {}
        }
    };
    let took = started.elapsed();
    running.iter().for_each(Member::stop);
    for member in running {
        progress.gone(&member.name);
        member.ended().await?;
    }
    progress.finish();
    if interrupted {
        bail!("it was told to end, and has audited nothing");
    }
    let audit = Audit::of(arguments, broker.bootstrap(), &url, Some(&ledger)).await?;
    audit::report_work(counts, took);
    audit.report();
    Ok(Some(audit))
}
