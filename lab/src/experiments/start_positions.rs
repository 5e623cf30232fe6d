//! Where a partition starts, and where it does not.

use anyhow::{Context as _, Result, ensure};
use tidegate::kafka::group::{GroupState, ResetTo};
use tidegate_oracle::Rules;

use super::{
    Experiment,
    common::takes_all,
    data::{Halves, delta, plain_over},
};
use crate::{
    case::{Case, until},
    member::{Member, Standing},
    says,
    worker::{Arguments, Protocol, Start, UP},
};

const ONE: &[Protocol] = &[Protocol::Consumer];

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "start-positions/earliest",
        "A group that has committed nothing starts at the beginning of the log, which is not 0.",
        |case| Box::pin(earliest(case)),
    ),
    Experiment::new(
        "start-positions/latest",
        "A group that has committed nothing starts at the end of the log, as it was told.",
        |case| Box::pin(latest(case)),
    ),
    Experiment::new(
        "start-positions/error",
        "A group that has committed nothing does not start, as it was told, until somebody decides.",
        |case| Box::pin(error(case)),
    )
    .on(ONE),
    Experiment::new(
        "start-positions/below-the-log",
        "Records are removed above the committed offset while nobody reads.",
        |case| Box::pin(below_the_log(case)),
    ),
    Experiment::new(
        "start-positions/above-the-log",
        "A committed offset lies behind the end of the log.",
        |case| Box::pin(above_the_log(case)),
    ),
    Experiment::new(
        "start-positions/removed-under-a-stop",
        "Records are removed while their partition is stopped.",
        |case| Box::pin(removed_under_a_stop(case)),
    )
    .on(ONE),
    Experiment::new(
        "start-positions/made-anew-while-stopped",
        "A topic is deleted and made anew while nobody reads.",
        |case| Box::pin(made_anew_while_stopped(case)),
    ),
    Experiment::new(
        "start-positions/made-anew-under-a-member",
        "A topic is deleted and made anew, longer than before, under a member that works.",
        |case| Box::pin(made_anew_under_a_member(case)),
    ),
];

/// The one partition.
const P: i32 = 0;

fn records(case: &Case) -> Halves {
    plain_over(case.seed, 400, 20, 1)
}

/// Sets the group's offsets, once nobody is in it.
async fn set(case: &Case, to: ResetTo) -> Result<()> {
    let admin = case.admin()?;
    until("the group is empty", async || {
        let state = admin.describe().await?.state;
        Ok(matches!(state, GroupState::Empty | GroupState::Dead).then_some(()))
    })
    .await?;
    let plan = admin.plan([case.topic.as_str()], to).await?;
    Ok(admin.execute(&plan).await?)
}

/// Waits until the partition is stopped, and says why.
async fn stopped(case: &Case, member: &Member, why: &str) -> Result<Standing> {
    let what = format!("{} stops, and says `{why}`", member.name());
    let stopped = until(&what, async || {
        let standing = member.status().await?;
        let has_it = |it: &Standing| it.cause.as_ref().is_some_and(|cause| cause.contains(why));
        Ok(standing.into_iter().find(|it| it.state == "stopped" && has_it(it)))
    });
    let stopped = stopped.await.context("the fault did not take effect")?;
    case.fault(format!("it is stopped: {}", stopped.cause.as_deref().unwrap_or_default()));
    Ok(stopped)
}

async fn finish(case: &Case, member: &Member) -> Result<()> {
    case.consumed().await?;
    case.terminate(member).await?;
    case.judge(Rules::default()).await?;
    Ok(())
}

/// Reads the first half, and leaves.
async fn reads_half(case: &Case, records: &Halves) -> Result<()> {
    case.create_topic(1).await?;
    case.phase("the first half is read");
    let first = case.start_plain("first").await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    case.terminate(&first).await
}

async fn earliest(case: &Case) -> Result<()> {
    let records = records(case);
    case.create_topic(1).await?;
    // What is gone was a copy of what is there: nothing is missing.
    case.produce(&records.first).await?;
    case.produce(&records.first).await?;
    case.remember_log().await?;
    let low = i64::try_from(records.first.len())?;
    case.cluster.remove_records(&case.topic, P, low).await?;
    case.fault(format!("the log begins at {low}, and nothing is committed"));
    let member = case.start_plain("member").await?;
    case.produce(&records.second).await?;
    let start = member.logs(0, says::STARTS_HERE, |_| true).await?;
    let start = start.number("offset");
    ensure!(start == Some(low), "it starts at {start:?}");
    let up = member.logs(0, UP, |_| true).await?;
    case.consumed().await?;
    let first = "SELECT (extract(epoch FROM min(made_at)) * 1000)::bigint FROM entry";
    case.count("first effect after ms", case.schema.number(first).await? - up.at);
    case.terminate(&member).await?;
    // The copies were read, and not what they are copies of.
    let applied = member.outcomes("applied").await?;
    ensure!(applied == 400, "{applied} records were applied");
    case.judge(Rules::default()).await?;
    Ok(())
}

/// Another group has made the effects of what lies below.
async fn latest(case: &Case) -> Result<()> {
    let records = records(case);
    case.create_topic(1).await?;
    case.phase("another group reads the first half");
    let group = format!("{}-other", case.group);
    let other = case.start(Arguments { group: group.clone(), ..case.arguments("other") }).await?;
    case.produce(&records.first).await?;
    let all = i64::try_from(records.first.len())?;
    until("the first half is read", async || {
        Ok((other.outcomes("applied").await? == all).then_some(()))
    })
    .await?;
    case.terminate(&other).await?;
    case.cluster.delete_group(&group).await?;

    case.phase("the group starts at the end");
    let member = case.start(Arguments { start: Start::Latest, ..case.arguments("member") }).await?;
    takes_all(case, &member).await?;
    // It is committed before anything is delivered.
    until("where it starts is committed", async || {
        Ok((case.committed_at(P).await? == Some(all)).then_some(()))
    })
    .await?;
    case.fault(format!("it starts at {all}, the end of the log"));
    case.produce(&records.second).await?;
    case.consumed().await?;
    case.terminate(&member).await?;
    let again = member.outcomes("duplicate").await?;
    ensure!(again == 0, "{again} records below the start were read");
    case.judge(Rules::default()).await?;
    Ok(())
}

async fn error(case: &Case) -> Result<()> {
    let records = records(case);
    case.create_topic(1).await?;
    case.produce(&records.first).await?;
    let arguments = |name: &str| Arguments { start: Start::Error, ..case.arguments(name) };
    let first = case.start(arguments("first")).await?;
    stopped(case, &first, "has committed nothing").await?;
    let effects = case.schema.number("SELECT count(*) FROM entry").await?;
    ensure!(effects == 0, "{effects} effects were made");
    case.terminate(&first).await?;

    case.phase("somebody decides");
    set(case, ResetTo::Earliest).await?;
    let second = case.start(arguments("second")).await?;
    case.produce(&records.second).await?;
    finish(case, &second).await
}

async fn below_the_log(case: &Case) -> Result<()> {
    let records = records(case);
    reads_half(case, &records).await?;
    case.remember_log().await?;
    // Set back to what was read already: what is removed is not missing.
    let (committed, low) = (10, 30);
    case.set_offsets(async || set(case, ResetTo::Offset(committed)).await).await?;
    case.cluster.remove_records(&case.topic, P, low).await?;
    case.produce(&records.second).await?;
    let second = case.start_plain("second").await?;
    stopped(case, &second, "lies outside the log").await?;
    case.terminate(&second).await?;
    let left = case.committed_at(P).await?;
    ensure!(left == Some(committed), "{left:?} is committed, and nobody has decided");

    case.phase("somebody decides");
    case.set_offsets(async || set(case, ResetTo::Earliest).await).await?;
    let third = case.start_plain("third").await?;
    case.consumed().await?;
    let duplicates = third.outcomes("duplicate").await?;
    let expected = i64::try_from(records.first.len())? - low;
    ensure!(duplicates == expected, "{duplicates} records were read again, and not {expected}");
    finish(case, &third).await
}

async fn above_the_log(case: &Case) -> Result<()> {
    let records = records(case);
    reads_half(case, &records).await?;
    let (end, above) = (case.end(P), case.end(P) + 300);
    // What is set by hand is not what the group has committed.
    let second = case
        .set_offsets(async || {
            case.cluster.commit(&case.group, &case.topic, P, above).await?;
            let second = case.start_plain("second").await?;
            stopped(case, &second, "lies outside the log").await?;
            case.produce(&records.second).await?;
            case.terminate(&second).await?;
            let effects = case.schema.number("SELECT count(*) FROM entry").await?;
            ensure!(effects == end, "{effects} effects were made, and not {end}");
            case.phase("somebody decides");
            set(case, ResetTo::Offset(end)).await?;
            case.start_plain("third").await
        })
        .await?;
    finish(case, &second).await
}

async fn removed_under_a_stop(case: &Case) -> Result<()> {
    case.create_topic(1).await?;
    let first = case.start_plain("first").await?;
    takes_all(case, &first).await?;
    case.write((1..=20).map(|n| delta(P, n, "account", n, n)).collect()).await?;
    case.consumed().await?;
    let hole = case.end(P);
    case.schema.execute("ALTER TABLE entry RENAME TO entry_away").await?;
    // What is removed are copies, of what is there and of what comes again.
    let mut records = vec![delta(P, 21, "account", 21, 21)];
    records.extend((1..=10).map(|n| delta(P, n, "account", n, n)));
    let low = hole + i64::try_from(records.len())?;
    records.extend((21..=30).map(|n| delta(P, n, "account", n, n)));
    case.write(records).await?;
    stopped(case, &first, "entry").await?;
    case.remember_log().await?;
    let mark = first.mark();
    case.cluster.remove_records(&case.topic, P, low).await?;
    case.schema.execute("ALTER TABLE entry_away RENAME TO entry").await?;
    // Where it stands shows that only until the next try, which is about the
    // committed offset: that lies outside the log.
    let why = "records were removed before they were read";
    let says_why = |cause: &str| cause.contains(why);
    let stops = first.logs(mark, says::STOPPED, |it| it.text("cause").is_some_and(says_why));
    stops.await.context("the fault did not take effect")?;
    stopped(case, &first, "or the topic was made anew").await?;
    // Nothing is skipped by itself.
    let committed = case.committed_at(P).await?;
    ensure!(committed == Some(hole), "{committed:?} is committed, and nobody has decided");
    case.terminate(&first).await?;

    case.phase("somebody decides");
    case.set_offsets(async || set(case, ResetTo::Earliest).await).await?;
    let second = case.start_plain("second").await?;
    finish(case, &second).await
}

/// The group's offsets go with the topic, so this looks like a new one; what
/// the inbox knows of the old one does not.
async fn made_anew_while_stopped(case: &Case) -> Result<()> {
    let records = records(case);
    reads_half(case, &records).await?;
    let judged = case.judge(Rules::default()).await?;
    let effects = i64::try_from(judged.counts.effects)?;
    make_anew(case, &records).await?;
    let second = case.start_plain("second").await?;
    stopped(case, &second, "the inbox knows the one with the id").await?;
    nothing_more(case, effects).await?;
    case.terminate(&second).await?;

    case.phase("somebody decides: the target is built anew");
    case.schema.execute("DELETE FROM entry").await?;
    case.set_offsets(async || set(case, ResetTo::Earliest).await).await?;
    generation_two(case).await
}

/// A classic member gets no event, and its position lies inside the new log.
async fn made_anew_under_a_member(case: &Case) -> Result<()> {
    let records = records(case);
    case.create_topic(1).await?;
    let arguments = Arguments { topic_check: 500, ..case.arguments("member") };
    let member = case.start(arguments).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    let judged = case.judge(Rules::default()).await?;
    let effects = i64::try_from(judged.counts.effects)?;
    make_anew(case, &records).await?;
    stopped(case, &member, "made anew").await?;
    // A classic member reads on until it has looked at the topic's id.
    let seen = case.schema.number("SELECT count(*) FROM entry").await? - effects;
    case.count("effects before it was seen", seen);
    ensure!(case.protocol != Protocol::Consumer || seen == 0, "{seen} effects were made");
    case.terminate(&member).await?;
    nothing_more(case, effects + seen).await?;

    case.phase("somebody decides: the target is built anew");
    case.schema.execute("DELETE FROM entry").await?;
    let admin = case.admin()?;
    case.set_offsets(async || {
        let offsets = admin.offsets().await?;
        case.count("offsets left by the old topic", offsets.len());
        case.cluster.delete_group(&case.group).await
    })
    .await?;
    generation_two(case).await
}

/// Deletes the topic, and makes one of the same name, with more records.
async fn make_anew(case: &Case, records: &Halves) -> Result<()> {
    case.phase("the topic is made anew");
    case.set_offsets(async || {
        case.cluster.delete_topic(&case.topic).await?;
        let gone = async || Ok(case.cluster.lacks(&case.topic).then_some(()));
        until("the topic is gone", gone).await?;
        case.create_topic(1).await
    })
    .await?;
    case.produce(&records.first).await?;
    case.produce(&records.second).await?;
    case.fault("the topic was deleted and made anew");
    Ok(())
}

/// Nothing of the new topic has an effect while nobody has decided.
async fn nothing_more(case: &Case, effects: i64) -> Result<()> {
    let now = case.schema.number("SELECT count(*) FROM entry").await?;
    ensure!(now == effects, "{now} effects are there, and {effects} were");
    Ok(())
}

async fn generation_two(case: &Case) -> Result<()> {
    let third = case.start(Arguments { generation: 2, ..case.arguments("third") }).await?;
    case.consumed().await?;
    case.terminate(&third).await?;
    let queries = tidegate_oracle::Queries::of_namespace("main", 2);
    case.judge_by(Rules::default(), queries).await?;
    Ok(())
}
