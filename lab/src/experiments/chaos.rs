//! Everything at once, by chance.

mod slot;
mod tally;

use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use futures_util::future::try_join_all;
use nix::sys::signal::Signal as ProcessSignal;
use tidegate_oracle::Rules;
use tidegate_testkit::LedgerRecord;
use tokio::{
    time::{Instant, sleep, sleep_until},
    try_join,
};
use xtask::services::Signal;

use self::{slot::Slot, tally::Tally};
use super::{Experiment, data, steps_back};
use crate::{
    case::{Case, until},
    says,
    worker::Arguments,
};

/// The experiments.
pub(super) const ALL: &[Experiment] = &[Experiment::new(
    "chaos",
    "Faults of all kinds, by chance, on four members under load, for as long as `--chaos` says.",
    |case| Box::pin(chaos(case)),
)
.alone()];

const PARTITIONS: i32 = 8;
const MEMBERS: u64 = 4;
/// Records a second.
const RATE: usize = 100;
/// How often records are written.
const TURN: Duration = Duration::from_millis(500);

/// A broker that was killed may be away for this long: on a busy machine it
/// takes a minute to start.
const AWAY: Duration = Duration::from_secs(300);

const BROKER_UP: &str = "the broker is up again";

async fn chaos(case: &Case) -> Result<()> {
    let lasts = case.scale.chaos;
    let records = records(case.seed, usize::try_from(lasts.as_secs())? * RATE);
    let tally = Tally::default();
    case.create_topic(PARTITIONS).await?;
    let mut slots = Vec::new();
    for number in 1..=MEMBERS {
        let chance = Rng::with_seed(case.seed.wrapping_mul(1_000) + number);
        slots.push(Slot::begin(case, &tally, number, chance).await?);
    }
    until("every partition has a member that works on it", async || {
        let mut working = 0;
        for slot in &slots {
            let standing = slot.member().status().await?;
            working += standing.iter().filter(|it| it.state == "running").count();
        }
        Ok((working == case.partitions()).then_some(()))
    })
    .await?;

    case.phase("chaos");
    let over = Instant::now() + lasts;
    let members = try_join_all(slots.into_iter().map(|slot| slot.suffer(over)));
    let chance = |number| Rng::with_seed(case.seed.wrapping_mul(1_000) + 100 + number);
    let guests = guests(case, &tally, over, chance(1));
    let services = services(case, &tally, over, chance(2));
    let load = load(case, &records);
    let (slots, (), (), ()) = try_join!(members, guests, services, load)?;

    case.phase("the rest is read");
    case.find_ends().await?;
    case.consumed().await?;
    for slot in &slots {
        case.terminate(slot.member()).await?;
    }
    tally.tell(case);
    ensure!(tally.landed() > 0, "the fault did not take effect: not one landed");
    // A commit that was unanswered when its member lost the partition may land
    // late, and is counted.
    let findings = case.judge(Rules::default().tolerating_steps_back()).await?;
    case.count("rebalances", case.logged(says::ASSIGNED));
    case.count("partitions lost", case.logged(says::LOST));
    case.count("suspensions", case.logged(says::SUSPENDED));
    case.count("commits refused", case.logged(says::COMMIT_REFUSED));
    // What a member had counted and not told when it was killed is not known.
    let again = case.outcomes("duplicate").await? - i64::try_from(findings.counts.duplicates)?;
    case.count("executed again, at least", again.max(0));
    steps_back::have_a_cause(case, &case.times_of(BROKER_UP))
}

/// Some of everything, and one record in a hundred that cannot succeed.
fn records(seed: u64, transfers: usize) -> Vec<LedgerRecord> {
    let all = data::ledger_with(seed, transfers, |config| {
        config.partitions = PARTITIONS;
        config.accounts = (transfers / 20).max(1);
        config.late = transfers / 500;
        config.conflicts = transfers / 500;
        config.refused = transfers / 500;
        config.poison = transfers / 150;
    });
    all.first.into_iter().chain(all.second).collect()
}

/// Writes records at a steady rate, and again what was not confirmed.
async fn load(case: &Case, records: &[LedgerRecord]) -> Result<()> {
    let size = (RATE * usize::try_from(TURN.as_millis())? / 1_000).max(1);
    let mut next = Instant::now();
    for records in records.chunks(size) {
        let since = Instant::now();
        while let Err(error) = case.produce(records).await {
            ensure!(since.elapsed() < AWAY, "the broker takes no records: {error:#}");
            sleep(TURN).await;
        }
        next += TURN;
        sleep_until(next).await;
    }
    Ok(())
}

/// Others come, and go again.
async fn guests(case: &Case, tally: &Tally, over: Instant, mut chance: Rng) -> Result<()> {
    for number in 1.. {
        if !goes_on(Duration::from_millis(chance.u64(3_000..9_000)), over).await {
            break;
        }
        let name = format!("guest-{number}");
        let guest = case.start(Arguments { lanes: 4, ..case.arguments(&name) }).await?;
        tally.landed_one("a member joins");
        sleep(Duration::from_millis(chance.u64(500..6_000))).await;
        let in_order = chance.bool();
        if in_order {
            guest.ask_to_end().await?;
        } else {
            guest.signal(ProcessSignal::SIGKILL);
        }
        let status = guest.ended().await?;
        ensure!(
            !in_order || status.success() || !guest.has_worked(),
            "{name} ended with {status} when it was asked to end"
        );
        tally.landed_one("a member goes");
    }
    Ok(())
}

/// The broker or the database is away for a while.
async fn services(case: &Case, tally: &Tally, over: Instant, mut chance: Rng) -> Result<()> {
    let services = case.services();
    while goes_on(Duration::from_millis(chance.u64(10_000..40_000)), over).await {
        let lasts = Duration::from_millis(chance.u64(500..8_000));
        match chance.u8(0..4) {
            0 => {
                services.with_kafka(|node| node.stop(Signal::SIGKILL).map(drop)).await?;
                case.fault("the broker is killed");
                sleep(lasts).await;
                services.with_kafka(|node| node.start()).await?;
                case.relief(BROKER_UP);
                tally.landed_one("the broker is killed");
            }
            1 | 2 => {
                services.signal_kafka(Signal::SIGSTOP).await?;
                case.fault("the broker is frozen");
                sleep(lasts).await;
                services.signal_kafka(Signal::SIGCONT).await?;
                case.relief("the broker goes on");
                tally.landed_one("the broker is frozen");
            }
            _ => {
                services.with_database(|server| server.stop(Signal::SIGQUIT).map(drop)).await?;
                case.fault("the database is ended");
                sleep(lasts).await;
                services.with_database(|server| server.start()).await?;
                case.relief("the database is up again");
                tally.landed_one("the database is ended");
            }
        }
    }
    Ok(())
}

/// Waits for the next fault. Returns whether there is one before it is over.
async fn goes_on(pause: Duration, over: Instant) -> bool {
    sleep_until(over.min(Instant::now() + pause)).await;
    Instant::now() < over
}
