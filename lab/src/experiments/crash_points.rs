//! A process dies at each point, under load.

use std::cell::Cell;

use anyhow::{Result, ensure};
use tidegate_oracle::Rules;
use tidegate_testkit::{ApiKey, Message, Place, Point, When};
use tokio::try_join;

use super::{
    Experiment,
    common::{far, feed_until, finish, takes_all},
    data::{Halves, plain_over},
};
use crate::{case::Case, member::PATIENCE, worker::Arguments};

const PARTITIONS: i32 = 4;
/// Records a second, while they die.
const RATE: usize = 60;
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
            let victim = case.arguments(&format!("victim-{}", number + 1));
            match point {
                Point::CommitSent => at_commit(case, victim).await?,
                Point::OffsetCommitSent => at_offset_commit(case, &victim.name).await?,
                _ => {
                    let places = at_layer(case, victim, point).await?;
                    // Behind a death of another kind, what is held may have its effect.
                    if points.len() == 1 {
                        took_effect(case, point, &places).await?;
                    }
                }
            }
        }
        Ok(())
    })
    .await
}

async fn at_layer(case: &Case, victim: Arguments, point: Point) -> Result<Vec<Place>> {
    let victim = case.start(victim).await?;
    let held = victim.hold(point, When::any()).await?;
    let places = victim.reached(&held).await?;
    case.kill(&victim).await?;
    Ok(places)
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

async fn at_commit(case: &Case, victim: Arguments) -> Result<()> {
    let proxy = case.database_proxy().await?;
    let database = case.schema.url_through(proxy.addr())?;
    let victim = case.start(Arguments { database, ..victim }).await?;
    let held = proxy.hold_replies(Message::query("COMMIT"));
    held.answered(PATIENCE).await?;
    case.kill(&victim).await
}

async fn at_offset_commit(case: &Case, name: &str) -> Result<()> {
    let (proxy, victim) = far(case, name).await?;
    let victim = case.start(victim).await?;
    // Not one of its first, which may commit nothing new.
    victim.works().await?;
    let held = proxy.hold_replies(Message::request(ApiKey::OFFSET_COMMIT));
    held.answered(PATIENCE).await?;
    case.kill(&victim).await
}

/// There is something to do until the last one has died.
async fn under_load(
    case: &Case,
    records: Halves,
    deaths: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    case.create_topic(PARTITIONS).await?;
    let survivor = case.start_plain("survivor").await?;
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
