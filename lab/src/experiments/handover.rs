//! A rebalance with work in flight.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_oracle::Rules;
use tidegate_testkit::{Message, Point, When};

use super::{
    Experiment,
    data::{Halves, PARTITIONS, ledger},
};
use crate::{
    case::{Case, until},
    member::{Barrier, Member},
    says,
    worker::{Arguments, Logged, Protocol, now},
};

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "in-flight-handover/before-commit",
        "A member joins while a transaction is open behind its effect, past the drain's \
         deadline; the old work goes on after the handover.",
        |case| Box::pin(held_past_the_deadline(case, Point::AfterEffect)),
    ),
    Experiment::new(
        "in-flight-handover/commit-sent",
        "A member joins while a COMMIT is on its way to the database, past the drain's \
         deadline; it arrives after the handover.",
        |case| Box::pin(commit_sent(case)),
    ),
    Experiment::new(
        "in-flight-handover/before-effect",
        "A member joins while a transaction is open before its effect, past the drain's deadline; \
         the old work goes on after the handover.",
        |case| Box::pin(held_past_the_deadline(case, Point::AfterMarker)),
    ),
    Experiment::new(
        "in-flight-handover/one-of-two",
        "One of two partitions moves with a batch in flight; the other one goes on.",
        |case| Box::pin(one_of_two(case)),
    )
    .on(&[Protocol::Cooperative, Protocol::Consumer]),
    Experiment::new(
        "in-flight-handover/comes-back",
        "A partition leaves a member, and comes back while the old work on it still runs.",
        |case| Box::pin(comes_back(case)),
    ),
    Experiment::new(
        "in-flight-handover/drained",
        "A member joins while a batch runs, which ends within the drain.",
        |case| Box::pin(drained(case)),
    ),
];

/// Held at a point, past the drain's deadline, and longer than the new owner
/// has been there.
async fn held_past_the_deadline(case: &Case, point: Point) -> Result<()> {
    let (old, held) = held_detached(case, point).await?;

    let Handover { new, moved, mark } = hands_over(case, &old).await?;

    case.phase("the old work goes on");
    // What it has claimed is not decided: its successor waits.
    waits_for_it(case, &new).await?;
    for barrier in held {
        old.release(barrier).await?;
    }
    is_refused(case, &old).await?;
    finish(case, &old, &new, moved, mark).await
}

/// The one that stays is let go as soon as the other one is known.
async fn one_of_two(case: &Case) -> Result<()> {
    let (old, held) = held_detached(case, Point::AfterEffect).await?;

    case.phase("a member joins");
    let mark = old.mark();
    let new = case.start_plain("new").await?;
    let revoked = old.logs(mark, says::REVOKED, |_| true).await?;
    let names = revoked.text("partitions").unwrap_or_default();
    let leaves = (0..PARTITIONS).find(|it| names == case.partition_name(*it));
    let leaves = leaves.with_context(|| format!("`{names}` is revoked, and not one partition"))?;
    let mut leaving = None;
    for (partition, barrier) in (0..PARTITIONS).zip(held) {
        if partition == leaves {
            leaving = Some(barrier);
        } else {
            old.release(barrier).await?;
        }
    }
    case.phase("the partition that stays goes on");
    case.consumed_of(&[1 - leaves]).await?;
    past_the_deadline(case, &old, mark, leaves).await?;
    waits_for_it(case, &new).await?;
    old.release(leaving.context("one of two leaves")?).await?;
    is_refused(case, &old).await?;
    finish(case, &old, &new, leaves, mark).await
}

async fn comes_back(case: &Case) -> Result<()> {
    let (old, held) = held_detached(case, Point::AfterEffect).await?;

    let Handover { new, moved, mark } = hands_over(case, &old).await?;

    case.phase("it dies, and the partition comes back");
    let back = old.mark();
    case.kill(&new).await?;
    until("the partition is back, and waits for the old work on it", async || {
        let standing = old.status().await?;
        let waits = standing.iter().any(|it| it.partition == moved && it.state == "starting");
        Ok(waits.then_some(()))
    })
    .await?;
    let released = now();
    for barrier in held {
        old.release(barrier).await?;
    }
    is_refused(case, &old).await?;
    let started = old.works_on(back, &case.partition_name(moved)).await?;
    ensure!(started.at >= released, "two stacks of one process worked on p{moved} at once");
    case.phase("the rest is read");
    case.consumed().await?;
    case.terminate(&old).await?;
    no_commit_after_leaving(case, &old, moved, mark)?;
    case.judge(Rules::default()).await?;
    Ok(())
}

/// Held on the way to the database.
async fn commit_sent(case: &Case) -> Result<()> {
    let records = ledger(case.seed, 400);
    let proxy = case.database_proxy().await?;
    let database = case.schema.url_through(proxy.addr())?;
    let old = Arguments { detached: true, database, ..case.arguments("old") };
    let old = begin(case, &records, old).await?;
    // Nothing is committed any more, so each partition gets stuck.
    let held = proxy.hold_requests(Message::query("COMMIT"));
    case.produce(&records.second).await?;
    until("a COMMIT of each partition is held", async || Ok((held.waiting() >= 2).then_some(())))
        .await?;
    case.fault("each COMMIT of old is held on its way to the database");

    let Handover { new, moved, mark } = hands_over(case, &old).await?;

    case.phase("the COMMIT arrives");
    waits_for_it(case, &new).await?;
    held.release();
    case.relief("the COMMITs arrive");
    let late = until("a late completion is counted", async || {
        let late = old.counted("tidegate_frontier_late_total").await?;
        Ok((late > 0).then_some(late))
    });
    case.count("late completions", late.await?);
    finish(case, &old, &new, moved, mark).await
}

/// Held, and let go while it may still finish.
async fn drained(case: &Case) -> Result<()> {
    let records = ledger(case.seed, 400);
    let old = begin(case, &records, case.arguments("old")).await?;
    let held = hold_both(case, &old, &records, Point::AfterEffect).await?;

    case.phase("a member joins");
    let mark = old.mark();
    let new = case.start_plain("new").await?;
    old.logs(mark, says::REVOKED, |_| true).await?;
    case.fault("a revoke came while batches were held");
    for barrier in held {
        old.release(barrier).await?;
    }
    let moved = moved(case, &old, &new).await?;
    let name = case.partition_name(moved);
    let drained = old.logs(mark, says::DRAINED, is_of(&name)).await?;
    case.phase(&format!("drained after {}", drained.text("waited").unwrap_or("?")));
    finish(case, &old, &new, moved, mark).await
}

/// One member whose work outlasts its leases, with a batch of each partition
/// held.
async fn held_detached(case: &Case, point: Point) -> Result<(Arc<Member>, Vec<Barrier>)> {
    let records = ledger(case.seed, 400);
    let old = Arguments { detached: true, ..case.arguments("old") };
    let old = begin(case, &records, old).await?;
    let held = hold_both(case, &old, &records, point).await?;
    Ok((old, held))
}

/// A partition that went to a member that joined.
struct Handover {
    new: Arc<Member>,
    moved: i32,
    /// Where the old owner's log was before.
    mark: usize,
}

/// A member joins, and gets a partition whose drain was given up.
async fn hands_over(case: &Case, old: &Member) -> Result<Handover> {
    case.phase("a member joins");
    let mark = old.mark();
    let new = case.start_plain("new").await?;
    let moved = moved(case, old, &new).await?;
    past_the_deadline(case, old, mark, moved).await?;
    Ok(Handover { new, moved, mark })
}

/// One member, which has read the first half.
async fn begin(case: &Case, records: &Halves, old: Arguments) -> Result<Arc<Member>> {
    case.create_topic(PARTITIONS).await?;
    case.phase("one member works");
    let old = case.start(old).await?;
    case.works_on(&old, &[0, 1]).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    Ok(old)
}

/// Holds a batch of each partition: which one moves is not known before.
async fn hold_both(
    case: &Case,
    old: &Member,
    records: &Halves,
    point: Point,
) -> Result<Vec<Barrier>> {
    case.phase("a batch of each partition is held");
    let mut held = Vec::new();
    for partition in 0..PARTITIONS {
        let when = When::any().partition(partition).from(records.middle(partition));
        held.push(old.hold(point, when).await?);
    }
    case.produce(&records.second).await?;
    for barrier in &held {
        old.reached(barrier).await?;
    }
    case.fault(format!("a batch of each partition is held in old, at {point}"));
    Ok(held)
}

/// The partition that goes from the one to the other.
async fn moved(case: &Case, old: &Member, new: &Member) -> Result<i32> {
    old.logs(0, says::REVOKED, |event| event.fields.get("lost") == Some(&false.into())).await?;
    let assigned = new
        .logs(0, says::ASSIGNED, |event| {
            event.text("partitions").is_some_and(|names| !names.is_empty())
        })
        .await?;
    let names = assigned.text("partitions").unwrap_or_default();
    let moved = (0..PARTITIONS).find(|it| names == case.partition_name(*it));
    moved.with_context(|| format!("{} got `{names}`, and not one partition", new.name()))
}

/// The drain was given up with work in flight: else there was no fault.
async fn past_the_deadline(case: &Case, old: &Member, mark: usize, moved: i32) -> Result<()> {
    let name = case.partition_name(moved);
    let given_up = old.logs(mark, says::DRAIN_GIVEN_UP, is_of(&name)).await?;
    let in_flight = given_up.number("in_flight").unwrap_or_default();
    ensure!(in_flight > 0, "the fault did not take effect: nothing was in flight");
    case.count("in flight", in_flight);
    case.fault(format!("p{moved} left old with {in_flight} records in flight"));
    Ok(())
}

/// The new owner has come to what the old one has not decided.
async fn waits_for_it(case: &Case, new: &Member) -> Result<()> {
    let name = new.name();
    until(&format!("{name} waits for what the old owner has claimed"), async || {
        Ok((case.schema.waiting(name).await? > 0).then_some(()))
    })
    .await
}

/// The old work has come to its end, and was refused there: its lease is over.
async fn is_refused(case: &Case, old: &Member) -> Result<()> {
    let refused = until("the old work is refused", async || {
        let refused = old.counted("tidegate_queue_halts_total{class=fenced}").await?;
        Ok((refused > 0).then_some(refused))
    });
    case.count("refused batches", refused.await?);
    Ok(())
}

/// The rest is read, both members end in order, and the oracle judges.
async fn finish(case: &Case, old: &Member, new: &Member, moved: i32, mark: usize) -> Result<()> {
    case.phase("the rest is read");
    case.consumed().await?;
    case.terminate(old).await?;
    case.terminate(new).await?;
    no_commit_after_leaving(case, old, moved, mark)?;
    case.judge(Rules::default()).await?;
    Ok(())
}

/// A live member's commit for a partition that it no longer owns is accepted
/// by the broker: so none may be sent.
fn no_commit_after_leaving(case: &Case, old: &Member, moved: i32, mark: usize) -> Result<()> {
    let name = case.partition_name(moved);
    let has_it = |text: Option<&str>| {
        text.is_some_and(|text| text.split([' ', '@']).any(|word| word == name))
    };
    let log = old.log();
    let log = &log[mark..];
    let left = log
        .iter()
        .position(|event| event.message == says::GIVEN_BACK && has_it(event.text("partitions")));
    let left = left.with_context(|| format!("{name} did not leave {}", old.name()))?;
    let sent = log[left..]
        .iter()
        // It may come back, when the other one ends.
        .take_while(|event| event.message != says::ASSIGNED || !has_it(event.text("partitions")))
        .find(|event| event.message == says::COMMIT_SENT && has_it(event.text("offsets")));
    if let Some(Logged { at, .. }) = sent {
        bail!("{} committed {name} at {at}, after it had left", old.name());
    }
    Ok(())
}

fn is_of(name: &str) -> impl Fn(&Logged) -> bool {
    let name = name.to_owned();
    move |event| event.text("partition") == Some(&name)
}
