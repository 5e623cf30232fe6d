//! What several experiments do.

use std::{cell::Cell, collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use tidegate_oracle::{Findings, Rules};
use tidegate_testkit::{LedgerRecord, Point};
use tokio::time::sleep;

use super::data::Halves;
use crate::{
    case::{Case, until},
    member::Member,
    says,
    services::KafkaProxy,
    worker::{Arguments, Logged},
};

/// Starts members as they are by default, and waits until each has a share of
/// the partitions.
pub(super) async fn members(case: &Case, names: &[&str]) -> Result<Vec<Arc<Member>>> {
    let mut members = Vec::new();
    for name in names {
        members.push(case.start_plain(name).await?);
    }
    shared(case, &members).await?;
    Ok(members)
}

/// Waits until each partition has a member that works on it, and each member a
/// partition.
pub(super) async fn shared(case: &Case, members: &[Arc<Member>]) -> Result<()> {
    let all = case.partitions();
    until("each member has a share of the partitions", async || {
        let mut taken = BTreeSet::new();
        for member in members {
            let standing = member.status().await?;
            let working = standing.iter().filter(|it| it.state == "running");
            let mut working = working.map(|it| it.partition).peekable();
            if working.peek().is_none() {
                return Ok(None);
            }
            taken.extend(working);
        }
        Ok((taken.len() == all).then_some(()))
    })
    .await
}

/// The points at which a layer stands.
pub(super) const LAYERS: [Point; 6] = [
    Point::Admitted,
    Point::BeforeBegin,
    Point::AfterMarker,
    Point::AfterEffect,
    Point::AfterCommit,
    Point::Completed,
];

/// A proxy before the broker, and the arguments of a member behind it.
pub(super) async fn far<'a>(case: &'a Case, name: &str) -> Result<(KafkaProxy<'a>, Arguments)> {
    let proxy = case.services().kafka_proxy().await?;
    let kafka = proxy.addr().to_string();
    Ok((proxy, Arguments { kafka, ..case.arguments(name) }))
}

/// The rest is read, the members end in order, and the oracle judges.
pub(super) async fn finish(case: &Case, members: &[Arc<Member>], rules: Rules) -> Result<Findings> {
    case.phase("the rest is read");
    case.consumed().await?;
    for member in members {
        case.terminate(member).await?;
    }
    case.judge(rules).await
}

/// Waits until one member has all partitions.
pub(super) async fn takes_all(case: &Case, member: &Arc<Member>) -> Result<()> {
    shared(case, std::slice::from_ref(member)).await
}

/// Writes records, so many a second.
pub(super) async fn feed(case: &Case, records: &[LedgerRecord], rate: usize) -> Result<()> {
    const TURN: Duration = Duration::from_millis(250);

    for records in records.chunks((rate / 4).max(1)) {
        case.produce(records).await?;
        sleep(TURN).await;
    }
    Ok(())
}

/// Writes records until something is over, and then at once what is left: so
/// many a second, or less when few are left, so that there always are some.
pub(super) async fn feed_until(
    case: &Case,
    records: &Halves,
    rate: usize,
    over: &Cell<bool>,
) -> Result<()> {
    let mut left: Vec<_> = records.first.iter().chain(&records.second).cloned().collect();
    while !over.get() {
        ensure!(!left.is_empty(), "the records were all written before it was over");
        let size = (rate / 2).min(left.len() / 20).max(1);
        let later = left.split_off(size);
        case.produce(&left).await?;
        left = later;
        sleep(Duration::from_millis(500)).await;
    }
    case.produce(&left).await
}

/// Its work is over, by an event, a commit's answer or the clock.
pub(super) fn has_stopped(event: &Logged) -> bool {
    match event.message.as_str() {
        says::LOST | says::SUSPENDED => true,
        says::REVOKED => event.fields.get("lost") == Some(&true.into()),
        _ => false,
    }
}

/// The broker has refused a commit of a member that is none any more. The member may
/// have seen by the clock, before it heard of that, that its membership had ended.
pub(super) fn is_refusal(event: &Logged) -> bool {
    let answers = [says::COMMIT_REFUSED, says::COMMIT_LATE];
    answers.contains(&event.message.as_str())
        && event.text("error").is_some_and(|error| error.starts_with("UnknownMember"))
}
