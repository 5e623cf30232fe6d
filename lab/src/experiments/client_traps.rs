//! What the client does wrong by itself, and the driver has to make up for.

use std::{cell::Cell, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tidegate_oracle::Rules;
use tidegate_testkit::{ApiKey, HeldTraffic, LedgerRecord, Message, Mode, Point, When};
use tokio::{
    time::{Instant, sleep, timeout},
    try_join,
};

use super::{
    Experiment,
    common::{far, feed, feed_until, finish, shared, takes_all},
    data::{plain_over, wide},
};
use crate::{
    case::{Case, until},
    member::{Member, PATIENCE},
    says,
    worker::{Arguments, Logged, Protocol},
};

const PARTITIONS: i32 = 4;

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "client-traps/end-of-partition",
        "Members come and go while each partition is read to its end, again and again.",
        |case| Box::pin(end_of_partition(case)),
    ),
    Experiment::new(
        "client-traps/failed-offset-fetch",
        "A look-up of committed offsets is lost after the assignment has changed under it.",
        |case| Box::pin(failed_offset_fetch(case)),
    ),
    Experiment::new(
        "client-traps/late-look-up",
        "The answer to the first look-up of committed offsets comes after its time-outs.",
        |case| Box::pin(late_look_up(case)),
    ),
    Experiment::new(
        "client-traps/commit-parked-at-close",
        "A member is cut off from the broker, and asked to end with work that is not committed.",
        |case| Box::pin(commit_parked_at_close(case)),
    ),
    Experiment::new(
        "client-traps/closed-again-and-again",
        "Members start and are asked to end, one after the other, under load.",
        |case| Box::pin(closed_again_and_again(case)),
    ),
    Experiment::new(
        "client-traps/stale-epochs-in-a-row",
        "The answer with a member's new epoch is lost: it commits with the old one until it asks.",
        |case| Box::pin(stale_epochs(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "client-traps/missed-revoke",
        "A member's client gives up the heartbeat whose answer says what to give back.",
        |case| Box::pin(missed_revoke(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "client-traps/missed-assignment",
        "A member's client gives up the heartbeat whose answer brings a partition that another \
         member was slow to give back.",
        |case| Box::pin(missed_assignment(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "client-traps/rebuilt-under-load",
        "Nothing that is fetched arrives any more: the client is replaced, under load.",
        |case| Box::pin(rebuilt(case)),
    ),
];

async fn end_of_partition(case: &Case) -> Result<()> {
    const ROUNDS: usize = 8;

    // So few at a time that all are at their ends most of the time.
    let records = plain_over(case.seed, 6_000, 40, PARTITIONS);
    case.create_topic(PARTITIONS).await?;
    let steady = case.start_plain("steady").await?;
    takes_all(case, &steady).await?;
    let over = Cell::new(false);
    let comings = async {
        for round in 1..=ROUNDS {
            case.phase(&format!("coming and going {round} of {ROUNDS}"));
            let guest = case.start_plain(&format!("guest-{round}")).await?;
            guest.works().await?;
            sleep(Duration::from_millis(300)).await;
            case.terminate(&guest).await?;
        }
        case.fault(format!("{ROUNDS} members came and went"));
        over.set(true);
        anyhow::Ok(())
    };
    let trickle = async {
        let all = records.first.iter().chain(&records.second).cloned().collect::<Vec<_>>();
        for records in all.chunks(usize::try_from(PARTITIONS)?) {
            if over.get() {
                break;
            }
            case.produce(records).await?;
            sleep(Duration::from_millis(30)).await;
        }
        ensure!(over.get(), "the records were all written before the last member had gone");
        anyhow::Ok(())
    };
    try_join!(comings, trickle)?;
    let rebalances = case.logged(says::REVOKED);
    ensure!(rebalances >= ROUNDS, "the fault did not take effect: {rebalances} revokes");
    case.count("revokes", rebalances);
    finish(case, &[steady], Rules::default()).await?;
    Ok(())
}

async fn failed_offset_fetch(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, PARTITIONS);
    let (proxy, arguments) = far(case, "far").await?;
    case.create_topic(PARTITIONS).await?;
    case.produce(&records.first).await?;
    let held = proxy.hold_requests(Message::request(ApiKey::OFFSET_FETCH));
    let far = case.start(arguments).await?;
    held.reached(PATIENCE).await?;
    case.phase("partitions go to another member meanwhile");
    let near = case.start_plain("near").await?;
    near.works().await?;
    ensure!(!far.has_worked(), "the fault did not take effect: far has started without the answer");
    held.cut();
    case.fault("far's look-up of committed offsets is lost, with its connection");
    case.phase("both have a share");
    shared(case, &[Arc::clone(&far), Arc::clone(&near)]).await?;
    case.produce(&records.second).await?;
    finish(case, &[far, near], Rules::default()).await?;
    Ok(())
}

/// A time-out that fires while the client waits must do no harm: in another
/// call of the client's it ends the process.
async fn late_look_up(case: &Case) -> Result<()> {
    // Two time-outs, and less than a session.
    const LATE: Duration = Duration::from_millis(4_500);

    let records = wide(case.seed, 600, PARTITIONS);
    let (proxy, arguments) = far(case, "member").await?;
    case.create_topic(PARTITIONS).await?;
    case.produce(&records.first).await?;
    let held = proxy.hold_replies(Message::request(ApiKey::OFFSET_FETCH));
    let member = case.start(arguments).await?;
    held.answered(PATIENCE).await?;
    case.fault("the answer to the look-up of committed offsets is held");
    sleep(LATE).await;
    ensure!(
        !member.has_worked(),
        "the fault did not take effect: the member has started without the answer"
    );
    held.release();
    case.relief("it arrives");
    case.produce(&records.second).await?;
    finish(case, &[member], Rules::default()).await?;
    Ok(())
}

async fn commit_parked_at_close(case: &Case) -> Result<()> {
    const BOUND: Duration = Duration::from_secs(40);

    let records = wide(case.seed, 2_000, PARTITIONS);
    let (proxy, arguments) = far(case, "far").await?;
    case.create_topic(PARTITIONS).await?;
    let far = case.start(Arguments { work: 2, ..arguments }).await?;
    takes_all(case, &far).await?;
    case.produce(&records.first).await?;
    far.logs(0, says::COMMIT_ACCEPTED, |_| true).await?;
    proxy.set(Mode::Cut).await;
    case.fault("far is cut off from the broker");
    let asked = Instant::now();
    far.ask_to_end().await?;
    // A commit that waits for a coordinator would hold the client for 45 s.
    let status = timeout(BOUND, far.ended()).await;
    ensure!(status.is_ok(), "it did not end within {} s", BOUND.as_secs());
    case.count("ended after ms", i64::try_from(asked.elapsed().as_millis())?);
    case.phase(&format!("it ended with {}", status.expect("it was looked at")?));
    let log = far.log();
    let last = |message: &str| log.iter().rposition(|event| event.message == message);
    ensure!(
        last(says::COMMIT_SENT) > last(says::COMMIT_ACCEPTED),
        "the fault did not take effect: no commit was left without an answer"
    );
    let near = case.start_plain("near").await?;
    case.produce(&records.second).await?;
    finish(case, &[near], Rules::default()).await?;
    Ok(())
}

async fn closed_again_and_again(case: &Case) -> Result<()> {
    const ROUNDS: u32 = 10;
    const BOUND: Duration = Duration::from_secs(10);

    let records = wide(case.seed, 5_000, PARTITIONS);
    case.create_topic(PARTITIONS).await?;
    let over = Cell::new(false);
    let closing = async {
        let mut slowest = Duration::ZERO;
        for round in 1..=ROUNDS {
            case.phase(&format!("close {round} of {ROUNDS}"));
            let member = case.start_plain(&format!("member-{round}")).await?;
            member.works().await?;
            let asked = Instant::now();
            case.terminate(&member).await?;
            slowest = slowest.max(asked.elapsed());
        }
        ensure!(slowest < BOUND, "a member took {slowest:?} to end");
        case.count("slowest end ms", i64::try_from(slowest.as_millis())?);
        over.set(true);
        anyhow::Ok(())
    };
    let load = feed_until(case, &records, 200, &over);
    try_join!(closing, load)?;
    case.fault(format!("{ROUNDS} members were closed under load"));
    let last = case.start_plain("last").await?;
    finish(case, &[last], Rules::default()).await?;
    Ok(())
}

async fn stale_epochs(case: &Case) -> Result<()> {
    const TURNS: u32 = 3;
    const REFUSALS: usize = 2;

    let heartbeat = || Message::request(ApiKey::CONSUMER_GROUP_HEARTBEAT);

    // One partition, which stays where it is whoever joins.
    let records = plain_over(case.seed, 12_000, 40, 1);
    let (proxy, arguments) = far(case, "keeper").await?;
    case.create_topic(1).await?;
    let keeper = Arguments { commit_interval: 50, ..arguments };
    let keeper = case.start(keeper).await?;
    takes_all(case, &keeper).await?;
    let mark = keeper.mark();
    let admin = case.admin()?;
    let over = Cell::new(false);
    let losses = async {
        let mut others = vec![Arc::clone(&keeper)];
        for turn in 1..=TURNS {
            let asking = proxy.hold_requests(heartbeat());
            let answer = proxy.hold_replies(heartbeat());
            let other = case.start_plain(&format!("other-{turn}")).await?;
            asking.reached(PATIENCE).await?;
            others.push(other);
            until("the group has one member more", async || {
                Ok((admin.describe().await?.members.len() == others.len()).then_some(()))
            })
            .await?;
            asking.release();
            answer.answered(PATIENCE).await?;
            // Were its answer held, those to commits behind it would be, too.
            let asking_again = proxy.lose_requests(heartbeat());
            let mark = keeper.mark();
            answer.cut();
            case.fault("the answer with the keeper's new epoch is lost, and what asks for it");
            until("commits are refused in a row", async || {
                Ok((stale_in_a_row(&keeper.log()[mark..]) >= REFUSALS).then_some(()))
            })
            .await
            .context("the fault did not take effect")?;
            let mark = keeper.mark();
            asking_again.release();
            case.relief("it asks again");
            keeper.logs(mark, says::COMMIT_ACCEPTED, |_| true).await?;
        }
        over.set(true);
        anyhow::Ok(others)
    };
    let load = feed_until(case, &records, 200, &over);
    let (members, ()) = try_join!(losses, load)?;
    let log = keeper.log();
    case.count("refusals in a row", stale_in_a_row(&log[mark..]));
    let lost = log[mark..].iter().find(|event| event.message == says::LOST);
    ensure!(lost.is_none(), "the keeper gave up what it had: {lost:?}");
    finish(case, &members, Rules::default()).await?;
    Ok(())
}

/// The most commits one after the other that were refused for their epoch.
fn stale_in_a_row(log: &[Logged]) -> usize {
    let is_stale = |error: &str| error.starts_with("StaleMemberEpoch");
    let (mut row, mut longest) = (0, 0);
    for event in log {
        match event.message.as_str() {
            says::COMMIT_REFUSED if event.text("error").is_some_and(is_stale) => row += 1,
            says::COMMIT_ACCEPTED => row = 0,
            _ => {}
        }
        longest = longest.max(row);
    }
    longest
}

/// The broker says it once, and a client that does not hear the answer does not
/// ask: it has to be replaced.
async fn missed_revoke(case: &Case) -> Result<()> {
    // So long would the broker wait for what is not given back.
    const POLL_INTERVAL: u64 = 300_000;

    let records = wide(case.seed, 600, PARTITIONS);
    let (proxy, arguments) = far(case, "keeper").await?;
    case.create_topic(PARTITIONS).await?;
    let keeper = Arguments { stall: 2_000, poll_interval: POLL_INTERVAL, ..arguments };
    let keeper = case.start(keeper).await?;
    takes_all(case, &keeper).await?;
    case.produce(&records.first).await?;
    let held = proxy.hold_replies(Message::request(ApiKey::CONSUMER_GROUP_HEARTBEAT));
    let other = case.start_plain("other").await?;
    given(case, |given| given.len() == 2 && given.iter().all(|it| *it < case.partitions())).await?;
    misses(case, held, &[keeper, other], "what to give back", &records.second).await
}

/// What it gets at once it knows, so that it does not ask any more.
async fn missed_assignment(case: &Case) -> Result<()> {
    const PARTITIONS: i32 = 6;

    let records = wide(case.seed, 1_500, PARTITIONS);
    let (proxy, arguments) = far(case, "late").await?;
    case.create_topic(PARTITIONS).await?;
    let quick = case.start_plain("quick").await?;
    let slow = Arguments { drain: Some(20_000), ..case.arguments("slow") };
    let slow = case.start(slow).await?;
    shared(case, &[Arc::clone(&quick), Arc::clone(&slow)]).await?;
    let mut barriers = Vec::new();
    for standing in slow.status().await? {
        let when = When::any().partition(standing.partition);
        barriers.push(slow.hold(Point::AfterEffect, when).await?);
    }
    case.produce(&records.first).await?;
    for barrier in &barriers {
        slow.reached(barrier).await?;
    }
    let late = case.start(Arguments { stall: 2_000, ..arguments }).await?;
    late.works().await?;
    let held = proxy.hold_replies(Message::request(ApiKey::CONSUMER_GROUP_HEARTBEAT));
    given(case, |given| given == [1, 2, 2]).await?;
    for barrier in barriers {
        slow.release(barrier).await?;
    }
    given(case, |given| given == [2, 2, 2]).await?;
    let what = "of the partition that it was given";
    misses(case, held, &[late, quick, slow], what, &records.second).await
}

/// Waits until the broker has given so many partitions to each member, the
/// fewest first.
async fn given(case: &Case, is: impl Fn(&[usize]) -> bool) -> Result<()> {
    let admin = case.admin()?;
    until("the broker has given partitions as they are wanted", async || {
        let members = admin.describe().await?.members;
        let mut given: Vec<_> = members.iter().map(|it| it.assignment.len()).collect();
        given.sort_unstable();
        Ok(is(&given).then_some(()))
    })
    .await
}

/// The client of the first member gives up what it was to hear until now, is
/// replaced for it, and the rest is read.
async fn misses(
    case: &Case,
    held: HeldTraffic,
    members: &[Arc<Member>],
    what: &str,
    rest: &[LedgerRecord],
) -> Result<()> {
    // A heartbeat that was given up comes again on another connection.
    let before = held.waiting();
    until("the client gives heartbeats up", async || {
        Ok((held.waiting() > before + 1).then_some(()))
    })
    .await?;
    held.release();
    let deaf = &members[0];
    case.fault(format!("{}'s client has not heard {what}", deaf.name()));
    shared(case, members).await?;
    let replaced = deaf.log().iter().any(|event| event.message == says::CLIENT_REPLACED);
    ensure!(replaced, "the fault did not take effect: {} has heard it", deaf.name());
    case.produce(rest).await?;
    finish(case, members, Rules::default()).await?;
    Ok(())
}

async fn rebuilt(case: &Case) -> Result<()> {
    let records = wide(case.seed, 3_000, PARTITIONS);
    let (proxy, arguments) = far(case, "far").await?;
    case.create_topic(PARTITIONS).await?;
    let far = Arguments { stall: 2_000, ..arguments };
    let far = case.start(far).await?;
    let near = case.start_plain("near").await?;
    let both = [Arc::clone(&far), Arc::clone(&near)];
    shared(case, &both).await?;
    case.produce(&records.first).await?;
    let replaced = async {
        let held = proxy.hold_replies(Message::request(ApiKey::FETCH));
        far.logs(0, says::CLIENT_REPLACED, |_| true).await?;
        case.fault("far's client is replaced: nothing that it fetched has arrived");
        held.release();
        case.relief("what is fetched arrives");
        shared(case, &both).await
    };
    try_join!(feed(case, &records.second, 150), replaced)?;
    finish(case, &[far, near], Rules::default()).await?;
    Ok(())
}
