//! What several experiments do.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Result;
use tidegate_testkit::LedgerRecord;
use tokio::time::sleep;

use crate::{
    case::{Case, until},
    member::Member,
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

/// How many records had an outcome, as the member's frontier has counted.
pub(super) async fn outcomes(member: &Member, outcome: &str) -> Result<i64> {
    counted(member, &format!("tidegate_frontier_outcomes_total{{outcome={outcome}}}")).await
}

/// What a member has counted under a name.
#[expect(clippy::cast_possible_truncation, reason = "it is a count")]
pub(super) async fn counted(member: &Member, name: &str) -> Result<i64> {
    Ok(member.counters().await?.get(name).copied().unwrap_or_default() as i64)
}
