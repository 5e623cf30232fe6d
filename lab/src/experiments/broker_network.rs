//! The broker is away, slow, or unheard.

use std::{cell::Cell, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tidegate_oracle::Rules;
use tidegate_testkit::{ApiKey, Message, Mode, Point, Toward, When};
use tokio::{
    time::{Instant, sleep, sleep_until},
    try_join,
};
use xtask::services::{Server, Signal};

use super::{
    Experiment,
    common::{far, feed, finish, has_stopped, members, shared, takes_all},
    data::{Halves, wide},
    steps_back,
};
use crate::{
    case::{Case, until},
    member::Member,
    says,
    services::KafkaProxy,
    worker::{Protocol, now},
};

const PARTITIONS: i32 = 4;
const TWO: [&str; 2] = ["first", "second"];
const RATE: usize = 200;

/// In milliseconds.
const SESSION: i64 = 6_000;

/// Longer than that.
const LONG: Duration = Duration::from_secs(10);

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "broker-network/delayed",
        "What goes between a member and the broker takes 300 ms longer, in each direction.",
        |case| Box::pin(delayed(case)),
    ),
    Experiment::new(
        "broker-network/throttled",
        "10 kB a second pass between a member and the broker, in each direction.",
        |case| Box::pin(throttled(case)),
    ),
    Experiment::new(
        "broker-network/cut",
        "A member is cut off from the broker for longer than its session.",
        |case| Box::pin(lost(case, Mode::Cut)),
    ),
    Experiment::new(
        "broker-network/half-open-toward-broker",
        "Nothing that a member says reaches the broker any more, for longer than its session.",
        |case| Box::pin(lost(case, Mode::HalfOpen(Toward::Server))),
    ),
    Experiment::new(
        "broker-network/half-open-toward-member",
        "Nothing that the broker says reaches a member any more, for longer than its session.",
        |case| Box::pin(lost(case, Mode::HalfOpen(Toward::Client))),
    ),
    Experiment::new(
        "broker-network/coordinator-unreachable",
        "A member is fed with records, and unheard by its coordinator, for longer than its session.",
        |case| Box::pin(coordinator_unreachable(case)),
    ),
    Experiment::new(
        "broker-network/restarted",
        "The broker is stopped in order, and started again five seconds later, under load.",
        |case| Box::pin(restarted(case, Signal::SIGTERM)),
    )
    .alone(),
    Experiment::new(
        "broker-network/killed",
        "The broker is killed, and started again five seconds later, under load.",
        |case| Box::pin(restarted(case, Signal::SIGKILL)),
    )
    .alone(),
    Experiment::new(
        "broker-network/frozen",
        "The broker is frozen for longer than the sessions, under load.",
        |case| Box::pin(frozen(case)),
    )
    .alone(),
    Experiment::new(
        "broker-network/coordinator-killed",
        "The group's coordinator is killed under load, another node takes over, and it comes back.",
        |case| Box::pin(coordinator_moves(case, Signal::SIGKILL)),
    )
    .on_three_nodes(),
    Experiment::new(
        "broker-network/coordinator-frozen",
        "The group's coordinator is frozen under load, until another node has taken over.",
        |case| Box::pin(coordinator_moves(case, Signal::SIGSTOP)),
    )
    .on_three_nodes(),
    Experiment::new(
        "broker-network/leader-gone",
        "A member leaves, and the node that leads a partition of its is gone. The others take over \
         what they have not read.",
        |case| Box::pin(leader_gone(case)),
    )
    .on_three_nodes(),
];

/// A commit that was unanswered at a handover may land late, and so go back.
/// It heals with the next proof: what is committed in the end is the end.
fn rules() -> Rules {
    Rules::default().tolerating_steps_back()
}

/// Two members, of which one is behind a proxy.
async fn pair<'a>(
    case: &'a Case,
    records: &Halves,
) -> Result<(Arc<Member>, Arc<Member>, KafkaProxy<'a>)> {
    let (proxy, arguments) = far(case, "far").await?;
    case.create_topic(PARTITIONS).await?;
    case.phase("two members work");
    let far = case.start(arguments).await?;
    let near = case.start_plain("near").await?;
    shared(case, &[Arc::clone(&far), Arc::clone(&near)]).await?;
    case.produce(&records.first).await?;
    Ok((far, near, proxy))
}

async fn delayed(case: &Case) -> Result<()> {
    const DELAY: Duration = Duration::from_millis(300);

    let records = wide(case.seed, 2_400, PARTITIONS);
    let (far, near, proxy) = pair(case, &records).await?;
    let (from, to) = worse(case, &proxy, &records, Mode::Delay(DELAY), async || Ok(())).await?;
    let took = slowest_commit(&far, from, to);
    ensure!(took >= 600, "the fault did not take effect: no commit took more than {took} ms");
    case.count("slowest commit ms", took);
    end(case, &[far, near], &[]).await
}

async fn throttled(case: &Case) -> Result<()> {
    const RATE: u32 = 10_000;

    let records = wide(case.seed, 2_400, PARTITIONS);
    let (far, near, proxy) = pair(case, &records).await?;
    let before = proxy.traffic();
    let (from, to) = worse(case, &proxy, &records, Mode::Throttle(RATE), async || Ok(())).await?;
    let passed = proxy.traffic().replies_delivered - before.replies_delivered;
    // A second's worth may pass at once, before and after.
    let most = u64::try_from((to - from) / 1_000 + 2)? * u64::from(RATE);
    let held = proxy.traffic().replies_received - before.replies_received;
    case.count("bytes that came", i64::try_from(held)?);
    case.count("bytes that passed", i64::try_from(passed)?);
    ensure!(passed <= most, "the fault did not take effect: {passed} bytes passed, and not {most}");
    end(case, &[far, near], &[]).await
}

/// The longest time between a member's commit and its answer, in milliseconds, of
/// those that were sent in a span of time.
fn slowest_commit(member: &Member, from: i64, to: i64) -> i64 {
    let log = member.log();
    let sent = log
        .iter()
        .enumerate()
        .filter(|(_, event)| event.message == says::COMMIT_SENT && (from..to).contains(&event.at));
    let took = sent.filter_map(|(index, sent)| {
        let answers = log[index..].iter().find(|event| event.message == says::COMMIT_ACCEPTED);
        Some(answers?.at - sent.at)
    });
    took.max().unwrap_or_default()
}

/// One member is as good as gone for a while.
async fn lost(case: &Case, mode: Mode) -> Result<()> {
    let records = wide(case.seed, 2_400, PARTITIONS);
    let (far, near, proxy) = pair(case, &records).await?;
    let mark = far.mark();
    worse(case, &proxy, &records, mode, async || {
        case.phase("the other member takes everything over");
        takes_all(case, &near).await
    })
    .await?;
    case.phase("the member comes back");
    shared(case, &[Arc::clone(&far), Arc::clone(&near)]).await?;
    let lost = far.log()[mark..].iter().any(has_stopped);
    ensure!(lost, "far has lost its partitions, and says nothing");
    end(case, &[far, near], &[]).await
}

/// Makes a member's connections to the broker worse for a while, under load.
/// Returns from when until when.
async fn worse(
    case: &Case,
    proxy: &KafkaProxy<'_>,
    records: &Halves,
    mode: Mode,
    meanwhile: impl AsyncFnOnce() -> Result<()>,
) -> Result<(i64, i64)> {
    let worse = async {
        proxy.set(mode).await;
        let from = now();
        case.fault(format!("between far and the broker: {mode:?}"));
        let over = Instant::now() + LONG;
        meanwhile().await?;
        sleep_until(over).await;
        let to = now();
        proxy.set(Mode::Pass).await;
        case.relief("between far and the broker: everything passes");
        anyhow::Ok((from, to))
    };
    let ((), span) = try_join!(feed(case, &records.second, RATE), worse)?;
    Ok(span)
}

/// The connection to the coordinator is one of its own: what is fetched comes
/// by another.
async fn coordinator_unreachable(case: &Case) -> Result<()> {
    let records = wide(case.seed, 2_400, PARTITIONS);
    let (far, near, proxy) = pair(case, &records).await?;
    let mark = far.mark();
    let heartbeat = match case.protocol {
        Protocol::Consumer => ApiKey::CONSUMER_GROUP_HEARTBEAT,
        Protocol::Eager | Protocol::Cooperative => ApiKey::HEARTBEAT,
    };
    let unheard = async {
        let held = proxy.hold_requests(Message::request(heartbeat));
        held.reached(LONG).await?;
        let unheard = now();
        let effects = async || {
            let sql = "SELECT count(*) FROM entry WHERE worker = 'far'";
            case.schema.number(sql).await
        };
        let at_first = effects().await?;
        case.fault("far's heartbeats, and what follows them, do not reach the coordinator");
        let stopped = far
            .until("far stops its work", |state| {
                state.log.iter().skip(mark).find(|event| has_stopped(event)).cloned()
            })
            .await?;
        let took = stopped.at - unheard;
        ensure!(took < SESSION, "far stopped {took} ms after it was last heard");
        case.count("stopped after ms", took);
        let before = effects().await?;
        ensure!(before > at_first, "the fault did not take effect: far got no records meanwhile");
        case.phase("the other member takes everything over");
        takes_all(case, &near).await?;
        ensure!(effects().await? == before, "far works on although it has stopped");
        held.release();
        case.relief("the heartbeats arrive");
        Ok(stopped)
    };
    let ((), stopped) = try_join!(feed(case, &records.second, RATE), unheard)?;
    case.phase(&format!("it stopped by: {}", stopped.message));
    shared(case, &[Arc::clone(&far), Arc::clone(&near)]).await?;
    let refused = far.log();
    let refused = refused[mark..].iter().filter(|it| it.message == says::COMMIT_REFUSED);
    case.count("commits refused", refused.count());
    end(case, &[far, near], &[]).await
}

/// Brokers began to serve the group's offsets at `starts`.
async fn end(case: &Case, members: &[Arc<Member>], starts: &[i64]) -> Result<()> {
    let findings = finish(case, members, rules()).await?;
    case.count("went back", findings.counts.committed_went_back);
    steps_back::have_a_cause(case, starts)
}

/// Members that are not behind a proxy: it is the broker that goes.
async fn near(case: &Case, names: &[&str], records: &Halves) -> Result<Vec<Arc<Member>>> {
    case.create_topic(PARTITIONS).await?;
    let members = members(case, names).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    Ok(members)
}

async fn restarted(case: &Case, signal: Signal) -> Result<()> {
    let records = wide(case.seed, 2_000, PARTITIONS);
    let members = near(case, &TWO, &records).await?;
    // What is worked on when it goes, and what is there when it comes back.
    let (before, after) = records.second.split_at(records.second.len() / 2);
    let mut held = Vec::new();
    for member in &members {
        held.push(member.hold(Point::AfterEffect, When::any()).await?);
    }
    case.produce(before).await?;
    for (member, held) in members.iter().zip(&held) {
        member.reached(held).await?;
    }
    case.services().with_kafka(move |node| node.stop(signal).map(drop)).await?;
    case.fault(format!("the broker is stopped ({signal}), with batches in hand"));
    for (member, held) in members.iter().zip(held) {
        member.release(held).await?;
    }
    sleep(Duration::from_secs(5)).await;
    case.services().with_kafka(|node| node.start()).await?;
    let started = now();
    case.relief("the broker is up again");
    until("the broker takes records again", async || Ok(case.produce(after).await.ok()))
        .await
        .context("writing after the restart")?;
    end(case, &members, &[started]).await
}

async fn frozen(case: &Case) -> Result<()> {
    let records = wide(case.seed, 2_000, PARTITIONS);
    let members = near(case, &TWO, &records).await?;
    case.produce(&records.second).await?;
    let marks: Vec<_> = members.iter().map(|member| member.mark()).collect();
    case.services().signal_kafka(Signal::SIGSTOP).await?;
    case.fault("the broker is frozen (SIGSTOP)");
    sleep(LONG).await;
    case.services().signal_kafka(Signal::SIGCONT).await?;
    case.relief("the broker goes on (SIGCONT)");
    for (member, mark) in members.iter().zip(marks) {
        member
            .until("a member has stopped its work meanwhile", |state| {
                state.log[mark..].iter().any(has_stopped).then_some(())
            })
            .await
            .context("the fault did not take effect")?;
    }
    end(case, &members, &[]).await
}

async fn coordinator_moves(case: &Case, signal: Signal) -> Result<()> {
    let records = wide(case.seed, 3_000, PARTITIONS);
    let members = near(case, &TWO, &records).await?;
    let over = Cell::new(false);
    let moves = async {
        let old = case.cluster.coordinator(&case.group).context("the group has a coordinator")?;
        case.nodes()?.with(old, move |node| stop(node, signal)).await?;
        case.fault(format!("node {old}, which coordinates the group, is gone ({signal})"));
        let new = until("another node coordinates the group", async || {
            Ok(case.cluster.coordinator(&case.group).filter(|new| *new != old))
        })
        .await?;
        let moved = now();
        case.fault(format!("the group's coordinator has moved to node {new}"));
        case.nodes()?.with(old, move |node| restart(node, signal)).await?;
        let back = now();
        case.relief(format!("node {old} is there again"));
        over.set(true);
        anyhow::Ok([moved, back])
    };
    // Some are left for when it has moved.
    let (during, after) = records.second.split_at(records.second.len() / 2);
    let load = async {
        for records in during.chunks(RATE / 4) {
            until("records are taken", async || Ok(case.produce(records).await.ok())).await?;
            if !over.get() {
                sleep(Duration::from_millis(250)).await;
            }
        }
        anyhow::Ok(())
    };
    let (starts, ()) = try_join!(moves, load)?;
    case.phase("partitions go to a member, and come back");
    let marks: Vec<_> = members.iter().map(|member| member.mark()).collect();
    let third = case.start_plain("third").await?;
    let all: Vec<_> = members.iter().chain([&third]).cloned().collect();
    shared(case, &all).await?;
    case.terminate(&third).await?;
    case.produce(after).await?;
    shared(case, &members).await?;
    // Who has known the old coordinator finds out all the same where they start.
    for (member, mark) in members.iter().zip(marks) {
        let log = member.log();
        let late = says::START_UNKNOWN;
        let late = log[mark..].iter().find(|event| event.message == late);
        ensure!(late.is_none(), "{} did not find out where partitions start", member.name());
    }
    // Some may be there twice: a write was repeated that had been done.
    case.find_ends().await?;
    end(case, &members, &starts).await
}

/// Who reads a partition sees that its leader is gone. Who is to read it next goes
/// by what it knew before.
async fn leader_gone(case: &Case) -> Result<()> {
    let records = wide(case.seed, 2_000, PARTITIONS);
    let mut members = near(case, &["first", "second", "third"], &records).await?;
    let leaves = members.pop().context("there are three")?;
    let its = leaves.status().await?.first().context("it has a partition")?.partition;
    let leader = || case.cluster.leader(&case.topic, |_| its);
    let gone = leader().context("its partition has a leader")?;
    case.nodes()?.with(gone, |node| stop(node, Signal::SIGKILL)).await?;
    case.fault(format!("node {gone}, which leads partition {its}, is gone"));
    // It may have been the group's coordinator as well.
    let went = now();
    until("another node leads", async || Ok(leader().filter(|it| *it != gone))).await?;
    case.terminate(&leaves).await?;
    case.phase("the others take its partitions over while the node is away");
    shared(case, &members).await?;
    until("records are taken", async || Ok(case.produce(&records.second).await.ok())).await?;
    case.nodes()?.with(gone, |node| restart(node, Signal::SIGKILL)).await?;
    case.relief(format!("node {gone} is there again"));
    let back = now();
    // Some may be there twice: a write was repeated that had been done.
    case.find_ends().await?;
    end(case, &members, &[went, back]).await
}

fn stop(node: &mut Server, signal: Signal) -> Result<()> {
    match signal {
        Signal::SIGSTOP => {
            node.process().context("it is up")?.signal(signal);
            Ok(())
        }
        _ => node.stop(signal).map(drop),
    }
}

fn restart(node: &mut Server, signal: Signal) -> Result<()> {
    match signal {
        Signal::SIGSTOP => {
            node.process().context("it is up")?.signal(Signal::SIGCONT);
            Ok(())
        }
        _ => node.start(),
    }
}
