//! Workers that are wrong on purpose, each where what it lacks is the only
//! defence.

use anyhow::{Result, ensure};
use tidegate_oracle::{Queries, Rules, ViolationKind};
use tidegate_testkit::{Point, When};

use super::{
    Experiment,
    data::{PARTITIONS, plain},
};
use crate::{
    case::{Case, until},
    worker::{Arguments, LayerName, Protocol, Sabotage},
};

// The protocol makes no difference to what is wrong.
const ONE: &[Protocol] = &[Protocol::Consumer];

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "control-highest-offset",
        "A worker commits the highest offset that is finished, and is killed with a hole \
         below it.",
        |case| Box::pin(highest_offset(case)),
    )
    .finds(&[ViolationKind::CommittedPastUnfinished, ViolationKind::MissingEffect])
    .on(ONE),
    Experiment::new(
        "control-nothing-marked",
        "A worker's transactions mark nothing, and it is killed behind one.",
        |case| Box::pin(nothing_marked(case)),
    )
    .finds(&[ViolationKind::SecondEffect])
    .on(ONE),
];

/// Two lanes, of which one waits: the other one's records are above its hole.
pub(super) async fn highest_offset(case: &Case) -> Result<()> {
    let records = plain(case.seed, 200, 20);
    let arguments = |name: &str| Arguments {
        sabotage: Some(Sabotage::HighestFinished),
        without: vec![LayerName::Sequencer],
        lanes: 4,
        batch: 5,
        ..case.arguments(name)
    };
    case.create_topic(PARTITIONS).await?;
    let first = case.start(arguments("first")).await?;
    case.works_on(&first, &[0, 1]).await?;
    case.phase("one lane waits");
    let held = first.hold(Point::AfterEffect, When::any().partition(0).offset(3)).await?;
    case.produce(&records.first).await?;
    let places = first.reached(&held).await?;
    let hole = places.iter().map(|place| place.offset).min().unwrap_or_default();
    case.phase("the other lanes go on");
    let committed = until("an offset above the hole is committed", async || {
        let committed = case.committed().await?.get(&case.partition(0)).copied();
        Ok(committed.filter(|committed| *committed > hole))
    });
    case.count("hole", hole);
    case.count("committed", committed.await?);
    case.kill(&first).await?;

    case.phase("another member takes over");
    let second = case.start(arguments("second")).await?;
    case.produce(&records.second).await?;
    case.consumed().await?;
    case.terminate(&second).await?;
    case.judge(Rules::default().without_sequencer()).await?;
    Ok(())
}

pub(super) async fn nothing_marked(case: &Case) -> Result<()> {
    let records = plain(case.seed, 200, 20);
    let arguments = |name: &str| Arguments {
        sabotage: Some(Sabotage::NothingMarked),
        without: vec![LayerName::Sequencer, LayerName::DeadLetters],
        ..case.arguments(name)
    };
    case.create_topic(PARTITIONS).await?;
    let first = case.start(arguments("first")).await?;
    case.works_on(&first, &[0, 1]).await?;
    case.phase("a batch is held behind its COMMIT");
    let held = first.hold(Point::AfterCommit, When::any().partition(0)).await?;
    case.produce(&records.first).await?;
    let places = first.reached(&held).await?;
    case.kill(&first).await?;
    let effects = case.schema.effects_at(&places).await?;
    ensure!(effects == places.len(), "the fault did not take effect: {effects} effects are there");

    case.phase("another member takes over");
    let second = case.start(arguments("second")).await?;
    case.produce(&records.second).await?;
    case.consumed().await?;
    case.terminate(&second).await?;
    let mut queries = Queries::none();
    queries.effects = Queries::default().effects;
    let rules = Rules::default().without_inbox().without_sequencer().without_dead_letters();
    case.judge_by(rules, queries).await?;
    Ok(())
}
