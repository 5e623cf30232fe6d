//! A process is frozen past its session, and wakes up when its partitions are
//! somebody else's.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tidegate_oracle::{Queries, Rules, ViolationKind};
use tidegate_testkit::{ApiKey, Message, Place, Point, When};
use tokio::time::sleep;

use super::{
    Experiment,
    common::{far, has_stopped, is_refusal, shared, takes_all},
    data::{Halves, delta, plain_over, wide},
};
use crate::{
    case::{Case, generations, until},
    member::{Barrier, Member, PATIENCE},
    says,
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
        "zombie/commit-refused",
        "A member is frozen with a commit on its way, which arrives when its partitions are \
         another one's.",
        |case| Box::pin(commit_refused(case)),
    ),
    // The classic protocols do not let it be shorter than a session.
    Experiment::new(
        "zombie/polls-missed",
        "A member is frozen for longer than may pass between polls, and shorter than its session.",
        |case| Box::pin(polls_missed(case)),
    )
    .on(&[Protocol::Consumer]),
    Experiment::new(
        "zombie/guarded",
        "A member without inbox and sequencer is frozen before its transaction, with balances in \
         memory; the epoch guard refuses its write.",
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
        "The same without the guard: the zombie overwrites what the other one has made of them.",
        |case| Box::pin(unguarded(case)),
    )
    .on(&[Protocol::Consumer])
    .finds(&[ViolationKind::StaleOwner, ViolationKind::WrongBalance]),
];

async fn before_transaction(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, PARTITIONS);
    let members = begin(case, case.arguments("zombie"), case.arguments("other"), &records).await?;
    passed_by(case, &members, Point::BeforeBegin, &records).await?;
    members.end(case).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn in_transaction(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, PARTITIONS);
    // What bounds how long a frozen process keeps its successor waiting.
    let zombie = Arguments { idle_transaction: 8_000, ..case.arguments("zombie") };
    let members = begin(case, zombie, case.arguments("other"), &records).await?;
    passed_by(case, &members, Point::AfterEffect, &records).await?;
    members.end(case).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn commit_refused(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, PARTITIONS);
    let (proxy, arguments) = far(case, "zombie").await?;
    let members = begin(case, arguments, case.arguments("other"), &records).await?;
    let caught = catch(case, &members, Point::BeforeBegin, &records).await?;
    let commit = proxy.hold_requests(Message::request(ApiKey::OFFSET_COMMIT));
    commit.reached(PATIENCE).await?;
    let woken_at = freeze(case, &members, &caught).await?;
    // The broker answers while nobody reads that.
    commit.release();
    case.fault("a commit of the zombie arrives");
    wake(case, &members, caught, woken_at).await?;
    let zombie = &members.zombie;
    let refusal = zombie
        .until("the zombie hears that its commit was refused", |state| {
            state.log.iter().skip(woken_at).find(|event| is_refusal(event)).cloned()
        })
        .await
        .context("the fault did not take effect")?;
    case.fault(format!("refused: {}", refusal.text("error").unwrap_or_default()));
    members.end(case).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn polls_missed(case: &Case) -> Result<()> {
    const INTERVAL: u64 = 3_000;
    const FROZEN: Duration = Duration::from_millis(4_500);

    let records = wide(case.seed, 600, PARTITIONS);
    let zombie = Arguments { poll_interval: INTERVAL, ..case.arguments("zombie") };
    let members = begin(case, zombie, case.arguments("other"), &records).await?;
    let held = members.zombie.hold(Point::BeforeBegin, When::any()).await?;
    case.produce(&records.second).await?;
    members.zombie.reached(&held).await?;
    let mark = members.zombie.mark();
    members.zombie.signal(Signal::SIGSTOP);
    let frozen = now();
    case.fault("zombie is frozen for 4.5 s, with max.poll.interval.ms at 3 s and a session of 6 s");
    sleep(FROZEN).await;
    members.zombie.release_later(held).await?;
    let woken = now();
    members.zombie.signal(Signal::SIGCONT);
    case.relief("zombie is woken up (SIGCONT)");
    members.end(case).await?;
    let log = &members.zombie.log()[mark..];
    // What it had said before may have been read a little later.
    let went_on = log.iter().any(|event| (frozen + 500..woken).contains(&event.at));
    ensure!(!went_on, "the fault did not take effect: it was not frozen");
    case.count("losses", log.iter().filter(|event| has_stopped(event)).count());
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
        overwrites: true,
        ..case.arguments(name)
    };
    let account = "CREATE TABLE account (name text PRIMARY KEY, balance bigint NOT NULL)";
    case.schema.execute(account).await?;
    let members = begin(case, arguments("zombie"), arguments("other"), &records).await?;
    let caught = catch(case, &members, Point::BeforeBegin, &records).await?;
    let woken_at = freeze(case, &members, &caught).await?;
    // Else the two lock accounts in their own orders, and the database may end
    // the zombie's transaction for it.
    case.consumed().await?;
    let places = wake(case, &members, caught, woken_at).await?;
    Ok((members, places))
}

async fn judge_defenceless(case: &Case) -> Result<()> {
    let mut queries = Queries::none();
    queries.effects = Queries::default().effects;
    queries.balances = Some("SELECT name AS entity, balance AS amount FROM account".to_owned());
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

/// What a member had in hand when it was frozen.
struct Caught {
    held: Barrier,
    places: Vec<Place>,
    /// Where the other one's log was before.
    mark: usize,
}

/// Freezes one with a batch in hand, until the other has passed that, and wakes
/// it up. Returns the records of the batch.
async fn passed_by(
    case: &Case,
    members: &Members,
    point: Point,
    records: &Halves,
) -> Result<Vec<Place>> {
    let caught = catch(case, members, point, records).await?;
    let woken_at = freeze(case, members, &caught).await?;
    wake(case, members, caught, woken_at).await
}

/// Holds all that one has to do: what it did is committed.
async fn catch(case: &Case, members: &Members, point: Point, records: &Halves) -> Result<Caught> {
    let held = members.zombie.hold(point, When::any()).await?;
    let mark = members.other.mark();
    case.produce(&records.second).await?;
    let places = members.zombie.reached(&held).await?;
    case.phase(&format!("a batch of p{} is held at {point}", places[0].partition.partition));
    Ok(Caught { held, places, mark })
}

/// Freezes it, until the other one has passed what it holds. Returns where its
/// log is then.
async fn freeze(case: &Case, members: &Members, caught: &Caught) -> Result<usize> {
    let Members { zombie, other } = members;
    let partition = caught.places[0].partition.partition;
    let last = caught.places.iter().map(|place| place.offset).max().unwrap_or_default();
    let woken_at = zombie.mark();
    zombie.signal(Signal::SIGSTOP);
    case.fault(format!("zombie is frozen with a batch of p{partition} (SIGSTOP)"));

    case.phase("the other one takes over");
    other.works_on(caught.mark, &case.partition_name(partition)).await?;
    until("the other one has passed what the zombie holds", async || {
        let committed = case.committed_at(partition).await?;
        Ok(committed.is_some_and(|committed| committed > last).then_some(()))
    })
    .await?;
    Ok(woken_at)
}

/// Wakes it up: it notices what it has lost, and joins again.
async fn wake(
    case: &Case,
    members: &Members,
    caught: Caught,
    woken_at: usize,
) -> Result<Vec<Place>> {
    let zombie = &members.zombie;
    case.phase("the zombie wakes up");
    zombie.release_later(caught.held).await?;
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
        .logs(woken_at, says::ASSIGNED, |event| {
            event.text("partitions").is_some_and(|names| !names.is_empty())
        })
        .await
        .context("the zombie joins again")?;
    Ok(caught.places)
}
