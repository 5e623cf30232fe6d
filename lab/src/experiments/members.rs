//! Many members, that come and go.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tidegate::kafka::group::GroupType;
use tidegate_oracle::Rules;
use tokio::{
    time::{Instant, sleep_until},
    try_join,
};

use super::{
    Experiment,
    common::{self, feed, finish, shared, takes_all},
    data::{Halves, delta, wide},
};
use crate::{
    case::{Case, until},
    member::Member,
    says,
    worker::{Arguments, Logged, Protocol},
};

const PARTITIONS: i32 = 4;
const RATE: usize = 400;

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "hot-partition",
        "One partition has ten times as many records as each of the others.",
        |case| Box::pin(hot_partition(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "simultaneous-restart",
        "All members are asked to end at once, and started again; then they are killed at once.",
        |case| Box::pin(simultaneous_restart(case)),
    ),
    Experiment::new(
        "more-members-than-partitions",
        "Members without a partition take over when those that have one are killed.",
        |case| Box::pin(more_members(case)),
    ),
    Experiment::new(
        "rebalance-storm",
        "A member comes or goes every 300 ms (every 2 s on the cooperative protocol), under load.",
        |case| Box::pin(storm(case)),
    ),
    Experiment::new(
        "static-member-restart",
        "A member with an identity of its own is killed, and started again within its session.",
        |case| Box::pin(static_restart(case)),
    ),
    Experiment::new(
        "static-identity-taken",
        "A second process comes with the identity of one that lives.",
        |case| Box::pin(static_taken(case)),
    ),
    Experiment::new(
        "rolling-upgrade/consumer",
        "A group goes from range to the consumer protocol, member by member, and back.",
        |case| Box::pin(to_consumer(case)),
    )
    .on(&[Protocol::Eager]),
    Experiment::new(
        "rolling-upgrade/cooperative",
        "A group goes from range to cooperative-sticky, and back: the new ones wait until the \
         old ones have left.",
        |case| Box::pin(to_cooperative(case)),
    )
    .on(&[Protocol::Eager]),
];

async fn hot_partition(case: &Case) -> Result<()> {
    const WIDE: i32 = 8;

    case.create_topic(WIDE).await?;
    let members = common::members(case, &["first", "second"]).await?;
    let of = |partition: i32| {
        let count = if partition == 0 { 6_000 } else { 600 };
        (0..count).map(move |n| {
            let (account, revision) = (n % 20, n / 20 + 1);
            let name = format!("account-{partition}-{account}");
            delta(partition, i64::from(partition) * 10_000 + n + 1, &name, revision, 1)
        })
    };
    case.write((0..WIDE).flat_map(of).collect()).await?;
    case.fault("p0 has 6 000 records, and each of the others 600");
    let began = Instant::now();
    case.consumed_of(&(1..WIDE).collect::<Vec<_>>()).await?;
    case.count("others done after ms", i64::try_from(began.elapsed().as_millis())?);
    let hot = case.committed_at(0).await?.unwrap_or_default();
    ensure!(hot < case.end(0), "the others had to wait for the hot partition");
    case.consumed().await?;
    case.count("hot one done after ms", i64::try_from(began.elapsed().as_millis())?);
    finish(case, &members, Rules::default()).await?;
    Ok(())
}

async fn simultaneous_restart(case: &Case) -> Result<()> {
    let records = wide(case.seed, 3_000, PARTITIONS);
    case.create_topic(PARTITIONS).await?;
    let first = common::members(case, &["a1", "b1", "c1"]).await?;
    case.produce(&records.first).await?;
    let restarts = async {
        case.phase("all are asked to end");
        for member in &first {
            member.ask_to_end().await?;
        }
        for member in &first {
            let status = member.ended().await?;
            ensure!(status.success(), "{} ended with {status}", member.name());
        }
        case.fault("all three members have ended at once (SIGTERM)");
        let second = common::members(case, &["a2", "b2", "c2"]).await?;
        case.phase("all are killed");
        second.iter().for_each(|member| member.signal(Signal::SIGKILL));
        for member in &second {
            case.kill(member).await?;
        }
        case.fault("all three members are killed at once (SIGKILL)");
        common::members(case, &["a3", "b3", "c3"]).await
    };
    let ((), third) = try_join!(feed(case, &records.second, RATE), restarts)?;
    finish(case, &third, Rules::default()).await?;
    Ok(())
}

async fn more_members(case: &Case) -> Result<()> {
    let records = wide(case.seed, 2_000, 2);
    case.create_topic(2).await?;
    let mut members = VecDeque::new();
    for name in ["a", "b", "c", "d", "e"] {
        members.push_back(case.start_plain(name).await?);
    }
    until("two members have a partition each", async || {
        Ok((owners(&members).await?.len() == 2).then_some(()))
    })
    .await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    case.phase("those with a partition are killed");
    let fault = async {
        for _ in 0..2 {
            let owner = until("a member has a partition", async || {
                Ok(owners(&members).await?.first().copied())
            });
            let owner = members.remove(owner.await?).context("it is one of them")?;
            case.kill(&owner).await?;
        }
        anyhow::Ok(())
    };
    try_join!(feed(case, &records.second, RATE), fault)?;
    case.count("members left", members.len());
    finish(case, &members.into_iter().collect::<Vec<_>>(), Rules::default()).await?;
    Ok(())
}

/// Which of them have partitions.
async fn owners(members: &VecDeque<Arc<Member>>) -> Result<Vec<usize>> {
    let mut owners = Vec::new();
    for (index, member) in members.iter().enumerate() {
        if !member.status().await?.is_empty() {
            owners.push(index);
        }
    }
    Ok(owners)
}

async fn storm(case: &Case) -> Result<()> {
    // On the cooperative protocol the client joins once a second. Were somebody to
    // come in each 300 ms there, the group would wait for them and never get to an
    // assignment: one or two a minute.
    let every = match case.protocol {
        Protocol::Cooperative => Duration::from_secs(2),
        Protocol::Eager | Protocol::Consumer => Duration::from_millis(300),
    };
    let seconds: u64 = if case.scale.quick { 12 } else { 60 };
    let records = wide(case.seed, usize::try_from(seconds)? * 250, 8);
    case.create_topic(8).await?;
    let lanes = |name: &str| Arguments { lanes: 4, ..case.arguments(name) };
    let steady = case.start(lanes("steady")).await?;
    takes_all(case, &steady).await?;
    case.produce(&records.first).await?;
    let turns = usize::try_from(u128::from(seconds) * 1_000 / every.as_millis())?;
    // Two that come together may get their partitions in one, and a machine that is
    // busy takes its time.
    let (least, most) = (turns / 8, turns * 5);
    let is_enough = |turn| turn >= turns && (case.generations().len() >= least || turn >= most);
    let comings = async {
        let mut here = VecDeque::new();
        let mut leaving = Vec::new();
        let mut next = Instant::now();
        for turn in (0..).take_while(|turn| !is_enough(*turn)) {
            // Two come, two go, and so on: up to four at once.
            if turn % 4 < 2 {
                here.push_back(case.start(lanes(&format!("m{turn}"))).await?);
            } else if let Some(member) = here.pop_front() {
                member.ask_to_end().await?;
                leaving.push(member);
            }
            next += every;
            sleep_until(next).await;
        }
        case.fault(format!("members came and went, one each {every:?}"));
        for member in &leaving {
            let status = member.ended().await?;
            ensure!(status.success(), "{} ended with {status}", member.name());
        }
        anyhow::Ok(here)
    };
    let ((), here) = try_join!(feed(case, &records.second, RATE), comings)?;
    let rebalances = case.generations().len();
    case.count("rebalances", rebalances);
    ensure!(
        rebalances >= least,
        "the fault did not take effect: {rebalances} rebalances, and not {least}"
    );
    let mut members: Vec<_> = here.into_iter().collect();
    members.push(steady);
    finish(case, &members, Rules::default()).await?;
    Ok(())
}

fn with_identity(case: &Case, name: &str, identity: &str) -> Arguments {
    Arguments { instance: Some(identity.to_owned()), ..case.arguments(name) }
}

async fn identified(case: &Case, records: &Halves) -> Result<(Arc<Member>, Arc<Member>)> {
    case.create_topic(PARTITIONS).await?;
    let first = case.start(with_identity(case, "first", "one")).await?;
    let second = case.start(with_identity(case, "second", "two")).await?;
    shared(case, &[Arc::clone(&first), Arc::clone(&second)]).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    Ok((first, second))
}

async fn static_restart(case: &Case) -> Result<()> {
    let records = wide(case.seed, 1_000, PARTITIONS);
    let (first, second) = identified(case, &records).await?;
    let mark = second.mark();
    case.kill(&first).await?;
    case.produce(&records.second).await?;
    let again = case.start(with_identity(case, "again", "one")).await?;
    shared(case, &[Arc::clone(&again), Arc::clone(&second)]).await?;
    // Under the consumer protocol the broker does not let it in before its old
    // session is over, and gives its partitions away meanwhile.
    if case.protocol != Protocol::Consumer {
        let moved = |message: &str| message.starts_with("partitions ");
        let needless = second.log()[mark..].iter().find(|event| moved(&event.message)).cloned();
        ensure!(needless.is_none(), "the other member saw a rebalance: {needless:?}");
    }
    finish(case, &[again, second], Rules::default()).await?;
    Ok(())
}

async fn static_taken(case: &Case) -> Result<()> {
    let records = wide(case.seed, 1_000, PARTITIONS);
    let (first, second) = identified(case, &records).await?;
    case.phase("another process has the same identity");
    let rival = case.start(with_identity(case, "rival", "one")).await?;
    case.produce(&records.second).await?;
    // In the classic protocols the newer one wins, else the older one.
    let (loser, winner) = match case.protocol {
        Protocol::Consumer => (rival, first),
        Protocol::Eager | Protocol::Cooperative => (first, rival),
    };
    let status = loser.ended().await?;
    ensure!(!status.success(), "{} ended with {status}", loser.name());
    let log = loser.log();
    let said = log.iter().rev().find_map(|event| event.text("cause"));
    let said = said.context("it says why it ends")?;
    ensure!(said.contains("group.instance.id"), "it says: {said}");
    case.fault(format!("{} has lost its identity, and ended", loser.name()));
    finish(case, &[winner, second], Rules::default()).await?;
    Ok(())
}

/// Two members that share the partitions by `range`, with something to do.
async fn in_range(case: &Case, records: &Halves) -> Result<Vec<Arc<Member>>> {
    case.create_topic(PARTITIONS).await?;
    let members = common::members(case, &["range-1", "range-2"]).await?;
    case.produce(&records.first).await?;
    Ok(members)
}

/// Starts a member of another protocol than the experiment's.
async fn start_on(case: &Case, protocol: Protocol, name: &str) -> Result<Arc<Member>> {
    case.start(Arguments { protocol, ..case.arguments(name) }).await
}

async fn to_consumer(case: &Case) -> Result<()> {
    let records = wide(case.seed, 3_000, PARTITIONS);
    let admin = case.admin()?;
    let mut members = in_range(case, &records).await?;
    let rolls = async {
        for (protocol, expected) in
            [(Protocol::Consumer, GroupType::Consumer), (Protocol::Eager, GroupType::Classic)]
        {
            case.phase(&format!("members of the {protocol} protocol take their places"));
            for number in 1..=2 {
                let name = format!("{}-{protocol}-{number}", members.len());
                members.push(start_on(case, protocol, &name).await?);
                let newest = members[members.len() - 1].clone();
                until("the new one has a share", async || {
                    Ok((!newest.status().await?.is_empty()).then_some(()))
                })
                .await?;
                case.terminate(&members.remove(0)).await?;
            }
            shared(case, &members).await?;
            until("the group has the new protocol", async || {
                Ok((admin.describe().await?.protocol == expected).then_some(()))
            })
            .await?;
            case.fault(format!("the group's protocol is {expected:?}"));
        }
        anyhow::Ok(())
    };
    try_join!(feed(case, &records.second, 200), rolls)?;
    finish(case, &members, Rules::default()).await?;
    Ok(())
}

/// The two have no assignor in common, so no member of one gets into a group of the
/// other.
async fn to_cooperative(case: &Case) -> Result<()> {
    let records = wide(case.seed, 1_500, PARTITIONS);
    let admin = case.admin()?;
    let mut members = in_range(case, &records).await?;
    let rolls = async {
        for (protocol, assignor) in
            [(Protocol::Cooperative, "cooperative-sticky"), (Protocol::Eager, "range")]
        {
            case.phase(&format!("members of the {protocol} protocol wait"));
            let mut next = Vec::new();
            for number in 1..=2 {
                let name = format!("{assignor}-{number}-of-the-next");
                let member = start_on(case, protocol, &name).await?;
                next.push(member);
            }
            for member in &next {
                let is_refusal = |event: &Logged| {
                    let error = event.text("error");
                    error.is_some_and(|error| error.contains("InconsistentGroupProtocol"))
                };
                member.logs(0, says::CLIENT_ERROR, is_refusal).await?;
            }
            for member in members.drain(..) {
                case.terminate(&member).await?;
            }
            shared(case, &next).await?;
            members = next;
            until("the group has the new assignor", async || {
                Ok((admin.describe().await?.assignor == assignor).then_some(()))
            })
            .await?;
            case.fault(format!("the group's assignor is {assignor}"));
        }
        anyhow::Ok(())
    };
    try_join!(feed(case, &records.second, 100), rolls)?;
    finish(case, &members, Rules::default()).await?;
    Ok(())
}
