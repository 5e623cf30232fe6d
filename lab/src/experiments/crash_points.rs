//! A process dies at each point, under load.

use std::{cell::Cell, sync::Arc};

use anyhow::{Result, ensure};
use tidegate_oracle::Rules;
use tidegate_testkit::{ApiKey, Message, Place, Point, When};
use tokio::try_join;

use super::{
    Experiment,
    common::{feed, shared},
    data::{plain_over, wide},
};
use crate::{case::Case, member::Member, worker::Arguments};

const PARTITIONS: i32 = 4;
const RATE: usize = 400;

/// The points that a layer stands at.
const LAYERS: [Point; 6] = [
    Point::Admitted,
    Point::BeforeBegin,
    Point::AfterMarker,
    Point::AfterEffect,
    Point::AfterCommit,
    Point::Completed,
];

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "crash-at-every-point/admitted",
        "A member is killed with a record admitted, under load.",
        |case| Box::pin(at_layer(case, Point::Admitted)),
    ),
    Experiment::new(
        "crash-at-every-point/before-begin",
        "A member is killed with a batch made and no transaction begun, under load.",
        |case| Box::pin(at_layer(case, Point::BeforeBegin)),
    ),
    Experiment::new(
        "crash-at-every-point/after-marker",
        "A member is killed between marker and effect, under load.",
        |case| Box::pin(at_layer(case, Point::AfterMarker)),
    ),
    Experiment::new(
        "crash-at-every-point/after-effect",
        "A member is killed between effect and COMMIT, under load.",
        |case| Box::pin(at_layer(case, Point::AfterEffect)),
    ),
    Experiment::new(
        "crash-at-every-point/commit-sent",
        "A member is killed with a COMMIT answered and the answer not read, under load.",
        |case| Box::pin(at_commit(case)),
    ),
    Experiment::new(
        "crash-at-every-point/after-commit",
        "A member is killed between COMMIT and its ticket's completion, under load.",
        |case| Box::pin(at_layer(case, Point::AfterCommit)),
    ),
    Experiment::new(
        "crash-at-every-point/completed",
        "A member is killed with a ticket completed and the offset not committed, under load.",
        |case| Box::pin(at_layer(case, Point::Completed)),
    ),
    Experiment::new(
        "crash-at-every-point/offset-commit-sent",
        "A member is killed with an offset committed and the answer not read, under load.",
        |case| Box::pin(at_offset_commit(case)),
    ),
    Experiment::new(
        "crash-at-every-point/restart-loop",
        "A member is killed at each point of its stack, one after the other, and started again.",
        |case| Box::pin(restart_loop(case)),
    ),
];

async fn at_layer(case: &Case, point: Point) -> Result<()> {
    crash(case, case.arguments("victim"), async |victim| {
        let held = victim.hold(point, When::any()).await?;
        let places = victim.reached(&held).await?;
        case.kill(victim).await?;
        took_effect(case, point, &places).await
    })
    .await
}

/// Behind these points the effect is there, before them it is not.
async fn took_effect(case: &Case, point: Point, places: &[Place]) -> Result<()> {
    let effects = case.schema.effects_at(places).await?;
    let expected = if point >= Point::AfterCommit { places.len() } else { 0 };
    ensure!(
        effects == expected,
        "the fault did not take effect: of {} records {effects} have their effect",
        places.len()
    );
    Ok(())
}

async fn at_commit(case: &Case) -> Result<()> {
    let proxy = case.database_proxy().await?;
    let database = case.schema.url_through(proxy.addr())?;
    let victim = Arguments { database, ..case.arguments("victim") };
    crash(case, victim, async |victim| {
        let held = proxy.hold_replies(Message::query("COMMIT"));
        held.answered(crate::member::PATIENCE).await?;
        case.kill(victim).await
    })
    .await
}

async fn at_offset_commit(case: &Case) -> Result<()> {
    let proxy = case.services().kafka_proxy().await?;
    let kafka = proxy.addr().to_string();
    let victim = Arguments { kafka, ..case.arguments("victim") };
    crash(case, victim, async |victim| {
        let held = proxy.hold_replies(Message::request(ApiKey::OFFSET_COMMIT));
        held.answered(crate::member::PATIENCE).await?;
        case.kill(victim).await
    })
    .await
}

/// Lets a member die under load, beside one that survives and one that takes
/// its place.
async fn crash(
    case: &Case,
    victim: Arguments,
    fault: impl AsyncFnOnce(&Member) -> Result<()>,
) -> Result<()> {
    // Nothing is repeated, buried or early: where a record stands can be told.
    let records = plain_over(case.seed, 2_000, 100, PARTITIONS);
    case.create_topic(PARTITIONS).await?;
    case.phase("two members work");
    let survivor = case.start_plain("survivor").await?;
    let victim = case.start(victim).await?;
    shared(case, &[Arc::clone(&survivor), Arc::clone(&victim)]).await?;
    case.produce(&records.first).await?;

    case.phase("one dies under load");
    let dies = async {
        fault(&victim).await?;
        case.phase("another one takes its place");
        case.start_plain("successor").await
    };
    let ((), successor) = try_join!(feed(case, &records.second, RATE), dies)?;
    case.consumed().await?;
    case.terminate(&survivor).await?;
    case.terminate(&successor).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn restart_loop(case: &Case) -> Result<()> {
    let records = wide(case.seed, 6_000, PARTITIONS);
    case.create_topic(PARTITIONS).await?;
    let survivor = case.start_plain("survivor").await?;
    case.produce(&records.first).await?;
    let over = Cell::new(false);
    let deaths = async {
        for (turn, point) in LAYERS.into_iter().enumerate() {
            case.phase(&format!("death {} at {point}", turn + 1));
            let victim = case.start_plain(&format!("victim-{}", turn + 1)).await?;
            let held = victim.hold(point, When::any()).await?;
            victim.reached(&held).await?;
            case.kill(&victim).await?;
        }
        over.set(true);
        anyhow::Ok(())
    };
    // There is something to do until the last one has died.
    let load = async {
        for records in records.second.chunks(20) {
            if over.get() {
                case.produce(records).await?;
            } else {
                feed(case, records, 40).await?;
            }
        }
        anyhow::Ok(())
    };
    try_join!(deaths, load)?;
    case.count("deaths", LAYERS.len());
    case.phase("the rest is read");
    case.consumed().await?;
    case.terminate(&survivor).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}
