//! Workers that are wrong on purpose, each where what it lacks is the only
//! defence.

use anyhow::{Result, ensure};
use tidegate::kafka::group::ResetTo;
use tidegate_oracle::{Order, Rules, ViolationKind};
use tidegate_testkit::{NewRecord, Point, When};

use super::{
    Experiment,
    data::{PARTITIONS, delta, ledger_with, plain},
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
        |case| Box::pin(passed_over(case, Sabotage::HighestFinished)),
    )
    .finds(&[ViolationKind::CommittedPastUnfinished, ViolationKind::MissingEffect])
    .on(ONE),
    Experiment::new(
        "control-nothing-marked",
        "A worker's transactions mark nothing, and it is killed behind one.",
        |case| Box::pin(nothing_marked(case)),
    )
    .finds(&[ViolationKind::SecondEffect, ViolationKind::EffectWithoutMarker])
    .on(ONE),
    Experiment::new(
        "control-marker-apart",
        "A worker's markers are committed before its effects, and it is killed in between.",
        |case| Box::pin(passed_over(case, Sabotage::MarkerFirst)),
    )
    .finds(&[ViolationKind::MissingEffect, ViolationKind::MarkerWithoutEffect])
    .on(ONE),
    Experiment::new(
        "control-committed-first",
        "A worker commits offsets before it makes the effects, and is killed in between.",
        |case| Box::pin(passed_over(case, Sabotage::CompletedEarly)),
    )
    .finds(&[ViolationKind::CommittedPastUnfinished, ViolationKind::MissingEffect])
    .on(ONE),
    Experiment::new(
        "control-cancelled-completed",
        "A worker cancels what takes too long, and takes it for complete.",
        |case| Box::pin(passed_over(case, Sabotage::CancelledCompleted)),
    )
    .finds(&[ViolationKind::CommittedPastUnfinished, ViolationKind::MissingEffect])
    .on(ONE),
    Experiment::new(
        "control-out-of-order",
        "A worker without a sequencer reads deltas whose revisions are swapped.",
        |case| Box::pin(out_of_order(case)),
    )
    .finds(&[ViolationKind::OutOfOrder])
    .on(ONE),
    Experiment::new(
        "control-tampered",
        "What a faultless run has left is changed by hand, in one way for each kind of damage \
         that no worker here does.",
        |case| Box::pin(tampered(case)),
    )
    .finds(&[
        ViolationKind::WrongEffect,
        ViolationKind::UnexpectedEffect,
        ViolationKind::ConflictApplied,
        ViolationKind::WrongPosition,
        ViolationKind::NotParked,
        ViolationKind::NeverReleased,
        ViolationKind::NotBuried,
        ViolationKind::WronglyBuried,
        ViolationKind::CommittedWentBack,
        ViolationKind::NotConsumed,
    ])
    .on(ONE),
    Experiment::new(
        "control-outside-log",
        "Somebody commits an offset above the end of the log.",
        |case| Box::pin(outside_log(case)),
    )
    .finds(&[ViolationKind::CommittedOutsideLog])
    .on(ONE),
];

/// Offsets are committed above a batch that waits behind its effect, and the
/// process is killed.
async fn passed_over(case: &Case, sabotage: Sabotage) -> Result<()> {
    let records = plain(case.seed, 200, 20);
    let arguments = |name: &str| Arguments {
        sabotage: Some(sabotage),
        without: vec![LayerName::Sequencer],
        // Of which one waits.
        lanes: 4,
        batch: 5,
        ..case.arguments(name)
    };
    case.create_topic(PARTITIONS).await?;
    let first = case.start(arguments("first")).await?;
    case.works_on(&first, &[0, 1]).await?;
    case.phase("a batch waits");
    let held = first.hold(Point::AfterEffect, When::any().partition(0).offset(3)).await?;
    case.produce(&records.first).await?;
    let places = first.reached(&held).await?;
    let hole = places.iter().map(|place| place.offset).min().unwrap_or_default();
    case.phase("offsets above it are committed");
    let committed = until("an offset above the hole is committed", async || {
        let committed = case.committed_at(0).await?;
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

async fn out_of_order(case: &Case) -> Result<()> {
    let records = ledger_with(case.seed, 400, |config| {
        (config.late, config.poison, config.refused, config.conflicts) = (0, 0, 0, 0);
    });
    let without = vec![LayerName::Sequencer];
    case.create_topic(PARTITIONS).await?;
    let member = case.start(Arguments { without, ..case.arguments("member") }).await?;
    case.produce(&records.first).await?;
    case.produce(&records.second).await?;
    case.fault("deltas come with their revisions swapped");
    case.consumed().await?;
    case.terminate(&member).await?;
    // What a sequencer would have kept is promised all the same.
    let order = Order::Strict { first: 1 };
    case.judge(Rules::default().without_sequencer().ordered(order)).await?;
    Ok(())
}

async fn nothing_marked(case: &Case) -> Result<()> {
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
    // What an inbox would have kept is promised all the same.
    case.judge(Rules::default().without_sequencer().without_dead_letters()).await?;
    Ok(())
}

/// One kind of damage each. What each is about lies in an account of its own.
async fn tampered(case: &Case) -> Result<()> {
    let member = case.start_plain("member").await?;
    case.create_topic(PARTITIONS).await?;
    let early =
        |account: &str, id: i64| [delta(0, id, account, 1, 1), delta(0, id + 1, account, 3, 3)];
    let mut records: Vec<_> = (1..=6).map(|n| delta(0, n, "plain", n, n)).collect();
    records.extend(early("left", 100));
    records.extend(early("parked", 200));
    records.push(NewRecord::new(0, "no transfer"));
    // The second one contradicts the first.
    records.extend([delta(0, 300, "contrary", 1, 5), delta(0, 300, "contrary", 1, 7)]);
    case.write(records).await?;
    case.consumed().await?;
    case.terminate(&member).await?;

    case.phase("what it left is changed");
    let buried = case.schema.number("SELECT count(*) FROM tidegate_dead_letter").await?;
    let parked = case.schema.number("SELECT count(*) FROM tidegate_parked").await?;
    ensure!((buried, parked) == (2, 2), "{buried} records are buried, and {parked} parked");
    for damage in [
        "UPDATE entry SET amount = amount + 1 WHERE id = 1",
        "INSERT INTO entry (id, account, revision, amount, topic, part, record_offset, worker, epoch)
            SELECT 999, account, 999, amount, topic, part, record_offset, worker, epoch
            FROM entry WHERE id = 2",
        "UPDATE entry SET amount = 7 WHERE id = 300",
        "UPDATE tidegate_entity SET rev = rev + 1 WHERE ent = 'plain'",
        "DELETE FROM tidegate_parked WHERE ent = 'parked'",
        "UPDATE tidegate_parked SET rev = 2 WHERE ent = 'left'",
        "DELETE FROM tidegate_dead_letter",
        "INSERT INTO tidegate_dead_letter
            (ns, topic, part, record_offset, record_ts, class, cause)
            SELECT ns, topic, part, 3, 0, 'poison', 'none' FROM tidegate_source",
    ] {
        case.schema.execute(damage).await?;
    }
    let admin = case.admin()?;
    let plan = admin.plan([case.topic.as_str()], ResetTo::Earliest).await?;
    admin.execute(&plan).await?;
    until("the oracle sees the offset go back", async || {
        Ok((case.committed_at(0).await? == Some(0)).then_some(()))
    })
    .await?;
    case.fault("the tables and the committed offset are changed by hand");
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn outside_log(case: &Case) -> Result<()> {
    let records = plain(case.seed, 200, 20);
    case.create_topic(PARTITIONS).await?;
    let member = case.start_plain("member").await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    case.terminate(&member).await?;
    let above = case.end(0) + 7;
    case.cluster.commit(&case.group, &case.topic, 0, above).await?;
    until("the oracle sees the offset", async || {
        Ok((case.committed_at(0).await? == Some(above)).then_some(()))
    })
    .await?;
    case.fault(format!("{above} is committed of p0, which ends at {}", case.end(0)));
    case.judge(Rules::default()).await?;
    Ok(())
}
