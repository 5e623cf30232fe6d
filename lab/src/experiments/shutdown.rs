//! A member is asked to end.

use std::sync::Arc;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use tidegate_oracle::Rules;
use tidegate_testkit::{Point, When};
use tokio::{time::Instant, try_join};

use super::{
    Experiment,
    common::{feed, shared, takes_all},
    data::plain_over,
};
use crate::{
    case::Case,
    worker::{Arguments, IMPATIENT},
};

const PARTITIONS: i32 = 4;

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "graceful-shutdown/under-load",
        "A member is asked to end under load: it ends what runs, commits, and leaves the group.",
        |case| Box::pin(under_load(case)),
    ),
    Experiment::new(
        "graceful-shutdown/impatient",
        "A member that is asked to end waits for a handler, and is asked again: it ends at once.",
        |case| Box::pin(impatient(case)),
    ),
];

async fn under_load(case: &Case) -> Result<()> {
    // Nothing is repeated in it: a duplicate is a record that was read again.
    let records = plain_over(case.seed, 3_000, 100, PARTITIONS);
    let admin = case.admin()?;
    case.create_topic(PARTITIONS).await?;
    let slowly = |name: &str| Arguments { work: 1, ..case.arguments(name) };
    let (leaver, stayer) =
        (case.start(slowly("leaver")).await?, case.start(slowly("stayer")).await?);
    shared(case, &[Arc::clone(&leaver), Arc::clone(&stayer)]).await?;
    case.produce(&records.first).await?;
    let leaves = async {
        // Not before it has something to do.
        let held = leaver.hold(Point::AfterEffect, When::any()).await?;
        leaver.reached(&held).await?;
        let asked = Instant::now();
        leaver.ask_to_end().await?;
        leaver.logs(0, "asked to end", |_| true).await?;
        case.fault("leaver is asked to end with a batch in hand (SIGTERM)");
        leaver.release(held).await?;
        let status = leaver.ended().await?;
        let took = asked.elapsed();
        ensure!(status.success(), "it ended with {status}");
        case.count("ended after ms", i64::try_from(took.as_millis())?);
        ensure!(took.as_secs() < 5, "it took {took:?} to end");
        let members = admin.describe().await?.members.len();
        ensure!(members == 1, "the group has {members} members when it has ended");
        takes_all(case, &stayer).await
    };
    try_join!(feed(case, &records.second, 400), leaves)?;
    case.phase("the rest is read");
    case.consumed().await?;
    case.terminate(&stayer).await?;
    let again = stayer.outcomes("duplicate").await?;
    ensure!(again == 0, "{again} records were read again");
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn impatient(case: &Case) -> Result<()> {
    let records = plain_over(case.seed, 800, 40, PARTITIONS);
    case.create_topic(PARTITIONS).await?;
    let first = case.start_plain("first").await?;
    takes_all(case, &first).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    let held = first.hold(Point::AfterEffect, When::any()).await?;
    case.produce(&records.second).await?;
    first.reached(&held).await?;
    first.ask_to_end().await?;
    first.logs(0, "asked to end", |_| true).await?;
    let asked = Instant::now();
    first.signal(Signal::SIGTERM);
    let status = first.ended().await?;
    let took = asked.elapsed();
    ensure!(status.code() == Some(IMPATIENT), "it ended with {status}");
    ensure!(took.as_millis() < 1_000, "it took {took:?} to end");
    case.fault("first is asked twice to end (SIGTERM), and ends at once");
    let second = case.start_plain("second").await?;
    case.consumed().await?;
    case.terminate(&second).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}
