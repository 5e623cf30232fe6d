//! A process dies between its effect and a commit.

use anyhow::{Result, ensure};
use tidegate_oracle::Rules;
use tidegate_testkit::{Place, Point, When};

use super::{
    Experiment,
    data::{PARTITIONS, ledger},
};
use crate::case::Case;

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "crash-between-effect-and-commit/before-commit",
        "A member is killed behind the effect and before COMMIT.",
        |case| Box::pin(before_commit(case)),
    ),
    Experiment::new(
        "crash-between-effect-and-commit/after-commit",
        "A member is killed behind COMMIT and before the offset is committed.",
        |case| Box::pin(after_commit(case)),
    ),
];

async fn before_commit(case: &Case) -> Result<()> {
    crash(case, Point::AfterEffect).await
}

async fn after_commit(case: &Case) -> Result<()> {
    crash(case, Point::AfterCommit).await
}

async fn crash(case: &Case, point: Point) -> Result<()> {
    let records = ledger(case.seed, 400);
    case.create_topic(PARTITIONS).await?;
    case.phase("the first member works");
    let first = case.start_plain("first").await?;
    case.works_on(&first, &[0, 1]).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;

    case.phase("a batch is held");
    let from = records.middle(0);
    let held = first.hold(point, When::any().partition(0).from(from)).await?;
    case.produce(&records.second).await?;
    let places = first.reached(&held).await?;
    case.kill(&first).await?;
    took_effect(case, point, &places, from).await?;

    case.phase("the second member takes over");
    let second = case.start_plain("second").await?;
    case.consumed().await?;
    case.terminate(&second).await?;
    case.count("held", places.len());
    case.count("duplicates", second.outcomes("duplicate").await?);
    case.judge(Rules::default()).await?;
    Ok(())
}

/// The process died where it should: the database says so.
async fn took_effect(case: &Case, point: Point, places: &[Place], from: i64) -> Result<()> {
    let effects = case.schema.effects_at(places).await?;
    // What a batch has released was parked before, and committed.
    let own = places.iter().map(|place| place.offset).filter(|offset| *offset >= from);
    let first = own.min().unwrap_or_default();
    let committed = case.committed_at(0).await?.unwrap_or_default();
    ensure!(
        committed <= first,
        "the fault did not take effect: {committed} was committed above {first}"
    );
    match point {
        Point::AfterEffect => {
            ensure!(effects == 0, "the fault did not take effect: {effects} effects are committed");
        }
        _ => ensure!(effects > 0, "the fault did not take effect: no effect was committed"),
    }
    Ok(())
}
