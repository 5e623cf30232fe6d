//! A commit that the broker refuses.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use tidegate::kafka::group::GroupAdmin;
use tidegate_oracle::Rules;
use tidegate_testkit::{ApiKey, LedgerRecord, Message};

use super::{
    Experiment,
    common::{far, finish, is_refusal, shared, takes_all},
    data::{Halves, plain_over, wide},
};
use crate::{
    case::{Case, until},
    member::{Member, PATIENCE},
    says,
    services::KafkaProxy,
    worker::{Logged, Protocol},
};

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "commit-refused/unknown-member",
        "A commit is held on its way until its member is none any more.",
        |case| Box::pin(unknown_member(case)),
    ),
    // An eager member has given everything back before its generation is over.
    Experiment::new(
        "commit-refused/stale-generation",
        "A member that has not heard of the new generation commits with the old one.",
        |case| Box::pin(stale_generation(case)),
    )
    .on(&[Protocol::Cooperative, Protocol::Consumer]),
    // Under the consumer protocol there is no such answer.
    Experiment::new(
        "commit-refused/rebalance-in-progress",
        "A member that is to assign the partitions commits before it has.",
        |case| Box::pin(rebalance_in_progress(case)),
    )
    .on(&[Protocol::Cooperative]),
];

async fn unknown_member(case: &Case) -> Result<()> {
    const PARTITIONS: i32 = 4;

    let records = wide(case.seed, 800, PARTITIONS);
    let (proxy, arguments) = far(case, "far").await?;
    case.create_topic(PARTITIONS).await?;
    case.phase("two members work");
    let far = case.start(arguments).await?;
    let near = case.start_plain("near").await?;
    let both = [Arc::clone(&far), Arc::clone(&near)];
    shared(case, &both).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;

    case.phase("a commit is held on its way, and the heartbeats behind it");
    let mark = far.mark();
    let held = proxy.hold_requests(Message::request(ApiKey::OFFSET_COMMIT));
    case.produce(&records.second).await?;
    held.reached(PATIENCE).await?;
    takes_all(case, &near).await?;
    case.consumed().await?;
    held.release();
    // A classic client has seen by the clock what the broker would say.
    let answered = far
        .until("far hears that its commit was refused, or was too late", |state| {
            let mut events = state.log.iter().skip(mark);
            events.find(|event| is_refusal(event)).cloned()
        })
        .await
        .context("the fault did not take effect")?;
    case.fault(format!("{}: {}", answered.message, answered.text("error").unwrap_or_default()));
    case.phase("it joins again");
    shared(case, &both).await?;
    finish(case, &[far, near], Rules::default()).await?;
    Ok(())
}

/// One member, which keeps its one partition whoever joins.
async fn keeper<'a>(
    case: &'a Case,
    records: &Halves,
) -> Result<(Arc<Member>, KafkaProxy<'a>, GroupAdmin)> {
    let (proxy, arguments) = far(case, "keeper").await?;
    case.create_topic(1).await?;
    case.phase("one member works on one partition");
    let keeper = case.start(arguments).await?;
    takes_all(case, &keeper).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    Ok((keeper, proxy, case.admin()?))
}

/// Under the consumer protocol, a heartbeat is given up after one interval, and its
/// answer is lost. Where the commit came later than that, another member has to join.
async fn stale_generation(case: &Case) -> Result<()> {
    const TRIES: usize = 5;

    let records = plain_over(case.seed, 400, 20, 1);
    let (keeper, proxy, admin) = keeper(case, &records).await?;
    let mut mark = keeper.mark();
    // What tells of the new generation, and how it is asked for.
    let (asks, expected) = match case.protocol {
        Protocol::Consumer => (ApiKey::CONSUMER_GROUP_HEARTBEAT, "StaleMemberEpoch"),
        Protocol::Eager | Protocol::Cooperative => (ApiKey::JOIN_GROUP, "IllegalGeneration"),
    };
    let mut members = vec![Arc::clone(&keeper)];
    for records in records.second.chunks(records.second.len().div_ceil(TRIES)) {
        case.phase("a member joins, and the other one does not hear of it");
        // What is held on its way has its answer held too.
        let asking = proxy.hold_requests(Message::request(asks));
        let answer = proxy.hold_replies(Message::request(asks));
        members.push(case.start_plain(&format!("other-{}", members.len())).await?);
        asking.reached(PATIENCE).await?;
        if case.protocol == Protocol::Consumer {
            until("the group has one member more", async || {
                Ok((admin.describe().await?.members.len() == members.len()).then_some(()))
            })
            .await?;
        }
        asking.release();
        answer.answered(PATIENCE).await?;
        commits_meanwhile(case, &keeper, records).await?;
        answer.release();
        case.consumed().await?;
        if refusal(&keeper.log()[mark..], expected).is_some() {
            break;
        }
        if keeper.log()[mark..].iter().any(|event| event.message == says::LOST) {
            case.phase("the commit came too late, and the broker has put its member out");
            for other in members.drain(1..) {
                case.terminate(&other).await?;
            }
            takes_all(case, &keeper).await?;
            mark = keeper.mark();
        }
    }
    refused(case, &keeper, mark, expected).await?;
    keeps_it(case, &keeper, mark)?;
    finish(case, &members, Rules::default()).await?;
    Ok(())
}

/// The first member of a classic group assigns the partitions, and asks for the
/// topics before it does.
async fn rebalance_in_progress(case: &Case) -> Result<()> {
    let records = plain_over(case.seed, 400, 20, 1);
    let (keeper, proxy, _) = keeper(case, &records).await?;
    case.phase("a member joins, and the one that assigns waits for the list of topics");
    let mark = keeper.mark();
    let joining = proxy.hold_requests(Message::request(ApiKey::JOIN_GROUP));
    let other = case.start_plain("other").await?;
    joining.reached(PATIENCE).await?;
    let topics = proxy.hold_replies(Message::request(ApiKey::METADATA));
    joining.release();
    topics.answered(PATIENCE).await?;
    commits_meanwhile(case, &keeper, &records.second).await?;
    topics.release();
    refused(case, &keeper, mark, "RebalanceInProgress").await?;
    keeps_it(case, &keeper, mark)?;
    finish(case, &[keeper, other], Rules::default()).await?;
    Ok(())
}

/// Lets a member finish something, and send a commit for it.
async fn commits_meanwhile(case: &Case, member: &Member, records: &[LedgerRecord]) -> Result<()> {
    let mark = member.mark();
    case.produce(records).await?;
    // Further ones wait for its answer.
    member.logs(mark, says::COMMIT_SENT, |_| true).await?;
    Ok(())
}

/// The fault took effect: the broker has refused a commit.
async fn refused(case: &Case, member: &Member, mark: usize, expected: &str) -> Result<()> {
    let refusal = member
        .until("a commit is refused", |state| refusal(&state.log[mark..], expected).cloned())
        .await
        .with_context(|| {
            let log = member.log();
            let refusals = log[mark..].iter().filter_map(|event| event.text("error"));
            format!("refusals were {:?}", refusals.collect::<Vec<_>>())
        })
        .context("the fault did not take effect")?;
    case.fault(format!("refused: {}", refusal.text("error").unwrap_or_default()));
    Ok(())
}

fn refusal<'a>(log: &'a [Logged], expected: &str) -> Option<&'a Logged> {
    log.iter().find(|event| {
        event.message == says::COMMIT_REFUSED
            && event.text("error").is_some_and(|error| error.starts_with(expected))
    })
}

/// It is a member all the same, and works on.
fn keeps_it(case: &Case, member: &Member, mark: usize) -> Result<()> {
    let log = member.log();
    let lost = log[mark..].iter().find(|event| event.message == says::LOST);
    ensure!(lost.is_none(), "{} gave up what it had: {lost:?}", member.name());
    case.phase("the rest is read");
    Ok(())
}
