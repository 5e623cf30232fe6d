//! Handlers that take too long.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tidegate_oracle::Rules;
use tidegate_testkit::{NewRecord, Point, When};
use tokio::time::{Instant, sleep_until};

use super::{
    Experiment,
    common::takes_all,
    data::{PARTITIONS, plain},
};
use crate::{
    case::{Case, until},
    says,
    worker::Arguments,
};

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "slow-handler",
        "A record takes three times as long as the time that may pass between polls.",
        |case| Box::pin(slow_handler(case)),
    ),
    Experiment::new(
        "slow-handler/large-records",
        "Handlers stand still before 28 MiB of records a partition, and what is resident stays \
         within the stated bound.",
        |case| Box::pin(large_records(case)),
    ),
    Experiment::new(
        "drain-deadline",
        "A handler never ends, and its partition is revoked.",
        |case| Box::pin(drain_deadline(case)),
    ),
];

async fn slow_handler(case: &Case) -> Result<()> {
    const INTERVAL: u64 = 6_000;

    // More than one partition may have in flight.
    let records = plain(case.seed, 10_000, 200);
    let patient = Arguments { idle_transaction: 600_000, ..case.arguments("member") };
    let member = Arguments { poll_interval: INTERVAL, ..patient };
    case.create_topic(PARTITIONS).await?;
    let member = case.start(member).await?;
    takes_all(case, &member).await?;
    let held = member.hold(Point::AfterEffect, When::any().partition(0)).await?;
    let mark = member.mark();
    case.produce(&records.first).await?;
    member.reached(&held).await?;
    let over = Instant::now() + 3 * Duration::from_millis(INTERVAL);
    case.fault("a handler of p0 takes 18 s, with max.poll.interval.ms at 6 s");
    case.produce(&records.second).await?;

    case.phase("the other partition goes on");
    case.consumed_of(&[1]).await?;
    let standing = member.status().await?;
    let full = standing.iter().find(|it| it.partition == 0);
    let (in_flight, bytes) = full.map_or((0, 0), |it| (it.in_flight, it.bytes));
    ensure!(in_flight <= 4_000 && bytes <= 12 << 20, "{in_flight} records, {bytes} bytes are held");
    case.count("held records", in_flight);
    case.count("held bytes", bytes);
    sleep_until(over).await;
    member.release(held).await?;
    case.relief("the handler ends");
    case.consumed().await?;
    let evicted = |message: &str| message == says::REVOKED || message == says::LOST;
    ensure!(
        !member.log()[mark..].iter().any(|event| evicted(&event.message)),
        "the member was evicted"
    );
    case.terminate(&member).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn large_records(case: &Case) -> Result<()> {
    const WIDE: i32 = 8;
    const EACH: i64 = 32;
    const MEMO: usize = 900 << 10;
    /// What a source has read and not answered of each partition, by how much that
    /// may be exceeded, and what the client holds; and a quarter more, for what is
    /// being worked on.
    const BOUND: i64 = WIDE as i64 * ((8 + 4 + 4) << 20) * 5 / 4;

    case.create_topic(WIDE).await?;
    let member = case.start_plain("member").await?;
    takes_all(case, &member).await?;
    let before = member.peak_memory()?;
    let held = member.hold(Point::BeforeBegin, When::any()).await?;
    let mark = member.mark();
    let memo = "m".repeat(MEMO);
    for n in 1..=EACH {
        let of = |partition: i32| {
            let id = i64::from(partition) * EACH + n;
            let account = format!("account-{partition}");
            let transfer = json!(
                { "id": id, "account": account, "revision": n, "amount": 1, "memo": memo });
            NewRecord::new(partition, transfer.to_string()).with_key(account)
        };
        case.write((0..WIDE).map(of).collect()).await?;
    }
    member.reached(&held).await?;
    until("it has read as much of each partition as it may", async || {
        let standing = member.status().await?;
        let full = standing.iter().filter(|it| it.bytes + MEMO > 8 << 20).count();
        Ok((full == case.partitions()).then_some(()))
    })
    .await?;
    case.fault("handlers of all partitions stand still");
    // The client goes on for a while.
    for _ in 0..2 {
        member.logs(member.mark(), says::COMMIT_ACCEPTED, |_| true).await?;
    }
    member.release(held).await?;
    case.relief("the handlers go on");
    case.consumed().await?;
    let resident = member.peak_memory()? - before;
    ensure!(resident <= BOUND, "{resident} bytes more became resident; the bound is {BOUND}");
    let written = i64::from(WIDE) * EACH * i64::try_from(MEMO)?;
    case.count("written MiB", written >> 20);
    case.count("resident MiB more", resident >> 20);
    case.count("bound MiB", BOUND >> 20);
    let revoked = member.log()[mark..].iter().any(|event| event.message == says::REVOKED);
    ensure!(!revoked, "the member was evicted");
    case.terminate(&member).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn drain_deadline(case: &Case) -> Result<()> {
    // Nothing is early: what a batch is about lies in one row.
    let records = plain(case.seed, 400, 20);
    case.create_topic(PARTITIONS).await?;
    // Of the lanes of a partition, one stands still.
    let lanes = |name: &str| Arguments { lanes: 4, batch: 5, ..case.arguments(name) };
    let old = case.start(lanes("old")).await?;
    takes_all(case, &old).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    let mut held = Vec::new();
    for partition in 0..PARTITIONS {
        let when = When::any().partition(partition).offset(records.middle(partition));
        held.push(old.hold(Point::AfterEffect, when).await?);
    }
    case.produce(&records.second).await?;
    let mut holes = Vec::new();
    for barrier in &held {
        let places = old.reached(barrier).await?;
        holes.push(places.iter().map(|place| place.offset).min().unwrap_or_default());
    }
    case.fault("a handler of each partition never ends");
    for (partition, hole) in (0..PARTITIONS).zip(&holes) {
        let above = format!(
            "SELECT count(*) FROM entry WHERE part = {partition} AND record_offset > {hole}"
        );
        until("records above the hole have their effects", async || {
            Ok((case.schema.number(&above).await? > 0).then_some(()))
        })
        .await?;
    }

    case.phase("a member joins");
    let mark = old.mark();
    let new = case.start(lanes("new")).await?;
    let given_up = old.logs(mark, says::DRAIN_GIVEN_UP, |_| true).await?;
    let revoked = old.logs(mark, says::REVOKED, |_| true).await?;
    let took = given_up.at - revoked.at;
    // A third of the session, and a little for the loop to turn.
    ensure!((1_500..4_000).contains(&took), "the drain was given up after {took} ms");
    case.count("drain ms", took);
    let name = given_up.text("partition").unwrap_or_default().to_owned();
    let moved = (0..PARTITIONS).find(|it| case.partition_name(*it) == name).unwrap_or_default();
    let started = new.works_on(0, &case.partition_name(moved)).await?;
    let sent = old.log();
    let last = sent[mark..]
        .iter()
        .take_while(|event| event.message != says::GIVEN_BACK)
        .filter(|event| event.message == says::COMMIT_ACCEPTED)
        .filter_map(|event| offset_of(event.text("offsets")?, &name))
        .last();
    let hole = holes[usize::try_from(moved).unwrap_or_default()];
    if let Some(last) = last {
        ensure!(last <= hole, "{last} is committed, and {hole} is not complete");
    }
    let at = started.number("at");
    ensure!(at == Some(hole), "the new owner starts at {at:?}, and the hole is at {hole}");
    case.count("hole", hole);
    case.phase("the rest is read");
    // The partition that stays has a handler that never ends, too.
    case.terminate(&old).await?;
    case.consumed().await?;
    case.terminate(&new).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

/// The offset of a partition in a list of a log: `topic-0@7 topic-1@9`.
fn offset_of(list: &str, name: &str) -> Option<i64> {
    let (_, offset) =
        list.split(' ').find_map(|it| it.split_once('@').filter(|it| it.0 == name))?;
    offset.parse().ok()
}
