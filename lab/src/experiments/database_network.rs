//! The database is away, slow, or says no.

use std::{slice, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use sqlx::Connection as _;
use tidegate_oracle::Rules;
use tidegate_testkit::{LedgerRecord, Message, Mode, Point, Proxy, When};
use tokio::{
    time::{Instant, sleep},
    try_join,
};
use xtask::services::Signal;

use super::{
    Experiment,
    common::{self, feed, takes_all},
    data::{Halves, ledger, plain, wide},
};
use crate::{
    case::{Case, until},
    member::{Member, PATIENCE},
    says,
    worker::{Arguments, Protocol},
};

// The database knows nothing of the group's protocol.
const ONE: &[Protocol] = &[Protocol::Consumer];
const PARTITIONS: i32 = 4;

/// The experiments.
pub(super) const ALL: &[Experiment] = &[
    Experiment::new(
        "database-network/lost-before-begin",
        "The connections are lost with a batch made and no transaction begun.",
        |case| Box::pin(lost_at(case, Point::BeforeBegin)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/lost-between-statements",
        "The connection is lost between effect and COMMIT.",
        |case| Box::pin(lost_at(case, Point::AfterEffect)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/commit-lost",
        "The connection is lost with a COMMIT on its way to the database.",
        |case| Box::pin(commit_lost(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/answer-to-commit-lost",
        "The connection is lost with a COMMIT done and its answer on the way back.",
        |case| Box::pin(answer_lost(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/away",
        "The database cannot be reached for eight seconds.",
        |case| Box::pin(away(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/slow",
        "Each round trip to the database takes 20 ms longer.",
        |case| Box::pin(slow(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/pool-exhausted",
        "The one connection of a process is taken for longer than others wait for it.",
        |case| Box::pin(pool_exhausted(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/lock-wait",
        "A lock is held by somebody else for longer than statements wait for it.",
        |case| Box::pin(lock_wait(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/deadlock",
        "An effect is the victim of a deadlock with somebody else.",
        |case| Box::pin(deadlock(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/serialization",
        "Effects fail to serialize, three times in a row.",
        |case| Box::pin(serialization(case)),
    )
    .on(ONE),
    Experiment::new(
        "database-network/restarted",
        "The database is ended at once, as by a crash, and started again, under load.",
        |case| Box::pin(restarted(case)),
    )
    .on(ONE)
    .alone(),
];

/// A member behind a proxy of its own, which has read the first half.
async fn behind_proxy(
    case: &Case,
    records: &Halves,
    change: impl FnOnce(Arguments) -> Arguments,
) -> Result<(Arc<Member>, Proxy)> {
    let proxy = case.database_proxy().await?;
    let database = case.schema.url_through(proxy.addr())?;
    let arguments = change(Arguments { database, ..case.arguments("member") });
    let member = alone(case, records, arguments).await?;
    Ok((member, proxy))
}

async fn alone(case: &Case, records: &Halves, arguments: Arguments) -> Result<Arc<Member>> {
    case.create_topic(2).await?;
    case.phase("one member works");
    let member = case.start(arguments).await?;
    takes_all(case, &member).await?;
    case.produce(&records.first).await?;
    case.consumed().await?;
    Ok(member)
}

async fn finish(case: &Case, member: &Arc<Member>) -> Result<()> {
    common::finish(case, slice::from_ref(member), Rules::default()).await.map(drop)
}

async fn lost_at(case: &Case, point: Point) -> Result<()> {
    let records = ledger(case.seed, 400);
    let (member, proxy) = behind_proxy(case, &records, |it| it).await?;
    let held = member.hold(point, When::any()).await?;
    case.produce(&records.second).await?;
    member.reached(&held).await?;
    let (before, retries) = (proxy.traffic(), counted_retries(&member).await?);
    ensure!(before.open > 0, "the fault did not take effect: there was no connection");
    proxy.close_connections();
    case.fault(format!("{} connections are closed with a batch at {point}", before.open));
    member.release(held).await?;
    case.consumed().await?;
    let again = proxy.traffic().connections - before.connections;
    ensure!(again > 0, "the fault did not take effect: nobody connected again");
    case.count("connections made again", i64::try_from(again)?);
    // Before BEGIN, another connection does as well.
    if point == Point::AfterEffect {
        tried_again(case, &member, retries).await?;
    }
    finish(case, &member).await
}

async fn commit_lost(case: &Case) -> Result<()> {
    let records = plain(case.seed, 400, 20);
    let (member, proxy) = behind_proxy(case, &records, |it| it).await?;
    let before = counted_retries(&member).await?;
    let held = proxy.hold_requests(Message::query("COMMIT"));
    case.produce(&records.second).await?;
    held.reached(PATIENCE).await?;
    held.cut();
    case.fault("a COMMIT is lost on its way to the database");
    case.consumed().await?;
    tried_again(case, &member, before).await?;
    finish(case, &member).await
}

async fn answer_lost(case: &Case) -> Result<()> {
    let records = plain(case.seed, 400, 20);
    let (member, proxy) = behind_proxy(case, &records, |it| it).await?;
    let held = proxy.hold_replies(Message::query("COMMIT"));
    case.produce(&records.second).await?;
    held.answered(PATIENCE).await?;
    held.cut();
    case.fault("the answer to a COMMIT is lost");
    case.consumed().await?;
    // Nothing is there twice, so each is one that was committed unseen.
    let found = member.outcomes("duplicate").await?;
    ensure!(found > 0, "the fault did not take effect: nothing was found again");
    case.count("found again", found);
    finish(case, &member).await
}

async fn away(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, 2);
    let (member, proxy) = behind_proxy(case, &records, |it| it).await?;
    proxy.set(Mode::Cut).await;
    case.fault("the database cannot be reached");
    case.produce(&records.second).await?;
    until("the member says that the database is down", async || {
        let standing = member.status().await?;
        Ok(standing.iter().any(|it| it.state == "database down").then_some(()))
    })
    .await?;
    sleep(Duration::from_secs(8)).await;
    proxy.set(Mode::Pass).await;
    case.relief("the database can be reached again");
    finish(case, &member).await
}

async fn slow(case: &Case) -> Result<()> {
    let records = wide(case.seed, 400, 2);
    let (member, proxy) = behind_proxy(case, &records, |it| it).await?;
    let (before, meanwhile) = records.second.split_at(records.second.len() / 2);
    let normal = reads(case, before).await?;
    proxy.set(Mode::Delay(Duration::from_millis(10))).await;
    case.fault("each round trip takes 20 ms longer");
    let slow = reads(case, meanwhile).await?;
    // BEGIN, marker, position, effect and COMMIT, one after the other.
    ensure!(
        slow > normal + Duration::from_millis(100),
        "the fault did not take effect: it took {slow:?}, and {normal:?} before"
    );
    case.count("took ms", i64::try_from(slow.as_millis())?);
    case.count("took before ms", i64::try_from(normal.as_millis())?);
    finish(case, &member).await
}

/// Writes records, and returns how long it takes until they are committed.
async fn reads(case: &Case, records: &[LedgerRecord]) -> Result<Duration> {
    let began = Instant::now();
    case.produce(records).await?;
    case.consumed().await?;
    Ok(began.elapsed())
}

/// The fault took effect: a member has tried something again.
async fn tried_again(case: &Case, member: &Member, before: i64) -> Result<()> {
    let retries = counted_retries(member).await? - before;
    ensure!(retries > 0, "the fault did not take effect: nothing was tried again");
    case.count("retries", retries);
    Ok(())
}

async fn pool_exhausted(case: &Case) -> Result<()> {
    let records = wide(case.seed, 600, 2);
    let one = Arguments { connections: 1, ..case.arguments("member") };
    let member = alone(case, &records, one).await?;
    let held = member.hold(Point::AfterEffect, When::any().partition(0)).await?;
    let mark = member.mark();
    case.produce(&records.second).await?;
    member.reached(&held).await?;
    case.fault("the one connection is taken");
    // The other partition has asked for it in vain, and asks again.
    until("the other partition waits in vain", async || {
        let standing = member.status().await?;
        let waits = standing.iter().any(|it| it.partition == 1 && it.state != "running");
        Ok(waits.then_some(()))
    })
    .await?;
    member.release(held).await?;
    case.relief("the connection is free");
    ensure!(
        !member.log()[mark..].iter().any(|event| event.message == says::LOST),
        "partitions were lost over a connection"
    );
    finish(case, &member).await
}

async fn lock_wait(case: &Case) -> Result<()> {
    let records = ledger(case.seed, 400);
    let member = alone(case, &records, case.arguments("member")).await?;
    let before = counted_retries(&member).await?;
    let mut other = case.schema.connect().await?;
    let mut transaction = other.begin().await?;
    sqlx::query("LOCK TABLE entry IN SHARE MODE").execute(&mut *transaction).await?;
    case.produce(&records.second).await?;
    until("the member waits for the lock", async || {
        Ok((case.schema.waiting("member").await? > 0).then_some(()))
    })
    .await?;
    case.fault("the table of effects is locked by somebody else");
    until("a statement gave up waiting for it", async || {
        let retries = counted_retries(&member).await?;
        Ok((retries > before).then_some(()))
    })
    .await?;
    transaction.rollback().await?;
    case.relief("the lock is gone");
    finish(case, &member).await
}

async fn counted_retries(member: &Member) -> Result<i64> {
    member.counted("tidegate_retry_retries_total").await
}

async fn deadlock(case: &Case) -> Result<()> {
    let records = ledger(case.seed, 400);
    let member = alone(case, &records, case.arguments("member")).await?;
    // Each effect takes two locks; somebody else takes them the other way round.
    case.schema
        .execute(
            "CREATE TABLE hot (id int PRIMARY KEY, count bigint NOT NULL);
            INSERT INTO hot VALUES (1, 0), (2, 0);
            CREATE FUNCTION heat() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                UPDATE hot SET count = count + 1 WHERE id = 1;
                UPDATE hot SET count = count + 1 WHERE id = 2;
                RETURN NEW;
            END $$;
            CREATE TRIGGER heat AFTER INSERT ON entry FOR EACH ROW EXECUTE FUNCTION heat();",
        )
        .await?;
    let before = counted_retries(&member).await?;
    let mut other = case.schema.connect().await?;
    let mut produced = false;
    for _ in 0..10 {
        let mut transaction = other.begin().await?;
        sqlx::query("UPDATE hot SET count = 0 WHERE id = 2").execute(&mut *transaction).await?;
        if !produced {
            case.produce(&records.second).await?;
            produced = true;
        }
        until("the effect has one lock and waits for the other", async || {
            Ok((case.schema.waiting("member").await? > 0).then_some(()))
        })
        .await?;
        // Whoever has waited for a second looks for a deadlock, and is its
        // victim: the effect, if this comes in time.
        let second = sqlx::query("UPDATE hot SET count = 0 WHERE id = 1");
        if second.execute(&mut *transaction).await.is_ok() {
            transaction.commit().await?;
            case.fault("an effect was the victim of a deadlock");
            break;
        }
        transaction.rollback().await?;
    }
    tried_again(case, &member, before).await?;
    finish(case, &member).await
}

async fn serialization(case: &Case) -> Result<()> {
    let records = ledger(case.seed, 400);
    let member = alone(case, &records, case.arguments("member")).await?;
    // A sequence does not go back with the transaction that has failed.
    case.schema
        .execute(
            "CREATE SEQUENCE failures;
            CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('failures') <= 3 THEN
                    RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
                END IF;
                RETURN NEW;
            END $$;
            CREATE TRIGGER fail BEFORE INSERT ON entry FOR EACH ROW EXECUTE FUNCTION fail();",
        )
        .await?;
    let before = counted_retries(&member).await?;
    case.produce(&records.second).await?;
    until("three effects have failed to serialize", async || {
        let failures = case.schema.number("SELECT last_value FROM failures").await?;
        Ok((failures >= 3).then_some(()))
    })
    .await?;
    case.fault("effects failed to serialize");
    case.consumed().await?;
    tried_again(case, &member, before).await?;
    finish(case, &member).await
}

async fn restarted(case: &Case) -> Result<()> {
    let records = wide(case.seed, 3_000, PARTITIONS);
    case.create_topic(PARTITIONS).await?;
    let member = case.start_plain("member").await?;
    takes_all(case, &member).await?;
    case.produce(&records.first).await?;
    let before = counted_retries(&member).await?;
    let first = case.written_records();
    let restart = async {
        until("it is under load", async || {
            let made = case.schema.number("SELECT count(*) FROM tidegate_inbox").await?;
            Ok((made > first).then_some(()))
        })
        .await?;
        case.services().with_database(|server| server.stop(Signal::SIGQUIT).map(drop)).await?;
        case.fault("the database server is ended at once (SIGQUIT)");
        sleep(Duration::from_secs(3)).await;
        case.services().with_database(|server| server.start()).await?;
        case.relief("the database server is up again");
        anyhow::Ok(())
    };
    try_join!(feed(case, &records.second, 400), restart)?;
    tried_again(case, &member, before).await?;
    finish(case, &member).await
}
