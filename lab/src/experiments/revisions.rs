//! Deltas that come in the wrong order, or not at all.

use anyhow::{Result, ensure};
use tidegate_oracle::Rules;

use super::{
    Experiment,
    common::takes_all,
    data::{PARTITIONS, delta},
};
use crate::{
    case::{Case, until},
    worker::Protocol,
};

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "revisions/gap-filled-by-another",
        "Deltas come early, their member goes, and another one gets what they wait for.",
        |case| Box::pin(gap_filled_by_another(case)),
    ),
    Experiment::new(
        "revisions/gap-never-filled",
        "A predecessor never comes: what waits for it is to be seen, and others go on.",
        |case| Box::pin(gap_never_filled(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "revisions/stale-first-and-equal",
        "Revisions that are over, a first one that is not 1, and one that another message has.",
        |case| Box::pin(stale_first_and_equal(case)),
    )
    .on(&[Protocol::Consumer]),
];

async fn gap_filled_by_another(case: &Case) -> Result<()> {
    case.create_topic(PARTITIONS).await?;
    let first = case.start_plain("first").await?;
    takes_all(case, &first).await?;
    // Each second one is missing, far more of them than one transaction sets free.
    let early = |account: i64, partition: i32| {
        let name = format!("account-{account}");
        (1..=300)
            .filter(|revision| *revision != 2)
            .map(move |revision| delta(partition, account * 1_000 + revision, &name, revision, 1))
            .collect::<Vec<_>>()
    };
    case.write(early(0, 0)).await?;
    case.write(early(1, 1)).await?;
    case.consumed().await?;
    let parked = case.schema.number("SELECT count(*) FROM tidegate_parked").await?;
    ensure!(parked == 2 * 298, "the fault did not take effect: {parked} deltas are parked");
    case.fault(format!("{parked} deltas wait for two that have not come"));
    case.kill(&first).await?;

    case.phase("another member gets what they wait for");
    let second = case.start_plain("second").await?;
    takes_all(case, &second).await?;
    case.write(vec![delta(0, 2, "account-0", 2, 1), delta(1, 1_002, "account-1", 2, 1)]).await?;
    case.consumed().await?;
    until("nothing waits any more", async || {
        let parked = case.schema.number("SELECT count(*) FROM tidegate_parked").await?;
        Ok((parked == 0).then_some(()))
    })
    .await?;
    case.terminate(&second).await?;
    let by_second = "SELECT count(*) FROM entry WHERE worker = 'second'";
    case.count("released", case.schema.number(by_second).await? - 2);
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn gap_never_filled(case: &Case) -> Result<()> {
    case.create_topic(PARTITIONS).await?;
    let member = case.start_plain("member").await?;
    takes_all(case, &member).await?;
    let mut records = Vec::new();
    for revision in (1..=5).chain(7..=20) {
        records.push(delta(0, revision, "waits", revision, 1));
    }
    for revision in 1..=50 {
        records.push(delta(0, 1_000 + revision, "goes on", revision, 1));
    }
    case.write(records).await?;
    case.consumed().await?;
    case.fault("revision 6 never comes");
    let parked = case.schema.number("SELECT count(*) FROM tidegate_parked").await?;
    ensure!(parked == 14, "{parked} deltas are to be seen, and not 14");
    // A member that comes later changes nothing about that.
    case.terminate(&member).await?;
    let later = case.start_plain("later").await?;
    takes_all(case, &later).await?;
    case.write(vec![delta(0, 21, "waits", 21, 1), delta(0, 1_051, "goes on", 51, 1)]).await?;
    case.consumed().await?;
    case.terminate(&later).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn stale_first_and_equal(case: &Case) -> Result<()> {
    case.create_topic(PARTITIONS).await?;
    let member = case.start_plain("member").await?;
    takes_all(case, &member).await?;
    let mut records: Vec<_> = (1..=10).map(|n| delta(0, n, "a", n, n)).collect();
    // Over, of a message that was never seen.
    records.push(delta(0, 100, "a", 3, 1));
    // Another message of the last revision, and of one that is parked.
    records.push(delta(0, 101, "a", 10, 1));
    records.push(delta(0, 102, "a", 12, 1));
    records.push(delta(0, 103, "a", 12, 2));
    records.push(delta(0, 11, "a", 11, 1));
    // A history that does not begin with 1.
    records.extend((2..=5).map(|n| delta(1, 200 + n, "b", n, 1)));
    case.write(records).await?;
    case.fault("revisions that are over, not the first, and taken");
    case.consumed().await?;
    case.terminate(&member).await?;
    let findings = case.judge(Rules::default()).await?;
    case.count("stale", findings.counts.stale);
    case.count("conflicts", findings.counts.conflicts);
    Ok(())
}
