//! A process is frozen past its session, and wakes up when its partitions are
//! somebody else's.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tidegate_oracle::{Queries, Rules, ViolationKind};
use tidegate_testkit::{Place, Point, When};

use super::{
    Experiment,
    common::{has_stopped, shared, takes_all},
    data::{Halves, delta, plain_over, wide},
};
use crate::{
    case::{Case, generations, until},
    member::Member,
    worker::{Arguments, LayerName, Protocol, Sabotage, now},
};

const PARTITIONS: i32 = 4;

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "zombie/before-transaction",
        "A member is frozen with a batch in hand until another one has made its effects, and \
         wakes up.",
        |case| Box::pin(before_transaction(case)),
    ),
    Experiment::new(
        "zombie/in-transaction",
        "A member is frozen inside a transaction, with its locks, until another one has made its \
         effects, and wakes up.",
        |case| Box::pin(in_transaction(case)),
    ),
    Experiment::new(
        "zombie/guarded",
        "A member without inbox and sequencer is frozen before its transaction; the epoch guard \
         refuses its write.",
        |case| Box::pin(guarded(case)),
    ),
    Experiment::new(
        "zombie/group-deleted",
        "The group is deleted, so that its generations begin again: the guard lets the true \
         owner in.",
        |case| Box::pin(group_deleted(case)),
    ),
    Experiment::new(
        "control-zombie-overwrite",
        "The same without the guard: the zombie writes.",
        |case| Box::pin(unguarded(case)),
    )
    .on(&[Protocol::Consumer])
    .finds(&[ViolationKind::StaleOwner]),
];

async fn before_transaction(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, PARTITIONS);
    let members = begin(case, case.arguments("zombie"), case.arguments("other"), &records).await?;
    freeze(case, &members, Point::BeforeBegin, &records).await?;
    members.end(case).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn in_transaction(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, PARTITIONS);
    // What bounds how long a frozen process keeps its successor waiting.
    let zombie = Arguments { idle_transaction: 8_000, ..case.arguments("zombie") };
    let members = begin(case, zombie, case.arguments("other"), &records).await?;
    freeze(case, &members, Point::AfterEffect, &records).await?;
    members.end(case).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn guarded(case: &Case) -> Result<()> {
    let (members, places) = defenceless(case, true).await?;
    let refused = until("the guard refuses the zombie", async || {
        let refused = members.zombie.counted("tidegate_sql_guard_refusals_total").await?;
        Ok((refused > 0).then_some(refused))
    });
    case.count("refused by the guard", refused.await?);
    members.end(case).await?;
    let written = case.schema.effects_by("zombie", &places).await?;
    ensure!(written == 0, "the zombie wrote {written} effects");
    judge_defenceless(case).await
}

async fn unguarded(case: &Case) -> Result<()> {
    let (members, places) = defenceless(case, false).await?;
    let written = until("the zombie writes", async || {
        let written = case.schema.effects_by("zombie", &places).await?;
        Ok((written > 0).then_some(written))
    });
    case.count("written by the zombie", written.await?);
    members.end(case).await?;
    judge_defenceless(case).await
}

async fn group_deleted(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, PARTITIONS);
    let arguments = |name: &str| Arguments { guard: true, ..case.arguments(name) };
    let Members { zombie: first, other: second } =
        begin(case, arguments("first"), arguments("second"), &records).await?;
    // Its partitions move to a later generation.
    case.terminate(&second).await?;
    takes_all(case, &first).await?;
    case.produce(&records.second).await?;
    case.consumed().await?;
    case.terminate(&first).await?;
    let before = case.generations().into_iter().max().unwrap_or_default();
    let effects = case.schema.number("SELECT count(*) FROM entry").await?;
    case.set_offsets(async || case.cluster.delete_group(&case.group).await).await?;
    case.fault(format!("the group is deleted, which was in generation {before}"));

    case.phase("everything is read again, and more");
    let late: Vec<_> = (0..PARTITIONS)
        .map(|p| delta(p, 9_000 + i64::from(p), &format!("late-{p}"), 1, 5))
        .collect();
    case.write(late).await?;
    let third = case.start(arguments("third")).await?;
    case.consumed().await?;
    let now = generations(&third.log()).max().unwrap_or_default();
    ensure!(now <= before, "the fault did not take effect: the generation is {now}");
    case.terminate(&third).await?;
    let made = case.schema.number("SELECT count(*) FROM entry").await? - effects;
    ensure!(made == i64::from(PARTITIONS), "the new owner made {made} effects");
    // Generations say nothing about who came later here.
    case.judge(Rules::default()).await?;
    Ok(())
}

/// Without inbox and sequencer, and with work that outlives its stack: nothing
/// but the guard is in the way.
async fn defenceless(case: &Case, guard: bool) -> Result<(Members, Vec<Place>)> {
    let records = plain_over(case.seed, 600, 40, PARTITIONS);
    let arguments = |name: &str| Arguments {
        sabotage: Some(Sabotage::NothingMarked),
        without: vec![LayerName::Sequencer, LayerName::DeadLetters],
        guard,
        detached: true,
        ..case.arguments(name)
    };
    let members = begin(case, arguments("zombie"), arguments("other"), &records).await?;
    let places = freeze(case, &members, Point::BeforeBegin, &records).await?;
    Ok((members, places))
}

async fn judge_defenceless(case: &Case) -> Result<()> {
    let mut queries = Queries::none();
    queries.effects = Queries::default().effects;
    let rules = Rules::default().without_inbox().without_sequencer().without_dead_letters();
    case.judge_by(rules.guarded(), queries).await?;
    Ok(())
}

struct Members {
    zombie: Arc<Member>,
    other: Arc<Member>,
}

impl Members {
    async fn end(&self, case: &Case) -> Result<()> {
        case.phase("the rest is read");
        case.consumed().await?;
        case.terminate(&self.zombie).await?;
        case.terminate(&self.other).await
    }
}

/// Two members, which have read the first half.
async fn begin(
    case: &Case,
    zombie: Arguments,
    other: Arguments,
    records: &Halves,
) -> Result<Members> {
    case.create_topic(PARTITIONS).await?;
    case.phase("two members work");
    let (zombie, other) = (case.start(zombie).await?, case.start(other).await?);
    shared(case, &[Arc::clone(&zombie), Arc::clone(&other)]).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    Ok(Members { zombie, other })
}

/// Freezes one with a batch in hand, until the other has passed that, and wakes
/// it up. Returns the records of the batch.
async fn freeze(
    case: &Case,
    members: &Members,
    point: Point,
    records: &Halves,
) -> Result<Vec<Place>> {
    let Members { zombie, other } = members;
    // Everything that it has to do is held: what it did is committed.
    let held = zombie.hold(point, When::any()).await?;
    let mark = other.mark();
    case.produce(&records.second).await?;
    let places = zombie.reached(&held).await?;
    let partition = places[0].partition.partition;
    let last = places.iter().map(|place| place.offset).max().unwrap_or_default();
    let woken_at = zombie.mark();
    zombie.signal(Signal::SIGSTOP);
    case.fault(format!("zombie is frozen at {point} of p{partition} (SIGSTOP)"));

    case.phase("the other one takes over");
    other.works_on(mark, &case.partition_name(partition)).await?;
    until("the other one has passed what the zombie holds", async || {
        let committed = case.committed_at(partition).await?;
        Ok(committed.is_some_and(|committed| committed > last).then_some(()))
    })
    .await?;

    case.phase("the zombie wakes up");
    zombie.release_later(held).await?;
    let woken = now();
    zombie.signal(Signal::SIGCONT);
    case.relief("zombie is woken up (SIGCONT)");
    let noticed = zombie
        .until("the zombie notices what it has lost", |state| {
            state.log.iter().skip(woken_at).find(|event| has_stopped(event)).map(|event| event.at)
        })
        .await?;
    ensure!(noticed - woken < 2_000, "the zombie noticed its loss after {} ms", noticed - woken);
    case.count("noticed after ms", noticed - woken);
    zombie
        .logs(woken_at, "partitions assigned", |event| {
            event.text("partitions").is_some_and(|names| !names.is_empty())
        })
        .await
        .context("the zombie joins again")?;
    let refused = zombie.log();
    let refused = refused[woken_at..].iter().filter(|it| it.message == "a commit was not accepted");
    case.count("commits refused", refused.count());
    Ok(places)
}
