//! Handlers that take too long, and records that contradict each other.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tidegate_oracle::Rules;
use tidegate_testkit::{NewRecord, Point, When};
use tokio::time::{Instant, sleep_until};

use super::{
    Experiment,
    common::takes_all,
    data::{PARTITIONS, delta, ledger_with, plain},
};
use crate::{
    case::{Case, until},
    worker::{Arguments, LayerName, Protocol},
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
    Experiment::new(
        "conflict/buried",
        "Messages come again with another payload, and there are dead letters.",
        |case| Box::pin(conflict_buried(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "conflict/stops",
        "A message comes again with another payload, and there are no dead letters.",
        |case| Box::pin(conflict_stops(case)),
    )
    .on(&[Protocol::Consumer]),
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
    let evicted =
        |message: &str| message == "partitions revoked" || message == "partitions are lost";
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
        member.logs(member.mark(), "a commit is accepted", |_| true).await?;
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
    let revoked = member.log()[mark..].iter().any(|event| event.message == "partitions revoked");
    ensure!(!revoked, "the member was evicted");
    case.terminate(&member).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn drain_deadline(case: &Case) -> Result<()> {
    // Nothing is early: what a batch is about lies in one row.
    let records = plain(case.seed, 400, 20);
    case.create_topic(PARTITIONS).await?;
    let old = case.start_plain("old").await?;
    takes_all(case, &old).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    let mut held = Vec::new();
    for partition in 0..PARTITIONS {
        held.push(old.hold(Point::AfterEffect, When::any().partition(partition)).await?);
    }
    case.produce(&records.second).await?;
    let mut holes = Vec::new();
    for barrier in &held {
        let places = old.reached(barrier).await?;
        holes.push(places.iter().map(|place| place.offset).min().unwrap_or_default());
    }
    case.fault("a handler of each partition never ends");

    case.phase("a member joins");
    let mark = old.mark();
    let new = case.start_plain("new").await?;
    let given_up = old.logs(mark, "the drain's deadline has passed", |_| true).await?;
    let revoked = old.logs(mark, "partitions revoked", |_| true).await?;
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
        .take_while(|event| event.message != "partitions given back")
        .filter(|event| event.message == "a commit is accepted")
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

async fn conflict_buried(case: &Case) -> Result<()> {
    let records = ledger_with(case.seed, 400, |config| config.conflicts = 8);
    case.create_topic(PARTITIONS).await?;
    let member = case.start_plain("member").await?;
    case.produce(&records.first).await?;
    case.produce(&records.second).await?;
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

async fn conflict_stops(case: &Case) -> Result<()> {
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
