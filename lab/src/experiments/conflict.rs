//! Records that contradict each other.

use anyhow::{Result, ensure};
use tidegate_oracle::Rules;

use super::{
    Experiment,
    common::takes_all,
    data::{PARTITIONS, delta, ledger_with},
};
use crate::{
    case::{Case, until},
    worker::{Arguments, LayerName, Protocol},
};

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "conflict/buried",
        "Messages come again with another payload, and there are dead letters.",
        |case| Box::pin(buried(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "conflict/stops",
        "A message comes again with another payload, and there are no dead letters.",
        |case| Box::pin(stops(case)),
    )
    .on(&[Protocol::Consumer]),
];

async fn buried(case: &Case) -> Result<()> {
    let records = ledger_with(case.seed, 400, |config| config.conflicts = 8);
    case.create_topic(PARTITIONS).await?;
    let member = case.start_plain("member").await?;
    case.produce(&records.first).await?;
    case.produce(&records.second).await?;
    case.fault("eight messages come again with another payload");
    case.consumed().await?;
    case.terminate(&member).await?;
    let findings = case.judge(Rules::default()).await?;
    ensure!(
        findings.counts.conflicts >= 4,
        "the fault did not take effect: there were {} conflicts",
        findings.counts.conflicts
    );
    case.count("conflicts", findings.counts.conflicts);
    Ok(())
}

async fn stops(case: &Case) -> Result<()> {
    case.create_topic(PARTITIONS).await?;
    let without = vec![LayerName::DeadLetters];
    let member = case.start(Arguments { without, ..case.arguments("member") }).await?;
    takes_all(case, &member).await?;
    let id = |partition: i32, n: i64| i64::from(partition) * 1_000 + n;
    let history = |partition: i32| {
        let account = format!("account-{partition}");
        (1..=20)
            .map(move |n| delta(partition, id(partition, n), &account, n, n))
            .collect::<Vec<_>>()
    };
    case.write(history(0)).await?;
    case.write(history(1)).await?;
    case.consumed().await?;
    let end = case.end(0);
    case.write(vec![
        delta(0, id(0, 7), "account-0", 7, 700),
        delta(0, id(0, 21), "account-0", 21, 1),
    ])
    .await?;
    case.fault(format!("offset {end} of p0 contradicts an earlier record"));
    let cause = until("the partition is stopped, and says why", async || {
        let standing = member.status().await?;
        let stopped = standing.into_iter().find(|it| it.partition == 0 && it.state == "stopped");
        Ok(stopped.and_then(|it| it.cause))
    })
    .await?;
    ensure!(cause.contains("another payload"), "it is stopped by: {cause}");
    case.phase("the other partition goes on");
    case.write((21..=30).map(|n| delta(1, id(1, n), "account-1", n, n)).collect()).await?;
    case.consumed_of(&[1]).await?;
    let committed = case.committed_at(0).await?;
    ensure!(committed == Some(end), "{committed:?} is committed of p0, and not {end}");
    case.terminate(&member).await?;
    case.judge(Rules::default().without_dead_letters().unfinished()).await?;
    Ok(())
}
