//! A process dies at each point, under load.

use std::{cell::Cell, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use tidegate_oracle::Rules;
use tidegate_testkit::{ApiKey, Message, Place, Point, When};
use tokio::try_join;

use super::{
    Experiment,
    common::{far, feed_until, finish, takes_all},
    data::{Halves, plain_over},
};
use crate::{
    case::{Case, until},
    member::{Member, PATIENCE},
    worker::Arguments,
};

const PARTITIONS: i32 = 4;
/// Records a second, while they die.
const RATE: usize = 60;
/// How often a death may come too late.
const TRIES: u32 = 3;
/// Records for each death: enough for 15 s.
const PER_DEATH: usize = 900;

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "crash-at-every-point/admitted",
        "A member is killed with a record admitted, under load.",
        |case| Box::pin(crash(case, &[Point::Admitted])),
    ),
    Experiment::new(
        "crash-at-every-point/before-begin",
        "A member is killed with a batch made and no transaction begun, under load.",
        |case| Box::pin(crash(case, &[Point::BeforeBegin])),
    ),
    Experiment::new(
        "crash-at-every-point/after-marker",
        "A member is killed between marker and effect, under load.",
        |case| Box::pin(crash(case, &[Point::AfterMarker])),
    ),
    Experiment::new(
        "crash-at-every-point/after-effect",
        "A member is killed between effect and COMMIT, under load.",
        |case| Box::pin(crash(case, &[Point::AfterEffect])),
    ),
    Experiment::new(
        "crash-at-every-point/commit-sent",
        "A member is killed with a COMMIT answered and the answer not read, under load.",
        |case| Box::pin(crash(case, &[Point::CommitSent])),
    ),
    Experiment::new(
        "crash-at-every-point/after-commit",
        "A member is killed between COMMIT and its ticket's completion, under load.",
        |case| Box::pin(crash(case, &[Point::AfterCommit])),
    ),
    Experiment::new(
        "crash-at-every-point/completed",
        "A member is killed with a ticket completed and the offset not committed, under load.",
        |case| Box::pin(crash(case, &[Point::Completed])),
    ),
    Experiment::new(
        "crash-at-every-point/offset-commit-sent",
        "A member is killed with an offset committed and the answer not read, under load.",
        |case| Box::pin(crash(case, &[Point::OffsetCommitSent])),
    ),
    Experiment::new(
        "crash-at-every-point/restart-loop",
        "A member is killed at each point of its stack, one after the other, and started again.",
        |case| Box::pin(crash(case, &Point::ALL)),
    ),
];

/// Lets one member after the other die under load, beside one that survives: at
/// each of the points in turn.
async fn crash(case: &Case, points: &[Point]) -> Result<()> {
    let deaths = usize::try_from(case.scale.rounds)? * points.len();
    // Nothing is repeated, buried or early: where a record stands can be told.
    let records = plain_over(case.seed, 400 + deaths * PER_DEATH, 100, PARTITIONS);
    under_load(case, records, async || {
        for (number, &point) in points.iter().cycle().take(deaths).enumerate() {
            case.phase(&format!("death {} of {deaths}, at {point}", number + 1));
            let mut tries = 0..TRIES;
            while !dies(case, point).await? {
                tries.next().context("offsets were committed before the member died")?;
            }
        }
        Ok(())
    })
    .await
}

/// Lets a member die. Returns whether it did so before its offset was committed.
async fn dies(case: &Case, point: Point) -> Result<bool> {
    let victim = member(case, &format!("victim-{}", case.killed() + 1));
    match point {
        Point::CommitSent => at_commit(case, victim).await.map(|()| true),
        Point::OffsetCommitSent => at_offset_commit(case, victim).await.map(|()| true),
        _ => at_layer(case, victim, point).await,
    }
}

fn member(case: &Case, name: &str) -> Arguments {
    Arguments { lanes: 4, ..case.arguments(name) }
}

/// A member that has made effects of all its partitions: what it works on next is
/// not what others have made before.
async fn at_work(case: &Case, victim: Arguments) -> Result<Arc<Member>> {
    let victim = case.start(victim).await?;
    let name = victim.name();
    let sql = format!("SELECT count(DISTINCT part) FROM entry WHERE worker = '{name}'");
    until(&format!("{name} makes effects of each of its partitions"), async || {
        let running = victim.status().await?.len();
        let made = usize::try_from(case.schema.number(&sql).await?)?;
        Ok((running > 0 && made >= running).then_some(()))
    })
    .await?;
    Ok(victim)
}

async fn at_layer(case: &Case, victim: Arguments, point: Point) -> Result<bool> {
    // Its frontier is not committed as soon as it has moved, but it may be.
    let victim = at_work(case, Arguments { commit_interval: 60_000, ..victim }).await?;
    let places = loop {
        let held = victim.hold(point, When::any()).await?;
        let places = victim.reached(&held).await?;
        let made = case.schema.effects_by(victim.name(), &places).await?;
        if point < Point::AfterCommit {
            ensure!(made == 0, "the fault did not take effect: {made} effects are there");
            break places;
        }
        // What others have made comes this way as well.
        if made > 0 {
            break places;
        }
        victim.release(held).await?;
    };
    case.kill(&victim).await?;
    if point >= Point::AfterCommit {
        let made = case.schema.effects_at(&places).await?;
        ensure!(made == places.len(), "{made} of {} records have their effect", places.len());
    }
    let committed = case.look_at_committed().await?;
    let is_below = |place: &Place| {
        let committed = committed.get(&place.partition.partition).copied().flatten();
        committed <= Some(place.offset)
    };
    Ok(places.iter().all(is_below))
}

async fn at_commit(case: &Case, victim: Arguments) -> Result<()> {
    let proxy = case.database_proxy().await?;
    let database = case.schema.url_through(proxy.addr())?;
    let victim = at_work(case, Arguments { database, ..victim }).await?;
    let effect = victim.hold(Point::AfterEffect, When::any()).await?;
    let places = victim.reached(&effect).await?;
    let made = case.schema.effects_by(victim.name(), &places).await?;
    ensure!(made == 0, "the fault did not take effect: {made} effects are there");
    let answer = proxy.hold_replies(Message::query("COMMIT"));
    victim.release(effect).await?;
    until("the COMMIT is done", async || {
        let made = case.schema.effects_by(victim.name(), &places).await?;
        Ok((made == places.len()).then_some(()))
    })
    .await?;
    answer.answered(PATIENCE).await?;
    case.kill(&victim).await
}

async fn at_offset_commit(case: &Case, victim: Arguments) -> Result<()> {
    let (proxy, far) = far(case, &victim.name).await?;
    let victim = at_work(case, Arguments { kafka: far.kafka, ..victim }).await?;
    let its: Vec<_> = victim.status().await?.iter().map(|it| it.partition).collect();
    let committed = async || {
        let mut committed = case.look_at_committed().await?;
        committed.retain(|partition, _| its.contains(partition));
        anyhow::Ok(committed)
    };
    loop {
        let before = committed().await?;
        let answer = proxy.hold_replies(Message::request(ApiKey::OFFSET_COMMIT));
        answer.answered(PATIENCE).await?;
        // One that commits nothing new only proves the membership.
        if committed().await? != before {
            return case.kill(&victim).await;
        }
        answer.release();
    }
}

/// There is something to do until the last one has died.
async fn under_load(
    case: &Case,
    records: Halves,
    deaths: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    case.create_topic(PARTITIONS).await?;
    let survivor = case.start(member(case, "survivor")).await?;
    takes_all(case, &survivor).await?;
    let over = Cell::new(false);
    let deaths = async {
        deaths().await?;
        over.set(true);
        anyhow::Ok(())
    };
    let load = feed_until(case, &records, RATE, &over);
    try_join!(deaths, load)?;
    case.count("deaths", case.killed());
    finish(case, &[survivor], Rules::default()).await?;
    Ok(())
}
