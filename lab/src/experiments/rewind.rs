//! A group's offsets are set back.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use tidegate::{
    core::TopicPartition,
    inbox::Retention,
    kafka::group::{GroupError, GroupState, Plan, ResetTo},
    prelude::{Database, Inbox},
};
use tidegate_oracle::{Queries, Rules};

use super::{
    Experiment,
    data::{PARTITIONS, ledger},
};
use crate::{
    case::{Case, until},
    member::Member,
    worker::Arguments,
};

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "rewind-same-namespace",
        "The group's offsets are set back to the beginning, over the same database.",
        |case| Box::pin(same_namespace(case)),
    ),
    Experiment::new(
        "rewind-below-the-floor",
        "The group's offsets are set back to the beginning, and the inbox has forgotten all of \
         that.",
        |case| Box::pin(below_the_floor(case)),
    ),
    Experiment::new(
        "rewind-new-namespace",
        "The group's offsets are set back to the beginning, for a new generation of the target.",
        |case| Box::pin(new_namespace(case)),
    ),
];

async fn same_namespace(case: &Case) -> Result<()> {
    let first = everything_is_read(case).await?;
    let before = effects(case).await?;

    case.phase("the offsets are set back");
    let admin = case.admin()?;
    let plan = admin.plan([case.topic.as_str()], ResetTo::Earliest).await?;
    match admin.execute(&plan).await {
        Err(GroupError::Active { members, .. }) => case.count("refused while active", members),
        other => bail!("setting the offsets of an active group was answered {other:?}"),
    }
    case.terminate(&first).await?;
    until("the group is empty", async || {
        let empty = admin.describe().await?.state == GroupState::Empty;
        Ok(empty.then_some(()))
    })
    .await?;
    // What is saved is what is executed, and what is undone later.
    let saved = serde_json::to_string(&plan)?;
    let plan: Plan = serde_json::from_str(&saved).context("reading the saved plan")?;
    case.set_offsets(async || Ok(admin.execute(&plan).await?)).await?;
    let set = admin.offsets().await?;
    ensure!(
        set.values().all(|it| it.offset == Some(it.low)),
        "the fault did not take effect: the offsets are {set:?}"
    );
    case.fault("the group's offsets are set back to the beginning");

    case.phase("everything is read again");
    let second = case.start_plain("second").await?;
    case.consumed().await?;
    case.terminate(&second).await?;
    ensure!(effects(case).await? == before, "the effects are not the same as before");
    let applied = second.outcomes("applied").await?;
    ensure!(applied == 0, "{applied} records were applied again");
    let (duplicates, buried) =
        (second.outcomes("duplicate").await?, second.outcomes("buried").await?);
    let written = case.written_records();
    ensure!(
        duplicates + buried == written,
        "of {written} records {duplicates} are duplicates, and {buried} are buried again"
    );
    case.count("duplicates", duplicates);
    case.count("buried again", buried);

    case.phase("the offsets are restored");
    let undo = plan.undo();
    case.set_offsets(async || {
        // What was planned is what is there now: the end of the second reading.
        let back = admin.plan([case.topic.as_str()], ResetTo::Earliest).await?;
        admin.execute(&back).await?;
        Ok(admin.execute(&undo).await?)
    })
    .await?;
    case.consumed().await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn below_the_floor(case: &Case) -> Result<()> {
    let first = everything_is_read(case).await?;
    case.terminate(&first).await?;
    let before = effects(case).await?;

    case.phase("what was read is forgotten");
    let inbox = Inbox::new(Database::open(case.schema.url()).await?);
    let mut removed = 0;
    for number in 0..PARTITIONS {
        let partition = TopicPartition::new(case.topic.as_str(), number);
        let end = case.end(number);
        let pruned = inbox.prune_below(&partition, end, &Retention::of_offsets(0)).await?;
        ensure!(pruned.floor == Some(end), "the floor of p{number} is {:?}", pruned.floor);
        removed += i64::try_from(pruned.removed)?;
    }
    ensure!(removed > 0, "the fault did not take effect: nothing was forgotten");
    case.count("markers removed", removed);
    let admin = case.admin()?;
    let plan = admin.plan([case.topic.as_str()], ResetTo::Earliest).await?;
    case.set_offsets(async || Ok(admin.execute(&plan).await?)).await?;
    case.fault("the group's offsets are set back to the beginning, below the floor");

    case.phase("everything is read again");
    let second = case.start_plain("second").await?;
    case.consumed().await?;
    case.terminate(&second).await?;
    ensure!(effects(case).await? == before, "the effects are not the same as before");
    let (too_old, buried) = (second.outcomes("too_old").await?, second.outcomes("buried").await?);
    let written = case.written_records();
    ensure!(
        too_old + buried == written,
        "of {written} records {too_old} are too old, and {buried} are buried again"
    );
    case.count("too old", too_old);
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn new_namespace(case: &Case) -> Result<()> {
    let first = everything_is_read(case).await?;
    case.terminate(&first).await?;
    let before = effects(case).await?;

    case.phase("the target is built anew");
    case.schema.execute("ALTER TABLE entry RENAME TO entry_of_generation_1").await?;
    case.schema.create_entries().await?;
    let admin = case.admin()?;
    let plan = admin.plan([case.topic.as_str()], ResetTo::Earliest).await?;
    case.set_offsets(async || Ok(admin.execute(&plan).await?)).await?;
    case.fault("the group's offsets are set back to the beginning, the target is empty");
    let second = Arguments { generation: 2, ..case.arguments("second") };
    let second = case.start(second).await?;
    case.consumed().await?;
    case.terminate(&second).await?;
    ensure!(effects(case).await? == before, "the rebuild is not what was there before");
    for outcome in ["duplicate", "buried"] {
        let (was, is) = (first.outcomes(outcome).await?, second.outcomes(outcome).await?);
        ensure!(was == is, "{was} records were {outcome} at first, and {is} in the rebuild");
    }
    case.count("built anew", before.0);
    case.judge_by(Rules::default(), Queries::of_namespace("main", 2)).await?;
    Ok(())
}

/// One member, which has read all there is.
async fn everything_is_read(case: &Case) -> Result<Arc<Member>> {
    let records = ledger(case.seed, 400);
    case.create_topic(PARTITIONS).await?;
    case.phase("everything is read");
    let first = case.start_plain("first").await?;
    case.produce(&records.first).await?;
    case.produce(&records.second).await?;
    case.consumed().await?;
    Ok(first)
}

/// How many effects there are, and what they sum up to.
async fn effects(case: &Case) -> Result<(i64, i64)> {
    let count = case.schema.number("SELECT count(*) FROM entry").await?;
    let sum = "SELECT coalesce(sum(amount), 0)::bigint FROM entry";
    Ok((count, case.schema.number(sum).await?))
}
